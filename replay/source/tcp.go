package source

import (
	"math"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/replay/stack"
)

// TCP is a model of bulk TCP flows as the layers below TCP see them, closed by
// completions alone. With r the flow's share of the link in bytes a second and
// Pacing = 2^-10 s times the ratio of the pacing rate to r, a flow sends
//
//	packets of min(MaxSkb, Pacing·r), in whole segments   tcp_tso_autosize
//	while it has fewer than max(2 packets, Pacing·r)
//	in qdisc and ring                                     tcp_small_queue_check
//
// and each completion lets the flow go on, after the softirq.
//
// Its limits: no congestion window, no acknowledgements, no loss recovery and
// no slow start. Windows are taken to be never in the way, which holds where
// the flows are not dropped from; a dropped packet is sent again as a new one
// when the next one completes, or after the least retransmission time-out if
// none is left. Pacing stands for what a real flow's history makes of
// congestion window over bytes in flight, and the share is given, not found: in
// a real flow both come out of the same loop.
type TCP struct {
	Queues   []int       // the transmit queue of each flow
	Rates    []float64   // the share of each flow, bytes of payload a second; see Share
	Pacing   engine.Time // what a flow may have below itself, in time at its share
	Spread   float64     // half the width of Pacing's uniform variation from flow to flow
	MSS      int         // payload of a full segment; 0 = that of an MTU of 1500
	Headers  int         // of a segment's frame; 0 = IPv4
	MaxSkb   int         // payload of the largest packet; 0 = as many segments as make 64 KB
	Priority uint32

	// Segmented flows send their packets as single segments: the device has no
	// TSO. (The kernel segments behind the qdisc, here it is before.)
	Segmented bool
	// Limit is what the program writes to each flow, payload, in blocks of Write
	// bytes; 0 = as much as the flow takes.
	Limit units.Rate
	Write int // 0 = 128 KB, as iperf3

	s       *stack.Stack
	first   uint32
	flows   []tcpFlow
	awake   engine.FIFO[int] // flows that completions let go on: the TSQ tasklet
	tasklet engine.Timer
	stopped bool
}

type tcpFlow struct {
	queue   int
	spread  float64
	skb     int // payload of a packet
	limit   int // payload below which it goes on
	below   int // payload in qdisc and ring
	written int // payload that waits in the socket
	awake   bool
	dropped bool // from, since it last went on
	done    uint64
	writes  uint64
	rto     engine.Timer
	write   engine.Timer
}

// unlimited is what waits in the socket of a program that never runs out.
const unlimited = math.MaxInt

// Start makes all flows run from now on.
func (t *TCP) Start(s *stack.Stack) {
	t.s, t.first = s, s.Flows(len(t.Queues))
	t.flows = make([]tcpFlow, len(t.Queues))
	if t.MSS == 0 {
		t.MSS = MSS
	}
	if t.Headers == 0 {
		t.Headers = TCPHeader
	}
	if t.MaxSkb == 0 {
		t.MaxSkb = MaxPacket(t.MSS, t.Headers)
	}
	if t.Write == 0 {
		t.Write = 128 << 10
	}
	for i := range t.flows {
		fl := &t.flows[i]
		fl.queue = t.Queues[i]
		fl.spread = 1 + t.Spread*(2*s.Eng.Rand().Float64()-1)
		fl.written = unlimited
		s.Eng.Init(&fl.rto, func() { t.wake(i) })
		t.Share(i, t.Rates[i])
	}
	s.Eng.Init(&t.tasklet, t.run)
	s.OnComplete(t.completed)
	s.OnDrop(t.lost)
	start := s.Eng.Now()
	for i := range t.flows {
		if fl := &t.flows[i]; t.Limit > 0 {
			fl.written = 0
			s.Eng.Init(&fl.write, func() { t.wrote(i, start) })
			t.wrote(i, start)
		} else {
			t.wake(i)
		}
	}
}

// MaxPacket is the payload of the largest packet that the stack builds: whole
// segments in 64 KB with one header.
func MaxPacket(mss, headers int) int { return max(1, (65535-headers)/mss) * mss }

// Stop ends all flows; what they have sent goes its way.
func (t *TCP) Stop() {
	t.stopped = true
	t.s.Eng.Cancel(&t.tasklet)
	for i := range t.flows {
		t.s.Eng.Cancel(&t.flows[i].rto)
		t.s.Eng.Cancel(&t.flows[i].write)
	}
}

// Share gives flow i another share of the link, bytes of payload a second, from
// its next packet on.
func (t *TCP) Share(i int, rate float64) {
	if t.Rates[i] = rate; t.flows == nil {
		return // not started
	}
	fl := &t.flows[i]
	below := rate * float64(t.Pacing) / float64(engine.Second) * fl.spread
	fl.skb = max(2, min(t.MaxSkb, int(below))/t.MSS) * t.MSS
	fl.limit = max(2*fl.skb, int(below))
}

// Done is the payload of flow i that has left the card, in bytes.
func (t *TCP) Done(i int) uint64 { return t.flows[i].done }

// Total is the payload of all flows that has left the card, in bytes.
func (t *TCP) Total() (sum uint64) {
	for i := range t.flows {
		sum += t.flows[i].done
	}
	return sum
}

// wrote is the program's next block.
func (t *TCP) wrote(i int, start engine.Time) {
	fl := &t.flows[i]
	fl.written += t.Write
	fl.writes++
	t.s.Eng.At(&fl.write, start+every(fl.writes, int64(t.Write)*8*int64(engine.Second), int64(t.Limit)))
	t.wake(i)
}

// gone takes a frame off its flow's account and says whose it was; nil if it is
// not one of these flows.
func (t *TCP) gone(f *nic.Frame) (flow *tcpFlow, i int) {
	if i := f.Flow - t.first; i < uint32(len(t.flows)) {
		fl := &t.flows[i]
		fl.below -= f.Len - f.HdrLen
		return fl, int(i)
	}
	return nil, 0
}

func (t *TCP) completed(f *nic.Frame) {
	if f.WireEnd == 0 {
		t.lost(f, "")
	} else if fl, i := t.gone(f); fl != nil {
		fl.done += uint64(f.Len - f.HdrLen)
		t.wake(i)
	}
}

// lost takes a frame that qdisc or card have dropped. A flow that is dropped
// from waits for a completion, and without one for its time-out.
func (t *TCP) lost(f *nic.Frame, _ string) {
	fl, _ := t.gone(f)
	if fl == nil {
		return
	}
	if fl.written != unlimited {
		fl.written += f.Len - f.HdrLen
	}
	fl.dropped = true
	if fl.below == 0 && !t.stopped {
		t.s.Eng.After(&fl.rto, retransmit)
	}
}

func (t *TCP) wake(i int) {
	if t.flows[i].awake || t.stopped {
		return
	}
	t.flows[i].awake = true
	t.awake.Push(i)
	if !t.tasklet.Armed() {
		t.s.Eng.After(&t.tasklet, 0)
	}
}

func (t *TCP) run() {
	for t.awake.Len() > 0 {
		i := t.awake.Pop()
		fl := &t.flows[i]
		fl.awake, fl.dropped = false, false
		t.s.Eng.Cancel(&fl.rto)
		for fl.below < fl.limit && fl.written > 0 && !fl.dropped {
			t.packet(i, min(fl.skb, fl.written))
		}
	}
}

// packet sends one packet of a flow, whole or in segments.
func (t *TCP) packet(i, payload int) {
	fl := &t.flows[i]
	size := payload
	if t.Segmented {
		size = t.MSS
	}
	if fl.written != unlimited {
		fl.written -= payload
	}
	fl.below += payload
	for ; payload > 0; payload -= size {
		size = min(size, payload)
		f := t.s.Pool.Get(fl.queue)
		f.GSO(t.Headers+size, t.Headers, t.MSS)
		f.Flow, f.Priority = t.first+uint32(i), t.Priority
		t.s.Send(f)
	}
}
