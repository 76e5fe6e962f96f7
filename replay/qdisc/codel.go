package qdisc

import (
	"math"
	"math/bits"

	"nicemu/devices/engine"
)

// codelTime is CoDel's clock: units of 1024 ns in 32 bits that wrap.
type codelTime uint32

func codelClock(t engine.Time) codelTime { return codelTime(t >> 10) }

func (t codelTime) after(u codelTime) bool   { return int32(t-u) > 0 }
func (t codelTime) atLeast(u codelTime) bool { return int32(t-u) >= 0 }

// codel is the state of one flow: codel_vars.
type codel struct {
	count, lastCount uint32
	recInvSqrt       uint16 // 1/sqrt(count), 0.16 fixed point
	dropping         bool
	firstAbove       codelTime // when the delay will have been above target for an interval; 0 = it is not
	dropNext         codelTime
}

const invSqrtShift = 16

// newton is one Newton step for 1/sqrt(count).
func (c *codel) newton() {
	inv := uint64(c.recInvSqrt) << invSqrtShift
	inv2 := inv * inv >> 32
	val := uint64(3<<32) - uint64(c.count)*inv2
	c.recInvSqrt = uint16(val >> 2 * inv >> 31 >> invSqrtShift)
}

// law is when to drop next: interval/sqrt(count) after t.
func (c *codel) law(t, interval codelTime) codelTime {
	hi, _ := bits.Mul32(uint32(interval), uint32(c.recInvSqrt)<<invSqrtShift)
	return t + codelTime(hi)
}

// above reports whether a frame that has waited for delay may be dropped: the
// delay has been at or above target for a whole interval.
func (c *codel) above(delay, target, interval, now codelTime, littleBacklog bool) bool {
	switch {
	case int32(delay-target) < 0 || littleBacklog:
		c.firstAbove = 0
		return false
	case c.firstAbove == 0:
		c.firstAbove = now + interval
		return false
	}
	return now.after(c.firstAbove)
}

// enter begins a dropping state: near the last one it goes on at its rate.
func (c *codel) enter(now, interval codelTime) {
	c.dropping = true
	delta := c.count - c.lastCount
	if delta > 1 && int32(now-c.dropNext-16*interval) < 0 {
		c.count = delta
		c.newton()
	} else {
		c.count = 1
		c.recInvSqrt = math.MaxUint16
	}
	c.lastCount = c.count
	c.dropNext = c.law(now, interval)
}
