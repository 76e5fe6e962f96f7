package emulator

import (
	"nicemu/devices/nic"
	"nicemu/emulator/tap"
)

const (
	// smallBuffer holds any frame of the standard MTU with its header; larger
	// ones get a buffer of largeBuffer bytes.
	smallBuffer = 2048
	largeBuffer = tap.BufferLen
)

// frames recycles frames and their buffers, so that the loop allocates only
// while a run is new. It belongs to the loop's thread.
type frames struct {
	small, large []*nic.Frame
	scratch      []byte // what the next read goes into
}

func newFrames() *frames { return &frames{scratch: make([]byte, largeBuffer)} }

// take gives the first n bytes of scratch a frame of their own. A large frame
// takes the scratch buffer itself; a small one is copied out of it.
func (p *frames) take(n int) *nic.Frame {
	if n <= smallBuffer {
		f := pop(&p.small)
		if f == nil {
			f = &nic.Frame{Data: make([]byte, smallBuffer)}
		}
		f.Reset()
		f.Data = f.Data[:n]
		copy(f.Data, p.scratch[:n])
		return f
	}
	f := pop(&p.large)
	if f == nil {
		f = &nic.Frame{Data: make([]byte, largeBuffer)}
	}
	f.Reset()
	full := f.Data[:cap(f.Data)]
	f.Data, p.scratch = p.scratch[:n], full
	return f
}

// release gives up one ownership of f; the last one recycles it.
func (p *frames) release(f *nic.Frame) {
	if !f.Release() {
		return
	}
	if cap(f.Data) == smallBuffer {
		p.small = append(p.small, f)
	} else {
		p.large = append(p.large, f)
	}
}

func pop(list *[]*nic.Frame) *nic.Frame {
	l := *list
	if len(l) == 0 {
		return nil
	}
	f := l[len(l)-1]
	*list = l[:len(l)-1]
	return f
}
