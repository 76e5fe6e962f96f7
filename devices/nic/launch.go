package nic

import "nicemu/devices/engine"

// LaunchTime holds a frame until the time that [Rules.LaunchTime] made of its
// Launch.
type LaunchTime struct{}

// Eligible implements [Shaper].
func (LaunchTime) Eligible(t engine.Time, f *Frame, _ int) (bool, engine.Time) {
	return f.launch <= t, f.launch
}

// Backlog implements [Shaper].
func (LaunchTime) Backlog(engine.Time, bool) {}

// Sent implements [Shaper].
func (LaunchTime) Sent(_, _ engine.Time, _ int) {}

// Guard keeps the medium free ahead of other queues' launch times: a frame may
// not start if a frame of Bytes, started with it, could still be on its way
// when the resident head of one of Queues is due. A launching queue must be
// asked before the guarded one, so that its retry is armed.
type Guard struct {
	NIC    *NIC
	Queues []int // that launch by time
	Bytes  int   // longest frame, without the bytes around it
}

// Eligible implements [Shaper].
func (g *Guard) Eligible(t engine.Time, _ *Frame, _ int) (bool, engine.Time) {
	for _, q := range g.Queues {
		f := g.NIC.Head(q)
		if f != nil && f.launch > t && f.launch-g.NIC.mac.byteTime(g.Bytes) < t {
			return false, engine.Never
		}
	}
	return true, 0
}

// Backlog implements [Shaper].
func (g *Guard) Backlog(engine.Time, bool) {}

// Sent implements [Shaper].
func (g *Guard) Sent(_, _ engine.Time, _ int) {}

var (
	_ Shaper = LaunchTime{}
	_ Shaper = (*Guard)(nil)
)
