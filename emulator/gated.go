package emulator

import (
	"nicemu/devices/engine"
	"nicemu/emulator/gate"
)

// gated is back-pressure by the credit gate.
type gated struct {
	eng   *engine.Engine
	gate  *gate.Gate
	lanes []safety
	tick  engine.Timer
	err   error // of a rescue; told by the next Flush
}

// safety watches one queue for a standstill: packets in the qdisc, room in the
// card, and nothing moves.
type safety struct {
	room     gate.Room
	frames   uint64 // passed at the last look
	wait     engine.Time
	nextLook engine.Time
}

// Between looks at a queue from which nothing passes: soon after it went
// quiet, then ever less often, since a look asks the kernel.
const (
	firstLook = 10 * engine.Millisecond
	lastLook  = 1 * engine.Second
)

func newGated(e *engine.Engine, g *gate.Gate, queues int, passed func(q int) (bytes, frames uint64)) *gated {
	b := &gated{eng: e, gate: g, lanes: make([]safety, queues)}
	e.Init(&b.tick, func() { b.look(passed) })
	e.After(&b.tick, firstLook)
	return b
}

// Credit implements Backpressure.
func (b *gated) Credit(q int, c Credit) {
	room := gate.Room{Bytes: int64(c.Bytes), Packets: int64(c.Frames)}
	b.lanes[q].room = room
	b.gate.Offer(q, room)
}

// Flush implements Backpressure.
func (b *gated) Flush() error {
	if b.err != nil {
		return b.err
	}
	return b.gate.Flush()
}

// NotifyFD implements Backpressure.
func (b *gated) NotifyFD() int { return b.gate.NotifyFD() }

// Notified implements Backpressure: the gate follows what the user did to the
// qdiscs.
func (b *gated) Notified() error {
	_, err := b.gate.Follow()
	return err
}

// look is the safety tick.
func (b *gated) look(passed func(q int) (bytes, frames uint64)) {
	now := b.eng.Now()
	next := now + lastLook
	for q := range b.lanes {
		s := &b.lanes[q]
		if _, frames := passed(q); frames != s.frames || !s.room.Open() {
			s.frames, s.wait, s.nextLook = frames, firstLook, now+firstLook
		} else if now >= s.nextLook {
			if _, err := b.gate.Rescue(q); err != nil {
				b.err = err
			}
			s.wait = min(2*s.wait, lastLook)
			s.nextLook = now + s.wait
		}
		next = min(next, s.nextLook)
	}
	b.eng.At(&b.tick, max(next, now+firstLook))
}

var _ Backpressure = (*gated)(nil)
