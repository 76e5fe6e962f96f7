package emulator

import (
	"errors"

	"nicemu/devices/nic"
	"nicemu/emulator/gate"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
)

// Way is how the qdiscs above a TAP learn that the card is full.
type Way string

// The ways of back-pressure.
const (
	Auto   Way = "auto"   // native where the kernel has it, else the gate
	Native Way = "native" // IFF_BACKPRESSURE, Linux 7.3: a full TAP ring stops the queue
	Gate   Way = "gate"   // credit gate in the qdisc tree
	Lossy  Way = "lossy"  // none: a full TAP ring drops, and queue management means nothing
)

// nativeRing is the TAP ring in frames under native back-pressure: what it
// holds is below the qdisc and above the card, so as little as possible.
const nativeRing = 8

// ChooseWay settles auto and checks that this kernel has what is asked for.
func ChooseWay(want Way) (Way, error) {
	features, err := tap.Features()
	if err != nil {
		return "", err
	}
	native := features&tap.IFFBackpressure != 0
	switch {
	case want == Auto && native:
		return Native, nil
	case want == Auto:
		return Gate, nil
	case want == Native && !native:
		return "", &tap.Unsupported{Feature: "back-pressure from TAP devices (IFF_BACKPRESSURE)", Since: "it comes with Linux 7.3; use --backpressure gate"}
	}
	return want, nil
}

// tapPort is a TAP with its books.
type tapPort struct {
	*tap.Port
	*tap.Counters
}

var _ Port = tapPort{}

// NewTAPCard opens a TAP in ns and builds device d behind it. The qdisc above
// is the kernel's default until the user sets one; TakeQdisc then puts the
// back-pressure in place.
func (l *Loop) NewTAPCard(ns *netns.NS, cfg tap.Config, d *nic.Device, way Way) (*Card, error) {
	cfg.Backpressure = way == Native
	if way == Native {
		cfg.TxQueueLen = nativeRing
	}
	p, err := tap.Open(ns, cfg)
	if err != nil {
		return nil, err
	}
	books, err := p.Instrument()
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	port := tapPort{p, books}
	var back Backpressure = unlimited{}
	if way == Gate {
		g, err := gate.New(p)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		back = newGated(l.eng, g, p.Queues(), port.Passed)
	}
	c, err := l.NewCard(cfg.Name, d, port, back)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	c.tap = p
	return c, nil
}

// unlimited lets the kernel send as it likes. With IFF_BACKPRESSURE a full TAP
// ring stops the kernel's queue by itself; without it, the TAP drops.
type unlimited struct{}

func (unlimited) Credit(int, Credit) {}
func (unlimited) Flush() error       { return nil }
func (unlimited) NotifyFD() int      { return -1 }
func (unlimited) Notified() error    { return nil }

var _ Backpressure = unlimited{}
