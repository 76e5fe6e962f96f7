package mana

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/nic/nictest"
)

func build(t testing.TB, settings ...string) *nictest.Rig {
	t.Helper()
	return nictest.Build(t, New(), settings...)
}

// frame lays a frame out in a linear part of the given bytes and fragments of
// 4 KB; hdr 0 makes it a single packet.
func frame(r *nictest.Rig, linear, frags, hdr int) *nic.Frame {
	f := r.Frame(0)
	f.Linear = 1
	f.Bufs = append(f.Bufs, nic.Buf{Len: linear})
	for range frags {
		f.Bufs = append(f.Bufs, nic.Buf{Len: 4096})
	}
	if n := linear + 4096*frags; hdr > 0 {
		f.GSO(n, hdr, 1448)
	} else {
		f.Single(n)
	}
	return f
}

// The table of work request sizes: 8 bytes of header, 8 or 24 of out-of-band
// data, 16 for each scatter/gather element, in units of 32; and after how many
// such packets a send queue of 256 units stops: once more than 240 are used.
func TestWorkRequestsAreCountedInBasicUnits(t *testing.T) {
	for _, c := range []struct {
		name                string
		linear, frags, hdr  int
		short, long, filled int
	}{
		{"small, linear", 64, 0, 0, 1, 2, 241},
		{"linear and a fragment", 66, 1, 0, 2, 2, 121},
		{"TSO, headers and two fragments", 66, 2, 66, 2, 3, 121},
		{"TSO, headers and three fragments", 66, 3, 66, 3, 3, 81},
		{"TSO, headers and four fragments", 66, 4, 66, 3, 4, 81},
		{"TSO, headers and 17 fragments", 66, 17, 66, 10, 10, 25},
		{"TSO, payload behind the headers, 17 fragments", 200, 17, 66, 10, 11, 25},
	} {
		for _, oob := range []string{"short", "long"} {
			r := build(t, "queues=1", "oob="+oob)
			r.NIC.SetRate(0)
			want := map[string]int{"short": c.short, "long": c.long}[oob]
			n := 0
			for ; !r.Stopped(0); n++ {
				f := frame(r, c.linear, c.frags, c.hdr)
				if got := r.NIC.Descriptors(f); got != want {
					t.Fatalf("%s, %s: %d units, want %d", c.name, oob, got, want)
				}
				if !r.Post(f, true) {
					t.Fatalf("%s: refused before it stopped", c.name)
				}
			}
			if oob == "short" && n != c.filled {
				t.Errorf("%s: stops after %d, want %d", c.name, n, c.filled)
			}
		}
	}
}

func TestSendQueuesHaveTheDriversSizes(t *testing.T) {
	for value, want := range map[string]int{"128": 128, "129": 256, "257": 512, "16384": 16384} {
		d := New()
		if err := d.Set("ring.tx", value); err != nil || d.Config.Ring.TX != want {
			t.Errorf("ring.tx = %s gives %d, %v; want %d", value, d.Config.Ring.TX, err, want)
		}
	}
	for _, value := range []string{"127", "16385"} {
		if err := New().Set("ring.tx", value); err == nil || !strings.Contains(err.Error(), "128 to 16384") {
			t.Errorf("ring.tx = %s: %v", value, err)
		}
	}
}

func TestGSOFramesWithoutTheirHeadersInOnePieceAreDropped(t *testing.T) {
	r := build(t, "queues=1")
	r.Post(frame(r, 40, 3, 66), false)
	if got := r.NIC.Stats().Dropped["headers_not_linear"]; got.Frames != 1 {
		t.Errorf("dropped %+v", r.NIC.Stats().Dropped)
	}
	if err := r.NIC.Audit(); err != nil {
		t.Error(err)
	}
}

// 8 Gbit/s make a byte a nanosecond; a quantum of 2000 bytes; a completion is
// seen 100 ns after its packet. At 0 queue 0 gets A and B of 1514 bytes, queue 1
// gets C, D and E of 600.
//
//	A takes the idle cap at once: 0 to 1514; queue 0 has 486 of its quantum left.
//	B needs 1514: queue 1's turn, quantum 2000: C to 2114, D to 2714, E to 3314.
//	Queue 0 again, 486 + 2000: B to 4828.
//
// Without preamble, FCS and gap the ends are those of the last bits.
func TestQueuesShareTheCapByDeficitRoundRobin(t *testing.T) {
	r := build(t, "queues=2", "link.rate=8gbit", "quantum=2000b", "writeback.latency=100ns")
	var got []string
	r.OnComplete = func(f *nic.Frame) {
		got = append(got, fmt.Sprint(f.Queue, " ", f.Seq, " ", f.WireStart, " ", f.WireEnd, " ", f.Completed))
	}
	for _, c := range [][2]int{{0, 1514}, {0, 1514}, {1, 600}, {1, 600}, {1, 600}} {
		r.Send(c[0], c[1])
	}
	r.Eng.AdvanceTo(engine.Millisecond)
	want := []string{"0 1 0 1514 1614", "1 1 1514 2114 2214", "1 2 2114 2714 2814", "1 3 2714 3314 3414", "0 2 3314 4828 4928"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestADoorbellRingsForEveryPacket(t *testing.T) {
	r := build(t, "queues=1")
	sent := 0
	r.OnWire = func(*nic.Frame, engine.Time) { sent++ }
	f := r.Frame(0)
	f.Single(1000)
	r.Post(f, true) // xmit_more
	r.Eng.AdvanceTo(engine.Millisecond)
	if sent != 1 {
		t.Error("the card waits for another packet")
	}
}

// Stopped at fewer than 16 units free, a queue wakes as soon as 16 are: with
// one-unit packets that is the first completion.
func TestStopAndWakeHaveNoHysteresis(t *testing.T) {
	r := build(t, "queues=1")
	r.NIC.SetRate(0)
	for !r.Stopped(0) {
		r.Send(0, 60)
	}
	freeAtWake := -1
	r.Refill = func(int) {
		if freeAtWake < 0 {
			freeAtWake = 256 - r.NIC.RingUsed(0)
		}
	}
	r.NIC.SetRate(10e9)
	r.Eng.AdvanceTo(engine.Millisecond)
	if freeAtWake != 16 {
		t.Errorf("woken with %d units free", freeAtWake)
	}
}

func TestXDPCountsForBQLOnlyAsPosted(t *testing.T) {
	for variant, want := range map[string]int{"off": 0, "on": 1500, "merged": 1500, "v1": 3000} {
		r := build(t, "queues=1", "bql="+variant)
		r.NIC.SetRate(0)
		for _, xdp := range []bool{false, true} {
			f := r.Frame(0)
			f.Single(1500)
			f.XDP = xdp
			if !r.Post(f, false) {
				t.Fatal("refused")
			}
		}
		if got := r.NIC.Inflight(0); got != want {
			t.Errorf("%s: %d bytes in flight, want %d", variant, got, want)
		}
		r.NIC.SetRate(10e9)
		r.Eng.AdvanceTo(engine.Millisecond)
		if err := r.NIC.Audit(); err != nil || r.NIC.Inflight(0) != 0 {
			t.Errorf("%s: %v, %d bytes in flight", variant, err, r.NIC.Inflight(0))
		}
	}
}

func TestBQLCountsGSOFramesOnce(t *testing.T) {
	r := build(t, "queues=1", "bql=on")
	r.NIC.SetRate(0)
	f := r.Frame(0)
	f.GSO(66+14480, 66, 1448)
	r.Post(f, false)
	if got := r.NIC.Inflight(0); got != 66+14480 {
		t.Errorf("%d bytes in flight", got)
	}
}

func TestXDPSendsToAStoppedQueueUntilItIsFull(t *testing.T) {
	r := build(t, "queues=1")
	r.NIC.SetRate(0)
	for range 256 + 3 {
		f := r.Frame(0)
		f.Single(60)
		f.XDP = true
		if !r.Post(f, false) {
			t.Fatal("a frame of XDP is given back")
		}
	}
	s := r.NIC.Stats()
	if r.NIC.RingUsed(0) != 256 || s.Dropped["xdp_tx_busy"].Frames != 3 {
		t.Errorf("%d units used, dropped %v", r.NIC.RingUsed(0), s.Dropped)
	}
	if err := r.NIC.Audit(); err != nil {
		t.Error(err)
	}
}

// The driver looks at the first queue after 1, 3, 7 ms …, then at the next.
func TestDetachWaitsForTheRingsToDrain(t *testing.T) {
	r := build(t, "queues=2", "bql=on", "link.rate=8gbit")
	for q := range 2 {
		for range 100 {
			f := r.Frame(q)
			f.GSO(66+20*1448, 66, 1448) // 30280 bytes on the wire
			r.Post(f, false)
		}
	}
	// 200 packets take 6.056 ms; 7 ms is the first look after that.
	downAt := engine.Time(0)
	r.NIC.Down(func() { downAt = r.Eng.Now() })
	late := r.Frame(0)
	late.Single(100)
	r.Post(late, false)
	r.Eng.AdvanceTo(engine.Second)
	s := r.NIC.Stats()
	if downAt != 7*engine.Millisecond || s.Sent.Frames != 200 || s.Dropped["port_down"].Frames != 1 {
		t.Errorf("down at %d, %d sent, dropped %v", downAt, s.Sent.Frames, s.Dropped)
	}
	if err := r.NIC.Audit(); err != nil || !r.Stopped(0) {
		t.Errorf("%v, stopped %v", err, r.Stopped(0))
	}
	r.NIC.Up()
	if r.Stopped(0) || r.Stopped(1) {
		t.Error("still stopped")
	}
}

// A device that completes nothing is waited for until the bound of 120 s; then
// its frames are freed without completion and BQL forgets them.
func TestDetachFreesWhatDoesNotDrain(t *testing.T) {
	r := build(t, "queues=2", "bql=on")
	r.NIC.SetRate(0)
	for q := range 2 {
		r.Send(q, 1500)
	}
	downAt := engine.Time(0)
	r.NIC.Down(func() { downAt = r.Eng.Now() })
	r.Eng.AdvanceTo(200 * engine.Second)
	s := r.NIC.Stats()
	if downAt < 120*engine.Second || downAt > 132*engine.Second || s.Dropped["port_down"].Frames != 2 || r.NIC.Inflight(0) != 0 {
		t.Errorf("down at %d, dropped %v, %d bytes in flight", downAt, s.Dropped, r.NIC.Inflight(0))
	}
	if r.Completed != 2 {
		t.Errorf("%d frames given back", r.Completed)
	}
	if err := r.NIC.Audit(); err != nil {
		t.Error(err)
	}
}

// Without ndo_tx_timeout, as in Linux 6.12, a queue whose completions are lost
// stays stopped; with it all queues are reset.
func TestTheWatchdogResetsAllQueuesIfThereIsOne(t *testing.T) {
	for _, watchdog := range []string{"0ns", "5s"} {
		r := build(t, "queues=2", "bql=on", "watchdog="+watchdog)
		r.NIC.SetRate(0)
		for q := range 2 {
			r.Send(q, 1500)
		}
		r.Eng.AdvanceTo(30 * engine.Second)
		s := r.NIC.Stats()
		if on := watchdog != "0ns"; on != (s.TXTimeouts == 1) || on == r.Stopped(0) || on == r.Stopped(1) {
			t.Errorf("watchdog %s: %d time-outs, stopped %v %v", watchdog, s.TXTimeouts, r.Stopped(0), r.Stopped(1))
		}
		if err := r.NIC.Audit(); err != nil {
			t.Error(err)
		}
	}
}

// A poll reads 512 completions at most; as it handled 64 or more, another
// follows.
func TestAPollReads512Completions(t *testing.T) {
	r := build(t, "queues=1", "ring.tx=2048", "cpu.interrupt=1ms", "cpu.clean=1us")
	at := map[engine.Time]int{}
	r.OnComplete = func(f *nic.Frame) { at[f.Completed]++ }
	for range 1000 {
		r.Send(0, 60)
	}
	r.Eng.AdvanceTo(engine.Second)
	// A packet of 60 bytes takes 45.28 ns at 10.6 Gbit/s; the first raises the
	// interrupt at 45 ns. All are sent when the poll starts 1 ms later: it takes
	// 512 µs, the next 488 µs.
	want := map[engine.Time]int{45 + 1_512_000: 512, 45 + 2_000_000: 488}
	if !reflect.DeepEqual(at, want) {
		t.Errorf("completed at %v, want %v", at, want)
	}
}

func TestCountersBearTheDriversNames(t *testing.T) {
	r := build(t, "queues=1")
	f := r.Frame(0)
	f.GSO(66+14480, 66, 1448)
	r.Post(f, false)
	got := map[string]uint64{}
	for _, c := range r.NIC.Counters() {
		got[c.Name] = c.Value
	}
	want := map[string]uint64{"stop_queue": 0, "wake_queue": 0, "tx_0_packets": 1, "tx_0_bytes": 14546, "tx_0_xdp_xmit": 0, "tx_0_tso_packets": 1, "tx_0_tso_bytes": 14480}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}
