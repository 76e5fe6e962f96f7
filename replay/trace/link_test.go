package trace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nicemu/devices"
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/nic/nictest"
)

// start is when a frame began to leave the card, by the length of the frame.
type start struct {
	At    engine.Time
	Bytes int
}

// rig is a card without BQL whose link is a trace, fast enough that frames take no time to speak of.
func rig(t nictest.TB, text string, queues string) (*nictest.Rig, *[]start) {
	tr, err := Parse(strings.NewReader(text), "x")
	if err != nil {
		t.Fatal(err)
	}
	d, err := devices.New("generic")
	if err != nil {
		t.Fatal(err)
	}
	NewLink(tr).Attach(d)
	r := nictest.Build(t, d, "bql=off", "link.rate=1tbit", "ring.tx=4096", "queues="+queues, "arbitration=strict")
	starts := &[]start{}
	r.OnWire = func(f *nic.Frame, _ engine.Time) { *starts = append(*starts, start{f.WireStart, f.Len}) }
	return r, starts
}

// mmLink is LinkQueue of mahimahi's src/packet/link_queue.cc for packets that are all there from the start: the millisecond in which each leaves.
func mmLink(opportunities []int64, packets []int) (left []int64) {
	next, base := 0, int64(0)
	inTransit, i := 0, 0
	for i < len(packets) {
		now := base + opportunities[next]
		if next++; next == len(opportunities) {
			next = 0
			base += opportunities[len(opportunities)-1]
		}
		for room := OpportunityBytes; room > 0 && i < len(packets); {
			if inTransit == 0 {
				inTransit = packets[i] - ethernetHeader + PacketOverhead
			}
			take := min(room, inTransit)
			room -= take
			if inTransit -= take; inTransit == 0 {
				left = append(left, now)
				i++
			}
		}
	}
	return left
}

// A queue that is never empty leaves in the milliseconds in which it leaves mm-link.
func TestABusyLinkDeliversWhenMahimahiDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opportunities, text := drawTrace(t)
		r, starts := rig(t, text, "1")
		var packets []int
		for range rapid.IntRange(1, 100).Draw(t, "packets") {
			packets = append(packets, rapid.IntRange(60, 1514).Draw(t, "bytes"))
			r.Send(0, packets[len(packets)-1])
		}
		r.Eng.AdvanceTo(1000 * engine.Second)
		left := mmLink(opportunities, packets)
		if len(*starts) != len(left) {
			t.Fatalf("%d of %d frames left", len(*starts), len(left))
		}
		for i, s := range *starts {
			if int64(s.At)/ms != left[i] {
				t.Fatalf("frame %d of %d bytes left at %d ns, mahimahi's in millisecond %d", i, s.Bytes, s.At, left[i])
			}
		}
	})
}

func TestOpportunitiesThatFindNothingAreLost(t *testing.T) {
	r, starts := rig(t, "1\n", "1")
	r.Eng.AdvanceTo(100*engine.Millisecond + 1)
	for range 3 {
		r.Send(0, 1514)
	}
	r.Eng.AdvanceTo(105*engine.Millisecond + 1)
	r.Send(0, 60)
	r.Send(0, 60)
	r.Eng.AdvanceTo(engine.Second)
	want := []start{{101e6, 1514}, {102e6, 1514}, {103e6, 1514}, {106e6, 60}, {106e6, 60}} // both of one opportunity
	if d := cmp.Diff(want, *starts); d != "" {
		t.Error(d)
	}
}

// What one frame leaves of a millisecond's opportunities does not help one that comes later.
func TestOpportunitiesDoNotAddUp(t *testing.T) {
	r, starts := rig(t, "1\n1\n1\n", "1")
	for _, at := range []engine.Time{500_000, 1_500_000, 7_500_000} {
		r.Eng.AdvanceTo(at)
		r.Send(0, 60)
	}
	for range 4 {
		r.Send(0, 1514)
	}
	r.Eng.AdvanceTo(engine.Second)
	want := []start{{1e6, 60}, {2e6, 60}, {8e6, 60}, {8e6, 1514}, {8e6 + 12, 1514}, {9e6, 1514}, {9e6 + 12, 1514}} // 1538 bytes at 1 Tbit/s
	if d := cmp.Diff(want, *starts); d != "" {
		t.Error(d)
	}
}

// While a frame waits for several opportunities, one of a queue that the card prefers does not take them away.
func TestAWaitingFrameIsNotOvertaken(t *testing.T) {
	r, starts := rig(t, "1\n", "2")
	f := r.Frame(1)
	f.GSO(54+4*1460, 54, 1460) // four packets of 1504 bytes
	r.Post(f, false)
	r.Eng.AdvanceTo(engine.Millisecond + 1)
	r.Send(0, 60)
	r.Eng.AdvanceTo(engine.Second)
	if d := cmp.Diff([]start{{4e6, 54 + 4*1460}, {5e6, 60}}, *starts); d != "" {
		t.Error(d)
	}
}

func TestTheCardsLawsHoldOnATrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, starts := rig(t, "1\n1\n4\n", "3")
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "post") {
				r.Send(rapid.IntRange(0, 2).Draw(t, "queue"), rapid.IntRange(60, 9000).Draw(t, "bytes"))
			} else {
				r.Eng.AdvanceTo(r.Eng.Now() + engine.Time(rapid.Int64Range(0, 3e6).Draw(t, "wait")))
			}
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if err := r.NIC.Audit(); err != nil {
				t.Fatal(err)
			}
		}
		r.Eng.AdvanceTo(r.Eng.Now() + 10*engine.Second)
		if s := r.NIC.Stats(); s.Queued.Frames != 0 || int(s.Sent.Frames) != len(*starts) {
			t.Fatalf("%d frames queued, %d sent", s.Queued.Frames, s.Sent.Frames)
		}
	})
}

func BenchmarkLink(b *testing.B) {
	r, _ := rig(b, strings.Repeat("1\n", 80), "1") // 960 Mbit/s
	r.OnWire = nil
	r.Saturate(1514)
	b.ReportAllocs()
	b.ResetTimer()
	for end := r.Completed + uint64(b.N); r.Completed < end; {
		r.Eng.Step()
	}
}
