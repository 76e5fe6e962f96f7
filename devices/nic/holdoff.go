package nic

import "nicemu/devices/engine"

// HoldOff is a delay timer that rests after each interrupt: a cause in the D
// after it does not start the timer, the first cause behind that does, and the
// interrupt comes D later. So that no cause waits for another for ever, the
// timer starts by itself once a further D has passed without one.
type HoldOff struct {
	D     engine.Time
	last  engine.Time
	fired bool
}

// Due implements [Moderation].
func (m *HoldOff) Due(now engine.Time) engine.Time {
	if m.fired && now < m.last+m.D {
		return m.last + 3*m.D
	}
	return now + m.D
}

// Fired implements [Moderation].
func (m *HoldOff) Fired(now engine.Time) { m.last, m.fired = now, true }

// Polled implements [Moderation].
func (m *HoldOff) Polled(engine.Time, Work) {}

var _ Moderation = (*HoldOff)(nil)
