package source

import (
	"nicemu/devices/engine"
	"nicemu/replay/stack"
)

// Pktgen is the kernel's packet generator in start_xmit mode: frames go to the
// driver past the qdisc as fast as one core can hand them over, and only
// DRV_XOFF stops it. Each costs the card's cpu.xmit of core time.
type Pktgen struct {
	Queue int
	Bytes int // frame without FCS
	Burst int // frames behind one doorbell (pktgen's burst); 0 = 1

	s       *stack.Stack
	waiting bool // for DRV_XOFF to go
	inBurst int
	send    func()
}

// Start makes it run from now on.
func (p *Pktgen) Start(s *stack.Stack) {
	p.s, p.send = s, p.sendOne
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
	if !p.s.Post(f, more) {
		p.s.Pool.Put(f)
		p.waiting = true
		return
	}
	p.next()
}
