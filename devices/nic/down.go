package nic

import "nicemu/devices/engine"

// down is a port that is taken down: it waits for its rings to drain.
type down struct {
	on       bool
	timer    engine.Timer
	deadline engine.Time
	queue    int // the one waited for
	sleep    engine.Time
	done     func()
}

// Down takes the port down, as changing rings or channels does before it makes
// the queues anew: all queues are stopped, what is in the rings may still be
// sent until the drain time is over and is freed then, BQL forgets it, and done
// is called. Frames posted meanwhile are dropped. It looks at the rings after 1
// ms, then after twice as long each time, as mana_dealloc_queues does.
func (n *NIC) Down(done func()) {
	d := &n.down
	d.on, d.done = true, done
	d.deadline = n.eng.Now() + engine.Time(n.cfg.Drain)
	d.queue, d.sleep = 0, engine.Millisecond
	for i := range n.tx {
		n.tx[i].drvXOFF = true
	}
	n.eng.Cancel(&n.watchdog)
	n.drain()
}

func (n *NIC) drain() {
	d := &n.down
	for ; d.queue < len(n.tx); d.queue++ {
		if q := &n.tx[d.queue]; q.posted != q.cleaned && n.eng.Now() < d.deadline {
			n.eng.After(&d.timer, d.sleep)
			d.sleep *= 2
			return
		}
		d.sleep = engine.Millisecond
	}
	for i := range n.tx {
		n.tx[i].reset("port_down")
	}
	d.done()
}

// Up opens the port again; it must be down.
func (n *NIC) Up() {
	n.eng.Cancel(&n.down.timer)
	n.down.on = false
	for i := range n.tx {
		n.tx[i].drvXOFF = false
		n.host.Wake(i)
	}
}
