package igb

import (
	"fmt"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/nic/nictest"

	"pgregory.net/rapid"
)

func TestLaunchTimeIsAPositionInTheSecond(t *testing.T) {
	const s = engine.Second
	for _, c := range []struct {
		name           string
		now, ask, want engine.Time
	}{
		{"down to a step of 32 ns", 0, 60_010, 60_000},
		{"the present step has come", 64, 95, 0},
		{"the next step has not", 95, 96, 96},
		{"passed", 10_000, 9_000, 0},
		{"over the end of the second", s - 1000, s + 1000, s + 992},
		{"just below half a second ahead", 0, s/2 - 32, s/2 - 32},
		{"half a second ahead looks passed", 0, s / 2, 0},
		{"a second more is not seen", 0, s + 3200, 3200},
		{"passed by more than half a second looks ahead", 900_000_000, 100_000_000, 1_100_000_000},
	} {
		if got := launchAt(c.now, c.ask); got != c.want {
			t.Errorf("%s: now %d, asked %d: launched at %d, want %d", c.name, c.now, c.ask, got, c.want)
		}
	}
}

// TestNothingStartsInAGuardedSpan: with any mix of traffic, launch-time frames
// start at their time or later, and whenever a best-effort frame is chosen, no frame
// waiting on a reserved queue is due within one DTXMXPKTSZ of wire time from its start.
func TestNothingStartsInAGuardedSpan(t *testing.T) {
	const chosen = 128 // ns before the start: as soon as the data of the frame before is read, with its FCS and gap to come
	rapid.Check(t, func(t *rapid.T) {
		d := New()
		pkt := rapid.SampledFrom([]int{1536, 2048, 4032}).Draw(t, "dtxmxpktsz")
		for k, v := range map[string]string{"qav": "on", "dtxmxpktsz": fmt.Sprintf("%db", pkt), "queue0.txtime": "on", "queue1.txtime": "on"} {
			if err := d.Set(k, v); err != nil {
				t.Fatal(err)
			}
		}
		r, err := nictest.New(d, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		rng := r.Eng.Rand()
		launched, plain := 0, 0
		r.OnWire = func(f *nic.Frame, _ engine.Time) {
			if at := f.Launch / launchStep * launchStep; f.Queue < srQueues && f.WireStart < at {
				t.Fatalf("queue %d starts at %d, launch time %d", f.Queue, f.WireStart, at)
			}
			if f.Queue < srQueues {
				launched++
				return
			}
			plain++
			for q := range srQueues {
				h := r.NIC.Head(q)
				if h == nil || h.Fetched > f.WireStart-chosen {
					continue
				}
				at := h.Launch / launchStep * launchStep
				if at > f.WireStart && at-f.WireStart < engine.Time(pkt*8) {
					t.Fatalf("queue %d starts at %d, %d ns before a launch at %d", f.Queue, f.WireStart, at-f.WireStart, at)
				}
			}
		}
		for range 400 {
			q := rng.IntN(4)
			if !r.Stopped(q) {
				launch := engine.Time(0)
				if q < srQueues {
					launch = r.Eng.Now() + engine.Time(rng.IntN(400_000))
				}
				f := r.Frame(q)
				f.Single(60 + rng.IntN(1455))
				f.Launch = launch
				r.Post(f, false)
			}
			r.Eng.AdvanceTo(r.Eng.Now() + engine.Time(rng.IntN(30_000)))
		}
		r.Eng.AdvanceTo(r.Eng.Now() + engine.Second)
		if err := r.NIC.Audit(); err != nil || r.Err != nil || launched == 0 || plain == 0 {
			t.Fatal(err, r.Err, launched, plain)
		}
	})
}

// A saturated reserved queue gets its idle slope, rounded up to the register's
// unit, of the medium's time: preamble and gap included.
func TestCreditGivesTheIdleSlopeOfTheMedium(t *testing.T) {
	for _, kbps := range []int64{2_576, 20_000, 98_688, 400_000, 750_000} {
		r := build(t, "qav=on", fmt.Sprintf("queue0.idleslope=%dkbit", kbps), "queue0.hicredit=1514b")
		sent := map[int]int64{}
		r.OnWire = func(f *nic.Frame, _ engine.Time) { sent[f.Queue] += int64(f.Len+24) * 8 }
		r.Saturate(1514)
		const start, span = 100 * engine.Millisecond, 2 * engine.Second
		r.Eng.AdvanceTo(start) // BQL has found its limit
		clear(sent)
		r.Eng.AdvanceTo(start + span)
		reg := (kbps*61034 + 999_999) / 1_000_000
		want := reg * int64(span) / 61034
		if d := sent[0] - want; d < -1538*8 || d > 2*1538*8 {
			t.Errorf("idleslope %d kbit: %d bits sent, the slope gives %d", kbps, sent[0], want)
		}
		if all := sent[0] + sent[1] + sent[2] + sent[3]; all < int64(span)-40*1538*8 {
			t.Errorf("idleslope %d kbit: others leave the medium idle, %d of %d bits", kbps, all, int64(span))
		}
	}
}

// A queue that has waited behind others may send a burst of hiCredit at once,
// and no more: credits of 3000 bytes let two frames of 1538 and part of a third
// pass at 1 Gbit/s, so the third may still start, the fourth waits.
func TestHighCreditBoundsTheBurst(t *testing.T) {
	r := build(t, "qav=on", "queue0.txtime=on", "queue1.idleslope=100mbit", "queue1.hicredit=3000b", "sp_wait_sr=off", "txpbsize=4kb,12kb,4kb,4kb", "dtxmxpktsz=2048b")
	var starts []engine.Time
	r.OnWire = func(f *nic.Frame, _ engine.Time) {
		if f.Queue == 1 {
			starts = append(starts, f.WireStart)
		}
	}
	// Queue 0 holds the medium for a while with frames as long as it takes to
	// save all the credit: 3000 B at 100 Mbit/s are 240 µs.
	for i := range 30 {
		post(r, 0, 1514, engine.Time(20_000+i*10))
	}
	for range 6 {
		post(r, 1, 1514, 0)
	}
	r.Eng.AdvanceTo(5 * engine.Millisecond)
	if len(starts) != 6 {
		t.Fatalf("%d frames of queue 1 left, want 6", len(starts))
	}
	back := 0
	for i := 2; i < len(starts) && starts[i]-starts[i-1] == 12_304; i++ {
		back++
	}
	if back != 2 {
		t.Errorf("%d frames follow the first of the burst back to back, want 2: %v", back, starts)
	}
}

// What is longer than DTXMXPKTSZ never leaves in Qav mode, and is counted.
func TestTooLongForQavIsDropped(t *testing.T) {
	r := build(t, "qav=on")
	post(r, 3, 4032, 0)
	post(r, 3, 4033, 0)
	post(r, 3, 60, 0)
	r.Eng.AdvanceTo(engine.Millisecond)
	s := r.NIC.Stats()
	if s.Sent.Frames != 2 || s.Dropped["oversize"].Frames != 1 || r.Completed != 3 {
		t.Fatalf("%+v", s)
	}
}

func TestLaunchTimeQueuesTakeAContextDescriptor(t *testing.T) {
	r := build(t, "qav=on", "queue1.txtime=on")
	for q, want := range []int{1, 2, 1, 1} {
		post(r, q, 1514, 0)
		if got := r.NIC.RingUsed(q); got != want {
			t.Errorf("queue %d: %d descriptors, want %d", q, got, want)
		}
	}
}

func TestQavAllocatesNothingPerFrame(t *testing.T) {
	r := build(t, "qav=on", "queue0.txtime=on", "queue1.idleslope=100mbit", "queue1.hicredit=3000b")
	if n := nictest.Allocations(r); n != 0 {
		t.Errorf("%v allocations a millisecond", n)
	}
}

func BenchmarkQav(b *testing.B) {
	nictest.Benchmark(b, build(b, "qav=on", "queue0.txtime=on", "queue1.idleslope=100mbit"))
}
