package stack

import (
	"fmt"
	"testing"

	"nicemu/devices"
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/qdisc"

	"pgregory.net/rapid"
)

// build makes a stack over a card with some knobs turned.
func build(device string, seed uint64, root func(q int) qdisc.Qdisc, knobs ...string) (*Stack, error) {
	d, err := devices.New(device)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(knobs); i += 2 {
		if err := d.Set(knobs[i], knobs[i+1]); err != nil {
			return nil, err
		}
	}
	e := engine.New(seed)
	return New(e, nic.NewCPU(e), d, root)
}

func mustBuild(t testing.TB, device string, root func(q int) qdisc.Qdisc, knobs ...string) *Stack {
	t.Helper()
	s, err := build(device, 1, root, knobs...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pfifo(int) qdisc.Qdisc   { return qdisc.NewPFIFO(1000) }
func fqCodel(int) qdisc.Qdisc { return qdisc.NewFQCodel(qdisc.FQCodelConfig{}) }

func (s *Stack) sendSingle(q, bytes int) {
	f := s.Pool.Get(q)
	f.Single(bytes)
	s.Send(f)
}

// TestNothingIsLostBetweenSourceAndWire drives every card under small qdiscs at
// random and audits stack and card at each step; in the end all is drained.
func TestNothingIsLostBetweenSourceAndWire(t *testing.T) {
	for _, name := range devices.Names() {
		t.Run(name, func(t *testing.T) {
			d, err := devices.New(name)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				knobs := []string{"ring.tx", rapid.SampledFrom([]string{"128", "256"}).Draw(t, "ring"), "queues", "4"}
				if name == "tsnep" {
					knobs = nil // its numbers are fixed
				}
				limit := rapid.IntRange(1, 100).Draw(t, "limit")
				s, err := build(name, rapid.Uint64().Draw(t, "seed"), func(q int) qdisc.Qdisc {
					if q == 0 {
						return qdisc.NewPFIFO(limit)
					}
					return qdisc.NewFQCodel(qdisc.FQCodelConfig{Limit: limit})
				}, knobs...)
				if err != nil {
					t.Fatal(err)
				}
				walk(t, s, d.TSO)
			})
		})
	}
}

func walk(t *rapid.T, s *Stack, gso bool) {
	rng := s.Eng.Rand()
	rate := int64(s.NIC.Config().Link.Rate)
	var seq, last [64][4]uint64 // by queue and flow
	s.OnWire(func(f *nic.Frame, _ engine.Time) {
		if f.Seq <= last[f.Queue][f.Flow] {
			t.Fatalf("queue %d, flow %d: frame %d leaves after %d", f.Queue, f.Flow, f.Seq, last[f.Queue][f.Flow])
		}
		last[f.Queue][f.Flow] = f.Seq
	})
	for i := range 500 {
		switch op := rng.IntN(100); {
		case op < 60:
			f := s.Pool.Get(rng.IntN(s.NIC.Queues()))
			f.Flow = uint32(rng.IntN(4))
			seq[f.Queue][f.Flow]++
			f.Seq = seq[f.Queue][f.Flow]
			if rng.IntN(3) == 0 && gso {
				f.GSO(66+1+rng.IntN(65000), 66, 1448)
			} else {
				f.Single(60 + rng.IntN(1455))
			}
			s.Send(f)
		case op < 65:
			s.NIC.SetRate([]int64{0, rate / 100, rate}[rng.IntN(3)])
		default:
			s.Eng.AdvanceTo(s.Eng.Now() + engine.Time(rng.IntN(30_000)))
		}
		if err := s.Audit(); err != nil {
			t.Fatalf("step %d at %d ns: %v", i, s.Eng.Now(), err)
		}
	}
	s.NIC.SetRate(rate)
	s.Eng.AdvanceTo(s.Eng.Now() + 20*engine.Second)
	if err := s.Audit(); err != nil {
		t.Fatalf("drained: %v", err)
	}
	for q := range s.NIC.Queues() {
		if st := s.Qdisc(q); st.Qlen != 0 || s.NIC.Stats().Queued.Frames != 0 {
			t.Fatalf("queue %d not drained: %+v", q, st)
		}
	}
}

// A driver that asks for more room than its stop threshold leaves refuses a
// frame; it waits at the head.
func TestAFrameRefusedGoesFirstWhenTheQueueWakes(t *testing.T) {
	s := mustBuild(t, "generic", pfifo, "ring.tx", "64", "ring.stop", "2", "ring.wake", "40", "ring.gap", "30", "bql", "off")
	var order []uint64
	s.OnWire(func(f *nic.Frame, _ engine.Time) { order = append(order, f.Seq) })
	s.NIC.SetRate(0)
	for i := range 60 {
		f := s.Pool.Get(0)
		f.Single(1514)
		f.Seq = uint64(i)
		s.Send(f)
	}
	// 63 usable, each frame takes one and wants 30 more: the 34th is refused.
	st := s.Qdisc(0)
	if st.Requeues != 1 || st.Qlen != 27 || s.NIC.Queue(0).Busy != 1 {
		t.Fatalf("%+v, %d busy", st, s.NIC.Queue(0).Busy)
	}
	s.NIC.SetRate(1e9)
	s.Eng.AdvanceTo(engine.Second)
	for i, seq := range order {
		if seq != uint64(i) {
			t.Fatalf("left in the order %v", order)
		}
	}
	if len(order) != 60 {
		t.Fatalf("%d left", len(order))
	}
}

// With a limit of two frames BQL has room for 3028 bytes: the first bulk takes
// two frames (the second uses the budget up), the next run one more, which
// overshoots and sets STACK_XOFF.
func TestABulkTakesWhatBQLHasRoomFor(t *testing.T) {
	s := mustBuild(t, "generic", pfifo, "bql.limit_min", "3028b", "bql.limit_max", "3028b")
	s.sendSingle(0, 60) // the first completion makes the limit take effect
	s.Eng.AdvanceTo(engine.Millisecond)
	for range 10 {
		s.sendSingle(0, 1514)
	}
	if got := s.NIC.Inflight(0); got != 3*1514 {
		t.Fatalf("%d bytes in flight", got)
	}
	var wakes, inflight []int
	s.OnWake(func(q int) { wakes = append(wakes, q); inflight = append(inflight, s.NIC.Inflight(q)) })
	s.Eng.AdvanceTo(10 * engine.Millisecond)
	for i := range wakes[:2] {
		if inflight[i] != 3*1514 {
			t.Fatalf("after wake %d: %d bytes in flight", i, inflight[i])
		}
	}
	if s.Qlen(0) != 0 || s.Audit() != nil {
		t.Fatalf("%d queued, audit %v", s.Qlen(0), s.Audit())
	}
}

func TestBQLKeepsTheQueueInTheQdisc(t *testing.T) {
	for _, bql := range []string{"off", "on"} {
		s := mustBuild(t, "generic", fqCodel, "bql", bql, "ring.tx", "1024")
		refill := func() {
			for s.Qdisc(0).Qlen < 50 && s.NIC.RingUsed(0) < 800 {
				s.sendSingle(0, 1514)
			}
		}
		s.OnComplete(func(*nic.Frame) { refill() })
		refill()
		s.Eng.AdvanceTo(100 * engine.Millisecond)
		used, queued := s.NIC.RingUsed(0), s.Qlen(0)
		if bql == "off" && used < 700 || bql == "on" && (used > 30 || queued < 40) {
			t.Errorf("bql %s: %d frames in the ring, %d in the qdisc", bql, used, queued)
		}
		if err := s.Audit(); err != nil {
			t.Error(err)
		}
	}
}

func TestDropsAreCountedByReason(t *testing.T) {
	s := mustBuild(t, "generic", func(int) qdisc.Qdisc { return qdisc.NewPFIFO(5) }, "bql", "off", "ring.tx", "64")
	var seen int
	s.OnDrop(func(f *nic.Frame, reason string) { seen++ })
	s.NIC.SetRate(0)
	for range 100 {
		s.sendSingle(0, 1000)
	}
	// 64 slots, one spare, stop below 21 free: 43 in the ring, 5 in the qdisc.
	want := nic.Count{Frames: 100 - 43 - 5, Bytes: 52_000}
	if got := s.Dropped()[qdisc.Overlimit]; got != want || seen != 52 {
		t.Errorf("dropped %v, want %v; hook saw %d", got, want, seen)
	}
	if err := s.Audit(); err != nil {
		t.Error(err)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, name := range devices.Names() {
		s := mustBuild(t, name, fqCodel)
		saturate(s)
		s.Eng.AdvanceTo(200 * engine.Millisecond)
		if n := testing.AllocsPerRun(20, func() { s.Eng.AdvanceTo(s.Eng.Now() + engine.Millisecond) }); n != 0 {
			t.Errorf("%s: %v allocations a millisecond", name, n)
		}
	}
}

// saturate keeps eight flows on queue 0 backlogged.
func saturate(s *Stack) {
	n := uint32(0)
	fill := func() {
		for s.Qlen(0) < 16 {
			f := s.Pool.Get(0)
			f.Single(1514)
			n++
			f.Flow = n % 8
			s.Send(f)
		}
	}
	s.OnWake(func(int) { fill() })
	fill()
}

func BenchmarkFrame(b *testing.B) {
	for _, name := range []string{"generic", "mana"} {
		b.Run(name, func(b *testing.B) {
			s := mustBuild(b, name, fqCodel)
			saturate(s)
			s.Eng.AdvanceTo(10 * engine.Millisecond)
			b.ReportAllocs()
			start := s.NIC.Stats().Sent.Frames
			b.ResetTimer()
			for s.NIC.Stats().Sent.Frames < start+uint64(b.N) {
				for range 100 {
					s.Eng.Step()
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

func ExampleStack() {
	d, _ := devices.New("generic")
	e := engine.New(1)
	s, _ := New(e, nic.NewCPU(e), d, func(int) qdisc.Qdisc { return qdisc.NewPFIFO(1000) })
	s.OnWire(func(f *nic.Frame, end engine.Time) { fmt.Println("last bit at", end, "ns") })
	f := s.Pool.Get(0)
	f.Single(1514)
	s.Send(f)
	e.AdvanceTo(engine.Millisecond)
	// Output:
	// last bit at 12208 ns
}

func TestLegsAddUpToTheDeparture(t *testing.T) {
	s := mustBuild(t, "igb", pfifo, "qav", "on")
	legs := NewLegs()
	s.OnComplete(legs.Sent)
	for range 200 {
		s.sendSingle(3, 1000)
	}
	s.Eng.AdvanceTo(engine.Second)
	sum := 0.0
	for _, l := range legs {
		if l.TotalCount() != 200 {
			t.Errorf("%s: %d frames", l.Name, l.TotalCount())
		}
		switch l.Name {
		case "qdisc_wait", "ring_wait", "buffer_wait", "serialization":
			sum += l.Mean()
		}
	}
	if got := legs[Departure].Mean(); got < sum*0.999 || got > sum*1.001 || got == 0 {
		t.Errorf("departure after %.0f ns, its parts make %.0f", got, sum)
	}
}
