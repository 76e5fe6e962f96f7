package nic

// rxq is one receive ring: frames that have arrived and wait for their poll.
type rxq struct {
	nic   *NIC
	ring  []*Frame
	first int
	n     int
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
	if r.n == len(r.ring) {
		r.stats.NoDescriptor.add(f.Wire())
		return false
	}
	i := r.first + r.n
	if i >= len(r.ring) {
		i -= len(r.ring)
	}
	r.ring[i] = f
	r.n++
	n.vectors[v].raise()
	return true
}

// receive hands the first k frames to the stack; their descriptors are
// refilled at once.
func (r *rxq) receive(k int, w *Work) {
	for range k {
		f := r.ring[r.first]
		r.ring[r.first] = nil
		if r.first++; r.first == len(r.ring) {
			r.first = 0
		}
		r.n--
		w.RXFrames++
		w.RXBytes += f.Wire()
		r.stats.Delivered.add(f.Wire())
		r.nic.host.Deliver(f)
	}
}
