package source

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
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
// when the next one completes. Pacing stands for what a real flow's history
// makes of congestion window over bytes in flight, and the share is given, not
// found: in a real flow both come out of the same loop.
type TCP struct {
	Queues []int       // the transmit queue of each flow
	Rates  []float64   // the share of each flow, bytes of payload a second
	Pacing engine.Time // what a flow may have below itself, in time at its share
	Spread float64     // half the width of Pacing's uniform variation from flow to flow
	MaxSkb int         // payload of the largest packet; 0 = 45 segments, 65160 bytes

	s       *stack.Stack
	first   uint32
	flows   []tcpFlow
	awake   engine.FIFO[int] // flows that completions let go on: the TSQ tasklet
	tasklet engine.Timer
}

type tcpFlow struct {
	queue int
	skb   int // payload of a packet
	limit int // payload below which it goes on
	below int // payload in qdisc and ring
	awake bool
	done  uint64 // payload that has left the card
}

// Start makes all flows run from now on.
func (t *TCP) Start(s *stack.Stack) {
	t.s, t.first = s, s.Flows(len(t.Queues))
	t.flows = make([]tcpFlow, len(t.Queues))
	if t.MaxSkb == 0 {
		t.MaxSkb = 45 * MSS
	}
	for i := range t.flows {
		spread := 1 + t.Spread*(2*s.Eng.Rand().Float64()-1)
		below := t.Rates[i] * float64(t.Pacing) / float64(engine.Second) * spread
		skb := max(2, min(t.MaxSkb, int(below))/MSS) * MSS
		t.flows[i] = tcpFlow{queue: t.Queues[i], skb: skb, limit: max(2*skb, int(below))}
	}
	s.Eng.Init(&t.tasklet, t.run)
	s.OnComplete(t.completed)
	s.OnDrop(func(f *nic.Frame, _ string) { t.gone(f) })
	for i := range t.flows {
		t.wake(i)
	}
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

// gone takes a frame off its flow's account and reports whose it was.
func (t *TCP) gone(f *nic.Frame) (flow int, mine bool) {
	if i := f.Flow - t.first; i < uint32(len(t.flows)) {
		t.flows[i].below -= f.Len - f.HdrLen
		return int(i), true
	}
	return 0, false
}

func (t *TCP) completed(f *nic.Frame) {
	i, mine := t.gone(f)
	if !mine {
		return
	}
	if f.WireEnd != 0 {
		t.flows[i].done += uint64(f.Len - f.HdrLen)
	}
	t.wake(i)
}

func (t *TCP) wake(i int) {
	if t.flows[i].awake {
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
		fl.awake = false
		for fl.below < fl.limit {
			f := t.s.Pool.Get(fl.queue)
			f.GSO(TCPHeader+fl.skb, TCPHeader, MSS)
			f.Flow = t.first + uint32(i)
			fl.below += fl.skb
			t.s.Send(f)
		}
	}
}
