package source

import (
	"nicemu/devices/nic"
	"nicemu/replay/stack"
)

// Bulk is a sender that always has something to send: it keeps a qdisc
// supplied and is held back by nothing but the queue below. Its packets are GSO
// frames, as of one TCP stream that is limited by the card, or plain ones.
type Bulk struct {
	Queue   int
	Payload int // of a packet
	Segment int // payload of a wire packet; 0 = MSS
	Headers int // of a wire packet; 0 = TCP with timestamps
	Backlog int // packets kept in the qdisc; 0 = 2

	// Frags lays the packets out, each payload right behind the one before.
	// Its start is the place of the first.
	Frags nic.PageFrags

	s    *stack.Stack
	flow uint32
	full bool // the qdisc or the driver has dropped one
	done uint64
}

// Start makes it run from now on.
func (b *Bulk) Start(s *stack.Stack) {
	b.s, b.flow = s, s.Flows(1)
	if b.Segment == 0 {
		b.Segment = MSS
	}
	if b.Headers == 0 {
		b.Headers = TCPHeader
	}
	if b.Backlog == 0 {
		b.Backlog = 2
	}
	s.OnComplete(func(f *nic.Frame) {
		switch {
		case f.Flow != b.flow:
		case f.WireEnd == 0:
			b.full = true
		default:
			b.done += uint64(f.Len - b.Headers)
		}
	})
	s.OnDrop(func(f *nic.Frame, _ string) { b.full = b.full || f.Flow == b.flow })
	s.OnWake(func(q int) {
		if q == b.Queue {
			b.fill()
		}
	})
	b.fill()
}

// Done is the payload that the driver has seen leave, in bytes.
func (b *Bulk) Done() uint64 { return b.done }

func (b *Bulk) fill() {
	for b.full = false; !b.full && b.s.Qlen(b.Queue) < b.Backlog; {
		f := b.s.Pool.Get(b.Queue)
		f.GSO(b.Headers+b.Payload, b.Headers, b.Segment)
		b.Frags.LayOut(f)
		f.Flow = b.flow
		b.s.Send(f)
	}
}
