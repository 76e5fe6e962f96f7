package scenarios

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/trace"
	"nicemu/scenarios/format"
)

// unevenTrace has 13 opportunities in 7 ms: 22.3 Mbit/s.
const unevenTrace = "1\n1\n2\n5\n5\n5\n5\n5\n5\n6\n7\n7\n7\n"

// traceFile writes a trace and returns its name for a file in TOML.
func traceFile(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "link.trace")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func traceLink(t testing.TB, text string) string {
	return fmt.Sprintf("delay = \"10us\"\ntrace = %q", traceFile(t, text))
}

// Two busy cards send in each round what its opportunities carry, to less than
// a packet: each direction has the trace to itself.
func TestEachRoundOfATraceCarriesItsOpportunities(t *testing.T) {
	const udp = "[[workload]]\nname = \"%s\"\nkind = \"iperf3\"\nproto = \"udp\"\nrate = \"1gbit\"\nlength = \"%db\"\nfrom = %q\nto = %q\n"
	s := parse(t, twoCards(traceLink(t, unevenTrace), "", fmt.Sprintf(udp, "there", 1000, "a", "b")+fmt.Sprintf(udp, "back", 1448, "b", "a")))
	traces, err := OpenTraces(s)
	if err != nil {
		t.Fatal(err)
	}
	m, err := newModel(s.Cases()[0].Scenario, traces)
	if err != nil {
		t.Fatal(err)
	}
	const period = 7 * engine.Millisecond
	var rounds [2][140]int64
	for i, c := range m.cards {
		c.stack.OnWire(func(f *nic.Frame, _ engine.Time) {
			// Half a millisecond later the opportunities of a millisecond are used.
			if n := (f.WireStart - engine.Millisecond/2) / period; int(n) < len(rounds[i]) {
				rounds[i][n] += int64(f.Len - etherHdr + trace.PacketOverhead)
			}
		})
	}
	if err := advance(t.Context(), m.eng, m.schedule()); err != nil {
		t.Fatal(err)
	}
	const want = 13 * trace.OpportunityBytes
	for i, c := range m.cards {
		for n, bytes := range rounds[i] {
			if n == 0 {
				continue // BQL has yet to learn its limit, and runs dry
			}
			if off := bytes - want; off <= -trace.OpportunityBytes || off >= trace.OpportunityBytes {
				t.Errorf("%s: round %d carried %d bytes, want %d", c.spec.ID(), n, bytes, want)
			}
		}
		if err := c.audit(); err != nil {
			t.Error(err)
		}
	}
}

func TestBulkFillsATrace(t *testing.T) {
	for _, text := range []string{"1\n", unevenTrace, strings.Repeat("10\n", 20)} {
		for _, flows := range []string{"", "flows = 8\n"} {
			r := simulate(t, twoCards(traceLink(t, text), "", bulkTCP+flows))
			tr, err := trace.Parse(strings.NewReader(text), "x")
			if err != nil {
				t.Fatal(err)
			}
			near(t, fmt.Sprintf("%q%s: goodput", text[:2], flows), *r.Cases[0].Workloads["bulk"].GoodputBPS, tr.Mean()*1448/1500, 0.04)
		}
	}
}

// A trace faster than the card leaves the card's own rate.
func TestATraceIsNoFasterThanTheCard(t *testing.T) {
	r := simulate(t, twoCards(traceLink(t, strings.Repeat("1\n", 200)), "", bulkTCP))
	near(t, "goodput", *r.Cases[0].Workloads["bulk"].GoodputBPS, 1e9*1448/1538, 0.015)
}

func TestASweepGoesOverTraces(t *testing.T) {
	one, two := traceFile(t, "1\n"), traceFile(t, "1\n1\n")
	r := simulate(t, twoCards(fmt.Sprintf("trace = %q", one), "", bulkTCP)+fmt.Sprintf("[sweep]\n\"link.trace\" = [%q, %q]\n", one, two))
	a, b := *r.Cases[0].Workloads["bulk"].GoodputBPS, *r.Cases[1].Workloads["bulk"].GoodputBPS
	near(t, "second of the first", b/a, 2, 0.02)
}

func TestATraceThatCannotBeReadIsAnError(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	link := func(file string) string { return twoCards(fmt.Sprintf("trace = %q", file), "", bulkTCP) }
	bad := traceFile(t, "1\n2\n\n")
	for _, x := range []struct{ text, want string }{
		{link(missing), "x.toml:24:1: trace: open " + missing + ": no such file or directory; expected a file in mahimahi's format"},
		{link(filepath.Dir(bad)), "x.toml:24:1: trace: "},
		{link(traceFile(t, "1\n")) + fmt.Sprintf("[sweep]\n\"link.trace\" = [%q]\n", missing), "x.toml:31:17: trace: open " + missing},
		{link(bad), bad + ":3: empty line, expected milliseconds as digits"},
	} {
		s := parse(t, x.text)
		_, err := Simulate(t.Context(), s, Options{})
		if err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%v, want %s", err, x.want)
		}
		var inFile format.Errors
		var inTrace *trace.SyntaxError
		if errors.As(err, &inFile) == errors.As(err, &inTrace) {
			t.Errorf("error is %T", err)
		}
	}
}

func TestWarningsOfTracesAreGivenOnce(t *testing.T) {
	file := traceFile(t, "20000\n")
	s := parse(t, twoCards(fmt.Sprintf("trace = %q", file), "", bulkTCP)+"[sweep]\n\"nic.bql\" = [false, true]\n")
	traces, err := OpenTraces(s)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(traces.Warnings())
	want := fmt.Sprintf("[%s:1: no opportunity for 20 s, from 0 ms to 20000 ms %s: mean rate 600 bit/s: are these milliseconds?]", file, file)
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
