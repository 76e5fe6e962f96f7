package source

import (
	"nicemu/devices/engine"
	"nicemu/devices/units"
	"nicemu/replay/stack"
)

// UDP sends datagrams at a constant rate of payload, as `iperf3 -u -b` does.
type UDP struct {
	Queue   int
	Payload int        // of a datagram; 0 = 1448
	Rate    units.Rate // of payload
	ECN     uint8

	s    *stack.Stack
	flow uint32
	at   engine.Time
	sent uint64
	next engine.Timer
}

// Start makes it run from now on.
func (u *UDP) Start(s *stack.Stack) {
	u.s, u.flow, u.at = s, s.Flows(1), s.Eng.Now()
	if u.Payload == 0 {
		u.Payload = 1448
	}
	s.Eng.Init(&u.next, u.send)
	u.send()
}

// Sent is the datagrams given to the qdisc.
func (u *UDP) Sent() uint64 { return u.sent }

func (u *UDP) send() {
	f := u.s.Pool.Get(u.Queue)
	f.Single(ethernet + ipUDP + u.Payload)
	f.Flow, f.ECN = u.flow, u.ECN
	u.sent++
	u.s.Eng.At(&u.next, u.at+every(u.sent, int64(u.Payload)*8*int64(engine.Second), int64(u.Rate)))
	u.s.Send(f)
}
