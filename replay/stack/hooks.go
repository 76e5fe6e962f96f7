package stack

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// hooks are what sources and measurements want to see, called in the order in
// which they came. They may call Send and Post.
type hooks struct {
	wire     []func(f *nic.Frame, end engine.Time)
	complete []func(f *nic.Frame)
	wake     []func(q int)
	deliver  []func(f *nic.Frame)
	drop     []func(f *nic.Frame, reason string)
}

// OnWire adds a hook that sees every frame that leaves the MAC, whose last bit
// leaves it at end. A hook that keeps the frame retains it and gives it to
// [nic.Pool.Put] later.
func (s *Stack) OnWire(see func(f *nic.Frame, end engine.Time)) {
	s.hooks.wire = append(s.hooks.wire, see)
}

// OnComplete adds a hook that sees every frame that the driver frees, its
// stamps set; frames that the card dropped have no WireEnd.
func (s *Stack) OnComplete(see func(f *nic.Frame)) { s.hooks.complete = append(s.hooks.complete, see) }

// OnWake adds a hook that is called when a stop bit of queue q was cleared,
// after the qdisc has run.
func (s *Stack) OnWake(see func(q int)) { s.hooks.wake = append(s.hooks.wake, see) }

// OnDeliver adds a hook that sees every received frame.
func (s *Stack) OnDeliver(see func(f *nic.Frame)) { s.hooks.deliver = append(s.hooks.deliver, see) }

// OnDrop adds a hook that sees every frame that a qdisc drops; unlike the
// others it must not send.
func (s *Stack) OnDrop(see func(f *nic.Frame, reason string)) {
	s.hooks.drop = append(s.hooks.drop, see)
}

// Flows reserves n flow numbers and returns the first: a source knows its
// frames by their Flow.
func (s *Stack) Flows(n int) (first uint32) {
	first = s.flows + 1
	s.flows += uint32(n)
	return first
}

// Wake implements [nic.Host].
func (s *Stack) Wake(q int) {
	s.run(q)
	for _, see := range s.hooks.wake {
		see(q)
	}
}

// Complete implements [nic.Host].
func (s *Stack) Complete(f *nic.Frame) {
	for _, see := range s.hooks.complete {
		see(f)
	}
	s.Pool.Put(f)
}

// Deliver implements [nic.Host].
func (s *Stack) Deliver(f *nic.Frame) {
	for _, see := range s.hooks.deliver {
		see(f)
	}
	s.Pool.Put(f)
}

// Transmit implements [nic.Wire].
func (s *Stack) Transmit(f *nic.Frame, end engine.Time) {
	for _, see := range s.hooks.wire {
		see(f, end)
	}
}

var (
	_ nic.Host = (*Stack)(nil)
	_ nic.Wire = (*Stack)(nil)
)
