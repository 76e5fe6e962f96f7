package source

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/stack"
)

// Requests is a request/response probe with one transaction under way, as
// netperf's TCP_RR: a request goes through qdisc and card, the response comes
// some time after it has left, then the next request is sent.
type Requests struct {
	Queue int
	Bytes int // of the request's frame; 0 = one byte of payload
	// Base and BaseMean are the rest of the round trip, from the end of the
	// request on the wire: a constant and the mean of an exponential part.
	Base, BaseMean engine.Time
	// Interval is from one request to the next; 0 = back to back. A late
	// response delays the next request, which is not made up for.
	Interval engine.Time

	// Latency is the round trip times from send to response, in nanoseconds.
	// Reset it to begin measuring.
	Latency *hdrhistogram.Histogram

	s     *stack.Stack
	flow  uint32
	sent  engine.Time
	due   engine.Time
	reply engine.Timer
	next  engine.Timer
}

// NewLatency returns a histogram for times of up to a minute, exact to 0.1 %.
func NewLatency() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(60*engine.Second), 3)
}

// Start makes it run from now on.
func (r *Requests) Start(s *stack.Stack) {
	r.s, r.flow = s, s.Flows(1)
	if r.Bytes == 0 {
		r.Bytes = TCPHeader + 1
	}
	r.Latency = NewLatency()
	r.due = s.Eng.Now()
	s.Eng.Init(&r.reply, r.answered)
	s.Eng.Init(&r.next, r.send)
	s.OnWire(func(f *nic.Frame, end engine.Time) {
		if f.Flow == r.flow {
			wait := r.Base + engine.Time(s.Eng.Rand().ExpFloat64()*float64(r.BaseMean))
			s.Eng.At(&r.reply, end+wait)
		}
	})
	lost := func(f *nic.Frame) {
		if f.Flow == r.flow {
			s.Eng.After(&r.reply, retransmit)
		}
	}
	s.OnDrop(func(f *nic.Frame, _ string) { lost(f) })
	s.OnComplete(func(f *nic.Frame) {
		if f.WireEnd == 0 {
			lost(f)
		}
	})
	r.send()
}

// retransmit is when a lost request is answered after all: TCP's least
// retransmission time-out.
const retransmit = 200 * engine.Millisecond

func (r *Requests) send() {
	f := r.s.Pool.Get(r.Queue)
	f.Single(r.Bytes)
	f.Flow = r.flow
	r.sent = r.s.Eng.Now()
	r.s.Send(f)
}

func (r *Requests) answered() {
	now := r.s.Eng.Now()
	r.Latency.RecordValue(int64(now - r.sent))
	if r.due = max(now, r.due+r.Interval); r.due > now {
		r.s.Eng.At(&r.next, r.due)
		return
	}
	r.send()
}
