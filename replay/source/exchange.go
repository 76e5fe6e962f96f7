package source

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/stack"
)

// End is one side of an exchange between two cards.
type End struct {
	Stack *stack.Stack
	Queue int // transmit queue
}

// Exchange is what requests and responses between two cards have in common:
// their frames, and the way there and back. The wire between the cards tells of
// frames that it or the receiving ring has lost, by Lost.
type Exchange struct {
	Client, Server    End
	Request, Response int // bytes of payload
	Headers           int // of a segment's frame
	MSS               int // payload of a full segment
	Segmented         bool
	Priority          uint32
	Interval          engine.Time
	// Turnaround is the mean time that the server takes to answer, exponential:
	// the wake-up of its process. Without any, exchanges keep step with
	// whatever they wait behind.
	Turnaround engine.Time
	Warmup     engine.Time // round trips are recorded from then on

	// Latency is the round trip times, in nanoseconds, from handing over the
	// request to the arrival of the last byte of the response.
	Latency *hdrhistogram.Histogram

	eng     *engine.Engine
	flow    [2]uint32 // of requests, of responses
	begin   engine.Time
	stopped bool
}

const (
	request = iota
	response
)

// start prepares an exchange; arrived sees every frame of it that comes in,
// lost every one that does not.
func (x *Exchange) start(arrived, lost func(way int, f *nic.Frame)) {
	x.eng = x.Client.Stack.Eng
	x.begin = x.eng.Now()
	x.Latency = NewLatency()
	for way, from := range []*stack.Stack{x.Client.Stack, x.Server.Stack} {
		to := x.Server.Stack
		if way == response {
			to = x.Client.Stack
		}
		flow := from.Flows(1)
		x.flow[way] = flow
		to.OnDeliver(func(f *nic.Frame) {
			if f.Flow == flow {
				arrived(way, f)
			}
		})
		from.OnDrop(func(f *nic.Frame, _ string) {
			if f.Flow == flow {
				lost(way, f)
			}
		})
		from.OnComplete(func(f *nic.Frame) {
			if f.Flow == flow && f.WireEnd == 0 {
				lost(way, f)
			}
		})
	}
}

// way says which way a frame that from has sent was on; ok is false if it is
// none of this exchange.
func (x *Exchange) way(from *stack.Stack, f *nic.Frame) (way int, ok bool) {
	switch {
	case from == x.Client.Stack && f.Flow == x.flow[request]:
		return request, true
	case from == x.Server.Stack && f.Flow == x.flow[response]:
		return response, true
	}
	return 0, false
}

// send hands over a message, or the part of one that is sent again, as seq.
func (x *Exchange) send(way, payload int, seq uint64) {
	end := x.Client
	if way == response {
		end = x.Server
	}
	size := x.MSS
	if !x.Segmented {
		size = MaxPacket(x.MSS, x.Headers)
	}
	for ; payload > 0; payload -= size {
		size = min(size, payload)
		f := end.Stack.Pool.Get(end.Queue)
		f.GSO(x.Headers+size, x.Headers, x.MSS)
		f.Flow, f.Seq, f.Priority = x.flow[way], seq, x.Priority
		end.Stack.Send(f)
	}
}

// turnaround draws the time that the server takes for one answer.
func (x *Exchange) turnaround() engine.Time {
	return engine.Time(x.eng.Rand().ExpFloat64() * float64(x.Turnaround))
}

func (x *Exchange) record(sent engine.Time) {
	if sent-x.begin >= x.Warmup {
		x.Latency.RecordValue(min(max(1, int64(x.eng.Now()-sent)), x.Latency.HighestTrackableValue()))
	}
}

// Transactions are a request and its response, one after the other, over a
// connection that is never congested, as netperf's TCP_RR: what is lost is sent
// again after the least retransmission time-out. A late response delays the
// next request, which is not made up for. It leaves out acknowledgements.
type Transactions struct {
	Exchange

	seq    uint64
	sent   engine.Time
	due    engine.Time
	next   engine.Timer
	answer engine.Timer
	coming int // bytes of the message under way that have not arrived
	again  [2]int
	rto    [2]engine.Timer
}

// Start makes it run from now on.
func (t *Transactions) Start() {
	t.start(t.arrived, t.lost)
	t.due = t.begin
	t.eng.Init(&t.next, t.ask)
	t.eng.Init(&t.answer, t.respond)
	for way := range t.rto {
		t.eng.Init(&t.rto[way], func() {
			bytes := t.again[way]
			t.again[way] = 0
			t.send(way, bytes, t.seq)
		})
	}
	t.ask()
}

// Stop ends it; the transaction under way does not count.
func (t *Transactions) Stop() {
	t.stopped = true
	for _, timer := range []*engine.Timer{&t.next, &t.answer, &t.rto[request], &t.rto[response]} {
		t.eng.Cancel(timer)
	}
}

// Lost takes a frame sent by from that the wire or the receiving ring has lost.
func (t *Transactions) Lost(from *stack.Stack, f *nic.Frame) {
	if way, ok := t.way(from, f); ok {
		t.lost(way, f)
	}
}

func (t *Transactions) ask() {
	t.seq++
	t.sent, t.coming = t.eng.Now(), t.Request
	t.send(request, t.Request, t.seq)
}

func (t *Transactions) respond() {
	t.coming = t.Response
	t.send(response, t.Response, t.seq)
}

func (t *Transactions) lost(way int, f *nic.Frame) {
	if t.stopped {
		return
	}
	t.again[way] += f.Len - f.HdrLen
	t.eng.After(&t.rto[way], retransmit)
}

func (t *Transactions) arrived(way int, f *nic.Frame) {
	if t.coming -= f.Len - f.HdrLen; t.coming > 0 || t.stopped {
		return
	}
	if way == request {
		t.eng.After(&t.answer, t.turnaround())
		return
	}
	t.record(t.sent)
	if t.due = max(t.eng.Now(), t.due+t.Interval); t.due > t.eng.Now() {
		t.eng.At(&t.next, t.due)
	} else {
		t.ask()
	}
}

// Echoes are requests at a fixed interval, each answered by the other side
// whatever became of those before, as ping's.
type Echoes struct {
	Exchange

	sent, unanswered uint64
	next             engine.Timer
}

// Start makes it run from now on.
func (e *Echoes) Start() {
	e.start(e.arrived, func(int, *nic.Frame) { e.unanswered++ })
	e.eng.Init(&e.next, e.ask)
	e.ask()
}

// Stop ends it; responses under way still count.
func (e *Echoes) Stop() { e.eng.Cancel(&e.next) }

// Lost takes a frame sent by from that the wire or the receiving ring has lost.
func (e *Echoes) Lost(from *stack.Stack, f *nic.Frame) {
	if _, ok := e.way(from, f); ok {
		e.unanswered++
	}
}

// Unanswered is the requests that were lost, or whose response was.
func (e *Echoes) Unanswered() uint64 { return e.unanswered }

func (e *Echoes) ask() {
	seq := e.sent
	e.sent++
	e.eng.At(&e.next, e.begin+engine.Time(e.sent)*e.Interval)
	e.send(request, e.Request, seq)
}

func (e *Echoes) arrived(way int, f *nic.Frame) {
	if way == request {
		e.send(response, f.Len-f.HdrLen, f.Seq)
		return
	}
	e.record(e.begin + engine.Time(f.Seq)*e.Interval)
}
