package source

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/stack"
)

// Pktgen is the kernel's packet generator in start_xmit mode: frames go to the
// driver past the qdisc as fast as one core can hand them over, and only
// DRV_XOFF stops it. Each costs the card's cpu.xmit of core time, and one that
// the driver drops at once a microsecond, so that time goes on.
type Pktgen struct {
	Queue int
	Bytes int // frame without FCS
	Burst int // frames behind one doorbell (pktgen's burst); 0 = 1

	s       *stack.Stack
	flow    uint32
	waiting bool // for DRV_XOFF to go
	inBurst int
	refused bool // the driver has dropped one
	pause   engine.Timer
	send    func()
}

// Start makes it run from now on.
func (p *Pktgen) Start(s *stack.Stack) {
	p.s, p.flow, p.send = s, s.Flows(1), p.sendOne
	s.Eng.Init(&p.pause, p.next)
	s.OnComplete(func(f *nic.Frame) { p.refused = p.refused || f.Flow == p.flow && f.WireEnd == 0 })
	s.OnWake(func(q int) {
		if q == p.Queue && p.waiting {
			p.waiting = false
			p.next()
		}
	})
	p.next()
}

// next works on the next frame.
func (p *Pktgen) next() {
	p.s.CPU.App(engine.Time(p.s.NIC.Config().CPU.Xmit), p.send)
}

func (p *Pktgen) sendOne() {
	if drv, _ := p.s.NIC.XOFF(p.Queue); drv {
		p.waiting = true
		return
	}
	p.inBurst++
	more := p.inBurst < p.Burst
	if !more {
		p.inBurst = 0
	}
	f := p.s.Pool.Get(p.Queue)
	f.Single(p.Bytes)
	f.Flow = p.flow
	if !p.s.Post(f, more) {
		p.s.Pool.Put(f)
		p.waiting = true
		return
	}
	if p.refused {
		p.refused = false
		p.s.Eng.After(&p.pause, engine.Microsecond)
		return
	}
	p.next()
}
