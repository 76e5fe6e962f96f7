package source

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/replay/stack"
)

// Arrivals are frames that come from the wire at a constant rate, whatever the
// card does with them. Each that it delivers costs a reader the card's cpu.copy
// of core time.
type Arrivals struct {
	Queue int
	Bytes int        // frame without FCS
	Rate  units.Rate // of frames, without FCS

	// Lost sees every frame for which there is no receive descriptor, if set.
	Lost func(f *nic.Frame)

	s    *stack.Stack
	flow uint32
	at   engine.Time
	k    uint64
	next engine.Timer
	read func()
}

// Start makes it run from now on. A frame's Enqueued is when its last bit has
// arrived.
func (a *Arrivals) Start(s *stack.Stack) {
	a.s, a.flow, a.at = s, s.Flows(1), s.Eng.Now()
	a.read = func() {}
	s.Eng.Init(&a.next, a.arrive)
	s.OnDeliver(func(f *nic.Frame) {
		if copying := engine.Time(s.NIC.Config().CPU.Copy); f.Flow == a.flow && copying > 0 {
			s.CPU.App(copying, a.read)
		}
	})
	a.due()
}

func (a *Arrivals) due() {
	a.k++
	a.s.Eng.At(&a.next, a.at+every(a.k, int64(a.Bytes)*8*int64(engine.Second), int64(a.Rate)))
}

func (a *Arrivals) arrive() {
	f := a.s.Pool.Get(a.Queue)
	f.Single(a.Bytes)
	f.Flow, f.Enqueued = a.flow, a.s.Eng.Now()
	if !a.s.NIC.Receive(f) {
		if a.Lost != nil {
			a.Lost(f)
		}
		a.s.Pool.Put(f)
	}
	a.due()
}
