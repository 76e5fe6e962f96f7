package emulator

import (
	"errors"

	"nicemu/devices/nic"
	"nicemu/emulator/gate"
	"nicemu/emulator/tap"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// TAP is the card's port, nil for a card on another kind of port.
func (c *Card) TAP() *tap.Port { return c.tap }

// BelowQdiscDropped counts frames lost below the qdisc because the TAP's ring
// was full, since TakeQdisc: setting the port up resizes that ring and may lose
// what the kernel sent by itself.
func (c *Card) BelowQdiscDropped() (uint64, error) {
	s, err := c.tap.Stats()
	return s.TxDropped - c.droppedBefore, err
}

// Excess is by how much bytes in flight below the qdisc, unread ones included,
// exceeded the BQL limit plus one largest frame: one value for each queue and
// turn of the loop. Read it through [Loop.Do], or after Run.
func (c *Card) Excess() *hdrhistogram.Histogram { return c.excess }

// Refused counts received frames that the kernel did not take.
func (c *Card) Refused() nic.Count { return c.refused }

// Passed counts frames that left the qdisc, unread ones included, since the
// card was made. Call it through [Loop.Do], or after Run.
func (c *Card) Passed() (frames uint64) {
	for q := range c.queues {
		_, n := c.port.Passed(q)
		frames += n
	}
	return frames
}

// Pending reports whether frames that left the qdisc have yet to be posted. Call
// it through [Loop.Do].
func (c *Card) Pending() bool {
	for q := range c.queues {
		k := &c.queues[q]
		if _, passed := c.port.Passed(q); k.held != nil || passed != k.frames && passed != k.missed {
			return true
		}
	}
	return false
}

// Lost counts frames that vanished on the way from this card.
func (c *Card) Lost() nic.Count {
	if k, ok := c.wire.(*link); ok {
		return k.lost
	}
	return nic.Count{}
}

// TakeQdisc puts the back-pressure between the card and the qdisc that is
// there, before traffic flows.
func (c *Card) TakeQdisc() error {
	if g, ok := c.back.(*gated); ok {
		if err := g.gate.Install(); err != nil {
			return err
		}
	}
	s, err := c.tap.Stats()
	c.droppedBefore = s.TxDropped
	return err
}

// GateStats count what the credit gate did; all zero without one.
func (c *Card) GateStats() gate.Stats {
	if g, ok := c.back.(*gated); ok {
		return g.gate.Stats()
	}
	return gate.Stats{}
}

// Close removes the card's TAP, after Run.
func (c *Card) Close() error {
	var errs []error
	if g, ok := c.back.(*gated); ok {
		errs = append(errs, g.gate.Close())
	}
	if c.tap != nil {
		errs = append(errs, c.tap.Close())
	}
	return errors.Join(errs...)
}
