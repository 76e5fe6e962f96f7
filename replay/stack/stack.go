// Package stack is the kernel above one card for runs without a kernel: it
// takes frames from sources, queues them in a qdisc for each transmit queue and
// hands them to the driver as the kernel does, under both stop bits.
//
// It follows net/sched/sch_generic.c (__qdisc_run, sch_direct_xmit,
// try_bulk_dequeue_skb) and net/core/dev.c (dev_hard_start_xmit) of Linux 6.12.
// It leaves out the bypass of an empty qdisc, the run quota (a run costs no
// time here; sources spend the core time of a transmission), locking, and
// everything above the qdisc.
package stack

import (
	"fmt"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/qdisc"
)

// Stack is the kernel above one card. It implements [nic.Host] and [nic.Wire].
type Stack struct {
	Eng *engine.Engine
	CPU *nic.CPU
	NIC *nic.NIC

	// Pool is where frames come from and go back to. Stacks that pass frames
	// to each other share one.
	Pool *nic.Pool

	hooks hooks

	tx      []txQueue
	dropped map[string]nic.Count
	drop    qdisc.Drop // bound once
	flows   uint32     // given out by Flows
}

// txQueue is a netdev_queue with its root qdisc.
type txQueue struct {
	qdisc    qdisc.Qdisc
	requeued *nic.Frame // taken from the qdisc and given back by the driver: gso_skb
	bulk     bool       // the driver uses BQL, so that its limit bounds a bulk
	running  bool       // __QDISC_STATE_RUNNING

	sent     nic.Count // given to Send
	posted   nic.Count // given to Post and taken by the driver
	dropped  nic.Count // by the qdisc
	requeues uint64
}

// New builds device dev on e under a qdisc for each transmit queue, made by
// root. Cards that share a core share cpu.
func New(e *engine.Engine, cpu *nic.CPU, dev *nic.Device, root func(q int) qdisc.Qdisc) (*Stack, error) {
	s := &Stack{Eng: e, CPU: cpu, Pool: &nic.Pool{}, dropped: map[string]nic.Count{}}
	s.drop = s.dropFrame
	n, err := dev.Build(e, cpu, s, s)
	if err != nil {
		return nil, err
	}
	s.NIC = n
	s.tx = make([]txQueue, n.Queues())
	for q := range s.tx {
		s.tx[q].qdisc = root(q)
		s.tx[q].bulk = n.Config().BQL.On
	}
	return s, nil
}

// Send is dev_queue_xmit: f goes into the qdisc of its queue, which then runs.
func (s *Stack) Send(f *nic.Frame) {
	t := &s.tx[f.Queue]
	t.sent = t.sent.Plus(nic.Count{Frames: 1, Bytes: uint64(f.Wire())})
	q := f.Queue
	t.qdisc.Enqueue(f, s.Eng.Now(), s.drop)
	s.run(q)
}

// Post hands f to the driver past the qdisc, as pktgen and XDP do, and reports
// whether it was taken; a frame refused stays the caller's.
func (s *Stack) Post(f *nic.Frame, more bool) bool {
	t := &s.tx[f.Queue]
	size := nic.Count{Frames: 1, Bytes: uint64(f.Wire())}
	f.Enqueued = s.Eng.Now()
	t.posted = t.posted.Plus(size)
	if !s.NIC.Post(f, more) {
		t.posted.Frames -= size.Frames
		t.posted.Bytes -= size.Bytes
		return false
	}
	return true
}

// run is __qdisc_run: it hands frames to the driver until the qdisc is empty
// or the queue is stopped.
func (s *Stack) run(q int) {
	t := &s.tx[q]
	if t.running {
		return // the run under way takes what has come
	}
	t.running = true
	for {
		if drv, stack := s.NIC.XOFF(q); drv || stack {
			break
		}
		f := t.requeued
		t.requeued = nil
		if f == nil {
			if f = s.dequeue(q); f == nil {
				break
			}
		}
		if !s.transmit(q, f) {
			break
		}
	}
	t.running = false
}

// dequeue takes one frame and, as try_bulk_dequeue_skb does, as many behind it
// as BQL has bytes for; the last one may overshoot.
func (s *Stack) dequeue(q int) *nic.Frame {
	t, now := &s.tx[q], s.Eng.Now()
	first := t.qdisc.Dequeue(now, s.drop)
	if first == nil || !t.bulk {
		return first
	}
	budget := s.NIC.Available(q) - first.Len
	for last := first; budget > 0; last = last.Next {
		if last.Next = t.qdisc.Dequeue(now, s.drop); last.Next == nil {
			break
		}
		budget -= last.Next.Len
	}
	return first
}

// transmit is dev_hard_start_xmit: inside a list only DRV_XOFF counts. What the
// driver refuses, and what stands behind it, is requeued; then it reports
// false.
func (s *Stack) transmit(q int, f *nic.Frame) bool {
	t := &s.tx[q]
	for f != nil {
		next := f.Next
		f.Next = nil
		if !s.NIC.Post(f, next != nil) {
			f.Next = next
			t.requeue(f)
			return false
		}
		if drv, _ := s.NIC.XOFF(q); drv && next != nil {
			t.requeue(next)
			return false
		}
		f = next
	}
	return true
}

func (t *txQueue) requeue(f *nic.Frame) {
	t.requeued = f
	for ; f != nil; f = f.Next {
		t.requeues++
	}
}

func (s *Stack) dropFrame(f *nic.Frame, reason string) {
	size := nic.Count{Frames: 1, Bytes: uint64(f.Wire())}
	t := &s.tx[f.Queue]
	t.dropped = t.dropped.Plus(size)
	s.dropped[reason] = s.dropped[reason].Plus(size)
	for _, see := range s.hooks.drop {
		see(f, reason)
	}
	s.Pool.Put(f)
}

// Qdisc are the counters of queue q's qdisc, with its requeues.
func (s *Stack) Qdisc(q int) qdisc.Stats {
	st := s.tx[q].qdisc.Stats()
	st.Requeues = s.tx[q].requeues
	for f := s.tx[q].requeued; f != nil; f = f.Next {
		st.Qlen++
		st.Backlog += f.Wire()
	}
	return st
}

// Qlen is the frames that wait above the driver of queue q.
func (s *Stack) Qlen(q int) int {
	n := s.tx[q].qdisc.Len()
	for f := s.tx[q].requeued; f != nil; f = f.Next {
		n++
	}
	return n
}

// Offered is what sources have given to queue q, to Send or to Post.
func (s *Stack) Offered(q int) nic.Count { return s.tx[q].sent.Plus(s.tx[q].posted) }

// Dropped is what the qdiscs have dropped, by reason; the card counts its own
// drops. Read only.
func (s *Stack) Dropped() map[string]nic.Count { return s.dropped }

// Audit checks the laws of the card and of the stack above it: for each queue
// offered = in the qdisc + given back by the driver + dropped + accepted by the
// driver, in frames and in bytes, and a queue that has frames and no stop bit
// is not left standing.
func (s *Stack) Audit() error {
	if err := s.NIC.Audit(); err != nil {
		return err
	}
	for q := range s.tx {
		t, st := &s.tx[q], s.Qdisc(q)
		waiting := nic.Count{Frames: uint64(st.Qlen), Bytes: uint64(st.Backlog)}
		driver := s.NIC.Queue(q).Offered
		if got := waiting.Plus(t.dropped).Plus(driver); got != s.Offered(q) {
			return fmt.Errorf("queue %d: offered %v, but queued %v + dropped %v + driver %v = %v",
				q, s.Offered(q), waiting, t.dropped, driver, got)
		}
		if drv, stack := s.NIC.XOFF(q); st.Qlen > 0 && !drv && !stack && !t.running {
			return fmt.Errorf("queue %d: %d frames queued and no stop bit set", q, st.Qlen)
		}
	}
	return nil
}
