package tsnep

import (
	"math"
	"strings"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/nic/nictest"

	"github.com/google/go-cmp/cmp"
)

func build(t testing.TB, settings ...string) *nictest.Rig {
	t.Helper()
	return nictest.Build(t, New(), settings...)
}

// Of 255 usable descriptors the stack fills 238, so that 17 are free; the poll
// that leaves 219 in use, 36 free, wakes it.
func TestStopsAt238AndWakesAt219(t *testing.T) {
	r := build(t, "coalesce.rx_usecs=0", "coalesce.mode=throttle")
	n := 0
	for !r.Stopped(0) {
		if !r.Send(0, 1514) {
			t.Fatal("NETDEV_TX_BUSY")
		}
		n++
	}
	if n != 238 || r.NIC.RingUsed(0) != 238 {
		t.Fatalf("stopped after %d frames, %d descriptors in use", n, r.NIC.RingUsed(0))
	}
	woken := -1
	r.Refill = func(int) { woken = r.NIC.RingUsed(0) }
	r.Eng.AdvanceTo(10 * engine.Millisecond)
	if woken != 219 {
		t.Errorf("woken with %d descriptors in use, want 219", woken)
	}
}

// Frames of XDP leave 18 descriptors to the stack and never stop its queue.
func TestXDPLeavesTheStackItsRoom(t *testing.T) {
	r := build(t)
	for i := range 300 {
		f := r.Frame(0)
		f.Single(60)
		f.XDP = true
		r.Post(f, false)
		if r.Stopped(0) {
			t.Fatalf("frame %d of XDP stops the stack's queue", i)
		}
	}
	if used := r.NIC.RingUsed(0); used != 255-18 {
		t.Errorf("XDP fills %d descriptors, want %d", used, 255-18)
	}
	if !r.Send(0, 60) {
		t.Error("no room left for the stack")
	}
}

func TestThereIsNoBQL(t *testing.T) {
	r := build(t)
	r.Send(0, 1514)
	if r.NIC.Inflight(0) != 0 || r.NIC.Limit(0) != 0 {
		t.Errorf("inflight %d, limit %d: the driver reports nothing to BQL", r.NIC.Inflight(0), r.NIC.Limit(0))
	}
	for _, key := range []string{"bql", "ring.tx", "watchdog"} {
		if err := New().Set(key, "on"); err == nil {
			t.Errorf("%s is a knob, the driver has none", key)
		}
	}
}

func TestDelayIsFlooredToSteps(t *testing.T) {
	for value, want := range map[string]string{"0": "0ns", "15": "0ns", "16": "16us", "64us": "64us", "100": "96us", "255": "240us"} {
		d := New()
		if err := d.Set("coalesce.rx_usecs", value); err != nil {
			t.Fatal(err)
		}
		if got := d.Config.Coalesce.Usecs.String(); got != want {
			t.Errorf("rx-usecs %s: kept %s, want %s", value, got, want)
		}
	}
	if err := New().Set("coalesce.rx_usecs", "256"); err == nil || !strings.Contains(err.Error(), "ERANGE") {
		t.Errorf("rx-usecs 256: %v, want ERANGE", err)
	}
}

// Frames that arrive each 12,304 ns and cost nothing to receive: the interval of
// interrupts under each rule with 64 µs. By hand:
//
//	hold-off   64,000 after an interrupt at 0 the 6th frame has passed (61,520 at
//	           the latest); the next starts the delay: 11 frame times,
//	           135,344, as 64,000 is 5.2 frame times and 128,000 is 10.4
//	delay      each frame time that the interrupt has passed by starts 64,000:
//	           6 frame times, 73,824
//	throttle   64,000
func TestIntervalOfEveryDelayRule(t *testing.T) {
	for mode, want := range map[string]engine.Time{modeHoldOff: 135_344, modeDelay: 73_824, modeThrottle: 64_000} {
		r := build(t, "coalesce.mode="+mode)
		var frame engine.Timer
		r.Eng.Init(&frame, func() {
			f := r.Frame(0)
			f.Single(1514)
			if !r.NIC.Receive(f) {
				t.Fatal("receive ring full")
			}
			r.Eng.After(&frame, 12_304)
		})
		r.Eng.After(&frame, 0)
		r.Eng.AdvanceTo(100 * engine.Millisecond)
		before := r.NIC.Stats().Interrupts
		const span = engine.Second
		r.Eng.AdvanceTo(r.Eng.Now() + span)
		got := float64(span) / float64(r.NIC.Stats().Interrupts-before)
		if math.Abs(got-float64(want)) > 0.001*float64(want) {
			t.Errorf("%s: an interrupt each %.0f ns, want %d", mode, got, want)
		}
	}
}

// A lone frame in the hold-off after an interrupt has nobody to start the timer
// for it: a delay after the hold-off it starts by itself.
func TestALoneFrameInTheHoldOffIsNotStranded(t *testing.T) {
	r := build(t)
	receive := func() {
		f := r.Frame(0)
		f.Single(60)
		r.NIC.Receive(f)
	}
	receive()
	r.Eng.AdvanceTo(64_000)
	if r.Delivered != 1 {
		t.Fatal("the first frame waits one delay")
	}
	r.Eng.AdvanceTo(70_000)
	receive() // 6 µs after the interrupt
	r.Eng.AdvanceTo(64_000 + 3*64_000 - 1)
	if r.Delivered != 1 {
		t.Error("delivered before hold-off, wait and delay were over")
	}
	r.Eng.AdvanceTo(64_000 + 3*64_000)
	if r.Delivered != 2 {
		t.Error("stranded")
	}
}

// Without memory the ring is never empty: once three quarters of it are, a frame
// received is dropped for its page.
func TestMemoryShortageDropsFramesBeforeTheRingIsEmpty(t *testing.T) {
	r := build(t, "ring.rx_alloc_fail=1", "coalesce.rx_usecs=0")
	for range 1000 {
		f := r.Frame(0)
		f.Single(1514)
		if !r.NIC.Receive(f) {
			t.Fatal("the ring has no descriptor left")
		}
		r.Eng.AdvanceTo(r.Eng.Now() + 12_304)
	}
	s := r.NIC.RXQueue(0)
	if s.Delivered.Frames != 192 || s.Dropped.Frames != 808 || s.NoDescriptor.Frames != 0 {
		t.Errorf("%+v, want 192 delivered before 192 descriptors are empty, then all dropped", s)
	}
	if err := r.NIC.Audit(); err != nil {
		t.Error(err)
	}
}

// Gates: queue 0 may send in the first 100 µs of each 500, queue 1 in the rest,
// from 1 ms on. Full frames take 12,304 ns, of which 12,208 up to the FCS; so
// queue 0's last frame starts at 7·12,304 = 86,128 and ends its FCS at 98,336,
// the next would end at 110,640.
func TestGatesLetAFrameOutOnlyIfItEndsInTime(t *testing.T) {
	r := build(t, "queues=2", "gates=01 100us, 02 400us", "gates.base_time=1ms", "arbitration=strict")
	starts := map[int][]engine.Time{}
	r.OnWire = func(f *nic.Frame, end engine.Time) {
		if f.WireStart < engine.Millisecond {
			return
		}
		starts[f.Queue] = append(starts[f.Queue], (f.WireStart-engine.Millisecond)%(500*engine.Microsecond))
		if shut := [2]engine.Time{100_000, 500_000}[f.Queue]; (end-engine.Millisecond)%(500*engine.Microsecond) > shut {
			t.Errorf("queue %d: a frame ends at %d, after its gate has shut", f.Queue, end)
		}
	}
	r.Saturate(1514)
	r.Eng.AdvanceTo(engine.Millisecond + 1500*engine.Microsecond)
	var want0 []engine.Time
	for i := range 8 {
		want0 = append(want0, engine.Time(i)*12_304)
	}
	// The frame that was on the wire when the list started delays the first cycle.
	if diff := cmp.Diff(want0, starts[0][len(starts[0])-8:]); diff != "" {
		t.Error(diff)
	}
	// 400 µs hold 32 frames: 31·12,304 + 12,208 = 393,632.
	last := starts[1][len(starts[1])-32:]
	if last[0] != 100_000 || last[31] != 100_000+31*12_304 {
		t.Errorf("queue 1 sends at %v", last)
	}
}

func TestGateListsAreCheckedAsTheDriverDoes(t *testing.T) {
	for list, want := range map[string]string{
		"ff 31ns": "at least 32ns",
		"100 1ms": "at most ff",
		strings.TrimSuffix(strings.Repeat("1 1us, ", 256), ", "): "at most 255",
	} {
		d := New()
		if err := d.Set("gates", list); err != nil {
			t.Fatal(err)
		}
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, want an error with %q", list, err, want)
		}
	}
	for _, list := range []string{"01", "01 100", "xyz 1ms", "01 0ns", "01 5s", "S 01 1ms"} {
		if err := New().Set("gates", list); err == nil {
			t.Errorf("%q is taken", list)
		}
	}
	d := New()
	if err := d.Set("gates", "0x01 300us,fe 700us"); err != nil {
		t.Fatal(err)
	}
	for _, k := range d.Knobs() {
		if k.Key == "gates" && k.Value() != "01 300us, fe 700us" {
			t.Errorf("written back as %q", k.Value())
		}
	}
}
