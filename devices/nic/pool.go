package nic

// Pool recycles frames, so that a run in its steady state allocates none.
type Pool struct{ free []*Frame }

// Get takes an empty frame for transmit queue q.
func (p *Pool) Get(q int) *Frame {
	var f *Frame
	if k := len(p.free); k > 0 {
		f, p.free = p.free[k-1], p.free[:k-1]
		f.Reset()
	} else {
		f = &Frame{}
	}
	f.Queue = q
	return f
}

// Put gives up one ownership of f; the last one makes it free again.
func (p *Pool) Put(f *Frame) {
	if f.Release() {
		p.free = append(p.free, f)
	}
}
