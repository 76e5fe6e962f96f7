package replay

import (
	"fmt"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/stack"
)

// book keeps accounts of its own of what was offered and what became of it, to hold the card's and the stack's against.
type book struct {
	queues  []queueBook
	dropped map[string]nic.Count
	offers  uint64 // frames offered
	under   uint64 // of them, neither freed nor dropped

	first, last engine.Time // first frame offered, last bit on the wire
	progress    engine.Time // when a frame was last offered, freed or dropped
	disorder    string      // the first broken order

	cardDrops map[string]nic.Count // the card's own, live
	seenDrops map[string]uint64    // frames of them that have been seen
}

type queueBook struct {
	offered, sent nic.Count
	refused       nic.Count   // longer than any MTU of the card: not given to the stack
	posted        engine.Time // of the frame that left last
	seq           uint64      // of the frame that left last
}

func newBook(n *nic.NIC) *book {
	return &book{
		queues:    make([]queueBook, n.Queues()),
		dropped:   map[string]nic.Count{},
		cardDrops: n.Stats().Dropped,
		seenDrops: map[string]uint64{},
	}
}

func one(f *nic.Frame) nic.Count { return nic.Count{Frames: 1, Bytes: uint64(f.Wire())} }

func (b *book) offer(f *nic.Frame, now engine.Time) {
	b.progress = now
	q := &b.queues[f.Queue]
	if b.offers++; b.offers == 1 {
		b.first = f.Enqueued
	}
	q.offered = q.offered.Plus(one(f))
	b.under++
}

// left counts a frame on the wire. fifo says that the queue keeps the order in which frames were offered, not only that of posting.
func (b *book) left(f *nic.Frame, end engine.Time, fifo bool) {
	q := &b.queues[f.Queue]
	if (f.Posted < q.posted || fifo && f.Seq <= q.seq) && b.disorder == "" {
		b.disorder = fmt.Sprintf("queue %d: frame %d, posted at %d, left after frame %d, posted at %d", f.Queue, f.Seq, f.Posted, q.seq, q.posted)
	}
	q.posted, q.seq = f.Posted, f.Seq
	q.sent = q.sent.Plus(one(f))
	b.last = end
}

// freed counts a frame that the driver gives back and returns why the card dropped it, "" if it has been sent.
func (b *book) freed(f *nic.Frame, now engine.Time) (reason string) {
	b.under--
	b.progress = now
	for why, c := range b.cardDrops {
		if c.Frames != b.seenDrops[why] {
			b.seenDrops[why]++
			b.dropped[why] = b.dropped[why].Plus(one(f))
			return why
		}
	}
	return ""
}

func (b *book) drop(f *nic.Frame, reason string, now engine.Time) {
	b.under--
	b.progress = now
	b.dropped[reason] = b.dropped[reason].Plus(one(f))
}

// tooLong is why the stack does not take a frame: packet sockets answer EMSGSIZE.
const tooLong = "over_max_mtu"

func (b *book) refuse(f *nic.Frame, now engine.Time) {
	q := &b.queues[f.Queue]
	q.refused = q.refused.Plus(one(f))
	b.drop(f, tooLong, now)
}

func (b *book) offered() (sum nic.Count) {
	for i := range b.queues {
		sum = sum.Plus(b.queues[i].offered)
	}
	return sum
}

func (b *book) sent() (sum nic.Count) {
	for i := range b.queues {
		sum = sum.Plus(b.queues[i].sent)
	}
	return sum
}

// queued is what is neither sent nor dropped, as stack and card have it.
func queued(s *stack.Stack) nic.Count {
	sum := s.NIC.Stats().Queued
	for q := range s.NIC.Queues() {
		st := s.Qdisc(q)
		sum = sum.Plus(nic.Count{Frames: uint64(st.Qlen), Bytes: uint64(st.Backlog)})
	}
	return sum
}

// audit holds the accounts against those of the stack and the card and names what does not hold.
func (b *book) audit(s *stack.Stack, streamed uint64) (violations []string) {
	say := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	if err := s.Audit(); err != nil {
		say("%v", err)
	}
	sum := b.sent().Plus(queued(s))
	for _, c := range b.dropped {
		sum = sum.Plus(c)
	}
	if offered := b.offered(); offered != sum {
		say("offered %v, but sent %v + queued %v + dropped %v = %v", offered, b.sent(), queued(s), b.dropped, sum)
	}
	if got := s.NIC.Stats().Sent; got != b.sent() {
		say("the card has sent %v, on the wire were %v", got, b.sent())
	}
	for q := range b.queues {
		if got := s.Offered(q).Plus(b.queues[q].refused); got != b.queues[q].offered {
			say("queue %d: the stack was offered %v, refused ones included, the captures hold %v", q, got, b.queues[q].offered)
		}
	}
	if n := b.offered().Frames; n != streamed {
		say("%d frames made of the captures, %d offered", streamed, n)
	}
	if b.disorder != "" {
		say("%s", b.disorder)
	}
	return violations
}
