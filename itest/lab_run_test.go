package itest

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"os"
	"strings"
	"testing"

	"nicemu/emulator"
	"nicemu/scenarios"
	"nicemu/scenarios/format"
)

// TestHelperLabJob is this test binary's part of runInLab, inside the guest.
func TestHelperLabJob(t *testing.T) {
	if flag.NArg() != 1 {
		t.Skip("runs in the lab kernel")
	}
	if _, err := scenarios.RunLabJob(t.Context(), flag.Arg(0), nil); err != nil {
		t.Fatal(err)
	}
}

// labJob is a scenario, by name or text, with assignments.
func labJob(t testing.TB, scenario string, set ...string) (*format.Scenario, scenarios.LabJob) {
	t.Helper()
	j := scenarios.LabJob{File: "test.toml", Text: scenario, Set: set, Way: emulator.Auto, Reason: "a test"}
	if !strings.Contains(scenario, "\n") {
		file, text, err := scenarios.Find(scenario, nil)
		if err != nil {
			t.Fatal(err)
		}
		j.File, j.Text = file, string(text)
	}
	s, err := format.Parse(j.File, []byte(j.Text), scenarios.FormatOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(set...); err != nil {
		t.Fatal(err)
	}
	return s, j
}

// labOptions run a job with this test binary as the program in the guest.
func labOptions(kernel string, said *bytes.Buffer) scenarios.LabOptions {
	return scenarios.LabOptions{
		Kernel: kernel,
		Argv:   func(dir string) []string { return []string{self(), "-test.run=^TestHelperLabJob$", dir} },
		Stderr: said,
	}
}

// self is this test binary.
func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err) // there is always /proc where these tests run
	}
	return path
}

// runScenarioInLab runs a scenario in the lab kernel.
func runScenarioInLab(t *testing.T, scenario string, set ...string) *scenarios.Result {
	t.Helper()
	kernel := guest(t).Kernel
	s, j := labJob(t, scenario, set...)
	var said bytes.Buffer
	r, err := scenarios.RunInLab(t.Context(), s, j, labOptions(kernel, &said))
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	if r.Kernel.Mode != "lab" || r.Clock != "virtual" || r.Kernel.Reason != "a test" {
		t.Errorf("kernel %+v, clock %s", r.Kernel, r.Clock)
	}
	if len(r.Laws.Violations) > 0 || r.Laws.Checked == 0 {
		t.Errorf("laws: %+v", r.Laws)
	}
	for _, c := range r.Cases {
		clean(t, c)
	}
	return r
}

// lineRate is the payload of full-sized TCP segments with timestamps at 1 Gbit/s.
const lineRate = 1e9 * 1448 / 1538

// Each full second after the first carries what the model's link does.
func atLineRate(t *testing.T, c *scenarios.Case) {
	t.Helper()
	w := c.Workloads["bulk"]
	if len(w.Intervals) < 2 {
		t.Fatalf("%v: intervals %v", c.Params, w.Intervals)
	}
	for i, bps := range w.Intervals[1:] {
		if off := bps/lineRate - 1; math.Abs(off) > 0.001 {
			t.Errorf("%v: second %d carried %.2f Mbit/s, off by %.3f %%", c.Params, i+2, bps/1e6, 100*off)
		}
	}
}

func TestIntegrationLabFqCodelHoldsThePacketsThatBQLLeavesToIt(t *testing.T) {
	r := runScenarioInLab(t, "fq-codel-latency", "duration=3s")
	off, on := r.Cases[0], r.Cases[1]
	atLineRate(t, off)
	atLineRate(t, on)
	with, without := on.Workloads["probe"].LatencyNS, off.Workloads["probe"].LatencyNS
	if with.P50 >= 2_000_000 || without.P50 < 4*with.P50 {
		t.Errorf("the probe's median is %d ns with BQL, %d ns without", with.P50, without.P50)
	}
}

func TestIntegrationLabFqCodelDropsOnlyWhatItSees(t *testing.T) {
	r := runScenarioInLab(t, "fq-codel-latency", "duration=3s", "workload.bulk.flows=16")
	off, on := r.Cases[0], r.Cases[1]
	if with, without := congestion(on), congestion(off); with < 20 || without > with/10 {
		t.Errorf("fq_codel dropped or marked %.0f packets with BQL, %.0f without", with, without)
	}
}

// congestion is what fq_codel of the client dropped and marked.
func congestion(c *scenarios.Case) (n float64) {
	for _, q := range c.Qdiscs {
		if q["kind"] == "fq_codel" && q["netns"] == "client" {
			for _, key := range []string{"drops", "ecn_mark"} {
				if v, ok := q[key].(float64); ok {
					n += v
				}
			}
		}
	}
	return n
}

// The published throughputs of the i210 in Qav mode, by its parameters alone.
func TestIntegrationLabIgbQavAgreesWithThePublishedThroughputs(t *testing.T) {
	r := runScenarioInLab(t, "igb-qav")
	n := 0
	for _, c := range r.Cases {
		for _, x := range c.Expectations {
			t.Logf("%s: %.4g, published %.4g", x.Name, x.Value, x.Expected)
			if !x.OK {
				t.Errorf("%s: %.4g, published %.4g", x.Name, x.Value, x.Expected)
			}
			n++
		}
	}
	if n != 6 || r.Verdict != scenarios.VerdictOK {
		t.Errorf("%d expectations, verdict %s", n, r.Verdict)
	}
}

func TestIntegrationLabRunIsTheSameEachTime(t *testing.T) {
	var documents [3]bytes.Buffer
	for i := range documents {
		r := runScenarioInLab(t, "fq-codel-latency", "duration=1s")
		r.WallS = 0 // the only one of its figures that is the host's
		if err := r.WriteJSON(&documents[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range documents[1:] {
		if !bytes.Equal(documents[0].Bytes(), documents[i+1].Bytes()) {
			t.Errorf("the first and the next run differ:\n%s\n%s", &documents[0], &documents[i+1])
		}
	}
}

func TestIntegrationLabTellsWhatWentWrongInside(t *testing.T) {
	kernel := guest(t).Kernel
	const refused = `
name = "refused"
duration = "1s"
[[netns]]
name = "a"
[[nic]]
name = "eth0"
netns = "a"
device = "generic"
tc = ["qdisc replace dev {dev} root fq_codel target nonsense"]
`
	s, j := labJob(t, refused)
	var said bytes.Buffer
	_, err := scenarios.RunInLab(t.Context(), s, j, labOptions(kernel, &said))
	var status scenarios.GuestStatus
	if !errors.As(err, &status) || status != 1 || !strings.Contains(said.String(), `Illegal "target"`) {
		t.Errorf("%v\n%s", err, &said)
	}
}

// An ordinary user who may neither make namespaces nor open /dev/net/tun runs
// scenarios in the lab.
func TestIntegrationLabRunsScenariosForAnOrdinaryUser(t *testing.T) {
	const test = "TestIntegrationLabRunsScenariosForAnOrdinaryUser"
	if os.Getenv(childEnv) == "" {
		out, err := childCommand(t, test, "run", guest(t).Kernel).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	s, j := labJob(t, "fq-codel-latency", "duration=1s", "nic.bql=true")
	if k, err := scenarios.ChooseKernel(s, format.KernelAuto, emulator.Auto); err != nil || os.Getuid() != 0 && k.Mode != "lab" {
		t.Errorf("chosen: %+v, %v", k, err)
	}
	var said bytes.Buffer
	r, err := scenarios.RunInLab(t.Context(), s, j, labOptions(childGuest(t).Kernel, &said))
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	if r.Verdict != scenarios.VerdictOK || r.Cases[0].Workloads["bulk"].GoodputBPS == nil {
		t.Errorf("verdict %s: %v", r.Verdict, r.Reasons)
	}
}
