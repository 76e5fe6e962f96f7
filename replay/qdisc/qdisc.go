// Package qdisc holds models of the kernel's queueing disciplines for runs
// without a kernel: what stands between an offline source and a card. In live
// runs the genuine ones stand there.
//
// It follows net/sched/sch_fifo.c, pfifo_fast of net/sched/sch_generic.c, and
// net/sched/sch_fq_codel.c with
// include/net/codel_impl.h of Linux 6.12, and RFC 8289 and 8290. It leaves out
// classes, filters, netlink and the bypass of an empty qdisc; the flow of a
// frame is given with it instead of being hashed here.
//
// Lengths are those that qdisc_pkt_len has in the kernel: wire bytes with the
// headers of every segment.
package qdisc

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// Qdisc queues the frames of one transmit queue.
type Qdisc interface {
	// Enqueue takes f. Frames that there is no room for, f or others, go to
	// drop.
	Enqueue(f *nic.Frame, now engine.Time, drop Drop)
	// Dequeue gives the next frame, nil if there is none. Frames that active
	// queue management discards on the way go to drop.
	Dequeue(now engine.Time, drop Drop) *nic.Frame
	// Len is the frames queued.
	Len() int
	// Bytes is their wire bytes.
	Bytes() int
	Stats() Stats
}

// Drop takes a frame that a qdisc discards. It must not call the qdisc.
type Drop func(f *nic.Frame, reason string)

// Reasons for a drop.
const (
	Overlimit  = "overlimit"  // the limit of packets or bytes
	OverMemory = "overmemory" // fq_codel's memory_limit
	CoDel      = "codel"      // CoDel's control law
)

// Stats are the counters of `tc -s -j qdisc show`, in its spelling.
type Stats struct {
	Kind     string `json:"kind"`
	Bytes    uint64 `json:"bytes"`   // dequeued
	Packets  uint64 `json:"packets"` // dequeued
	Drops    uint64 `json:"drops"`
	Requeues uint64 `json:"requeues"` // given back by the driver; the stack counts them
	Backlog  int    `json:"backlog"`  // bytes
	Qlen     int    `json:"qlen"`     // frames

	*FQCodelStats `json:",omitempty"`
}

func (s *Stats) sent(f *nic.Frame) {
	s.Packets++
	s.Bytes += uint64(f.Wire())
}

// list is a singly linked queue of frames, as an sk_buff list.
type list struct{ head, tail *nic.Frame }

func (l *list) push(f *nic.Frame) {
	f.Next = nil
	if l.head == nil {
		l.head = f
	} else {
		l.tail.Next = f
	}
	l.tail = f
}

// pop gives the oldest frame, nil if the list is empty.
func (l *list) pop() *nic.Frame {
	f := l.head
	if f != nil {
		l.head, f.Next = f.Next, nil
	}
	return f
}
