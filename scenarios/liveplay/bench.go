package liveplay

import (
	"context"
	"errors"
	"fmt"
	"os"

	"nicemu/devices/nic"
	"nicemu/emulator"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
	"nicemu/scenarios"
)

// bench is the card in its namespace, with the live loop, and a card at the
// other end of the link if somebody is to receive.
type bench struct {
	ns, peer *netns.NS
	own      bool // ns is ours to remove
	loop     *emulator.Loop
	card     *emulator.Card
	far      *emulator.Card // nil: frames end on the wire

	stop context.CancelFunc
	done chan struct{} // closed when the loop has ended
	err  error         // why it ended; read after done
}

// useLab replays in the lab kernel, which sees all files and may change those
// below this directory.
const useLab = "nicemu lab exec --writable . -- nicemu replay --live …"

// newBench makes everything and starts the live loop. On an error nothing is
// left.
func newBench(ctx context.Context, o *Options) (b *bench, err error) {
	b = &bench{stop: func() {}, done: make(chan struct{})}
	close(b.done)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
			b = nil
		}
	}()
	if b.loop, err = emulator.NewLoop(o.Seed); err != nil {
		return b, err
	}
	b.own = o.Netns == ""
	if b.ns, err = enter(o.Netns); err != nil {
		return b, err
	}
	if b.card, err = b.plug(b.ns, o, o.Device); err != nil {
		return b, err
	}
	if o.Side == Qdisc {
		// No addresses, so the kernel has nothing to say there; with IPv6 it
		// would all the same.
		if err = set(b.ns, b.card.TAP().Name(), "disable_ipv6"); err != nil {
			return b, err
		}
	}
	for _, args := range o.commands(b.card.TAP().Name()) {
		if err = scenarios.TC(ctx, b.ns, args, useLab); err != nil {
			return b, err
		}
	}
	if err = b.card.TakeQdisc(); err != nil {
		return b, err
	}
	if o.Peer != "" {
		if b.peer, err = netns.Open(o.Peer); err != nil {
			return b, err
		}
		if b.far, err = b.plug(b.peer, o, o.Far); err != nil {
			return b, err
		}
		if err = b.far.TakeQdisc(); err != nil {
			return b, err
		}
		b.loop.Connect(b.card, b.far, emulator.LinkConfig{})
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop, b.done = stop, make(chan struct{})
	go func() {
		defer close(b.done)
		b.err = b.loop.Run(run)
	}()
	return b, nil
}

// enter opens the user's namespace, or makes one.
func enter(name string) (*netns.NS, error) {
	if name != "" {
		return netns.Open(name)
	}
	ns, err := netns.Create(fmt.Sprintf("%d-replay", os.Getpid()))
	if err == nil {
		err = set(ns, "default", "disable_ipv6") // from the first moment on
	}
	return ns, err
}

// set turns a switch of IPv6 on; a kernel without IPv6 has none.
func set(ns *netns.NS, dev, key string) error {
	return ns.Do(func() error {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+dev+"/"+key, []byte("1"), 0)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
}

// plug puts a card into a namespace, under the first name that is free.
func (b *bench) plug(ns *netns.NS, o *Options, d *nic.Device) (c *emulator.Card, err error) {
	const names = 100
	for i := range names {
		cfg := tap.Config{
			Name: fmt.Sprintf("nicemu%d", i), Queues: d.Config.Queues, MTU: o.MTU, Csum: d.CSUM, TSO: d.TSO && d.CSUM,
		}
		c, err = b.loop.NewTAPCard(ns, cfg, d, o.Way)
		if !errors.Is(err, os.ErrExist) {
			break
		}
	}
	return c, err
}

// halt stops the live loop and returns its error. Afterwards the cards may be
// read directly.
func (b *bench) halt() error {
	b.stop()
	<-b.done
	return b.err
}

// close removes the cards, and the namespace if it is ours.
func (b *bench) close() error {
	errs := []error{b.halt()}
	for _, c := range []*emulator.Card{b.card, b.far} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if b.ns != nil && b.own {
		errs = append(errs, b.ns.Delete())
	} else if b.ns != nil {
		errs = append(errs, b.ns.Close())
	}
	if b.peer != nil {
		errs = append(errs, b.peer.Close())
	}
	if b.loop != nil {
		errs = append(errs, b.loop.Close())
	}
	return errors.Join(errs...)
}
