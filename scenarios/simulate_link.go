package scenarios

import (
	"fmt"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/scenarios/format"
)

// modelLink carries frames one way between two cards in virtual time, by the
// rules of the live link: a frame arrives a propagation delay after its last
// bit, or vanishes by chance.
type modelLink struct {
	from, to *modelCard
	rate     units.Rate // now
	delay    engine.Time
	loss     float64

	flights engine.FIFO[modelFlight]
	arrive  engine.Timer

	sent, lost, arrived nic.Count
}

type modelFlight struct {
	f  *nic.Frame
	at engine.Time
}

// connect joins two cards; their MACs run at the link's rate.
func (m *model) connect(l *format.Link) {
	a, b := m.card(l.Ends[0]), m.card(l.Ends[1])
	for _, c := range [2][2]*modelCard{{a, b}, {b, a}} {
		k := &modelLink{from: c[0], to: c[1], delay: engine.Time(l.Delay), loss: l.Loss.Fraction()}
		m.eng.Init(&k.arrive, k.arrives)
		k.from.peer, k.from.out = k.to, k
		k.from.stack.OnWire(k.transmit)
		k.to.stack.OnComplete(func(f *nic.Frame) {
			if k.from.own(f) {
				k.from.lost(f) // its page had to serve the receiving ring
			}
		})
	}
	if l.Rate > 0 {
		m.setRate(l, l.Rate)
	}
	if l.Trace != "" { // TCP shares out the mean, see share
		for _, c := range [2]*modelCard{a, b} {
			c.out.rate = min(units.Rate(m.traces[l.Trace].Mean()), c.device.Config.Link.Rate)
		}
	}
}

// setRate changes the speed of a link.
func (m *model) setRate(l *format.Link, rate units.Rate) {
	for _, id := range l.Ends {
		m.card(id).stack.NIC.SetRate(int64(rate))
		m.card(id).out.rate = rate
	}
	m.share()
}

func size(f *nic.Frame) nic.Count { return nic.Count{Frames: 1, Bytes: uint64(f.Wire())} }

func (k *modelLink) transmit(f *nic.Frame, end engine.Time) {
	e := k.from.stack.Eng
	k.sent = k.sent.Plus(size(f))
	if k.loss > 0 && e.Rand().Float64() < k.loss {
		k.lost = k.lost.Plus(size(f))
		k.from.lost(f)
		return
	}
	f.Retain()
	k.flights.Push(modelFlight{f, end + k.delay})
	if k.flights.Len() == 1 {
		e.At(&k.arrive, end+k.delay)
	}
}

func (k *modelLink) arrives() {
	f := k.flights.Pop().f
	if k.flights.Len() > 0 {
		k.from.stack.Eng.At(&k.arrive, k.flights.Head().at)
	}
	k.arrived = k.arrived.Plus(size(f))
	if !k.to.stack.NIC.Receive(f) {
		k.from.lost(f)
		k.to.stack.Pool.Put(f)
	}
}

// audit: sent = lost + on its way + arrived, in frames and in bytes.
func (k *modelLink) audit() error {
	var flying nic.Count
	for range k.flights.Len() {
		x := k.flights.Pop()
		flying = flying.Plus(size(x.f))
		k.flights.Push(x)
	}
	if got := k.lost.Plus(flying).Plus(k.arrived); got != k.sent {
		return fmt.Errorf("link: sent %v, but lost %v + on its way %v + arrived %v = %v", k.sent, k.lost, flying, k.arrived, got)
	}
	card := k.from.stack.NIC.Stats().Sent
	if card != k.sent {
		return fmt.Errorf("link: the card has sent %v, the link has taken %v", card, k.sent)
	}
	return nil
}
