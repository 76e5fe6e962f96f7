package source

import (
	"math"
	"testing"

	"nicemu/devices"
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/qdisc"
	"nicemu/replay/stack"
)

func device(t testing.TB, name string, knobs ...string) *nic.Device {
	t.Helper()
	d, err := devices.New(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(knobs); i += 2 {
		if err := d.Set(knobs[i], knobs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func build(t testing.TB, name string, root func(q int) qdisc.Qdisc, knobs ...string) *stack.Stack {
	t.Helper()
	e := engine.New(1)
	s, err := stack.New(e, nic.NewCPU(e), device(t, name, knobs...), root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pfifo(int) qdisc.Qdisc   { return qdisc.NewPFIFO(1000) }
func fqCodel(int) qdisc.Qdisc { return qdisc.NewFQCodel(qdisc.FQCodelConfig{}) }

func audit(t *testing.T, s *stack.Stack) {
	t.Helper()
	if err := s.Audit(); err != nil {
		t.Error(err)
	}
}

func TestPktgenIgnoresBQL(t *testing.T) {
	s := build(t, "generic", pfifo, "bql.limit_max", "3000b", "cpu.xmit", "100ns")
	(&Pktgen{Bytes: 60}).Start(s)
	s.Eng.AdvanceTo(100 * engine.Millisecond)
	// 256 slots, one spare, stop below 21 free.
	if q := s.NIC.Queue(0); q.RingMax != 235 || q.StackXOFF == 0 || q.DrvXOFF == 0 {
		t.Errorf("%+v", q)
	}
	audit(t, s)
}

func TestPktgenCostsCoreTime(t *testing.T) {
	s := build(t, "generic", pfifo, "link.rate", "10gbit", "ring.tx", "4096", "cpu.xmit", "1us", "coalesce.rx_usecs", "10us")
	(&Pktgen{Bytes: 60, Burst: 8}).Start(s)
	s.Eng.AdvanceTo(10 * engine.Millisecond)
	if n := s.NIC.Stats().Offered.Frames; n != 10_000 {
		t.Errorf("%d frames in 10 ms at a microsecond each", n)
	}
	audit(t, s)
}

func TestUDPKeepsItsRateWithoutDrift(t *testing.T) {
	s := build(t, "generic", pfifo)
	u := &UDP{Rate: 123_456_789}
	u.Start(s)
	s.Eng.AdvanceTo(10 * engine.Second)
	want := math.Floor(10*123_456_789.0/8/1448) + 1 // one at the start
	if float64(u.Sent()) != want || s.Dropped()[qdisc.Overlimit].Frames != 0 {
		t.Errorf("%d datagrams, want %v", u.Sent(), want)
	}
	audit(t, s)
}

func TestUDPThatExceedsTheLinkIsDroppedInTheQdisc(t *testing.T) {
	s := build(t, "generic", pfifo)
	u := &UDP{Rate: 2_000_000_000}
	u.Start(s)
	s.Eng.AdvanceTo(engine.Second)
	sent := s.NIC.Stats().Sent.Frames
	if d := s.Dropped()[qdisc.Overlimit].Frames; d < u.Sent()-sent-1500 || d == 0 {
		t.Errorf("%d of %d sent, %d dropped", sent, u.Sent(), d)
	}
	// 1514 bytes for 1448 of payload: 1490 and 24 around them.
	if want := 1e9 / 8 / 1514; math.Abs(float64(sent)/want-1) > 0.001 {
		t.Errorf("%d sent, want %.0f", sent, want)
	}
	audit(t, s)
}

func TestTheTalkerHandsOverAheadOfEachLaunchTime(t *testing.T) {
	s := build(t, "generic", pfifo)
	var launch, enqueued []engine.Time
	s.OnComplete(func(f *nic.Frame) {
		launch, enqueued = append(launch, f.Launch), append(enqueued, f.Enqueued)
	})
	s.Eng.AdvanceTo(300 * engine.Microsecond)
	tk := &Talker{Bytes: 1514, Cycle: 125 * engine.Microsecond, Offset: 10 * engine.Microsecond, Ahead: 50 * engine.Microsecond}
	tk.Start(s)
	s.Eng.AdvanceTo(10 * engine.Millisecond)
	if len(launch) < 70 {
		t.Fatalf("%d frames", len(launch))
	}
	for i := range launch {
		// The first launch time at least 50 µs after 300 µs is 385 µs.
		want := (385 + 125*engine.Time(i)) * engine.Microsecond
		if launch[i] != want || enqueued[i] != want-50*engine.Microsecond {
			t.Fatalf("frame %d: launch %d, handed over at %d; want %d", i, launch[i], enqueued[i], want)
		}
	}
	audit(t, s)
}

// A datagram of 1448 costs its socket 2258 bytes, so that 95 fill the buffer of
// 212992; half is free when 47 are left.
func TestUDPSleepsWhileItsSendBufferIsFull(t *testing.T) {
	s := build(t, "generic", pfifo)
	u := &UDP{Rate: 2_000_000_000, SendBuffer: SendBuffer}
	u.Start(s)
	most, asleep := 0, 0
	s.OnComplete(func(*nic.Frame) {
		most = max(most, u.below/truesizeOf(1490))
		if u.asleep {
			asleep++
		}
	})
	s.Eng.AdvanceTo(engine.Second)
	if most > 95 || asleep == 0 {
		t.Errorf("%d datagrams below the socket, asleep at %d completions", most, asleep)
	}
	if d := s.Dropped()[qdisc.Overlimit].Frames; d != 0 {
		t.Errorf("%d dropped in the qdisc", d)
	}
	if got, want := float64(s.NIC.Stats().Sent.Frames), 1e9/8/1514; math.Abs(got/want-1) > 0.001 {
		t.Errorf("%.0f sent, want %.0f", got, want)
	}
	u.Stop()
	sent := u.Sent()
	s.Eng.AdvanceTo(2 * engine.Second)
	if u.Sent() != sent || u.below != 0 || s.NIC.Stats().Queued.Frames != 0 {
		t.Errorf("after its end: %d more sent, %d bytes below it", u.Sent()-sent, u.below)
	}
	audit(t, s)
}

func truesizeOf(n int) int {
	f := &nic.Frame{}
	f.Single(n)
	return truesize(f)
}

// Frames that the driver drops at once, here since they exceed DTXMXPKTSZ, must
// not stop time.
func TestSourcesOutliveADriverThatDropsEverything(t *testing.T) {
	knobs := []string{"qav", "on", "dtxmxpktsz", "1024"}
	for name, start := range map[string]func(*stack.Stack){
		"pktgen": (&Pktgen{Bytes: 1514}).Start,
		"udp":    (&UDP{Rate: 1_000_000_000, SendBuffer: SendBuffer}).Start,
		"bulk":   (&Bulk{Payload: 1448}).Start,
		"tcp":    (&TCP{Queues: []int{0}, Rates: []float64{125e6}, Pacing: engine.Millisecond}).Start,
		"talker": (&Talker{Bytes: 1514, Cycle: engine.Millisecond}).Start,
		"rr":     (&Requests{Bytes: 1514}).Start,
	} {
		s := build(t, "igb", pfifo, knobs...)
		start(s)
		s.Eng.AdvanceTo(engine.Second)
		if n := s.NIC.Stats().Dropped["oversize"].Frames; n == 0 || s.NIC.Stats().Sent.Frames != 0 {
			t.Errorf("%s: %d dropped, %v sent", name, n, s.NIC.Stats().Sent)
		}
		audit(t, s)
	}
}

func TestArrivalsAreDeliveredOrLost(t *testing.T) {
	s := build(t, "generic", pfifo, "cpu.receive", "20us", "cpu.copy", "1us", "ring.rx", "64")
	lost := uint64(0)
	a := &Arrivals{Bytes: 1514, Rate: 900_000_000, Lost: func(*nic.Frame) { lost++ }}
	a.Start(s)
	s.Eng.AdvanceTo(engine.Second)
	st := s.NIC.Stats()
	if st.Arrived.Frames != a.k-1 || lost != st.RXDropped.Frames || lost == 0 {
		t.Errorf("%d came, %v arrived, %d lost, %v dropped", a.k-1, st.Arrived, lost, st.RXDropped)
	}
	// The core does 50,000 a second and nothing else: copying comes behind.
	if n := st.Delivered.Frames; n < 45_000 || n > 50_001 {
		t.Errorf("%d delivered", n)
	}
	audit(t, s)
}

func TestBulkFillsTheLink(t *testing.T) {
	s := build(t, "generic", fqCodel)
	b := &Bulk{Payload: 45 * MSS}
	b.Start(s)
	s.Eng.AdvanceTo(100 * engine.Millisecond)
	before := b.Done()
	s.Eng.AdvanceTo(1100 * engine.Millisecond)
	// 1538 bytes on the medium for 1448 of payload.
	if got, want := float64(b.Done()-before)*8, 1e9*1448/1538; math.Abs(got/want-1) > 0.005 {
		t.Errorf("%.0f bit/s, want %.0f", got, want)
	}
	audit(t, s)
}

func TestBulkGivesUpOnAQdiscWithoutRoom(t *testing.T) {
	s := build(t, "generic", func(int) qdisc.Qdisc { return qdisc.NewPFIFO(1) })
	(&Bulk{Payload: 1000, Backlog: 5}).Start(s)
	s.Eng.AdvanceTo(10 * engine.Millisecond)
	audit(t, s)
}

// With a share of 1 Gbit/s and 2.4 ms of pacing a flow may have 300 kB below
// itself, in packets of 45 segments: it goes on while it has less, so up to one
// packet more.
func TestTCPKeepsItsLimitBelowItself(t *testing.T) {
	s := build(t, "generic", fqCodel, "bql", "off", "ring.tx", "4096")
	tcp := &TCP{Queues: []int{0}, Rates: []float64{125e6}, Pacing: 2400 * engine.Microsecond}
	tcp.Start(s)
	most := 0
	s.OnWire(func(*nic.Frame, engine.Time) { most = max(most, tcp.flows[0].below) })
	s.Eng.AdvanceTo(engine.Second)
	if want := 5 * 45 * MSS; most != want {
		t.Errorf("%d bytes below, want %d", most, want)
	}
	if got, want := float64(tcp.Total())*8, 1e9*1448/1538; math.Abs(got/want-1) > 0.01 {
		t.Errorf("%.0f bit/s, want %.0f", got, want)
	}
	audit(t, s)
}

// A flow that the qdisc drops from waits for its next completion, and when it
// has nothing left below itself for the time-out.
func TestTCPLivesUnderAQdiscWithoutRoom(t *testing.T) {
	s := build(t, "generic", func(int) qdisc.Qdisc { return qdisc.NewPFIFO(1) })
	tcp := &TCP{Queues: []int{0, 0, 0, 0}, Rates: []float64{3e7, 3e7, 3e7, 3e7}, Pacing: 2 * engine.Millisecond}
	tcp.Start(s)
	s.Eng.AdvanceTo(5 * engine.Second)
	if got, most := float64(tcp.Total())*8/5, 1e9*1448/1538; got < most/2 || got > most {
		t.Errorf("%.0f bit/s of %.0f", got, most)
	}
	// A flow that the others lock out tries again five times a second.
	if n := s.Dropped()[qdisc.Overlimit].Frames; n < 25 {
		t.Errorf("%d dropped", n)
	}
	audit(t, s)
}

func TestTCPSendsWhatItsProgramWrites(t *testing.T) {
	s := build(t, "generic", pfifo)
	tcp := &TCP{Queues: []int{0, 0}, Rates: []float64{3e6, 3e6}, Pacing: 2 * engine.Millisecond, Limit: 10_000_000}
	tcp.Start(s)
	s.Eng.AdvanceTo(10 * engine.Second)
	// Blocks of 128 KB; the last one may be on its way.
	if got, want := float64(tcp.Total()), 2*10*10e6/8; math.Abs(got-want) > 3*(128<<10) {
		t.Errorf("%.0f bytes in 10 s, want %.0f", got, want)
	}
	tcp.Stop()
	s.Eng.AdvanceTo(11 * engine.Second)
	before := tcp.Total()
	s.Eng.AdvanceTo(12 * engine.Second)
	if tcp.Total() != before || s.NIC.Stats().Queued.Frames != 0 {
		t.Errorf("%d bytes after its end", tcp.Total()-before)
	}
	audit(t, s)
}

func TestTCPWithoutTSOSendsSegments(t *testing.T) {
	s := build(t, "tsnep", pfifo)
	tcp := &TCP{Queues: []int{0}, Rates: []float64{117e6}, Pacing: 2 * engine.Millisecond, Segmented: true}
	s.OnWire(func(f *nic.Frame, _ engine.Time) {
		if f.Segs != 1 || f.Len > 1514 {
			t.Fatalf("a frame of %d bytes in %d segments", f.Len, f.Segs)
		}
	})
	tcp.Start(s)
	s.Eng.AdvanceTo(engine.Second)
	if got, want := float64(tcp.Total())*8, 1e9*1448/1538; math.Abs(got/want-1) > 0.01 {
		t.Errorf("%.0f bit/s, want %.0f", got, want)
	}
	audit(t, s)
}

// A small share makes small packets, at least of two segments, and two of them
// are always allowed.
func TestTCPSizesItsPacketsByItsShare(t *testing.T) {
	s := build(t, "generic", fqCodel)
	tcp := &TCP{Queues: []int{0, 0, 0}, Rates: []float64{125e6, 12.5e6, 1e5}, Pacing: 2400 * engine.Microsecond}
	tcp.Start(s)
	for i, want := range []tcpFlow{{skb: 45 * MSS, limit: 300_000}, {skb: 20 * MSS, limit: 40 * MSS}, {skb: 2 * MSS, limit: 4 * MSS}} {
		if got := tcp.flows[i]; got.skb != want.skb || got.limit != want.limit {
			t.Errorf("flow %d: packets of %d, limit %d; want %d and %d", i, got.skb, got.limit, want.skb, want.limit)
		}
	}
	s.Eng.AdvanceTo(100 * engine.Millisecond)
	audit(t, s)
}

func TestAnIdleRequestTakesItsBaseTime(t *testing.T) {
	s := build(t, "generic", fqCodel)
	r := &Requests{Base: 40 * engine.Microsecond, BaseMean: 10 * engine.Microsecond}
	r.Start(s)
	s.Eng.AdvanceTo(10 * engine.Second)
	// 67 bytes, preamble and FCS at 1 Gbit/s: 632 ns; the exponential's median is
	// ln 2 of its mean.
	want := 632 + 40_000 + 10_000*math.Ln2
	if got := float64(r.Latency.ValueAtQuantile(50)); math.Abs(got/want-1) > 0.01 {
		t.Errorf("median %.0f ns, want %.0f", got, want)
	}
	if r.Latency.Min() < 40_632*999/1000 || r.Latency.TotalCount() < 190_000 {
		t.Errorf("least %d ns of %d", r.Latency.Min(), r.Latency.TotalCount())
	}
}

func TestALostRequestIsAnsweredLate(t *testing.T) {
	s := build(t, "generic", func(int) qdisc.Qdisc { return qdisc.NewBFIFO(10) })
	r := &Requests{Base: 40 * engine.Microsecond}
	r.Start(s)
	s.Eng.AdvanceTo(10 * engine.Second)
	if n := r.Latency.TotalCount(); n != 50 {
		t.Errorf("%d answers in 10 s, want one each 200 ms", n)
	}
}

func TestAllIsAFunctionOfTheSeed(t *testing.T) {
	run := func() (uint64, int64) {
		s := build(t, "mana", fqCodel, "queues", "4", "bql", "on", "napi.stall_rate", "100", "napi.stall_mean", "150us")
		tcp := &TCP{Queues: []int{0, 1, 1, 2}, Rates: []float64{3e8, 3e8, 3e8, 3e8}, Pacing: 2 * engine.Millisecond, Spread: 0.2}
		tcp.Start(s)
		r := &Requests{Queue: 1, Base: 40 * engine.Microsecond, BaseMean: 10 * engine.Microsecond}
		r.Start(s)
		s.Eng.AdvanceTo(500 * engine.Millisecond)
		audit(t, s)
		return tcp.Total(), int64(r.Latency.Mean() * 1e6)
	}
	a, b := run()
	c, d := run()
	if a != c || b != d {
		t.Errorf("%d, %d and %d, %d", a, b, c, d)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	s := build(t, "mana", fqCodel, "queues", "1", "bql", "on")
	(&TCP{Queues: []int{0, 0}, Rates: []float64{6e8, 6e8}, Pacing: 2 * engine.Millisecond}).Start(s)
	(&Requests{Base: 40 * engine.Microsecond}).Start(s)
	(&UDP{Rate: 1_000_000}).Start(s)
	(&Talker{Bytes: 100, Cycle: engine.Millisecond}).Start(s)
	s.Eng.AdvanceTo(engine.Second)
	if n := testing.AllocsPerRun(20, func() { s.Eng.AdvanceTo(s.Eng.Now() + engine.Millisecond) }); n != 0 {
		t.Errorf("%v allocations a millisecond", n)
	}
}
