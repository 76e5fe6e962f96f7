package liveplay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"nicemu/devices/nic"
	"nicemu/emulator"
	"nicemu/scenarios"
)

// drainPatience is how long nothing may move until what is queued is given up.
const drainPatience = 5 * time.Second

// state is what is still on its way, and what has gone.
type state struct {
	passed  uint64
	sent    nic.Count
	arrived nic.Count
	queued  uint64 // in the qdisc and in the card
}

// drain waits until the qdisc and the cards are empty, or nothing moves.
func (p *play) drain(ctx context.Context) error {
	h, err := netlink.NewHandleAt(vns.NsHandle(p.bench.ns.FD()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var last state
	for moved := time.Now(); ; {
		now, err := p.state(h)
		switch {
		case errors.Is(err, netlink.ErrDumpInterrupted):
			continue
		case err != nil:
			return err
		case now.queued == 0:
			return nil
		case now != last:
			last, moved = now, time.Now()
		case time.Since(moved) > drainPatience:
			p.stuck = true
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *play) state(h *netlink.Handle) (s state, err error) {
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: p.bench.card.TAP().Ifindex()}}
	list, err := h.QdiscList(link)
	if err != nil {
		return s, err
	}
	for _, q := range list {
		if st := q.Attrs().Statistics; st != nil && st.Queue != nil {
			s.queued += uint64(st.Queue.Qlen)
		}
	}
	return s, p.bench.loop.Do(func() {
		for _, c := range []*emulator.Card{p.bench.card, p.bench.far} {
			if c == nil {
				continue
			}
			n := c.NIC().Stats()
			s.sent, s.arrived = s.sent.Plus(n.Sent), s.arrived.Plus(n.Arrived)
			s.queued += n.Queued.Frames + n.Arrived.Frames - n.Delivered.Frames - n.RXDropped.Frames
			if c.Pending() {
				s.queued++
			}
		}
		s.passed = p.bench.card.Passed()
	})
}

// look notes which qdiscs there are.
func (p *play) look(ctx context.Context) error {
	list, err := scenarios.Qdiscs(ctx, p.bench.ns, p.bench.card.TAP().Name())
	p.tree = tree(list)
	return err
}

// tree names the qdiscs: their counters began together if it has not changed.
func tree(list []map[string]any) string {
	var b strings.Builder
	for _, q := range list {
		fmt.Fprintln(&b, q["kind"], q["handle"], q["parent"])
	}
	return b.String()
}

// counts is what all qdiscs together dropped and still hold: a root counts every
// drop below it. The kicks of the gate, which are no frames, are not for it to
// say.
func counts(list []map[string]any) (dropped, backlog uint64) {
	for _, q := range list {
		if q["root"] == true {
			drops, _ := q["drops"].(float64)
			qlen, _ := q["qlen"].(float64)
			return uint64(drops), uint64(qlen)
		}
	}
	return 0, 0
}
