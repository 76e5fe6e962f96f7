package gate

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// class is an hfsc class with an upper limit, the qdisc beneath it and a card, as
// far as credit is concerned.
type class struct {
	ring
	credit Exact

	left  int64 // of the grant; a packet passes unless it is negative
	queue []int64
	loss  int64 // bytes that the class loses of what is left each time it was empty
	extra int64 // by which the user's size table lengthens each packet
}

func newClass(t *rapid.T) *class {
	c := &class{
		ring:  drawRing(t),
		loss:  rapid.Int64Range(0, tickBytes).Draw(t, "loss"),
		extra: rapid.Int64Range(0, stab).Draw(t, "size table"),
	}
	c.credit.Reset()
	return c
}

func (c *class) enqueue(size int64) {
	if len(c.queue) == 0 && c.left >= 0 { // rtsc_min begins the curve anew where it is
		c.left = max(0, c.left-c.loss)
	}
	c.queue = append(c.queue, size)
	c.run()
}

func (c *class) run() {
	for len(c.queue) > 0 && c.left >= 0 {
		size := c.queue[0]
		c.queue = c.queue[1:]
		c.left -= size + c.extra
		c.take(size)
	}
}

func (c *class) turn() bool {
	room := c.room()
	bytes, grant := c.credit.Decide(room, c.bytes, c.packets, MaxPacket)
	if grant {
		c.left = int64(bytes)
		if room.Open() {
			c.run()
		}
	}
	return grant
}

func TestClassNeverStandsStillWithRoomAndAPacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClass(t)
		size := sizes(t)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0, 1:
				for range rapid.IntRange(1, 30).Draw(t, "burst") {
					c.enqueue(size.Draw(t, "size"))
				}
			case 2:
				c.complete(rapid.IntRange(1, 100).Draw(t, "completed"))
			case 3:
				c.limit = rapid.Int64Range(0, 300000).Draw(t, "new limit")
			}
			for turns := 0; c.turn(); turns++ {
				if turns > 20000 {
					t.Fatal("grants without end")
				}
			}
			if room := c.room(); room.Open() && len(c.queue) > 0 {
				t.Fatalf("stands still: room %+v, %d left, next packet %d", room, c.left, c.queue[0])
			}
		}
	})
}

func TestCardBelowAClassNeverHoldsMoreThanItsLimitAndOnePacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClass(t)
		most := rapid.SampledFrom([]int64{60, 100, 1514, 9014, MaxPacket}).Draw(t, "largest size")
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "arrive") {
				for range rapid.IntRange(1, 60).Draw(t, "burst") {
					c.enqueue(rapid.Int64Range(leastFrame, most).Draw(t, "size"))
				}
			} else {
				c.complete(rapid.IntRange(1, 60).Draw(t, "completed"))
			}
			c.turn()
			if held := int64(c.bytes - c.doneBytes); held > c.limit+most {
				t.Fatalf("holds %d bytes, limit %d, largest packet %d", held, c.limit, most)
			}
			if held := int64(c.packets - c.doneFrames); held > c.slots {
				t.Fatalf("holds %d frames, slots %d", held, c.slots)
			}
		}
	})
}

// hfsc's own arithmetic (sch_hfsc.c: d2dx, m2sm, seg_x2y) makes of a curve what
// was granted, to a tick, and never much more.
func TestCurveGrantsWhatItIsAskedFor(t *testing.T) {
	const ticks, shift = 15_625_000, 24 // a second's, SM_SHIFT
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.OneOf(rapid.Uint32Range(0, 300_000), rapid.Uint32()).Draw(t, "bytes")
		m1, d := curve(bytes)
		dx := (uint64(d)*ticks + 999_999) / 1_000_000
		sm := (uint64(m1)<<shift + ticks - 1) / ticks
		dy := (dx>>shift)*sm + ((dx&(1<<shift-1))*sm)>>shift
		if off := int64(dy) - int64(bytes); math.Abs(float64(off)) > max(2, float64(bytes)/1e4) {
			t.Fatalf("%d bytes became %d", bytes, dy)
		}
	})
}
