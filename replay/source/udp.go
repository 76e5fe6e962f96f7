package source

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/replay/stack"
)

// UDP sends datagrams at a constant rate of payload, as `iperf3 -u -b` does.
type UDP struct {
	Queue    int
	Payload  int        // of a datagram; 0 = 1448
	Headers  int        // of a datagram's frame; 0 = IPv4
	Rate     units.Rate // of payload
	Priority uint32
	ECN      uint8
	// SendBuffer is SO_SNDBUF, bytes of memory in qdisc and ring: a sender that
	// has filled it sleeps until half is free, then catches up. 0 = it never
	// waits.
	SendBuffer int

	s       *stack.Stack
	flow    uint32
	at      engine.Time
	sent    uint64
	below   int // memory in qdisc and ring
	asleep  bool
	stopped bool
	next    engine.Timer
}

// SendBuffer is the kernel's net.core.wmem_default, bytes.
const SendBuffer = 212992

// Start makes it run from now on.
func (u *UDP) Start(s *stack.Stack) {
	u.s, u.flow, u.at = s, s.Flows(1), s.Eng.Now()
	if u.Payload == 0 {
		u.Payload = MSS
	}
	if u.Headers == 0 {
		u.Headers = UDPHeader
	}
	s.Eng.Init(&u.next, u.send)
	if u.SendBuffer > 0 {
		s.OnComplete(u.gone)
		s.OnDrop(func(f *nic.Frame, _ string) { u.gone(f) })
	}
	u.send()
}

// Stop ends it; what it has sent goes its way.
func (u *UDP) Stop() {
	u.stopped = true
	u.s.Eng.Cancel(&u.next)
}

// Sent is the datagrams given to the qdisc.
func (u *UDP) Sent() uint64 { return u.sent }

func (u *UDP) send() {
	if u.SendBuffer > 0 && u.below >= u.SendBuffer {
		u.asleep = true
		return
	}
	f := u.s.Pool.Get(u.Queue)
	f.Single(u.Headers + u.Payload)
	f.Flow, f.ECN, f.Priority = u.flow, u.ECN, u.Priority
	u.sent++
	u.below += truesize(f)
	u.s.Eng.At(&u.next, u.at+every(u.sent, int64(u.Payload)*8*int64(engine.Second), int64(u.Rate)))
	u.s.Send(f)
}

// gone is sock_wfree with sock_def_write_space: the sender is woken when half of
// its buffer is free.
func (u *UDP) gone(f *nic.Frame) {
	if f.Flow != u.flow {
		return
	}
	u.below -= truesize(f)
	if u.asleep && !u.stopped && 2*u.below <= u.SendBuffer {
		u.asleep = false
		u.s.Eng.After(&u.next, 0)
	}
}

// truesize is about what an sk_buff costs its socket: the data and some 768
// bytes of structures around it.
func truesize(f *nic.Frame) int { return f.Len + 768 }
