package scenarios

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"nicemu/replay/report"
	"nicemu/scenarios/format"
	"nicemu/scenarios/workload"
)

const twoCases = `
name = "two"
duration = "1s"
[[netns]]
name = "a"
[[nic]]
name = "eth0.5"
netns = "a"
device = "generic"
[[workload]]
name = "w"
kind = "exec"
from = "a"
command = ["true"]
[sweep]
"nic.bql" = [false, true]
[[expect]]
name = "half"
metric = "nics.a/eth0.5.sent"
case = { "nic.bql" = true }
ratio_to = { "nic.bql" = false }
op = "<="
value = 0.5
tolerance = "10%"
[[expect]]
name = "none lost"
metric = "nics.a/eth0.5.dropped.oversize"
value = 0
`

// judged is the scenario with n frames sent without and with BQL.
func judged(t *testing.T, without, with uint64, set ...string) *Result {
	t.Helper()
	s, err := format.Parse("two.toml", []byte(twoCases), FormatOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(set...); err != nil {
		t.Fatal(err)
	}
	r := &Result{Verdict: VerdictOK}
	points := s.Cases()
	for i := range points {
		sent := without
		if points[i].Params[0].Value == true {
			sent = with
		}
		r.Cases = append(r.Cases, &Case{title: points[i].String(), NICs: map[string]*NIC{"a/eth0.5": {Sent: sent, Dropped: map[string]uint64{}}}})
	}
	if err := evaluate(s, points, r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestARatioIsJudgedWithItsTolerance(t *testing.T) {
	if r := judged(t, 1000, 549); r.Verdict != VerdictOK || !r.Holds() {
		t.Errorf("0.549 of at most 0.5 with 10%%: %s %q", r.Verdict, r.Reasons)
	}
	r := judged(t, 1000, 551)
	if r.Verdict != VerdictFailed || r.Holds() || len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0], "nic.bql=true: half: measured 0.551, expected <= 0.5") {
		t.Errorf("0.551 of at most 0.5 with 10%%: %s %q", r.Verdict, r.Reasons)
	}
}

func TestAClaimAboutACaseThatWasLeftOutIsNotJudged(t *testing.T) {
	r := judged(t, 1000, 900, "nic.bql=true")
	if r.Verdict != VerdictOK || len(r.Cases[0].Expectations) != 1 || r.Cases[0].Expectations[0].Name != "none lost" {
		t.Errorf("%s %+v", r.Verdict, r.Cases[0].Expectations)
	}
}

func TestAClaimIsJudgedOnTheKernelsThatItIsMadeFor(t *testing.T) {
	for _, mode := range []format.Kernel{format.KernelHost, format.KernelLab, format.KernelModel} {
		s, err := Load("bql-latency", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &Result{Verdict: VerdictOK, Kernel: report.Kernel{Mode: string(mode)}}
		points := s.Cases()
		for i := range points { // BQL cuts the latency to three tenths
			p50, goodput := []int64{1000, 300}[i], 1e9
			r.Cases = append(r.Cases, &Case{title: points[i].String(), NICs: map[string]*NIC{"client/eth0": {}}, Workloads: map[string]*workload.Result{
				"probe": {LatencyNS: &report.Latency{Percentiles: report.Percentiles{P50: p50}}}, "bulk": {GoodputBPS: &goodput},
			}})
		}
		if err := evaluate(s, points, r); err != nil {
			t.Fatal(err)
		}
		if enough := mode == format.KernelModel; (r.Verdict == VerdictOK) != enough || len(r.Cases[1].Expectations) != 3 {
			t.Errorf("%s: %s %q", mode, r.Verdict, r.Reasons)
		}
	}
}

func TestADegradedCaseProvesNothing(t *testing.T) {
	r := judged(t, 1000, 100)
	r.degrade(r.Cases[1], "too slow")
	if r.Verdict != VerdictDegraded || r.Holds() {
		t.Errorf("%s, holds %v", r.Verdict, r.Holds())
	}
}

func TestAFailureInADegradedCaseIsNoVerdict(t *testing.T) {
	s, err := format.Parse("two.toml", []byte(twoCases), FormatOptions())
	if err != nil {
		t.Fatal(err)
	}
	r := &Result{Verdict: VerdictOK}
	points := s.Cases()
	for range points {
		r.Cases = append(r.Cases, &Case{NICs: map[string]*NIC{"a/eth0.5": {Sent: 9, Dropped: map[string]uint64{}}}})
	}
	r.degrade(r.Cases[0], "too slow") // the case that the other is compared with
	if err := evaluate(s, points, r); err != nil {
		t.Fatal(err)
	}
	if r.Verdict != VerdictDegraded || len(r.Reasons) != 2 || !strings.Contains(r.Reasons[1], "not judged") {
		t.Errorf("%s %q", r.Verdict, r.Reasons)
	}
}

func TestAMetricThatIsNotThereIsAnError(t *testing.T) {
	c := &Case{NICs: map[string]*NIC{"a/eth0": {Queues: []report.Queue{{Limit: 7}}}}}
	if v, err := metric(c, "nics.a/eth0.queues.0.limit"); err != nil || v != 7 {
		t.Errorf("%v %v", v, err)
	}
	for _, path := range []string{"nics.b/eth0.sent", "nics.a/eth0.queues.1.limit", "nics.a/eth0", "nonsense"} {
		if v, err := metric(c, path); err == nil {
			t.Errorf("%s = %v", path, v)
		}
	}
}

// The document's keys are a contract: none may vanish or change its name.
func TestDocumentHasTheContractsKeys(t *testing.T) {
	goodput := 1.0
	r := &Result{Cases: []*Case{{
		Workloads:   map[string]*workload.Result{"w": {GoodputBPS: &goodput, LatencyNS: &report.Latency{}, Intervals: []float64{1}}},
		NICs:        map[string]*NIC{"a/eth0": {GateExcessBytes: &report.Percentiles{}, Queues: []report.Queue{{}}}},
		HostCeiling: &Ceiling{}, Expectations: []Expectation{{}},
	}}}
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"schema", "scenario", "seed", "verdict", "reasons", "kernel.mode", "kernel.release", "kernel.reason", "clock", "backpressure", "wall_s",
		"laws.checked", "laws.violations", "cases.0.params", "cases.0.virtual_s", "cases.0.workloads.w.kind", "cases.0.workloads.w.goodput_bps",
		"cases.0.workloads.w.latency_ns.count", "cases.0.workloads.w.latency_ns.p50", "cases.0.workloads.w.latency_ns.p999", "cases.0.workloads.w.intervals",
		"cases.0.nics.a/eth0.device", "cases.0.nics.a/eth0.offered", "cases.0.nics.a/eth0.offered_bytes", "cases.0.nics.a/eth0.sent", "cases.0.nics.a/eth0.dropped",
		"cases.0.nics.a/eth0.queued_bytes", "cases.0.nics.a/eth0.gate_excess_bytes.p99", "cases.0.nics.a/eth0.below_qdisc_dropped", "cases.0.nics.a/eth0.interrupts",
		"cases.0.nics.a/eth0.queues.0.limit", "cases.0.nics.a/eth0.queues.0.inflight_max", "cases.0.nics.a/eth0.queues.0.stack_xoff", "cases.0.nics.a/eth0.queues.0.drv_xoff",
		"cases.0.nics.a/eth0.queues.0.restart", "cases.0.nics.a/eth0.queues.0.ring_max", "cases.0.nics.a/eth0.counters", "cases.0.qdiscs",
		"cases.0.lateness_ns.p99", "cases.0.host_ceiling.frames_per_s", "cases.0.host_ceiling.bits_per_s",
		"cases.0.expectations.0.name", "cases.0.expectations.0.value", "cases.0.expectations.0.expected", "cases.0.expectations.0.unit",
		"cases.0.expectations.0.tolerance", "cases.0.expectations.0.error", "cases.0.expectations.0.source", "cases.0.expectations.0.ok",
	} {
		var at any = doc
		for rest := path; rest != ""; {
			value, next, ok := member(at, rest)
			if !ok {
				t.Errorf("no %s", path)
				break
			}
			at, rest = value, next
		}
	}
}
