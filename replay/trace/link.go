package trace

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// Link is a wire that carries what a trace allows: it holds a card's frames back at the MAC until the opportunities for the whole frame have come,
// and then the card sends at its own rate. Opportunities that come while the card has nothing ready to send are lost. Times are those of the
// card's engine; one Link serves all queues of one card.
//
// As in mm-link a frame that is larger than what is left goes on with the next opportunity. While it waits no other frame overtakes it, not even
// one of a queue that the card prefers: the link is not preemptive.
type Link struct {
	trace   *Trace
	waiting uint64      // queues with something to send
	credit  int64       // bytes of opportunities not yet used
	from    int64       // opportunities from here on are not in credit
	claim   *nic.Frame  // the frame that takes all opportunities...
	due     engine.Time // ...and may leave then
}

// NewLink returns an idle link that follows t.
func NewLink(t *Trace) *Link { return &Link{trace: t} }

// Attach puts the link behind d, which is to be built after this.
func (l *Link) Attach(d *nic.Device) {
	own := d.Rules.Shapers
	d.Rules.Shapers = func(n *nic.NIC, q int) (list []nic.Shaper) {
		if own != nil {
			list = own(n, q)
		}
		return append(list, &port{link: l, queue: q})
	}
}

// port is a queue's way to the link.
type port struct {
	link  *Link
	queue int
	cost  int64 // of the unit asked for last
}

// cost is what a unit takes of the opportunities: its IP packets, each with what a TUN device adds.
func cost(f *nic.Frame, bytes int) int64 {
	packets := 1
	if bytes == f.Wire() {
		packets = f.Segs
	}
	return int64(bytes + packets*(PacketOverhead-ethernetHeader))
}

// Eligible implements [nic.Shaper].
func (p *port) Eligible(t engine.Time, f *nic.Frame, bytes int) (bool, engine.Time) {
	l := p.link
	l.credit += l.trace.Count(l.from, int64(t)+1) * OpportunityBytes
	l.from = max(l.from, int64(t)+1)
	p.cost = cost(f, bytes)
	if l.claim != nil && l.claim != f && t <= l.due {
		return false, l.due + 1 // unless something else holds the claimant back even then
	}
	if l.credit >= p.cost {
		return true, 0
	}
	l.claim, l.due = f, l.when(p.cost)
	return false, l.due
}

// when is the first instant at which credit covers cost.
func (l *Link) when(cost int64) engine.Time {
	at := l.from - 1
	for credit := l.credit; credit < cost; {
		next, n := l.trace.Next(at)
		if n == 0 {
			return engine.Never
		}
		at = next
		credit += int64(n) * OpportunityBytes
	}
	return engine.Time(at)
}

// Backlog implements [nic.Shaper].
func (p *port) Backlog(t engine.Time, on bool) {
	l := p.link
	if on {
		if l.waiting == 0 {
			l.from, l.credit = int64(t), 0
		}
		l.waiting |= 1 << p.queue
		return
	}
	l.waiting &^= 1 << p.queue
}

// Sent implements [nic.Shaper].
func (p *port) Sent(_, _ engine.Time, _ int) {
	p.link.credit -= p.cost
	p.link.claim = nil
}

var _ nic.Shaper = (*port)(nil)
