package format

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pelletier/go-toml/v2"
	"pgregory.net/rapid"

	"nicemu/devices/units"
)

func read(t testing.TB, text string) *Scenario {
	t.Helper()
	s, err := Parse("test.toml", []byte(text), testOptions)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t testing.TB) *Scenario {
	t.Helper()
	s, err := Load("testdata/good.toml", testOptions)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAGoodFileMeansWhatItSays(t *testing.T) {
	want := &Scenario{
		Name: "bql-latency", Summary: "what BQL does to a probe behind bulk traffic", Seed: 7, Duration: 5 * units.Second,
		Run:   Run{Kernel: KernelHost, Backpressure: BackpressureGate},
		Netns: []Netns{{"a"}, {"b"}},
		NICs: []NIC{{
			Name: "eth0", Netns: "a", Device: "ixgbe", Queues: 4, MTU: 9000, TSO: false, Csum: true,
			Addr: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("fd00::1/64")},
			TC:   []string{"qdisc replace dev {dev} root pfifo_fast"},
			Set:  Knobs{"bql": true, "ring.tx": int64(1024), "coalesce.usecs": "64us"},
		}, {
			Name: "eth1", Netns: "b", Device: "generic", Queues: 1, MTU: 1500, TSO: true, Csum: true,
			Addr: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("fd00::2/64")},
		}},
		Links: []Link{{
			Ends: []string{"a/eth0", "b/eth1"}, Rate: units.Gbit, Delay: 10 * units.Microsecond, Loss: 100_000,
			Steps: []Step{{units.Second, 100 * units.Mbit}, {2 * units.Second, 500 * units.Mbit}},
		}},
		Workloads: []Workload{{
			Name: "bulk", Kind: KindIperf3, From: "a", To: "b", Flows: 4, Args: []string{"--congestion", "cubic"},
		}, {
			Name: "talk", Kind: KindIperf3, From: "a", To: "b/eth1", Proto: UDP, Rate: 10 * units.Mbit, Length: 1448, IPv6: true,
			Start: units.Second, Duration: 2 * units.Second, Port: 5201, Cport: 4000,
		}, {
			Name: "probe", Kind: KindRR, From: "a", To: "b", TOS: 0x10, Priority: 6,
			Request: 100, Response: units.KB, Interval: units.Millisecond, Warmup: 100 * units.Millisecond,
		}, {
			Name: "ping", Kind: KindPing, From: "b", To: "a", TOS: 0xb8, Interval: 200 * units.Millisecond, Length: 56,
		}, {
			Name: "show", Kind: KindExec, From: "b", Command: []string{"ip", "-s", "link"},
		}},
		Sweep: Sweep{
			{Key: "nic.bql", Values: []any{false, true}},
			{Key: "nic.eth0.ring.tx", Values: []any{int64(1024), int64(256)}},
			{Key: "link.rate", Values: []any{"1gbit"}},
		},
		Expect: []Expectation{{
			Name: "the probe's median falls", Metric: "workloads.probe.latency_ns.p50",
			Case: Selector{{"nic.bql", true}}, RatioTo: Selector{{"nic.bql", false}},
			Op: LessOrEqual, Value: Value{Number: 0.25}, Tolerance: 3_000_000, Source: "our own measurement",
		}, {
			Name: "bulk fills the wire", Metric: "workloads.bulk.goodput_bps",
			Op: GreaterOrEqual, Value: Value{Number: 900e6, Unit: BPS},
		}},
	}
	if diff := cmp.Diff(want, load(t), unexported, cmp.Comparer(samePrefix)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

var unexported = cmpopts.IgnoreUnexported(Scenario{}, Axis{}, Value{})

func samePrefix(a, b netip.Prefix) bool { return a == b }

// MarshalTOML writes a sweep as the table it was.
func (s Sweep) MarshalTOML() ([]byte, error) {
	var b strings.Builder
	for _, a := range s {
		list, err := toml.Marshal(map[string]any{"v": a.Values})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q%s", a.Key, strings.TrimPrefix(string(list), "v"))
	}
	return []byte(b.String()), nil
}

// MarshalTOML writes a selector as the table it was.
func (s Selector) MarshalTOML() ([]byte, error) {
	m := map[string]any{}
	for _, p := range s {
		m[p.Key] = p.Value
	}
	return toml.Marshal(m)
}

// MarshalTOML writes a value in its unit.
func (v Value) MarshalTOML() ([]byte, error) {
	if v.text != "" {
		return fmt.Appendf(nil, "%q", v.text), nil
	}
	return fmt.Appendf(nil, "%g", v.Number), nil
}

func TestAScenarioWrittenAndReadAgainIsTheSame(t *testing.T) {
	s := load(t)
	var b strings.Builder
	if err := toml.NewEncoder(&b).EnableMarshalerInterface().Encode(s); err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again.toml", []byte(b.String()), testOptions)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if diff := cmp.Diff(s, again, unexported, cmp.Comparer(samePrefix)); diff != "" {
		t.Errorf("(-first +again)\n%s\n%s", diff, b.String())
	}
}

const small = `
name = "t"
duration = "4s"
netns = [{name = "a"}, {name = "b"}]
nic = [
  {name = "eth0", netns = "a", device = "generic", addr = ["10.0.0.1/24"]},
  {name = "eth0", netns = "b", device = "generic", addr = ["10.0.0.2/24", "fd00::2/64"]},
]
link = [{ends = ["a/eth0", "b/eth0"], rate = "1gbit"}]
`

func TestDefaultsAreFilledInPerCase(t *testing.T) {
	s := read(t, small+`
workload = [
  {name = "one", kind = "iperf3", from = "a", to = "b"},
  {name = "two", kind = "iperf3", from = "a", to = "b", port = 5201},
  {name = "three", kind = "iperf3", from = "a", to = "b", start = "1s"},
  {name = "four", kind = "iperf3", from = "b", to = "a", duration = "2s"},
  {name = "rr", kind = "rr", from = "a", to = "b"},
  {name = "cold", kind = "rr", from = "a", to = "b", warmup = "0s"},
  {name = "ping", kind = "ping", from = "a", to = "b"},
]`)
	if s.Seed != 1 || s.Run != (Run{KernelAuto, BackpressureAuto}) {
		t.Errorf("seed %d, run %v", s.Seed, s.Run)
	}
	if err := s.Set("duration=6s"); err != nil {
		t.Fatal(err)
	}
	w := s.Cases()[0].Scenario.Workloads
	if w[0].Port != 5202 || w[1].Port != 5201 || w[2].Port != 5203 || w[3].Port != 5201 || w[4].Port != 0 {
		t.Errorf("ports %d %d %d %d %d", w[0].Port, w[1].Port, w[2].Port, w[3].Port, w[4].Port)
	}
	if w[0].Duration != 6*units.Second || w[2].Duration != 5*units.Second || w[3].Duration != 2*units.Second {
		t.Errorf("durations %v %v %v", w[0].Duration, w[2].Duration, w[3].Duration)
	}
	if w[0].Proto != TCP || w[0].Flows != 1 || w[4].Request != 1 || w[4].Response != 1 || w[6].Interval != units.Second {
		t.Errorf("%+v", w)
	}
	if w[4].Warmup != 600*units.Millisecond || w[5].Warmup != 0 {
		t.Errorf("warm-ups %v %v", w[4].Warmup, w[5].Warmup)
	}
	if s.Workloads[0].Port != 0 || s.Workloads[0].Duration != 0 {
		t.Error("making cases changed the scenario")
	}
}

func TestCasesAreTheProductOfTheSweepInFileOrder(t *testing.T) {
	s := read(t, small+`
[sweep]
"nic.queues" = [4, 1]
"link.rate" = ["1gbit", "100mbit", "10mbit"]
"nic.b/eth0.bql" = [true, false]
`)
	cases := s.Cases()
	var got []string
	for _, c := range cases {
		got = append(got, c.String())
		n, l := c.Scenario.NICs, c.Scenario.Links[0]
		if applied := fmt.Sprintf("nic.queues=%d link.rate=%v nic.b/eth0.bql=%v", n[0].Queues, l.Rate, n[1].Set["bql"]); applied != c.String() {
			t.Errorf("case %s has %s", c.String(), applied)
		}
		if n[0].Set != nil {
			t.Errorf("a knob of b/eth0 reached a/eth0: %v", n[0].Set)
		}
	}
	if len(got) != 12 || got[0] != "nic.queues=4 link.rate=1gbit nic.b/eth0.bql=true" ||
		got[1] != "nic.queues=4 link.rate=1gbit nic.b/eth0.bql=false" ||
		got[11] != "nic.queues=1 link.rate=10mbit nic.b/eth0.bql=false" {
		t.Errorf("%d cases: %s", len(got), strings.Join(got, "\n"))
	}
	if s.NICs[1].Set != nil || s.Links[0].Rate != units.Gbit {
		t.Error("making cases changed the scenario")
	}
}

func TestSetChangesWhatItNamesAndNothingElse(t *testing.T) {
	s := load(t)
	err := s.Set("seed=9", "run.backpressure=lossy", "nic.mtu=1400", "nic.b/eth1.ring.tx=128", "nic.eth0.coalesce.usecs=20us",
		"link.a/eth0.delay=1ms", `nic.tc=["qdisc replace dev {dev} root fq"]`, "workload.tos=ef", "workload.probe.interval=0s", "link.loss=0%")
	if err != nil {
		t.Fatal(err)
	}
	want := load(t)
	want.Seed, want.Run.Backpressure = 9, BackpressureLossy
	for i := range want.NICs {
		want.NICs[i].MTU = 1400
		want.NICs[i].TC = []string{"qdisc replace dev {dev} root fq"}
	}
	want.NICs[0].Set["coalesce.usecs"] = "20us"
	want.NICs[1].Set = Knobs{"ring.tx": int64(128)}
	want.Links[0].Delay, want.Links[0].Loss = units.Millisecond, 0
	for i := range want.Workloads[:4] {
		want.Workloads[i].TOS = 0xb8
	}
	want.Workloads[2].Interval = 0
	if diff := cmp.Diff(want, s, unexported, cmp.Comparer(samePrefix)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A file's trace is beside the file, a command line's where the command runs.
func TestTheNameOfATraceIsRelativeToWhoGivesIt(t *testing.T) {
	text := strings.Replace(small, `rate = "1gbit"`, `trace = "up"`, 1) + "[sweep]\n\"link.trace\" = [\"down\", \"../other\", \"/abs\"]\n"
	for _, x := range []struct {
		set  []string
		want []string
	}{
		{nil, []string{"some/dir/down", "some/other", "/abs"}},
		{[]string{"link.trace=mine"}, []string{"mine"}},
		{[]string{"link.trace=/mine"}, []string{"/mine"}},
	} {
		s, err := Parse("some/dir/x.toml", []byte(text), testOptions)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Set(x.set...); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range s.Cases() {
			got = append(got, c.Scenario.Links[0].Trace)
		}
		if diff := cmp.Diff(x.want, got); diff != "" {
			t.Errorf("%v (-want +got)\n%s", x.set, diff)
		}
	}
}

func TestSetEndsTheSweepOfItsKey(t *testing.T) {
	s := load(t)
	if err := s.Set("nic.bql=true"); err != nil {
		t.Fatal(err)
	}
	cases := s.Cases()
	if len(cases) != 2 || cases[0].String() != "nic.bql=true nic.eth0.ring.tx=1024 link.rate=1gbit" {
		t.Errorf("%d cases, the first %s", len(cases), cases[0].String())
	}
}

func TestSetOutlastsASweepOfAWiderKey(t *testing.T) {
	s := load(t)
	if err := s.Set("nic.b/eth1.bql=false"); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cases() {
		if got := c.Scenario.NICs[1].Set["bql"]; got != false {
			t.Errorf("case %s: %v", c.String(), got)
		}
	}
}

func TestAFailedSetChangesNothing(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"nic.mtu=3", "--set nic.mtu: mtu is 3; expected 68 to 65521"},
		{"nic.mtu=big", "--set nic.mtu: mtu: text; expected an integer"},
		{"nic.bql", "--set nic.bql: no value; expected KEY=VALUE"},
		{"nic.bqll=true", `--set nic.bqll: device ixgbe: unknown knob "bqll"; expected one of bql, coalesce.usecs, ring.tx`},
		{"nic.set.bql=true", `--set nic.set.bql: knobs are set without the word set; expected nic.KEY; did you mean "nic.bql"?`},
		{"nic.a/eth9.bql=true", `--set nic.a/eth9.bql: there is no NIC "a/eth9"; expected one of a/eth0, b/eth1; did you mean "a/eth0"?`},
		{"nic.eth9.ring.tx=64", `--set nic.eth9.ring.tx: there is no NIC "eth9"; expected one of a/eth0, b/eth1`},
		{"nic.eth9.mtu=1400", `--set nic.eth9.mtu: there is no NIC "eth9"; expected one of a/eth0, b/eth1`},
		{"nic.ring.rx=64", `--set nic.ring.rx: device ixgbe: unknown knob "ring.rx"; expected one of bql, coalesce.usecs, ring.tx`},
		{"nic.=1", "--set nic.: no key after nic; expected " + settable},
		{"nic.bql=maybe", "--set nic.bql: device ixgbe: bql is maybe; expected true or false"},
		{"link.rate=100", `--set link.rate: rate: "100": no unit; expected a number and a unit, e.g. 1gbit`},
		{"link.a/eth9.rate=1gbit", `--set link.a/eth9.rate: no link ends at "a/eth9"; expected one of a/eth0, b/eth1; did you mean "a/eth0"?`},
		{"workload.bulc.rate=1gbit", `--set workload.bulc.rate: there is no workload "bulc"; expected one of bulk, talk, probe, ping, show; did you mean "bulk"?`},
		{"link.trace=up", "--set link.trace: trace and rate are both given; expected one of them"},
		{"duration=5", `--set duration: duration: "5": no unit; expected a number and a unit, e.g. 64us`},
		{"duraton=5s", `--set duraton: unknown key "duraton"; expected ` + settable + `; did you mean "duration"?`},
		{"run.kernel=hots", `--set run.kernel: kernel: unknown value "hots"; expected one of auto, host, lab, model; did you mean "host"?`},
		{"workload.bulk.flow=3", `--set workload.bulk.flow: workload has no key "flow" that can be set; expected one of start, duration, ipv6, tos, port, cport, args, proto, flows, rate, length, request, response, interval, warmup, priority; did you mean "flows"?`},
		{"workload.probe.flows=3", "--set workload.probe.flows: a workload of kind rr has no key flows; expected one of name, kind, from, start, duration, to, request, response, interval, warmup, ipv6, tos, priority, port"},
	} {
		s := load(t)
		err := s.Set("seed=99", c.set)
		if err == nil {
			t.Errorf("%s: no error", c.set)
			continue
		}
		if first, _, _ := strings.Cut(err.Error(), "\n"); first != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.set, first, c.want)
		}
		if diff := cmp.Diff(load(t), s, unexported, cmp.Comparer(samePrefix)); diff != "" {
			t.Errorf("%s changed the scenario:\n%s", c.set, diff)
		}
	}
}

func TestFaultsOfAnAssignedArrayLieInTheAssignment(t *testing.T) {
	s := read(t, strings.Replace(small, `device = "generic",`, `device = "generic", tc = ["qdisc show"],`, 1))
	if got := s.Fault("nic[0].tc[0]", "p", "").Error(); strings.HasPrefix(got, "--set") {
		t.Errorf("before: %s", got)
	}
	if err := s.Set(`nic.tc=["qdisc replace dev {dev} root fq"]`); err != nil {
		t.Fatal(err)
	}
	if got, want := s.Fault("nic[0].tc[0]", "p", "").Error(), "--set nic.tc: p"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOnlyProgramsNeedWholeSeconds(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"duration=2s", ""},
		{"duration=200ms", "--set duration: workload bulk would last 200ms; expected whole seconds, as iperf3 counts, or --kernel model"},
		{"workload.bulk.duration=1500ms", "--set workload.bulk.duration: workload bulk would last 1500ms; expected whole seconds, as iperf3 counts, or --kernel model"},
		{"workload.probe.duration=1500ms", ""},
	} {
		s := load(t)
		if err := s.Set("workload.start=0s", "workload.probe.warmup=1ms", c.set); err != nil {
			t.Errorf("%s: models can do that: %v", c.set, err)
			continue
		}
		got := ""
		if err := s.CheckPrograms(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.set, got, c.want)
		}
	}
}

func TestAssignmentsAreJudgedTogether(t *testing.T) {
	s := read(t, small)
	if s.Set("nic.csum=false") == nil {
		t.Error("no checksums but segmentation")
	}
	if err := s.Set("nic.csum=false", "nic.tso=false"); err != nil {
		t.Error(err)
	}
}

func TestTheTargetIsAtTheOtherEndOfTheLink(t *testing.T) {
	s := read(t, strings.Replace(small, "nic = [", `nic = [
  {name = "mgmt", netns = "b", device = "generic", addr = ["192.168.0.2/24"]},`, 1)+`
workload = [
  {name = "v4", kind = "rr", from = "a", to = "b"},
  {name = "v6", kind = "rr", from = "a", to = "b", ipv6 = true},
  {name = "mgmt", kind = "rr", from = "a", to = "b/mgmt"},
]`)
	for i, want := range []string{"10.0.0.2", "fd00::2", "192.168.0.2"} {
		if got := s.Target(&s.Workloads[i]).String(); got != want {
			t.Errorf("%s goes to %s, want %s", s.Workloads[i].Name, got, want)
		}
	}
}

func TestTCLinesAreSplitAsAShellWould(t *testing.T) {
	n := NIC{Name: "eth0", TC: []string{"qdisc replace  dev {dev} root handle 1: mq", "qdisc add dev {dev} parent 1:1 fq"}}
	want := [][]string{
		{"qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "mq"},
		{"qdisc", "add", "dev", "eth0", "parent", "1:1", "fq"},
	}
	if diff := cmp.Diff(want, n.TCCommands()); diff != "" {
		t.Error(diff)
	}
}

func TestToleranceIsInFavourOfTheClaim(t *testing.T) {
	for _, c := range []struct {
		op       Op
		measured float64
		holds    bool
	}{
		{Equal, 103, true}, {Equal, 97, true}, {Equal, 103.1, false}, {Equal, 96.9, false},
		{LessOrEqual, 103, true}, {LessOrEqual, 103.1, false}, {LessOrEqual, 0, true},
		{Less, 102.9, true}, {Less, 103, false},
		{GreaterOrEqual, 97, true}, {GreaterOrEqual, 96.9, false}, {GreaterOrEqual, 1e9, true},
		{Greater, 97.1, true}, {Greater, 97, false},
	} {
		e := Expectation{Op: c.op, Value: Value{Number: 100}, Tolerance: 3_000_000}
		if e.Holds(c.measured) != c.holds {
			t.Errorf("%v %s 100 within 3%%: %v", c.measured, c.op, !c.holds)
		}
	}
	nan := 0.0
	nan /= nan
	for _, op := range Op("").choices() {
		if (&Expectation{Op: Op(op)}).Holds(nan) {
			t.Errorf("not-a-number %s 0 holds", op)
		}
	}
}

func TestTheReferenceDiffersOnlyInRatioTo(t *testing.T) {
	s := load(t)
	cases := s.Cases()
	e := &s.Expect[0]
	for i := range cases {
		c := &cases[i]
		if !e.Case.Matches(c) {
			continue
		}
		ref := e.Reference(c, cases)
		if ref == nil || ref.String() != strings.Replace(c.String(), "bql=true", "bql=false", 1) {
			t.Errorf("case %s is compared with %v", c.String(), ref)
		}
	}
	if err := s.Set("nic.bql=true"); err != nil {
		t.Fatal(err)
	}
	cases = s.Cases()
	if ref := e.Reference(&cases[0], cases); ref != nil {
		t.Errorf("the case %s is not run", ref.String())
	}
}

func TestLoadTellsWhatIsWrongWithTheFileItself(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.toml"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	path := filepath.Join(t.TempDir(), "large.toml")
	if err := os.WriteFile(path, []byte(strings.Repeat("#\n", MaxBytes)), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, Options{})
	if want := path + ":1:1: the file is too large for a scenario; expected at most 65536 bytes"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestWordsThatAreCloseAreSuggested(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"quues", "queues"}, {"queue", "queues"}, {"QUEUES", "queues"}, {"mut", "mtu"}, {"queues", ""}, {"colour", ""}, {"x", ""}, {"", ""},
		{strings.Repeat("q", 1e6), ""},
	} {
		if got := nearest(c.word, []string{"mtu", "queues", "device"}); got != c.want {
			t.Errorf("%.20s: %q, want %q", c.word, got, c.want)
		}
	}
}

func TestEditDistanceIsAMetric(t *testing.T) {
	word := rapid.StringMatching(`[abc]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := editDistance(a, b)
		if d != editDistance(b, a) {
			t.Fatalf("%q %q: not symmetric", a, b)
		}
		if (d == 0) != (a == b) || d > max(len(a), len(b)) || d < max(len(a), len(b))-min(len(a), len(b)) {
			t.Fatalf("%q %q: %d", a, b, d)
		}
	})
}
