package itest

import (
	"fmt"
	"strings"
	"testing"

	"nicemu/emulator"
	"nicemu/emulator/netns"
	"nicemu/scenarios"
	"nicemu/scenarios/format"
)

// pair is the topology of these tests:
//
//	netns a                       netns b
//	program -> qdisc -> eth0 ==== eth0 -> program
const pair = `
name = "test"
duration = "%s"

[[netns]]
name = "a"

[[netns]]
name = "b"

[[nic]]
name = "eth0"
netns = "a"
device = "generic"
addr = ["10.78.0.1/24", "fd78::1/64"]

[[nic]]
name = "eth0"
netns = "b"
device = "generic"
addr = ["10.78.0.2/24", "fd78::2/64"]

[[link]]
ends = ["a/eth0", "b/eth0"]
rate = "1gbit"
delay = "10us"
`

// runScenario runs a scenario text with assignments in the host's kernel.
func runScenario(t *testing.T, text string, set ...string) *scenarios.Result {
	t.Helper()
	return runFile(t, "test.toml", text, set...)
}

// runFile is runScenario of a text that stands in a file of that name.
func runFile(t *testing.T, name, text string, set ...string) *scenarios.Result {
	t.Helper()
	needRoot(t)
	s, err := format.Parse(name, []byte(text), scenarios.FormatOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(set...); err != nil {
		t.Fatal(err)
	}
	r, err := scenarios.Run(t.Context(), s, scenarios.Options{Way: emulator.Auto})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Laws.Violations) > 0 || r.Laws.Checked == 0 {
		t.Errorf("laws: %+v", r.Laws)
	}
	return r
}

func needRoot(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the kernel and takes seconds")
	}
	if err := netns.CheckPrivilege(); err != nil {
		t.Skip(err)
	}
}

// clean fails the test unless a case lost nothing on its way.
func clean(t *testing.T, c *scenarios.Case) {
	t.Helper()
	for id, n := range c.NICs {
		if len(n.Dropped) > 0 || n.BelowQdiscDropped > 0 || n.GateRescues > 0 {
			t.Errorf("%s: dropped %v, below the qdisc %d, gate rescues %d", id, n.Dropped, n.BelowQdiscDropped, n.GateRescues)
		}
	}
}

// iperf3 runs clean through every combination of offload, address family,
// protocol, MTU and number of queues.
func TestIntegrationEveryCombinationCarriesTraffic(t *testing.T) {
	for _, tso := range []bool{true, false} {
		for _, ipv6 := range []bool{false, true} {
			for _, proto := range []string{"tcp", "udp"} {
				for _, mtu := range []int{1500, 9000} {
					for _, queues := range []int{1, 4} {
						name := fmt.Sprintf("tso=%v,ipv6=%v,%s,mtu=%d,queues=%d", tso, ipv6, proto, mtu, queues)
						t.Run(name, func(t *testing.T) {
							text := fmt.Sprintf(pair, "1s") + fmt.Sprintf(`
[[workload]]
name = "bulk"
kind = "iperf3"
from = "a"
to = "b"
flows = 2
ipv6 = %v
proto = %q
`, ipv6, proto)
							if proto == "udp" {
								text += "rate = \"100mbit\"\n"
							}
							r := runScenario(t, text, fmt.Sprintf("nic.tso=%v", tso), fmt.Sprintf("nic.mtu=%d", mtu), fmt.Sprintf("nic.queues=%d", queues))
							c := r.Cases[0]
							clean(t, c)
							w := c.Workloads["bulk"]
							least := 500e6 // of 1 Gbit/s, on a machine that does other things too
							if proto == "udp" {
								least = 150e6
							}
							if w.Error != "" || w.GoodputBPS == nil || *w.GoodputBPS < least {
								t.Errorf("goodput %v, error %q", value(w.GoodputBPS), w.Error)
							}
							// A receiver that gets no core loses datagrams in its socket; ours is
							// what happens from qdisc to stack.
							a, b := c.NICs["a/eth0"], c.NICs["b/eth0"]
							if a.Sent-b.Received > 8 || b.Sent-a.Received > 8 {
								t.Errorf("a sent %d, b received %d; b sent %d, a received %d", a.Sent, b.Received, b.Sent, a.Received)
							}
						})
					}
				}
			}
		}
	}
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

// With BQL, what is below the qdisc stays within the limit and one largest
// frame; what waits, waits in the qdisc; nothing is lost in between.
func TestIntegrationBytesInFlightStayWithinTheLimit(t *testing.T) {
	for _, traffic := range []struct{ name, keys string }{
		{"udp 100", `proto = "udp"
length = "100b"
rate = "1gbit"`},
		{"udp 1448", `proto = "udp"
length = "1448b"
rate = "1.2gbit"`},
		{"tcp", `flows = 4`},
	} {
		for _, tso := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,tso=%v", traffic.name, tso), func(t *testing.T) {
				text := fmt.Sprintf(pair, "2s") + `
[[workload]]
name = "bulk"
kind = "iperf3"
from = "a"
to = "b"
` + traffic.keys + "\n"
				r := runScenario(t, text, fmt.Sprintf("nic.tso=%v", tso))
				if r.Backpressure != string(emulator.Gate) {
					t.Skipf("back-pressure is %s here", r.Backpressure)
				}
				n := r.Cases[0].NICs["a/eth0"]
				if e := n.GateExcessBytes; e == nil || e.Count < 1000 || e.P99 != 0 {
					t.Errorf("excess %+v, want p99 0", e)
				}
				if n.BelowQdiscDropped != 0 || n.GateRescues != 0 {
					t.Errorf("dropped below the qdisc %d, rescues %d", n.BelowQdiscDropped, n.GateRescues)
				}
				t.Logf("excess %+v, limit %d, in flight at most %d", n.GateExcessBytes, n.Queues[0].Limit, n.Queues[0].InflightMax)
			})
		}
	}
}

// The link's rate changes every second; TCP fills what there is, the qdisc holds
// the rest, and nothing is lost below it.
func TestIntegrationQdiscFollowsTheRateOfTheLink(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(pair, "6s"), `rate = "1gbit"`, `rate = "1gbit"
steps = [
  { at = "1s", rate = "100mbit" }, { at = "2s", rate = "500mbit" },
  { at = "3s", rate = "1gbit" }, { at = "4s", rate = "100mbit" }, { at = "5s", rate = "500mbit" },
]`, 1) + `
[[workload]]
name = "bulk"
kind = "iperf3"
from = "a"
to = "b"
flows = 4
`
	r := runScenario(t, text)
	c := r.Cases[0]
	n := c.NICs["a/eth0"]
	if n.BelowQdiscDropped != 0 || n.GateRescues != 0 {
		t.Errorf("dropped below the qdisc %d, rescues %d", n.BelowQdiscDropped, n.GateRescues)
	}
	if c.Backlog("a/eth0") < 10_000 {
		t.Errorf("the qdisc held %.0f bytes in the mean", c.Backlog("a/eth0"))
	}
	got := c.Workloads["bulk"].Intervals
	want := []float64{1000e6, 100e6, 500e6, 1000e6, 100e6, 500e6}
	if len(got) < len(want) {
		t.Fatalf("%d intervals", len(got))
	}
	for i, w := range want {
		// iperf3's seconds are not exactly the trace's, and TCP needs a moment.
		if got[i] < 0.6*w || got[i] > 1.25*w {
			t.Errorf("second %d: %.0f Mbit/s received at a rate of %.0f Mbit/s", i, got[i]/1e6, w/1e6)
		}
	}
	t.Logf("received %.0f bit/s, mean backlog %.0f bytes", got, c.Backlog("a/eth0"))
}

// The first experiment holds what it claims on this host.
func TestIntegrationBQLLatency(t *testing.T) {
	needRoot(t)
	s, err := scenarios.Load("bql-latency", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := scenarios.Run(t.Context(), s, scenarios.Options{Way: emulator.Auto})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	r.WriteTable(&table)
	t.Log(table.String())
	if r.Verdict == scenarios.VerdictFailed {
		t.Errorf("failed: %v", r.Reasons)
	}
	for _, c := range r.Cases {
		clean(t, c)
	}
	off, on := r.Cases[0], r.Cases[1]
	if off.Backlog("client/eth0") > on.Backlog("client/eth0")/4 {
		t.Errorf("qdisc backlog: %v bytes without BQL, %v with", off.Backlog("client/eth0"), on.Backlog("client/eth0"))
	}
	if e := on.NICs["client/eth0"].GateExcessBytes; r.Backpressure == string(emulator.Gate) && e.P99 != 0 {
		t.Errorf("gate excess %+v", e)
	}
}

// A model that is faster than the host is said to be so, and by how much.
func TestIntegrationTooFastAModelIsDegraded(t *testing.T) {
	r := runScenario(t, strings.Replace(fmt.Sprintf(pair, "1s"), `"1gbit"`, `"400gbit"`, 1)+`
[[workload]]
name = "bulk"
kind = "iperf3"
from = "a"
to = "b"
`)
	if r.Verdict != scenarios.VerdictDegraded || !strings.Contains(strings.Join(r.Reasons, " "), "times too fast") {
		t.Errorf("verdict %s, reasons %q", r.Verdict, r.Reasons)
	}
}
