package gate

import (
	"testing"

	"pgregory.net/rapid"
)

// ring is a card below a valve.
type ring struct {
	limit, slots          int64
	bytes, packets        uint64 // passed
	doneBytes, doneFrames uint64
	fifo                  []int64 // frames
}

func drawRing(t *rapid.T) (r ring) {
	r.limit = rapid.Int64Range(0, 300000).Draw(t, "limit")
	r.slots = rapid.Int64Range(1, 4096).Draw(t, "slots")
	if rapid.Bool().Draw(t, "no byte limit") {
		r.limit = 1 << 60
	}
	return r
}

func (r *ring) take(frame int64) {
	r.fifo = append(r.fifo, frame)
	r.bytes += uint64(frame)
	r.packets++
}

func (r *ring) complete(n int) {
	for ; n > 0 && len(r.fifo) > 0; n-- {
		r.doneBytes += uint64(r.fifo[0])
		r.doneFrames++
		r.fifo = r.fifo[1:]
	}
}

func (r *ring) room() Room {
	return Room{Bytes: r.limit - int64(r.bytes-r.doneBytes), Packets: r.slots - int64(r.packets-r.doneFrames)}
}

// world is tbf, the qdisc beneath it and a card, as far as credit is concerned.
type world struct {
	ring
	t      *rapid.T
	cut    int // segments are cut after the qdisc to this many bytes; 0 = before it or never
	credit Credit
	recent recent
	most   uint64 // largest entered in this window

	tokens      int64
	queue       []int64
	wire        uint64 // bytes passed, with the headers of segments
	burst       int64
	largestEver int64
}

func (w *world) enqueue(size int64) {
	w.most = max(w.most, uint64(size))
	w.largestEver = max(w.largestEver, size)
	if size > w.burst {
		w.t.Fatalf("a packet of %d bytes was refused: burst %d", size, w.burst)
	}
	w.queue = append(w.queue, size)
	w.run()
}

// run is tbf_dequeue until it refuses.
func (w *world) run() {
	for len(w.queue) > 0 && w.tokens >= w.queue[0]+overhead {
		size := w.queue[0]
		w.queue = w.queue[1:]
		w.tokens -= size + overhead
		for _, frame := range w.frames(size) {
			if w.cut == 0 { // the card gets one copy of the headers, a twentieth of the bytes on the wire
				w.wire += uint64(frame) + uint64(frame)/100
				frame -= frame / 20
			} else {
				w.wire += uint64(frame)
			}
			w.take(frame)
		}
	}
}

func (w *world) frames(size int64) (out []int64) {
	if w.cut == 0 {
		return []int64{size}
	}
	for ; size > int64(w.cut); size -= int64(w.cut) {
		out = append(out, int64(w.cut))
	}
	return append(out, size)
}

func (w *world) room() Room {
	r := w.ring.room()
	if w.cut > 0 {
		r.Bytes = min(r.Bytes, (r.Packets-1)*int64(w.cut))
	}
	return r
}

// turn is one turn of the live loop; it reports whether it granted.
func (w *world) turn() bool {
	largest, next := w.recent.largest(w.most, w.packets)
	if next {
		w.most = 0
	}
	room := w.room()
	burst, grant := w.credit.Decide(room, w.wire, w.packets, largest)
	if grant {
		w.burst = int64(burst)
		w.tokens = int64(burst) + overhead
		if room.Open() {
			w.run()
		}
	}
	return grant
}

func draw(t *rapid.T, cut int) *world {
	w := &world{ring: drawRing(t), t: t, cut: cut, burst: MaxPacket}
	w.tokens = w.burst + overhead // tbf_init
	return w
}

func sizes(t *rapid.T) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(42, 120), rapid.Just[int64](1514), rapid.Int64Range(minPacket, MaxPacket), rapid.Just[int64](MaxPacket))
}

func TestQueueNeverStandsStillWithRoomAndAPacket(t *testing.T) {
	for _, cut := range []int{0, 1514} {
		rapid.Check(t, func(t *rapid.T) {
			w := draw(t, cut)
			size := sizes(t)
			for range rapid.IntRange(1, 300).Draw(t, "steps") {
				switch rapid.IntRange(0, 4).Draw(t, "event") {
				case 0, 1:
					for range rapid.IntRange(1, 30).Draw(t, "burst") {
						w.enqueue(size.Draw(t, "size"))
					}
				case 2:
					w.complete(rapid.IntRange(1, 100).Draw(t, "completed"))
				case 3:
					w.limit = rapid.Int64Range(0, 300000).Draw(t, "new limit")
				case 4:
					w.slots = rapid.Int64Range(1, 4096).Draw(t, "new slots")
				}
				for turns := 0; w.turn(); turns++ {
					if turns > 20000 {
						t.Fatal("grants without end")
					}
				}
				if room := w.room(); room.Open() && len(w.queue) > 0 {
					t.Fatalf("stands still: room %+v, tokens %d, next packet %d", room, w.tokens, w.queue[0])
				}
			}
		})
	}
}

func TestCardNeverHoldsMoreThanItsLimitAndOnePacket(t *testing.T) {
	for _, cut := range []int{0, 1514} {
		rapid.Check(t, func(t *rapid.T) {
			w := draw(t, cut)
			most := rapid.SampledFrom([]int64{60, 100, 1514, 3000, 9014, 40000, MaxPacket}).Draw(t, "largest size")
			size := rapid.Int64Range(min(most, 42), most)
			if rapid.Bool().Draw(t, "all alike") {
				size = rapid.Just(most)
			}
			for range rapid.IntRange(1, 300).Draw(t, "steps") {
				if rapid.Bool().Draw(t, "arrive") {
					for range rapid.IntRange(1, 60).Draw(t, "burst") {
						w.enqueue(size.Draw(t, "size"))
					}
				} else {
					w.complete(rapid.IntRange(1, 60).Draw(t, "completed"))
				}
				w.turn() // a loop that turns once per event, and may have granted with packets still waiting
				if held := int64(w.bytes - w.doneBytes); held > w.limit+w.largestEver {
					t.Fatalf("holds %d bytes, limit %d, largest packet %d", held, w.limit, w.largestEver)
				}
				slots := w.slots
				if cut > 0 { // how the last segments fall is not known beforehand: half of the frames may be small
					slots = 2*slots + MaxPacket/1514 + 1
				}
				if held := int64(w.packets - w.doneFrames); held > slots {
					t.Fatalf("holds %d frames, slots %d", held, w.slots)
				}
			}
		})
	}
}

func TestShrinkingLimitCostsAtMostOneMorePacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t, 0)
		w.limit = rapid.Int64Range(100000, 1000000).Draw(t, "wide")
		most := rapid.SampledFrom([]int64{100, 1514, MaxPacket}).Draw(t, "size")
		for range 5000 { // the window has forgotten its beginning
			w.enqueue(most)
			w.turn()
			w.complete(1)
			w.turn()
		}
		w.complete(len(w.fifo))
		w.turn()
		w.limit = rapid.Int64Range(0, 50000).Draw(t, "narrow")
		w.turn() // takes back
		for range 100 {
			w.enqueue(most)
			w.turn()
			if held := int64(w.bytes - w.doneBytes); held > w.limit+2*most {
				t.Fatalf("holds %d bytes, limit %d, packets of %d", held, w.limit, most)
			}
		}
	})
}

func TestALargerPacketTakesCreditBack(t *testing.T) {
	var c Credit
	burst, ok := c.Decide(Room{Bytes: 130000, Packets: 1000}, 0, 0, 100)
	if !ok || burst < 1000*minPacket {
		t.Fatalf("grant %d, %t", burst, ok)
	}
	burst, ok = c.Decide(Room{Bytes: 130000, Packets: 1000}, 0, 0, 60000)
	if want := uint32(3*(60000+overhead) - overhead); !ok || burst != want {
		t.Fatalf("after a packet of 60000 bytes: burst %d, %t, want %d", burst, ok, want)
	}
}

func TestEveryBurstFitsItsFieldAndTheLargestPacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := Room{Bytes: rapid.Int64Min(0).Draw(t, "bytes"), Packets: rapid.Int64Min(1).Draw(t, "packets")}
		total := tokens(room, rapid.Int64Range(minPacket, MaxPacket).Draw(t, "size"))
		if total < leastTokens || total > mostTokens {
			t.Fatalf("%d tokens", total)
		}
	})
}

func TestLeastTokensPayForOnePacketOfAnySizeAndNeverForTwo(t *testing.T) {
	if MaxPacket+overhead > leastTokens || 2*(minPacket+overhead) <= leastTokens {
		t.Fatalf("least tokens %d, largest packet costs %d, two smallest %d", leastTokens, MaxPacket+overhead, 2*(minPacket+overhead))
	}
}

func TestWindowForgetsALargePacketAfterTwoWindows(t *testing.T) {
	var r recent
	now, forgotten := uint64(60000), uint64(0)
	for passed := uint64(0); passed < 4*recentWindow; passed++ {
		size, next := r.largest(now, passed)
		if next {
			now = 100
		}
		if size == 100 && forgotten == 0 {
			forgotten = passed
		}
	}
	if forgotten < recentWindow || forgotten > 2*recentWindow+1 {
		t.Fatalf("forgotten after %d packets, window %d", forgotten, recentWindow)
	}
}

func BenchmarkDecide(b *testing.B) {
	var c Credit
	passed := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		passed++
		c.Decide(Room{Bytes: 30000, Packets: 500}, passed*1514, passed, 1514)
	}
}
