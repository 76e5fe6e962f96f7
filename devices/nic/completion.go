package nic

import "nicemu/devices/engine"

// frameSent runs when a frame of q has left: the card will write it back.
func (q *txq) frameSent() {
	if d := engine.Time(q.nic.cfg.WriteBack.Latency); d > 0 {
		if !q.settle.Armed() {
			q.nic.eng.At(&q.settle, q.at(q.settled).WireEnd+d)
		}
		return
	}
	q.settled = q.sent
	q.writeBack()
}

// settleDue moves on past every frame whose write-back latency is over.
func (q *txq) settleDue() {
	d := engine.Time(q.nic.cfg.WriteBack.Latency)
	now := q.nic.eng.Now()
	for q.settled != q.sent && q.at(q.settled).WireEnd+d <= now {
		q.settled++
	}
	if q.settled != q.sent {
		q.nic.eng.At(&q.settle, q.at(q.settled).WireEnd+d)
	}
	q.writeBack()
}

// writeBack reports sent frames as the card's rule says, and raises a cause.
func (q *txq) writeBack() {
	wb := &q.nic.cfg.WriteBack
	if wb.Threshold <= 1 && wb.RSStride <= 1 {
		q.reported = q.settled
	} else {
		end := q.settled
		for end != q.reported && !q.at(end-1).rs {
			end--
		}
		if int(end-q.reported) >= wb.Threshold {
			q.reported = end
		}
	}
	q.nic.vectors[q.index].raise(true)
}

// vector is one interrupt with its NAPI context: transmit queue and receive
// queue of the same number.
type vector struct {
	nic   *NIC
	index int
	mod   Moderation
	modTX TXModeration // mod, if it has a timer of its own for transmit causes

	timer  engine.Timer
	masked bool // from the interrupt until the poll re-arms
	flush  bool // CPU.Flush is still to be spent
	work   Work
	tx, rx int // frames of the round under way

	stallAt, stallEnd engine.Time // the next hold-up

	interrupts          uint64
	start, end, flushed func() // bound once: no allocation per poll
}

func (v *vector) init(n *NIC, i int) {
	v.nic, v.index = n, i
	v.start, v.end, v.flushed = v.round, v.roundDone, v.rearm
	if n.rules.Moderation != nil {
		v.mod = n.rules.Moderation(&n.cfg)
	} else {
		v.mod = plainModeration(&n.cfg)
	}
	v.modTX, _ = v.mod.(TXModeration)
	n.eng.Init(&v.timer, v.interrupt)
	if n.cfg.NAPI.StallRate > 0 {
		v.nextStall()
	}
}

func plainModeration(c *Config) Moderation {
	if c.Coalesce.Mode == "delay" {
		return &Delay{D: engine.Time(c.Coalesce.Usecs)}
	}
	return &Throttle{Interval: engine.Time(c.Coalesce.Usecs)}
}

// raise tells of a cause, transmit or receive. A masked vector looks for work
// itself before it re-arms.
func (v *vector) raise(tx bool) {
	if v.masked {
		return
	}
	now := v.nic.eng.Now()
	due := engine.Never
	if tx && v.modTX != nil {
		due = v.modTX.DueTX(now)
	} else {
		due = v.mod.Due(now)
	}
	if due <= now {
		v.nic.eng.Cancel(&v.timer)
		v.interrupt()
	} else if !v.timer.Armed() || due < v.nic.eng.Due(&v.timer) {
		v.nic.eng.At(&v.timer, due)
	}
}

func (v *vector) interrupt() {
	n := v.nic
	now := n.eng.Now()
	if n.cfg.NAPI.StallRate > 0 {
		if at := v.heldUp(now); at > now {
			n.eng.At(&v.timer, at)
			return
		}
	}
	v.masked, v.flush = true, n.cfg.CPU.Flush > 0
	v.interrupts++
	v.mod.Fired(now)
	v.work = Work{}
	q := &n.tx[v.index]
	q.reported = q.settled // the interrupt flushes pending write-backs
	n.cpu.Softirq(engine.Time(n.cfg.CPU.Interrupt), v.start)
}

// round takes what is visible now, up to the work limits.
func (v *vector) round() {
	n := v.nic
	q, c := &n.tx[v.index], &n.cfg
	v.tx = min(int(q.reported-q.cleaned), c.NAPI.TXWork)
	v.rx = min(n.rx[v.index].n, c.NAPI.RXWork)
	cost := engine.Time(v.tx)*engine.Time(c.CPU.Clean) + engine.Time(v.rx)*engine.Time(c.CPU.Receive)
	n.cpu.Softirq(cost, v.end)
}

func (v *vector) roundDone() {
	n := v.nic
	q, r := &n.tx[v.index], &n.rx[v.index]
	q.clean(min(v.tx, int(q.reported-q.cleaned)), &v.work) // a reset may have come between
	r.receive(v.rx, &v.work)
	if v.tx >= n.cfg.NAPI.TXAgain || v.rx >= n.cfg.NAPI.RXWork {
		v.round()
		return
	}
	if v.flush && v.work.RXFrames > 0 {
		v.flush = false
		n.cpu.Softirq(engine.Time(n.cfg.CPU.Flush), v.flushed)
		return
	}
	v.rearm()
}

// rearm ends the poll, unless what came since the last round is to be looked
// for at once.
func (v *vector) rearm() {
	n := v.nic
	q, r := &n.tx[v.index], &n.rx[v.index]
	v.mod.Polled(n.eng.Now(), v.work)
	pending := q.reported != q.cleaned || r.n > 0
	if pending && n.cfg.NAPI.Repoll {
		v.work = Work{}
		v.round()
		return
	}
	v.masked = false
	if q.settled != q.cleaned {
		v.raise(true)
	}
	if r.n > 0 {
		v.raise(false)
	}
}

// clean frees the first k reported frames of q, completes BQL once for all of
// them, and wakes the queue.
func (q *txq) clean(k int, w *Work) {
	n := q.nic
	now := n.eng.Now()
	var bytes uint32
	for range k {
		f := q.at(q.cleaned)
		q.ring[q.cleaned&q.mask] = nil
		q.cleaned++
		q.used -= f.desc
		bytes += f.bql
		w.TXFrames++
		w.TXPackets += f.Segs
		w.TXBytes += f.Wire()
		f.Completed = now
		n.host.Complete(f)
	}
	wake := n.cfg.BQL.On && q.bql.Done(bytes, n.cfg.jiffies(now)) && !q.drvXOFF
	if q.drvXOFF && !n.down.on && (k > 0 || n.cfg.Ring.WakeOnEmptyPoll) && q.free() >= n.cfg.Ring.WakeAt {
		q.drvXOFF = false
		q.stats.Restart++
		wake = true
	}
	if wake {
		n.host.Wake(q.index)
	}
}

// heldUp is when a poll asked for at t really runs.
func (v *vector) heldUp(t engine.Time) engine.Time {
	for v.stallEnd <= t {
		v.nextStall()
	}
	if v.stallAt <= t {
		return v.stallEnd
	}
	return t
}

func (v *vector) nextStall() {
	n := v.nic
	r := n.eng.Rand()
	v.stallAt = v.stallEnd + engine.Time(r.ExpFloat64()/n.cfg.NAPI.StallRate*float64(engine.Second))
	v.stallEnd = v.stallAt + engine.Time(r.ExpFloat64()*float64(n.cfg.NAPI.StallMean))
}
