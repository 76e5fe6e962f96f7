package nic

import "nicemu/devices/engine"

// Moderation decides when a cause becomes an interrupt.
type Moderation interface {
	// Due is when an interrupt for a cause raised now may fire. It is asked
	// again for every further cause while one waits; the earliest answer holds.
	Due(now engine.Time) engine.Time
	// Fired tells that the interrupt fired.
	Fired(now engine.Time)
	// Polled tells what the poll found, for rules that adapt.
	Polled(now engine.Time, w Work)
}

// TXModeration is a Moderation with a timer of its own for transmit causes.
type TXModeration interface {
	Moderation
	// DueTX is Due for a transmit cause.
	DueTX(now engine.Time) engine.Time
}

// Work is what one poll did, from interrupt to re-arm.
type Work struct {
	TXFrames, TXPackets, TXBytes int // packets count GSO segments
	RXFrames, RXBytes            int
}

// Throttle fires at once, but no sooner than Interval after the last
// interrupt: the EITR register of Intel's cards.
type Throttle struct {
	Interval engine.Time
	last     engine.Time
	fired    bool
}

func (m *Throttle) Due(now engine.Time) engine.Time {
	if !m.fired {
		return now
	}
	return max(now, m.last+m.Interval)
}
func (m *Throttle) Fired(now engine.Time)    { m.last, m.fired = now, true }
func (m *Throttle) Polled(engine.Time, Work) {}

// Delay fires D after the first cause: an absolute timer, ethtool's rx-usecs
// in its plain meaning.
type Delay struct{ D engine.Time }

func (m *Delay) Due(now engine.Time) engine.Time { return now + m.D }
func (m *Delay) Fired(engine.Time)               {}
func (m *Delay) Polled(engine.Time, Work)        {}

var (
	_ Moderation = (*Throttle)(nil)
	_ Moderation = (*Delay)(nil)
)
