package igb

import (
	"math"
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

// stamp is what a frame met on its way, in ns.
type stamp struct {
	Queue                      int
	Fetched, Start, End, Freed engine.Time
}

func trace(r *nictest.Rig) *[]stamp {
	var list []stamp
	r.OnComplete = func(f *nic.Frame) {
		list = append(list, stamp{f.Queue, f.Fetched, f.WireStart, f.WireEnd, f.Completed})
	}
	return &list
}

func post(r *nictest.Rig, q, bytes int, launch engine.Time) {
	f := r.Frame(q)
	f.Single(bytes)
	f.Launch = launch
	r.Post(f, false)
}

// wantThree posts the three frames of the golden tests and compares.
func wantThree(t *testing.T, r *nictest.Rig, want []stamp) {
	t.Helper()
	got := trace(r)
	post(r, 3, 1514, 0)
	post(r, 3, 1514, 0)
	post(r, 0, 1514, 60_010)
	r.Eng.AdvanceTo(engine.Millisecond)
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Error(diff)
	}
}

// Two best-effort frames of 1514 bytes in queue 3 and one of 1514 bytes to be
// launched at 60,010 ns from queue 0 are posted at 0. By hand:
//
//	fetch        860 + (1514 + 12·20 bytes of bus packet headers)·4 ns = 860 + 7016 = 7876 ns
//	preamble 64 ns, data 12,112, FCS 32, gap 96: 12,304 ns on the wire; a buffer
//	is free again, and the next frame chosen, 12,176 ns after the start
//	60,010 ns is step 1875 of 32 ns: launch at 60,000
//	guard: queue 3 may not start after 60,000 - 4032·8 = 27,744
//
// Queue 3 has 4 KB: the second fetch needs 4032 B free, so waits for the first
// frame to be read. The doorbell of queue 3 rings first.
//
//	     0 fetch 3a        7,876 3a in, starts; fetch 0 (round robin)
//	15,752 0 in, waits for 60,000
//	20,052 3a read (7,876 + 12,176), its buffer free: fetch 3b
//	20,084 3a's FCS has left (7,876 + 12,208)
//	27,928 3b in: 184 ns too late for the guard
//	60,000 0 starts, FCS out at 72,208; medium free at 72,304: 3b starts
//	84,512 3b's FCS out
//
// With rx-usecs 0 every frame is freed as soon as the card has read it: 0 at
// 72,176 and 3b at 84,480.
func TestGoldenFourKilobytesHoldBackBehindTheGuard(t *testing.T) {
	r := build(t, "qav=on", "txpbsize=8kb,8kb,4kb,4kb", "queue0.txtime=on", "coalesce.rx_usecs=0")
	wantThree(t, r, []stamp{
		{3, 7_876, 7_876, 20_084, 20_052},
		{0, 15_752, 60_000, 72_208, 72_176},
		{3, 27_928, 72_304, 84_512, 84_480},
	})
}

// The same three frames with 6 KB: 6144 - 1514 = 4630 B are free beside the
// first frame, more than 4032, so the second is fetched while the first is on the
// wire, in its turn after queue 0's, and starts before the guard.
//
//	     0 fetch 3a        7,876 3a in, starts; fetch 0
//	15,752 0 in; fetch 3b
//	20,180 3a's time on the wire is over (7,876 + 12,304): 3b is not in yet
//	23,628 3b in, starts: 27,744 has not come
//	35,804 3b read        35,836 its FCS out
//	60,000 0 starts
func TestGoldenSixKilobytesFetchAheadOfTheWire(t *testing.T) {
	r := build(t, "qav=on", "queue0.txtime=on", "coalesce.rx_usecs=0")
	wantThree(t, r, []stamp{
		{3, 7_876, 7_876, 20_084, 20_052},
		{3, 23_628, 23_628, 35_836, 35_804},
		{0, 15_752, 60_000, 72_208, 72_176},
	})
}

// In legacy mode the three frames share 20 KB and leave in fetch order, which is
// that of the doorbells: a launch time means nothing and nothing guards it.
//
//	7,876, 14,892 and 21,908: fetched at once (20,480 - 3·1514 > 9728), so the
//	latency of 860 ns counts once and each has 7016 ns of the bus
//	7,876, 20,180 and 32,484: started back to back
func TestGoldenLegacyLeavesInFetchOrder(t *testing.T) {
	r := build(t, "coalesce.rx_usecs=0")
	wantThree(t, r, []stamp{
		{3, 7_876, 7_876, 20_084, 20_052},
		{3, 14_892, 20_180, 32_388, 32_356},
		{0, 21_908, 32_484, 44_692, 44_660},
	})
}

// Small frames, 60 bytes, 672 ns on the wire and 320 ns on the bus with a header of 20: six latencies
// at once hide behind the wire, or bound the rate if they are long; Qav mode
// waits for each.
func TestLegacyModeFetchesSixPacketsAtOnce(t *testing.T) {
	for _, c := range []struct {
		settings []string
		period   float64 // ns a frame
	}{
		{[]string{"fetch.latency=860ns"}, 672},
		{[]string{"fetch.latency=10us"}, (10_000 + 320) / 6.0},
		{[]string{"fetch.latency=10us", "fetch.outstanding=2"}, (10_000 + 320) / 2.0},
		{[]string{"fetch.latency=10us", "qav=on"}, 10_000 + 320},
	} {
		r := build(t, append(c.settings, "bql=off", "ring.tx=4096")...)
		r.Pktgen(3, 60)
		r.Eng.AdvanceTo(10 * engine.Millisecond)
		before := r.NIC.Stats().Sent.Frames
		r.Eng.AdvanceTo(60 * engine.Millisecond)
		got := 50e6 / float64(r.NIC.Stats().Sent.Frames-before)
		if math.Abs(got/c.period-1) > 0.001 {
			t.Errorf("%v: a frame each %.1f ns, want %.1f", c.settings, got, c.period)
		}
	}
}
