package liveplay

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/emulator"
)

// patience is by how much the host may be behind until the wire waits for it.
const wirePatience = 10 * engine.Millisecond

// wire brings packets to the receive half of a card. A packet's first bit
// leaves the far end when it is due, or behind the packet before it; the card has
// it with its last bit.
type wire struct {
	timing
	card    *emulator.Card
	loaded  bool
	arrival engine.Time // of the last bit of the next packet
	free    engine.Time // when the wire has carried the packet before
	arrived nic.Count
}

func newWire(l *emulator.Loop, r *reader, c *emulator.Card) *wire {
	w := &wire{card: c}
	w.init(l, r, w.fire)
	return w
}

func (w *wire) fire() {
	ps := w.next()
	if len(ps) == 0 {
		return
	}
	if p := &ps[0]; w.loaded {
		w.loaded = false
		w.card.Arrive(p.queue, w.in.slab()[p.from:p.to])
		w.arrived = w.arrived.Plus(one(p))
		w.record(w.arrival, w.loop.Clock())
		w.in.skip(1)
		if ps = w.next(); len(ps) == 0 {
			return
		}
	}
	w.load(&ps[0])
}

// load puts the next packet on the wire.
func (w *wire) load(p *packet) {
	link := &w.card.NIC().Config().Link
	bits := 8 * int64(p.wire+link.Preamble+link.FCS+link.Gap)
	w.arrival = max(w.origin+p.due, w.free) + engine.Time(bits*int64(engine.Second)/int64(link.Rate))
	w.free = w.arrival
	w.loaded = true
	at := w.arrival
	if now := w.loop.Clock(); now-at > wirePatience {
		at = now // lets the loop turn
		w.free = now
	}
	w.loop.Engine().At(&w.timer, at)
}

func (w *wire) sums() sums {
	s := sums{accepted: w.arrived, late: w.late, span: w.last - w.first, starved: w.starved, err: w.err}
	return s
}

var _ sender = (*wire)(nil)
