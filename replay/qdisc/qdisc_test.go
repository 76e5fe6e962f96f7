package qdisc

import (
	"fmt"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"

	"pgregory.net/rapid"
)

func frame(flow uint32, bytes int) *nic.Frame {
	f := &nic.Frame{Flow: flow}
	f.Single(bytes)
	return f
}

func noDrop(t *testing.T) Drop {
	return func(f *nic.Frame, reason string) {
		t.Helper()
		t.Errorf("frame %d of flow %d dropped: %s", f.Seq, f.Flow, reason)
	}
}

func TestFIFODropsAtItsTail(t *testing.T) {
	for _, q := range []*FIFO{NewPFIFO(2), NewBFIFO(2000)} {
		var dropped []*nic.Frame
		drop := func(f *nic.Frame, reason string) {
			if reason != Overlimit {
				t.Errorf("reason %s", reason)
			}
			dropped = append(dropped, f)
		}
		a, b, c := frame(1, 1000), frame(1, 1000), frame(1, 60)
		for _, f := range []*nic.Frame{a, b, c} {
			q.Enqueue(f, 7, drop)
		}
		if len(dropped) != 1 || dropped[0] != c || q.Len() != 2 || q.Bytes() != 2000 {
			t.Errorf("%s: dropped %d, queued %d frames, %d bytes", q.stats.Kind, len(dropped), q.Len(), q.Bytes())
		}
		if q.Dequeue(9, drop) != a || q.Dequeue(9, drop) != b || q.Dequeue(9, drop) != nil {
			t.Errorf("%s: not in order", q.stats.Kind)
		}
		if s := q.Stats(); s.Packets != 2 || s.Bytes != 2000 || s.Drops != 1 || s.Backlog != 0 || s.Qlen != 0 {
			t.Errorf("%s: %+v", q.stats.Kind, s)
		}
	}
}

// A flow with 20 ms of delay and as much service as arrivals. With target 5 ms and
// interval 100 ms the clock counts 1024 ns: 4882 and 97656 units. The first
// frame above target starts the interval; the first drop comes with the first
// frame after it. Then the control law: interval/sqrt(n) with the square root
// found by one Newton step a drop, so 1, 1/2, 9/16, 0.4878, 0.4459 of it.
func TestCoDelDropsAsItsControlLawSays(t *testing.T) {
	q := NewFQCodel(FQCodelConfig{})
	const step = engine.Millisecond
	var drops []engine.Time
	now := engine.Time(0)
	drop := func(f *nic.Frame, reason string) {
		if reason != CoDel {
			t.Fatalf("dropped: %s", reason)
		}
		drops = append(drops, now)
	}
	for ; now < 500*step; now += step {
		q.Enqueue(frame(1, 1514), now, drop)
		if now >= 20*step { // each drop brings the delay one step down from 20 ms
			q.Dequeue(now, drop)
		}
	}
	// The first frame is dequeued at 20 ms, 19531 units, and above target; the
	// interval ends at 117187 units, which is the unit of 120 ms, so the first
	// frame behind it is that of 121 ms.
	want := []float64{121, 221, 271, 327.25, 376.03, 420.62}
	if len(drops) < len(want) {
		t.Fatalf("drops at %v", drops)
	}
	for i, w := range want {
		if got := float64(drops[i]) / 1e6; got < w-0.01 || got > w+1.01 {
			t.Errorf("drop %d at %v ms, want the first millisecond from %v on", i+1, got, w)
		}
	}
}

func TestECNIsMarkedWhereItWouldBeDropped(t *testing.T) {
	for _, noECN := range []bool{false, true} {
		q := NewFQCodel(FQCodelConfig{NoECN: noECN})
		drops := 0
		marked := 0
		for now := engine.Time(0); now < 500*engine.Millisecond; now += engine.Millisecond {
			f := frame(1, 1514)
			f.ECN = 2
			q.Enqueue(f, now, func(*nic.Frame, string) { drops++ })
			for q.Len() > 20 {
				if f := q.Dequeue(now, func(*nic.Frame, string) { drops++ }); f != nil && f.ECN == 3 {
					marked++
				}
			}
		}
		if (drops == 0) == noECN || (marked == 0) != noECN || q.Stats().ECNMark != uint64(marked) {
			t.Errorf("ecn off %v: %d drops, %d marks, %+v", noECN, drops, marked, q.Stats())
		}
	}
}

func TestFlowsShareByBytesWhateverTheirPackets(t *testing.T) {
	q := NewFQCodel(FQCodelConfig{})
	for range 1000 {
		q.Enqueue(frame(1, 1514), 0, noDrop(t))
		q.Enqueue(frame(2, 300), 0, noDrop(t))
		q.Enqueue(frame(3, 64), 0, noDrop(t))
	}
	got := map[uint32]int{}
	for range 900 {
		f := q.Dequeue(0, noDrop(t))
		got[f.Flow] += f.Wire()
	}
	for _, flow := range []uint32{2, 3} {
		if diff := got[1] - got[flow]; diff < -2*1514 || diff > 2*1514 {
			t.Errorf("bytes by flow: %v", got)
		}
	}
}

func TestANewFlowGoesFirst(t *testing.T) {
	q := NewFQCodel(FQCodelConfig{})
	for range 10 {
		q.Enqueue(frame(1, 1514), 0, noDrop(t))
	}
	q.Dequeue(0, noDrop(t)) // flow 1 has used its quantum up
	q.Enqueue(frame(2, 100), 0, noDrop(t))
	if f := q.Dequeue(0, noDrop(t)); f.Flow != 2 {
		t.Errorf("flow %d goes first", f.Flow)
	}
	// Emptied, it stands behind the old ones: coming back at once gives no
	// second turn as a new one.
	if f := q.Dequeue(0, noDrop(t)); f.Flow != 1 {
		t.Errorf("then flow %d", f.Flow)
	}
	if s := q.Stats(); s.NewFlowCount != 2 || s.OldFlowsLen != 2 || s.NewFlowsLen != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAFullQueueDropsHalfOfTheFattestFlow(t *testing.T) {
	q := NewFQCodel(FQCodelConfig{Limit: 100})
	var dropped []uint32
	drop := func(f *nic.Frame, reason string) {
		if reason != Overlimit {
			t.Errorf("reason %s", reason)
		}
		dropped = append(dropped, f.Flow)
	}
	for range 60 {
		q.Enqueue(frame(1, 1000), 0, drop)
	}
	for range 41 {
		q.Enqueue(frame(2, 1000), 0, drop)
	}
	if len(dropped) != 30 || q.Len() != 71 || q.Stats().DropOverlimit != 30 {
		t.Fatalf("%d dropped, %d queued: %v", len(dropped), q.Len(), dropped)
	}
	for _, flow := range dropped {
		if flow != 1 {
			t.Fatalf("flow %d lost frames", flow)
		}
	}
	q = NewFQCodel(FQCodelConfig{MemoryLimit: 10 * (1000 + skbOverhead)})
	reasons := map[string]int{}
	for range 11 {
		q.Enqueue(frame(1, 1000), 0, func(_ *nic.Frame, reason string) { reasons[reason]++ })
	}
	// 11 000 bytes of backlog: six frames are the first 5500 of them.
	if reasons[OverMemory] != 6 || q.Stats().DropOverMemory != 6 || q.Stats().MemoryUsage != 5*(1000+skbOverhead) {
		t.Errorf("%v, %+v", reasons, q.Stats())
	}
}

// Passes at once are what passes one by one come to.
func TestCreditIsThatOfARoundRobin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quantum := rapid.IntRange(1, 2000).Draw(t, "quantum")
		deficits := rapid.SliceOfN(rapid.IntRange(-70_000, 500), 1, 20).Draw(t, "deficits")
		var fast, slow flowList
		for _, d := range deficits {
			fast.push(&flow{deficit: d})
			slow.push(&flow{deficit: d})
		}
		fast.credit(quantum)
		for slow.head.deficit <= 0 {
			fl := slow.head
			fl.deficit += quantum
			slow.pop()
			slow.push(fl)
		}
		a, b := fast.head, slow.head
		for ; a != nil && b != nil && a.deficit == b.deficit; a, b = a.next, b.next {
		}
		if a != nil || b != nil || fast.n != slow.n {
			t.Fatalf("differ from %v on", deficits)
		}
	})
}

// TestNothingIsLostOrReordered drives every qdisc at random: what went in came
// out, was dropped or is queued, and each flow's frames keep their order.
func TestNothingIsLostOrReordered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Qdisc
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			q = NewPFIFO(rapid.IntRange(1, 50).Draw(t, "limit"))
		case 1:
			q = NewBFIFO(rapid.IntRange(100, 50_000).Draw(t, "limit"))
		default:
			q = NewFQCodel(FQCodelConfig{
				Limit: rapid.IntRange(1, 200).Draw(t, "limit"), Flows: rapid.IntRange(1, 8).Draw(t, "flows"),
				Quantum: rapid.IntRange(100, 3000).Draw(t, "quantum"), MemoryLimit: rapid.IntRange(5000, 500_000).Draw(t, "memory"),
				DropBatch: rapid.IntRange(1, 64).Draw(t, "batch"), NoECN: rapid.Bool().Draw(t, "noecn"),
			})
		}
		e := engine.New(rapid.Uint64().Draw(t, "seed"))
		rng := e.Rand()
		var seq [6]uint64
		var last [6]uint64
		var in, out nic.Count
		count := func(c *nic.Count, f *nic.Frame) {
			*c = c.Plus(nic.Count{Frames: 1, Bytes: uint64(f.Wire())})
		}
		drops := 0
		see := func(f *nic.Frame) error {
			if f.Seq <= last[f.Flow] {
				return fmt.Errorf("flow %d: frame %d after %d", f.Flow, f.Seq, last[f.Flow])
			}
			if f.Next != nil {
				return fmt.Errorf("flow %d: frame %d is still in a list", f.Flow, f.Seq)
			}
			last[f.Flow] = f.Seq
			return nil
		}
		drop := func(f *nic.Frame, _ string) { count(&out, f); drops++ }
		now := engine.Time(0)
		for range 2000 {
			now += engine.Time(rng.IntN(500_000))
			if rng.IntN(100) < 55 {
				f := frame(uint32(rng.IntN(len(seq))), 60+rng.IntN(1455))
				seq[f.Flow]++
				f.Seq, f.ECN = seq[f.Flow], uint8(rng.IntN(3))
				count(&in, f)
				q.Enqueue(f, now, drop)
			} else if f := q.Dequeue(now, drop); f != nil {
				count(&out, f)
				if err := see(f); err != nil {
					t.Fatal(err)
				}
			}
			queued := nic.Count{Frames: uint64(q.Len()), Bytes: uint64(q.Bytes())}
			if out.Plus(queued) != in || q.Stats().Drops != uint64(drops) {
				t.Fatalf("in %v, out %v, queued %v, drops %d counted %d", in, out, queued, drops, q.Stats().Drops)
			}
		}
		for q.Len() > 0 {
			if f := q.Dequeue(now, drop); f != nil {
				if err := see(f); err != nil {
					t.Fatal(err)
				}
			}
		}
		if q.Bytes() != 0 || q.Dequeue(now, drop) != nil {
			t.Fatalf("empty, but %d bytes", q.Bytes())
		}
	})
}

func BenchmarkQdisc(b *testing.B) {
	for _, q := range []Qdisc{NewPFIFO(1000), NewFQCodel(FQCodelConfig{})} {
		b.Run(q.Stats().Kind, func(b *testing.B) {
			frames := make([]*nic.Frame, 64)
			for i := range frames {
				frames[i] = frame(uint32(i%8), 1514)
			}
			drop := func(*nic.Frame, string) {}
			b.ReportAllocs()
			now := engine.Time(0)
			for i := 0; b.Loop(); i++ {
				now += 1000
				q.Enqueue(frames[i%64], now, drop)
				if i%64 > 32 {
					q.Dequeue(now, drop)
				}
				if i%64 == 63 {
					for q.Len() > 0 {
						q.Dequeue(now, drop)
					}
				}
			}
		})
	}
}
