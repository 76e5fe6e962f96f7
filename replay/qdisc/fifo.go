package qdisc

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// FIFO is pfifo or bfifo: one queue, bounded in packets or in bytes, that drops
// at its tail.
type FIFO struct {
	limitFrames, limitBytes int
	queue                   list
	qlen, backlog           int
	stats                   Stats
}

// NewPFIFO returns a queue of at most limit packets (the kernel's default is
// the interface's txqueuelen, 1000).
func NewPFIFO(limit int) *FIFO {
	return &FIFO{limitFrames: limit, limitBytes: int(^uint(0) >> 1), stats: Stats{Kind: "pfifo"}}
}

// NewBFIFO returns a queue of at most limit bytes.
func NewBFIFO(limit int) *FIFO {
	return &FIFO{limitFrames: int(^uint(0) >> 1), limitBytes: limit, stats: Stats{Kind: "bfifo"}}
}

// Enqueue implements [Qdisc].
func (q *FIFO) Enqueue(f *nic.Frame, now engine.Time, drop Drop) {
	if q.qlen >= q.limitFrames || q.backlog+f.Wire() > q.limitBytes {
		q.stats.Drops++
		drop(f, Overlimit)
		return
	}
	f.Enqueued = now
	q.queue.push(f)
	q.qlen++
	q.backlog += f.Wire()
}

// Dequeue implements [Qdisc].
func (q *FIFO) Dequeue(engine.Time, Drop) *nic.Frame {
	f := q.queue.pop()
	if f != nil {
		q.qlen--
		q.backlog -= f.Wire()
		q.stats.sent(f)
	}
	return f
}

// Len implements [Qdisc].
func (q *FIFO) Len() int { return q.qlen }

// Bytes implements [Qdisc].
func (q *FIFO) Bytes() int { return q.backlog }

// Stats implements [Qdisc].
func (q *FIFO) Stats() Stats {
	s := q.stats
	s.Backlog, s.Qlen = q.backlog, q.qlen
	return s
}

var _ Qdisc = (*FIFO)(nil)
