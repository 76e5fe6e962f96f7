package qdisc

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// PFIFOFast is pfifo_fast: three bands, of which the first that holds anything
// is served, each a queue of at most txqueuelen packets. A frame's band follows
// from its Priority (net/sched/sch_generic.c, sch_default_prio2band).
type PFIFOFast struct {
	bands [3]FIFO
}

var prio2band = [16]uint8{1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}

// NewPFIFOFast returns an empty one; limit is the interface's txqueuelen.
func NewPFIFOFast(limit int) *PFIFOFast {
	q := &PFIFOFast{}
	for i := range q.bands {
		q.bands[i] = *NewPFIFO(limit)
	}
	return q
}

// Enqueue implements [Qdisc].
func (q *PFIFOFast) Enqueue(f *nic.Frame, now engine.Time, drop Drop) {
	q.bands[prio2band[f.Priority&15]].Enqueue(f, now, drop)
}

// Dequeue implements [Qdisc].
func (q *PFIFOFast) Dequeue(now engine.Time, drop Drop) *nic.Frame {
	for i := range q.bands {
		if f := q.bands[i].Dequeue(now, drop); f != nil {
			return f
		}
	}
	return nil
}

// Len implements [Qdisc].
func (q *PFIFOFast) Len() (n int) {
	for i := range q.bands {
		n += q.bands[i].Len()
	}
	return n
}

// Bytes implements [Qdisc].
func (q *PFIFOFast) Bytes() (n int) {
	for i := range q.bands {
		n += q.bands[i].Bytes()
	}
	return n
}

// Stats implements [Qdisc].
func (q *PFIFOFast) Stats() Stats {
	sum := Stats{Kind: "pfifo_fast", Qlen: q.Len(), Backlog: q.Bytes()}
	for i := range q.bands {
		s := q.bands[i].Stats()
		sum.Bytes += s.Bytes
		sum.Packets += s.Packets
		sum.Drops += s.Drops
	}
	return sum
}

var _ Qdisc = (*PFIFOFast)(nil)
