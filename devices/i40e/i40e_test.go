package i40e

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/nic/nictest"
)

// 8 Gbit/s make a byte a nanosecond. Five frames of 976 bytes, 1000 on the wire
// with preamble, FCS and gap, posted at 0; interrupts at least 20 µs apart, each
// takes 5 µs of core time before the poll.
//
//	 frame  first bit  last bit of FCS  (MAC done when the data is read: 16 ns before the gap ends)
//	   1         0          988         984: interrupt (the first is never held off), poll from 5984 on
//	   2      1000         1988
//	   3      2000         2988
//	   4      3000         3988         3984: the fourth, RS: written back, and 2 and 3 with it
//	   5      4000         4988         no RS: not written back
//	5984: the poll finds frames 1 to 4; frame 5 is pending: next interrupt at
//	984 + 20000 = 20984, which writes it back; its poll runs at 25984.
func TestEveryFourthFrameReports(t *testing.T) {
	r := nictest.Build(t, New(), "link.rate=8gbit", "bql=off", "coalesce.mode=fixed", "coalesce.tx_usecs=20us", "cpu.interrupt=5us")
	var got []string
	r.OnComplete = func(f *nic.Frame) {
		got = append(got, fmt.Sprint(f.Seq, " ", f.WireStart, " ", f.WireEnd, " ", f.Completed))
	}
	for range 5 {
		r.Send(0, 976)
	}
	r.Eng.AdvanceTo(engine.Second)
	want := []string{"1 0 988 5984", "2 1000 1988 5984", "3 2000 2988 5984", "4 3000 3988 5984", "5 4000 4988 25984"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A ring of 512 stops once more than 511-23 = 488 slots are in use: after 49
// packets of ten descriptors, after 62 of eight. It wakes with 46 free.
func TestRingStopsAndWakes(t *testing.T) {
	for _, c := range []struct {
		maxData string
		packets int
		desc    int // of a packet
	}{{max8K, 49, 10}, {max12K, 62, 8}} {
		r := nictest.Build(t, New(), "max_data="+c.maxData, "bql=off", "coalesce.mode=fixed", "coalesce.tx_usecs=0us")
		r.NIC.SetRate(0)
		var frags nic.PageFrags
		n := 0
		for ; !r.Stopped(0); n++ {
			f := r.Frame(0)
			f.GSO(66+65536, 66, 1448)
			frags.LayOut(f)
			if !r.Post(f, false) {
				t.Fatal("refused before it stopped")
			}
		}
		if n != c.packets {
			t.Errorf("%s: stops after %d packets, want %d", c.maxData, n, c.packets)
		}
		woken := 0
		r.Refill = func(int) { woken = 511 - r.NIC.RingUsed(0) }
		r.NIC.SetRate(40e9)
		r.Eng.AdvanceTo(engine.Second)
		// One packet is cleaned at a time, so the free slots at the wake are the
		// first count of 46 or more.
		free := 511 - n*c.desc
		for free < 46 {
			free += c.desc
		}
		if woken != free {
			t.Errorf("%s: woken with %d free, want %d", c.maxData, woken, free)
		}
	}
}

func TestScatteredFramesAreLinearized(t *testing.T) {
	r := nictest.Build(t, New(), "bql=off")
	f := r.Frame(0)
	f.GSO(66+17*200, 66, 1448) // six fragments hold 1200 bytes: less than a segment
	f.Linear = 1
	f.Bufs = append(f.Bufs, nic.Buf{Len: 66})
	for i := range 17 {
		f.Bufs = append(f.Bufs, nic.Buf{Addr: uint64(i) * 4096, Len: 200})
	}
	r.Post(f, false)
	if used := r.NIC.RingUsed(0); used != 2 { // context and one buffer
		t.Errorf("%d descriptors", used)
	}
	for _, c := range r.NIC.Counters() {
		if c.Name == "tx_linearize" && c.Value != 1 {
			t.Errorf("tx_linearize %d", c.Value)
		}
	}
}

func work(packets, bytes int) nic.Work {
	return nic.Work{TXFrames: packets, TXPackets: packets, TXBytes: bytes}
}

func TestAdaptiveITRAsTheDriverSays(t *testing.T) {
	fresh := func() *adaptive {
		return &adaptive{hz: 250, divisor: 1024, tx: itr{itrMax | itrLatency, itrMax | itrLatency}, rx: itr{itrMin | itrLatency, itrMin | itrLatency}, updated: 0}
	}
	const now = 100 * engine.Microsecond
	for _, c := range []struct {
		name        string
		w           nic.Work
		target, cur int // before, microseconds with flag
		want        int
	}{
		{"MTU stream at 40G", work(300, 300*1514), 100, 100, 30}, // 2·⌈29990/2048⌉
		{"64-byte stream", work(300, 300*60), 100, 100, 4},       // 2·⌈4096/2048⌉
		{"fewer than 56 packets", work(40, 40*1514), 100, 100, 102},
		{"no more than 126", work(40, 40*1514), 126, 126, 126},
		{"between 56 and 112: the smaller of both directions", work(100, 100*1514), 100, 100, 50},
		{"between 113 and 256: half of it", work(200, 200*1514), 100, 100, 24},
		{"more than 32 packets end latency mode", work(40, 40*1514), 100 | itrLatency, 100 | itrLatency, 102},
		{"few packets keep it", work(10, 10*1514), 100 | itrLatency, 100 | itrLatency, 102 | itrLatency},
	} {
		m := fresh()
		m.tx, m.rx = itr{c.target, c.cur}, itr{50, 50}
		m.Polled(now, c.w)
		if m.tx.target != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, m.tx.target, c.want)
		}
	}
	m := fresh()
	m.tx, m.rx = itr{126, 126}, itr{126, 126}
	m.Polled(now, work(2, 3000))
	if m.tx.target != itrMax|itrLatency {
		t.Errorf("both at most and few packets: %#x", m.tx.target)
	}
	m.Polled(now+5*engine.Millisecond, work(100, 151400))
	if m.tx.target != itrMax|itrLatency || m.rx.target != itrMin|itrLatency {
		t.Errorf("after more than a jiffy: %#x and %#x", m.tx.target, m.rx.target)
	}
}

func TestOneITRIsProgrammedAtATime(t *testing.T) {
	m := &adaptive{hz: 250, divisor: 1024, tx: itr{100, 100}, rx: itr{100, 100}}
	m.Polled(1000, nic.Work{TXPackets: 300, TXBytes: 300 * 1514, RXFrames: 300, RXBytes: 300 * 1514})
	if m.rx.current != 30 || m.tx.current != 100 || m.countdown != countdown {
		t.Fatalf("rx %d tx %d: a receive interval that shrinks goes first", m.rx.current, m.tx.current)
	}
	m.Polled(2000, nic.Work{TXPackets: 300, TXBytes: 300 * 1514})
	if m.tx.current != 30 || m.tx.target != 30 {
		t.Fatalf("tx %d of %d", m.tx.current, m.tx.target)
	}
}

func TestKnobsHaveTheDriversLimits(t *testing.T) {
	d := New()
	for _, c := range [][2]string{{"ring.tx", "32"}, {"ring.tx", "8161"}, {"max_data", "16kb"}, {"coalesce.tx_usecs", "8161us"}} {
		if err := d.Set(c[0], c[1]); err == nil {
			t.Errorf("%s = %s was taken", c[0], c[1])
		}
	}
	if err := d.Set("ring.tx", "65"); err != nil || d.Config.Ring.TX != 96 {
		t.Errorf("ring.tx = 65 gives %d, %v; want 96", d.Config.Ring.TX, err)
	}
}
