package scenarios

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"nicemu/devices"
	"nicemu/scenarios/format"
)

func parse(t testing.TB, text string) *format.Scenario {
	t.Helper()
	s, err := format.Parse("x.toml", []byte(text), FormatOptions())
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

func simulate(t testing.TB, text string) *Result {
	t.Helper()
	r, err := Simulate(t.Context(), parse(t, text), Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

// twoCards is a scenario of two linked cards a/eth0 and b/eth0 without
// moderation; what varies is put in place of the marks.
func twoCards(link, nic, rest string) string {
	return `name = "x"
duration = "1s"
[run]
kernel = "model"
[[netns]]
name = "a"
[[netns]]
name = "b"
[[nic]]
name = "eth0"
netns = "a"
device = "generic"
addr = ["10.0.0.1/24", "fd00::1/64"]
set = { "coalesce.rx_usecs" = 0 }
` + nic + `
[[nic]]
name = "eth0"
netns = "b"
device = "generic"
addr = ["10.0.0.2/24", "fd00::2/64"]
set = { "coalesce.rx_usecs" = 0 }
[[link]]
ends = ["a/eth0", "b/eth0"]
` + link + "\n" + rest
}

const (
	plainLink = "rate = \"1gbit\"\ndelay = \"10us\""
	bulkTCP   = "[[workload]]\nname = \"bulk\"\nkind = \"iperf3\"\nfrom = \"a\"\nto = \"b\"\n"
	probe     = "[[workload]]\nname = \"probe\"\nkind = \"rr\"\nfrom = \"a\"\nto = \"b\"\n"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got/want-1) > tolerance {
		t.Errorf("%s: %g, want %g", what, got, want)
	}
}

// An echo request of 98 bytes takes 106 of the medium at 8 ns until its last
// byte has been read, and 10 us; so does the reply.
func TestAPingTakesTheWayThereAndBack(t *testing.T) {
	r := simulate(t, twoCards(plainLink, "", "[[workload]]\nname = \"p\"\nkind = \"ping\"\nfrom = \"a\"\nto = \"b\"\ninterval = \"10ms\"\n"))
	p := r.Cases[0].Workloads["p"]
	if p.LatencyNS.Count != 100 || *p.Lost != 0 {
		t.Errorf("%d replies, %d lost", p.LatencyNS.Count, *p.Lost)
	}
	// The frame arrives a delay after its FCS: 4 bytes later.
	near(t, "round trip", float64(p.LatencyNS.P50), 2*(110*8+10_000), 0.001)
	near(t, "longest", float64(p.LatencyNS.Max), 2*(110*8+10_000), 0.001)
}

// One byte of payload makes 67: 79 with preamble and FCS. The server answers
// after an exponential time whose median is ln 2 of 10 us.
func TestATransactionIsBothWaysAndTheServer(t *testing.T) {
	r := simulate(t, twoCards(plainLink, "", probe))
	l := r.Cases[0].Workloads["probe"].LatencyNS
	near(t, "median", float64(l.P50), 2*(79*8+10_000)+10_000*math.Ln2, 0.01)
	near(t, "99th percentile", float64(l.P99), 2*(79*8+10_000)+10_000*math.Log(100), 0.05)
	if l.Count < 20_000 {
		t.Errorf("%d transactions in 0.9 s", l.Count)
	}
}

func TestBulkFillsTheLinkWhateverTheFamily(t *testing.T) {
	for _, x := range []struct {
		keys, nic     string
		mss, wireSize float64
	}{
		{"", "", 1448, 1538},
		{"ipv6 = true\n", "", 1428, 1538},
		{"", "tso = false\n", 1448, 1538},
		{"flows = 8\n", "queues = 4\n", 1448, 1538},
		{"proto = \"udp\"\nrate = \"2gbit\"\n", "", 1448, 1514},
		{"proto = \"udp\"\nrate = \"2gbit\"\nlength = \"1000b\"\n", "", 1000, 1066},
		{"proto = \"udp\"\nrate = \"100mbit\"\nflows = 3\n", "", 300, 1000},
		{"rate = \"50mbit\"\nflows = 4\n", "", 200, 1000},
	} {
		r := simulate(t, twoCards(plainLink, x.nic, bulkTCP+x.keys))
		w := r.Cases[0].Workloads["bulk"]
		near(t, x.keys+x.nic+"goodput", *w.GoodputBPS, 1e9*x.mss/x.wireSize, 0.015)
		if len(w.Intervals) != 1 || w.Intervals[0] != *w.GoodputBPS {
			t.Errorf("%s: intervals %v of goodput %v", x.keys, w.Intervals, *w.GoodputBPS)
		}
		for _, lost := range []*int64{w.Lost, w.Retransmits} {
			if lost != nil && *lost != 0 {
				t.Errorf("%s: %d lost", x.keys, *lost)
			}
		}
		if len(r.Laws.Violations) != 0 || r.Laws.Checked != 2 {
			t.Errorf("%s: %+v", x.keys, r.Laws)
		}
	}
}

func TestRateFollowsTheSteps(t *testing.T) {
	text := twoCards("rate = \"100mbit\"\nsteps = [{at = \"1s\", rate = \"50mbit\"}, {at = \"2s\", rate = \"400mbit\"}]", "", bulkTCP)
	w := simulate(t, strings.Replace(text, `"1s"`, `"3s"`, 1)).Cases[0].Workloads["bulk"]
	for i, rate := range []float64{100e6, 50e6, 400e6} {
		near(t, fmt.Sprintf("second %d", i), w.Intervals[i], rate*1448/1538, 0.02)
	}
}

func TestLossIsCounted(t *testing.T) {
	r := simulate(t, twoCards(plainLink+"\nloss = \"10%\"", "", bulkTCP+"proto = \"udp\"\nrate = \"100mbit\"\n"))
	c := r.Cases[0]
	w, n, peer := c.Workloads["bulk"], c.NICs["a/eth0"], c.NICs["b/eth0"]
	near(t, "lost", float64(*w.Lost), 0.1*100e6/8/1448, 0.05)
	if uint64(*w.Lost) != n.Dropped["link_loss"] || n.Sent != peer.Received+n.Dropped["link_loss"] {
		t.Errorf("%d lost; sent %d, received %d, link loss %d", *w.Lost, n.Sent, peer.Received, n.Dropped["link_loss"])
	}
}

// pfifo_fast's first band overtakes what waits in the others, as far as it
// waits in the qdisc: with BQL that is most of it.
func TestThePriorityOfTheProbeCounts(t *testing.T) {
	p50 := func(keys string) int64 {
		return simulate(t, twoCards(plainLink, "", bulkTCP+"flows = 4\n"+probe+keys)).Cases[0].Workloads["probe"].LatencyNS.P50
	}
	bulk, interactive, priority := p50(""), p50("tos = \"interactive\"\n"), p50("ipv6 = true\npriority = 6\n")
	if interactive > bulk*2/3 || priority > bulk*2/3 {
		t.Errorf("behind bulk %d ns, tos interactive %d, priority 6 %d", bulk, interactive, priority)
	}
	if v6 := p50("ipv6 = true\ntos = \"interactive\"\n"); v6 < bulk*9/10 {
		t.Errorf("IPv6 derives no priority from the traffic class, but the probe took %d ns of %d", v6, bulk)
	}
}

func TestEveryQueueHasTheQdiscOfItsLine(t *testing.T) {
	nic := `queues = 3
tc = ["qdisc replace dev {dev} root handle 1: mq", "qdisc replace dev {dev} parent 1:1 fq_codel limit 5", "qdisc add dev {dev} parent 1:3 pfifo limit 9", "qdisc del dev {dev} parent 1:1"]
`
	c := simulate(t, twoCards(plainLink, nic, bulkTCP+"flows = 12\n")).Cases[0]
	var kinds []string
	for _, q := range c.Qdiscs {
		kinds = append(kinds, fmt.Sprint(q["netns"], q["queue"], q["kind"]))
	}
	if got := strings.Join(kinds, " "); got != "a0pfifo_fast a1pfifo_fast a2pfifo b0pfifo_fast" {
		t.Errorf("%s", got)
	}
	if s := c.qdiscSum("a/eth0", "packets"); s < 1000 {
		t.Errorf("%v packets through the qdiscs", s)
	}
}

func TestTheSameScenarioGivesTheSameBytes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var first []byte
	for _, cores := range []int{1, 2, 8} {
		runtime.GOMAXPROCS(cores)
		s, err := Load("mana-bql", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Set("duration=3s"); err != nil {
			t.Fatal(err)
		}
		r, err := Simulate(t.Context(), s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b.Bytes()
		} else if !bytes.Equal(first, b.Bytes()) {
			t.Errorf("another document on %d cores", cores)
		}
		if err := s.Set("seed=2"); err != nil {
			t.Fatal(err)
		}
		if other, err := Simulate(t.Context(), s, Options{}); err != nil {
			t.Fatal(err)
		} else if *other.Cases[1].Workloads["probe"].LatencyNS == *r.Cases[1].Workloads["probe"].LatencyNS {
			t.Error("the seed makes no difference")
		}
	}
}

func TestManaBQLIsAsPublished(t *testing.T) {
	s, err := Load("mana-bql", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != VerdictOK || r.Kernel.Mode != "model" || r.Clock != "virtual" || r.Backpressure != "none" || r.WallS != 0 {
		t.Errorf("%+v", r)
	}
	if n := len(r.Cases[0].Expectations) + len(r.Cases[1].Expectations); n != 6 {
		t.Errorf("%d expectations judged", n)
	}
}

// Whatever cards, qdiscs, links and workloads there are: at every step of the
// first milliseconds, and at the end, no frame is missing and no queue stands
// still for nothing.
func TestModelsKeepTheLawsWhateverTheScenario(t *testing.T) {
	runs := 60
	if testing.Short() {
		runs = 15
	}
	follow := traceFile(t, unevenTrace)
	for seed := range uint64(runs) {
		text := randomScenario(rand.New(rand.NewPCG(seed, 1)), seed, follow)
		s := parse(t, text)
		traces, err := OpenTraces(s)
		if err != nil {
			t.Fatal(err)
		}
		points := s.Cases()
		m, err := newModel(points[0].Scenario, traces)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		end := m.schedule()
		for steps := 0; m.eng.Next() < end && steps < 20_000; steps++ {
			m.eng.Step()
			if steps > 3000 && steps%100 != 0 {
				continue
			}
			for _, c := range m.cards {
				if err := c.audit(); err != nil {
					t.Fatalf("seed %d at %d ns: %s: %v\n%s", seed, m.eng.Now(), c.spec.ID(), err, text)
				}
			}
		}
		if err := advance(t.Context(), m.eng, end); err != nil {
			t.Fatal(err)
		}
		for _, c := range m.cards {
			if err := c.audit(); err != nil {
				t.Fatalf("seed %d: %s: %v\n%s", seed, c.spec.ID(), err, text)
			}
		}
		sent := m.cards[0].stack.NIC.Stats().Sent.Frames + m.cards[1].stack.NIC.Stats().Sent.Frames
		if sent == 0 {
			t.Errorf("seed %d: nothing was sent\n%s", seed, text)
		}
	}
}

func randomScenario(r *rand.Rand, seed uint64, trace string) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var b strings.Builder
	fmt.Fprintf(&b, "name = \"x\"\nseed = %d\nduration = \"1s\"\n[run]\nkernel = \"model\"\n[[netns]]\nname = \"a\"\n[[netns]]\nname = \"b\"\n", seed)
	for i, ns := range []string{"a", "b"} {
		device := pick(devices.Names()...)
		queues := 1 + r.IntN(4)
		fmt.Fprintf(&b, "[[nic]]\nname = \"eth0\"\nnetns = %q\ndevice = %q\nqueues = %d\nmtu = %s\ntso = %s\naddr = [\"10.0.0.%d/24\", \"fd00::%d/64\"]\n",
			ns, device, queues, pick("1500", "1500", "1280"), pick("true", "true", "false"), i+1, i+1)
		kind := pick("pfifo_fast", "pfifo limit 3", "bfifo limit 20kb", "fq_codel", "fq_codel limit 30 target 1ms interval 10ms")
		if queues == 1 {
			fmt.Fprintf(&b, "tc = [\"qdisc replace dev {dev} root %s\"]\n", kind)
		} else {
			fmt.Fprintf(&b, "tc = [\"qdisc replace dev {dev} root handle 1: mq\", \"qdisc replace dev {dev} parent 1:%d %s\"]\n", queues, kind)
		}
		if device == "tsnep" && r.IntN(2) == 0 {
			b.WriteString("set = { \"ring.rx_alloc_fail\" = 0.3, \"ring.rx_reuse\" = 30 }\n")
		} else if device != "tsnep" {
			fmt.Fprintf(&b, "set = { \"bql\" = %q }\n", pick("on", "off"))
		}
	}
	fmt.Fprintf(&b, "[[link]]\nends = [\"a/eth0\", \"b/eth0\"]\ndelay = %q\nloss = %q\n", pick("0ns", "10us", "5ms"), pick("0%", "0%", "3%"))
	if r.IntN(4) == 0 {
		fmt.Fprintf(&b, "trace = %q\n", trace)
	} else if fmt.Fprintf(&b, "rate = %q\n", pick("10mbit", "100mbit", "1gbit")); r.IntN(3) == 0 {
		b.WriteString("steps = [{at = \"100ms\", rate = \"20mbit\"}, {at = \"500ms\", rate = \"200mbit\"}]\n")
	}
	for i := range 1 + r.IntN(4) {
		from, to := "a", "b"
		if r.IntN(3) == 0 {
			from, to = to, from
		}
		fmt.Fprintf(&b, "[[workload]]\nname = \"w%d\"\nfrom = %q\nto = %q\nipv6 = %s\ntos = %s\n", i, from, to, pick("true", "false"), pick("\"bulk\"", "\"interactive\"", "0"))
		switch r.IntN(4) {
		case 0:
			fmt.Fprintf(&b, "kind = \"iperf3\"\nflows = %d\n%s", 1+r.IntN(6), pick("", "rate = \"3mbit\"\n", "rate = \"900mbit\"\nlength = \"3kb\"\n"))
		case 1:
			fmt.Fprintf(&b, "kind = \"iperf3\"\nproto = \"udp\"\nflows = %d\nrate = %q\n%s", 1+r.IntN(3), pick("1mbit", "300mbit"), pick("", "length = \"100b\"\n"))
		case 2:
			fmt.Fprintf(&b, "kind = \"rr\"\nrequest = %q\nresponse = %q\ninterval = %q\nstart = \"7ms\"\n", pick("1b", "5kb", "200kb"), pick("1b", "70kb"), pick("0ns", "1ms"))
		case 3:
			fmt.Fprintf(&b, "kind = \"ping\"\ninterval = %q\nlength = %q\n", pick("1ms", "30ms"), pick("16b", "1000b"))
		}
	}
	return b.String()
}

func TestModelsRefuseWhatTheyDoNotHave(t *testing.T) {
	tc := func(lines string) string { return twoCards(plainLink, "tc = ["+lines+"]\n", probe) }
	for name, x := range map[string]struct{ text, want string }{
		"programs": {twoCards(plainLink, "", "[[workload]]\nname = \"w\"\nkind = \"exec\"\nfrom = \"a\"\ncommand = [\"true\"]\n"),
			"x.toml:28:1: workload w is of kind exec: a program needs a kernel; expected iperf3, rr or ping, or --kernel host or lab"},
		"a qdisc": {tc(`"qdisc replace dev {dev} root cake"`),
			"x.toml:15:7: tc qdisc replace dev eth0 root cake: there is no model of the qdisc cake; expected one of mq, pfifo_fast, pfifo, bfifo, fq_codel, or a kernel that has it: --kernel host or lab"},
		"an option":     {tc(`"qdisc replace dev {dev} root fq_codel ce_threshold 1ms"`), `has no option "ce_threshold"`},
		"classes":       {tc(`"class add dev {dev} parent 1: classid 1:1 htb rate 1gbit"`), "there is no model of tc class; expected tc qdisc with one of pfifo_fast, pfifo, bfifo, fq_codel, or a kernel"},
		"another card":  {tc(`"qdisc replace dev eth7 root pfifo"`), "the device is eth7; expected {dev}, which is eth0"},
		"a parent":      {tc(`"qdisc replace dev {dev} parent 1:1 pfifo"`), "parent 1:1 is no class of mq: expected `root handle 1: mq` before it, and 1:1 to 1:1"},
		"one for all":   {twoCards(plainLink, "queues = 4\ntc = [\"qdisc replace dev {dev} root fq_codel\"]\n", probe), "as the root of 4 transmit queues fq_codel would be one for all"},
		"arguments":     {twoCards(plainLink, "", bulkTCP+"args = [\"--congestion\", \"cubic\", \"-R\"]\n"), "the model of iperf3 has no argument -R"},
		"ping's":        {twoCards(plainLink, "", "[[workload]]\nname = \"p\"\nkind = \"ping\"\nfrom = \"a\"\nto = \"b\"\nargs = [\"-f\"]\n"), "the model of ping has no argument -f"},
		"fragments":     {twoCards(plainLink, "", bulkTCP+"proto = \"udp\"\nrate = \"1mbit\"\nlength = \"9kb\"\n"), "datagrams of 9216 bytes would be fragmented; expected at most 1472b"},
		"ping's too":    {twoCards(plainLink, "", "[[workload]]\nname = \"p\"\nkind = \"ping\"\nfrom = \"a\"\nto = \"b\"\nlength = \"1473b\"\n"), "echo requests of 1473 bytes would be fragmented; expected at most 1472b"},
		"large frames":  {strings.Replace(twoCards(plainLink, "mtu = 9000\n", probe), `"generic"`, `"tsnep"`, 1), "mtu is 9000; expected at most 2048, which is all that tsnep's driver takes"},
		"routing":       {strings.Replace(twoCards(plainLink, "", probe), `ends = ["a/eth0", "b/eth0"]`, "ends = [\"a/eth0\", \"c/eth0\"]", 1) + "[[netns]]\nname = \"c\"\n[[nic]]\nname = \"eth0\"\nnetns = \"c\"\ndevice = \"generic\"\n", "workload probe: no link joins a and b; expected a link between them, since the models do not route"},
		"contradiction": {strings.Replace(twoCards(plainLink, "queues = 2\n", probe), `device = "generic"`, "device = \"igb\"", 1), ""},
	} {
		s, err := format.Parse("x.toml", []byte(x.text), FormatOptions())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = Simulate(t.Context(), s, Options{})
		switch {
		case x.want == "":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil || !strings.Contains(err.Error(), x.want):
			t.Errorf("%s: %v, want %s", name, err, x.want)
		case !strings.HasPrefix(err.Error(), "x.toml:"):
			t.Errorf("%s: no place in %v", name, err)
		}
	}
}

func TestSimulateEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Simulate(ctx, parse(t, twoCards(plainLink, "", bulkTCP)), Options{}); err != context.Canceled || r != nil {
		t.Errorf("%v, %v", r, err)
	}
}

func BenchmarkSimulateASecondOfTwoCards(b *testing.B) {
	s := parse(b, twoCards(plainLink, "", bulkTCP+"proto = \"udp\"\nrate = \"2gbit\"\n"))
	p := s.Cases()
	frames := uint64(0)
	for b.Loop() {
		m, err := newModel(p[0].Scenario, nil)
		if err != nil {
			b.Fatal(err)
		}
		m.eng.AdvanceTo(m.schedule())
		frames += m.cards[0].stack.NIC.Stats().Sent.Frames
	}
	b.ReportMetric(float64(frames)/b.Elapsed().Seconds(), "frames/s")
}
