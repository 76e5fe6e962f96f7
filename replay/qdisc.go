package replay

import (
	"fmt"
	"strconv"
	"strings"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/qdisc"
)

// Qdisc says what stands before each transmit queue of the card: a model of a qdisc, or none. The zero value is none.
type Qdisc struct {
	kind  string
	limit int
}

const (
	noQdisc   = "none"
	fifoQdisc = "fifo"
	fqCodel   = "fq_codel"

	fifoLimit = 1000 // txqueuelen of an Ethernet device, which pfifo takes for its limit
)

// UnmarshalText reads "none", "fifo", "fifo:LIMIT" (packets) or "fq_codel", which has the kernel's defaults.
func (q *Qdisc) UnmarshalText(text []byte) error {
	kind, limit, limited := strings.Cut(string(text), ":")
	*q = Qdisc{kind: kind}
	switch {
	case kind == fifoQdisc && limited:
		n, err := strconv.ParseUint(limit, 10, 31)
		if err != nil || n == 0 {
			return fmt.Errorf("qdisc %q: expected a limit of 1 or more packets, e.g. fifo:1000", text)
		}
		q.limit = int(n)
	case kind == fifoQdisc:
		q.limit = fifoLimit
	case kind != noQdisc && kind != fqCodel || limited:
		return fmt.Errorf("qdisc %q: expected none, fifo, fifo:LIMIT or fq_codel", text)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (q Qdisc) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

func (q Qdisc) String() string {
	switch q.kind {
	case "":
		return noQdisc
	case fifoQdisc:
		return fmt.Sprintf("fifo:%d", q.limit)
	}
	return q.kind
}

// supply is how many frames a sender at top speed keeps waiting before the card: more than one bulk of the stack.
const supply = 64

// room is the most frames that may wait without a drop, as far as a sender at top speed goes.
func (q Qdisc) room() int {
	if q.kind == fifoQdisc {
		return min(supply, q.limit)
	}
	return supply
}

func (q Qdisc) build(w *waiting) qdisc.Qdisc {
	switch q.kind {
	case fifoQdisc:
		return qdisc.NewPFIFO(q.limit)
	case fqCodel:
		return qdisc.NewFQCodel(qdisc.FQCodelConfig{})
	}
	return &senders{waiting: w}
}

// waiting is what the senders of all queues hold.
type waiting struct{ frames, bytes int }

// full reports whether no more should be read ahead: so much waits in memory, the rest in the file.
func (w *waiting) full() bool { return w.frames >= 8192 || w.bytes >= 16<<20 }

// senders stand where there is no qdisc: frames wait for the card in order and without bound, from the time they were due.
type senders struct {
	*waiting
	queue  engine.FIFO[*nic.Frame]
	bytes  int
	passed qdisc.Stats
}

// Enqueue implements [qdisc.Qdisc]. The frame has been stamped with the time it was due.
func (s *senders) Enqueue(f *nic.Frame, _ engine.Time, _ qdisc.Drop) {
	s.queue.Push(f)
	s.bytes += f.Wire()
	s.waiting.frames++
	s.waiting.bytes += f.Wire()
}

// Dequeue implements [qdisc.Qdisc].
func (s *senders) Dequeue(engine.Time, qdisc.Drop) *nic.Frame {
	if s.queue.Len() == 0 {
		return nil
	}
	f := s.queue.Pop()
	f.Next = nil
	s.bytes -= f.Wire()
	s.waiting.frames--
	s.waiting.bytes -= f.Wire()
	s.passed.Packets++
	s.passed.Bytes += uint64(f.Wire())
	return f
}

// Len implements [qdisc.Qdisc].
func (s *senders) Len() int { return s.queue.Len() }

// Bytes implements [qdisc.Qdisc].
func (s *senders) Bytes() int { return s.bytes }

// Stats implements [qdisc.Qdisc].
func (s *senders) Stats() qdisc.Stats {
	st := s.passed
	st.Kind, st.Qlen, st.Backlog = noQdisc, s.queue.Len(), s.bytes
	return st
}

var _ qdisc.Qdisc = (*senders)(nil)
