package nic

// rxq is one receive ring: frames that have arrived and wait for their poll.
type rxq struct {
	nic   *NIC
	ring  []*Frame
	first int
	n     int
	empty int // descriptors whose frame is gone and that have no new page yet
	stats RXStats
}

func (r *rxq) init(n *NIC) {
	r.nic = n
	r.ring = make([]*Frame, n.cfg.Ring.RX-n.cfg.Ring.Spare)
}

// Receive takes a frame whose last bit has arrived, into receive queue f.Queue.
// It reports false if the ring has no free descriptor: the card has counted a
// drop and the caller keeps the frame.
func (n *NIC) Receive(f *Frame) bool {
	v := f.Queue % len(n.rx)
	r := &n.rx[v]
	r.stats.Arrived.add(f.Wire())
	if r.n+r.empty == len(r.ring) {
		r.stats.NoDescriptor.add(f.Wire())
		return false
	}
	i := r.first + r.n
	if i >= len(r.ring) {
		i -= len(r.ring)
	}
	r.ring[i] = f
	r.n++
	n.vectors[v].raise(false)
	return true
}

// receive processes the first k frames: it hands them to the stack and refills
// descriptors. A frame whose page serves the ring goes back as Complete.
func (r *rxq) receive(k int, w *Work) {
	c := &r.nic.cfg.Ring
	for range k {
		reused := false
		if r.empty > 0 && r.empty >= c.RXRefill {
			reused = r.refill(c.RXReuse > 0 && r.empty >= c.RXReuse)
		}
		f := r.ring[r.first]
		r.ring[r.first] = nil
		if r.first++; r.first == len(r.ring) {
			r.first = 0
		}
		r.n--
		r.empty++
		w.RXFrames++
		w.RXBytes += f.Wire()
		if reused {
			r.stats.Dropped.add(f.Wire())
			r.nic.host.Complete(f)
			continue
		}
		r.stats.Delivered.add(f.Wire())
		r.nic.host.Deliver(f)
	}
	if r.empty > 0 {
		r.refill(false)
	}
}

// refill gives empty descriptors new pages until one cannot be had. If that is
// the first and reuse is set, the page of the frame being processed takes its
// place.
func (r *rxq) refill(reuse bool) (reused bool) {
	p := r.nic.cfg.Ring.RXAllocFail
	if p == 0 {
		r.empty = 0
		return false
	}
	for first := true; r.empty > 0; first = false {
		if r.nic.eng.Rand().Float64() < p {
			r.stats.AllocFailed++
			if first && reuse {
				r.empty--
				return true
			}
			return false
		}
		r.empty--
	}
	return false
}
