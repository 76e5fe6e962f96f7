package gate

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"nicemu/emulator/tap"
)

// Ring is the txqueuelen of a gated port: what the gate admits too much, and what comes while the user changes qdiscs,
// must find room in the TAP.
const Ring = 16384

// Gate is the credit gate of one port. Use it from one goroutine.
type Gate struct {
	port  *tap.Port
	books *tap.Counters
	tc    *tc
	watch watch
	wire  sender

	valve      string // "hfsc", or "tbf" once hfsc turned out to be missing
	selector   string // "prio", or "htb" once prio turned out to be missing
	txQueueLen int    // before the gate
	frameLen   int    // largest frame that is no GSO packet, without FCS

	lanes  []lane // one per queue, or a single one that they share; none before Install
	shared bool
	rooms  []Room
	stats  Stats
}

// lane is one valve.
type lane struct {
	credit credit
	recent recent
	seen   uint64 // packets passed at the last Flush
}

// Stats count what the gate did.
type Stats struct {
	Grants  uint64 // changes of a valve
	Kicks   uint64 // frames sent to a sink; each shows as a drop of the selector
	Refused uint64 // grants the kernel refused because somebody had taken the gate away
	Rescues uint64 // see Rescue
}

// New instruments the port and opens what the gate needs. It touches no qdisc.
func New(port *tap.Port) (*Gate, error) {
	g := &Gate{port: port, selector: "prio", rooms: make([]Room, port.Queues())}
	err := g.open()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gate of %s: %w", port.Name(), err), g.Close())
	}
	return g, nil
}

func (g *Gate) open() (err error) {
	if g.books, err = g.port.Instrument(); err != nil {
		return err
	}
	if g.tc, err = dialTC(g.port.NS(), g.port.Ifindex()); err != nil {
		return err
	}
	if err = g.watch.open(g.port); err != nil {
		return err
	}
	return g.wire.open(g.port)
}

// Install puts the gate into the qdiscs that are there, keeping their options: under each class of an mq, mqprio or taprio
// root, else above the root. An interface that nobody configured gets the kernel's default qdisc below the gate. It also
// sets gso_max_size to MaxGSO and, at last, txqueuelen to Ring. Call it before traffic flows: what is queued is lost.
func (g *Gate) Install() error {
	h, err := netlink.NewHandleAt(vns.NsHandle(g.port.NS().FD()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByIndex(g.port.Ifindex())
	if err != nil {
		return err
	}
	g.txQueueLen, g.frameLen = link.Attrs().TxQLen, link.Attrs().MTU+14
	if err := h.LinkSetGSOMaxSize(link, MaxGSO); err != nil {
		return fmt.Errorf("gate of %s: gso_max_size: %w", g.port.Name(), err)
	}
	if _, err := g.ensure(); err != nil {
		return fmt.Errorf("gate of %s: %w", g.port.Name(), err)
	}
	if err := h.LinkSetTxQLen(link, Ring); err != nil {
		return fmt.Errorf("gate of %s: txqueuelen: %w", g.port.Name(), err)
	}
	// The new length took the interface down and up, which stops taprio like a graft does.
	if err := g.restart(); err != nil {
		return fmt.Errorf("gate of %s: %w", g.port.Name(), err)
	}
	return nil
}

// Offer says what queue q may take. Nothing happens before Flush.
func (g *Gate) Offer(q int, room Room) { g.rooms[q] = room }

// Flush grants what the rooms offered and the books require, in one message, and kicks those queues. Without an
// allocation. If the gate is gone it puts it back, as Follow does.
func (g *Gate) Flush() error {
	g.wire.begin()
	for i := range g.lanes {
		room := g.room(i)
		if burst, ok := g.decide(i, room); ok {
			g.wire.grant(i, burst, room.Open())
		}
	}
	if g.wire.empty() {
		return nil
	}
	refused, err := g.wire.send(&g.stats)
	if err != nil {
		return fmt.Errorf("gate of %s: %w", g.port.Name(), err)
	}
	if refused == nil {
		return nil
	}
	g.stats.Refused++
	changed, err := g.ensure()
	if err == nil && !changed {
		err = fmt.Errorf("grant: %w", refused)
	}
	if err != nil {
		return fmt.Errorf("gate of %s: %w", g.port.Name(), err)
	}
	return nil
}

// decide asks the lane's books.
func (g *Gate) decide(i int, room Room) (burst uint32, grant bool) {
	l := &g.lanes[i]
	wire, packets := g.passed(i)
	l.seen = packets
	now := uint64(0)
	for q, end := g.queues(i); q < end; q++ {
		now = max(now, g.books.Largest(q))
	}
	largest, next := l.recent.largest(now, packets)
	if next {
		for q, end := g.queues(i); q < end; q++ {
			g.books.ResetLargest(q)
		}
	}
	return l.credit.Decide(room, wire, packets, largest)
}

// passed are the books of a lane: bytes on the wire and packets.
func (g *Gate) passed(i int) (wire, packets uint64) {
	for q, end := g.queues(i); q < end; q++ {
		_, p := g.books.Passed(q)
		wire, packets = wire+g.books.Wire(q), packets+p
	}
	return wire, packets
}

// queues are those that share a lane, end excluded.
func (g *Gate) queues(i int) (first, end int) {
	if g.shared {
		return 0, len(g.rooms)
	}
	return i, i + 1
}

// room is what a lane may take: that of its queue, or the least of all queues that share it, since a root qdisc of one
// queue stands still if the queue of its first packet does.
func (g *Gate) room(i int) Room {
	room := g.rooms[i]
	if g.shared {
		room = Room{math.MaxInt64, math.MaxInt64}
		for _, r := range g.rooms {
			room.Bytes, room.Packets = min(room.Bytes, r.Bytes), min(room.Packets, r.Packets)
		}
	}
	if !g.port.Config().TSO { // a GSO packet becomes many frames on its way, each with a place in the ring
		room.Bytes = min(room.Bytes, (min(room.Packets, math.MaxInt32)-1)*int64(g.frameLen))
	}
	return room
}

// Rescue grants and kicks again if packets wait in queue q's qdisc while it has room. Call it if nothing has passed for a
// while. It reports whether something passed now, which is a flaw of the gate; otherwise the user's qdisc holds the packets
// on purpose.
func (g *Gate) Rescue(q int) (bool, error) {
	i := q
	if g.shared {
		i = 0
	}
	if i >= len(g.lanes) || !g.room(i).Open() {
		return false, nil
	}
	_, before := g.passed(i)
	if before != g.lanes[i].seen { // the next Flush has work to do anyway
		return false, nil
	}
	waiting, err := g.tc.backlog(valveHandle(i))
	if err != nil || waiting == 0 {
		return false, err
	}
	g.lanes[i].credit.Reset()
	err = g.Flush()
	if _, after := g.passed(i); after == before {
		return false, err
	}
	g.stats.Rescues++
	return true, err
}

// Lanes is the number of gates: one for each queue, or 1 if the queues share a root qdisc. It is 0 before Install.
func (g *Gate) Lanes() int { return len(g.lanes) }

// Stats returns what the gate did so far.
func (g *Gate) Stats() Stats { return g.stats }

// Close frees the gate's sockets and leaves the qdiscs as they are. It may be called twice.
func (g *Gate) Close() error {
	if g.tc != nil {
		g.tc.close()
		g.tc = nil
	}
	return errors.Join(g.watch.close(), g.wire.close())
}
