package nic

import "nicemu/devices/engine"

// Credit is the credit-based shaper of IEEE 802.1Q-2018 8.6.8.2: a queue may
// start a frame while its credit is not negative; credit grows at the idle
// slope while the queue waits, shrinks at the port's rate less the idle slope
// while it sends, and a queue that empties keeps no positive credit. A frame
// costs the time it holds the medium, preamble to gap.
type Credit struct {
	perBit int64 // units that a bit on the wire costs
	perNs  int64 // units earned in a nanosecond: the idle slope
	high   int64 // hiCredit in units

	credit  int64
	at      engine.Time // credit is that of this time
	backlog bool
}

// NewCredit returns a shaper with an idle slope of perNs/perBit bits a
// nanosecond, and a hiCredit of so many bytes.
func NewCredit(perNs, perBit int64, high int) *Credit {
	return &Credit{perBit: perBit, perNs: perNs, high: int64(high) * 8 * perBit}
}

// longest bounds a span so that its credit fits an int64; in 18 minutes every
// hardware's credit has long reached its bound.
const longest = engine.Time(1) << 40

func (c *Credit) advance(t engine.Time) {
	dt := min(t-c.at, longest)
	if dt <= 0 {
		return
	}
	c.at = t
	if c.backlog || c.credit < 0 {
		c.credit = min(c.credit+int64(dt)*c.perNs, c.bound())
	}
}

func (c *Credit) bound() int64 {
	if c.backlog {
		return c.high
	}
	return 0
}

// Eligible implements [Shaper].
func (c *Credit) Eligible(t engine.Time, _ *Frame, _ int) (bool, engine.Time) {
	c.advance(t)
	switch {
	case c.credit >= 0:
		return true, 0
	case c.perNs == 0:
		return false, engine.Never
	}
	return false, t + engine.Time((-c.credit+c.perNs-1)/c.perNs)
}

// Backlog implements [Shaper].
func (c *Credit) Backlog(t engine.Time, on bool) {
	c.advance(t)
	c.backlog = on
	c.credit = min(c.credit, max(0, c.bound()))
}

// Sent implements [Shaper].
func (c *Credit) Sent(start, end engine.Time, wire int) {
	c.advance(start)
	c.credit += int64(end-start)*c.perNs - int64(wire)*8*c.perBit
	c.credit = min(c.credit, c.high)
	c.at = end
}

var _ Shaper = (*Credit)(nil)
