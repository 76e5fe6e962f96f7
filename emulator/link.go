package emulator

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// RateStep sets a link's rate from a time on.
type RateStep struct {
	At   engine.Time // after the start of the trace, ascending
	Rate int64       // bits a second
}

// LinkConfig is a full-duplex medium between two cards.
type LinkConfig struct {
	Rate  int64       // bits a second; 0 = what the cards are set to
	Delay engine.Time // propagation, one way
	Loss  float64     // share of frames that vanish, 0..1
}

// link carries frames one way. A frame on it belongs to the link and to the
// sender, whose driver still has to free it.
type link struct {
	loop *Loop
	cfg  *LinkConfig
	to   *Card

	inflight engine.FIFO[flight]
	arrive   engine.Timer

	lost nic.Count
}

func newLink(l *Loop, cfg *LinkConfig, to *Card) *link {
	k := &link{loop: l, cfg: cfg, to: to}
	l.eng.Init(&k.arrive, k.arrived)
	return k
}

// Transmit implements [nic.Wire]: the frame arrives a propagation delay after
// its last bit.
func (k *link) Transmit(f *nic.Frame, end engine.Time) {
	if k.cfg.Loss > 0 && k.loop.eng.Rand().Float64() < k.cfg.Loss {
		k.lost = k.lost.Plus(nic.Count{Frames: 1, Bytes: uint64(f.Wire())})
		return
	}
	f.Retain()
	k.inflight.Push(flight{f, end + k.cfg.Delay})
	if k.inflight.Len() == 1 {
		k.loop.eng.At(&k.arrive, end+k.cfg.Delay)
	}
}

func (k *link) arrived() {
	f := k.inflight.Pop().f
	if k.inflight.Len() > 0 {
		k.loop.eng.At(&k.arrive, k.inflight.Head().at)
	}
	if !k.to.nic.Receive(f) {
		k.loop.frames.release(f)
	}
}

var _ nic.Wire = (*link)(nil)

type flight struct {
	f  *nic.Frame
	at engine.Time
}
