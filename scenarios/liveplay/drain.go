package liveplay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"nicemu/devices/nic"
	"nicemu/emulator"
	"nicemu/emulator/gate"
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
	var all, gated uint64
	found := false
	for _, q := range list {
		st := q.Attrs().Statistics
		if st == nil || st.Queue == nil {
			continue
		}
		all += uint64(st.Queue.Qlen)
		if gate.Owns(q.Attrs().Handle) && selects(q.Type()) {
			found = true
			gated += uint64(st.Queue.Qlen)
		}
	}
	if s.queued = all; found {
		s.queued = gated
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

// selects says whether a qdisc of the gate is one of the uppermost, through
// which all frames go. What stands above may count kicks as frames.
func selects(kind string) bool { return kind == "prio" || kind == "htb" }

// counts is what the qdiscs dropped and still hold. Where there is a gate its
// uppermost qdiscs have it, which count every drop below them, and those of
// kicks, which are not for this to say; else the root has.
func counts(list []map[string]any) (dropped, backlog uint64) {
	gated := func(q map[string]any) bool {
		kind, _ := q["kind"].(string)
		return scenarios.OfGate(q) && selects(kind)
	}
	root := func(q map[string]any) bool { return q["root"] == true }
	which := root
	if slices.ContainsFunc(list, gated) {
		which = gated
	}
	for _, q := range list {
		if which(q) {
			drops, _ := q["drops"].(float64)
			qlen, _ := q["qlen"].(float64)
			dropped, backlog = dropped+uint64(drops), backlog+uint64(qlen)
		}
	}
	return dropped, backlog
}
