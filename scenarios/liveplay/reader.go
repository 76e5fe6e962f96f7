package liveplay

import (
	"context"
	"io"
	"sync"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/emulator/tap"
	"nicemu/replay"
)

const (
	// slabLen holds three frames of the largest size, or some 170 of the
	// usual MTU.
	slabLen = 256 << 10
	// batchLen bounds the packets of a batch.
	batchLen = 512
	// batches is how many are read ahead: 16 MiB.
	batches = 64
)

// packet is one frame in the slab of its batch.
type packet struct {
	from, to int
	wire     int // bytes, headers of every segment included
	due      engine.Time
	queue    int // receive queue, or priority
}

// batch is packets in the order in which they are due.
type batch struct {
	slab    []byte
	packets []packet
}

// reader reads ahead, so that nobody who sends waits for a disk. What it has
// counted may be read once full is closed.
type reader struct {
	stream *replay.Stream
	mtu    int  // of the interface, bytes
	vnet   bool // each frame has a virtio_net_hdr in front

	full, free chan *batch
	begun      chan struct{} // closed when there is a batch, or will be none
	frame      nic.Frame     // read, but not yet in a batch
	pending    bool
	due        engine.Time
	refused    map[string]uint64
	err        error
}

func newReader(s *replay.Stream, mtu int, vnet bool) *reader {
	r := &reader{
		stream: s, mtu: mtu, vnet: vnet,
		full: make(chan *batch, batches), free: make(chan *batch, batches),
		begun:   make(chan struct{}),
		refused: map[string]uint64{},
	}
	for range batches {
		r.free <- &batch{slab: make([]byte, slabLen), packets: make([]packet, 0, batchLen)}
	}
	return r
}

// run reads to the end, or until ctx ends.
func (r *reader) run(ctx context.Context) {
	begin := sync.OnceFunc(func() { close(r.begun) })
	defer begin()
	defer close(r.full)
	for {
		select {
		case b := <-r.free:
			more := r.fill(b)
			if len(b.packets) > 0 {
				r.full <- b // there is a place for every batch
			}
			if !more {
				return
			}
			begin()
		case <-ctx.Done():
			r.err = ctx.Err()
			return
		}
	}
}

// fill fills a batch and reports whether there is more.
func (r *reader) fill(b *batch) bool {
	b.packets = b.packets[:0]
	at := 0
	for len(b.packets) < batchLen {
		if !r.pending {
			if err := r.read(); err != nil {
				if err != io.EOF {
					r.err = err
				}
				return false
			}
		}
		n := r.frame.Len
		if r.vnet {
			n += tap.HeaderLen
		}
		if at+n > len(b.slab) {
			return true
		}
		r.place(b.slab[at : at+n])
		b.packets = append(b.packets, packet{at, at + n, r.frame.Wire(), r.due, r.frame.Queue})
		at += n
	}
	return true
}

// read makes the next frame that can be sent pending.
func (r *reader) read() (err error) {
	for {
		r.frame.Reset()
		if r.due, err = r.stream.Next(&r.frame); err != nil {
			return err
		}
		why := refuse(&r.frame, r.mtu)
		if why == "" {
			r.pending = true
			return nil
		}
		r.refused[why]++
		r.stream.Recycle(&r.frame)
	}
}

// place writes the pending frame. What the capture has cut off is zeros.
func (r *reader) place(to []byte) {
	frame := to
	if r.vnet {
		frame = to[tap.HeaderLen:]
	}
	clear(frame[copy(frame, r.frame.Data):])
	if r.vnet {
		h := tap.Header{}
		if r.frame.Segs > 1 {
			h = offload(frame, &r.frame)
		}
		h.Encode(to)
	}
	r.stream.Recycle(&r.frame)
	r.pending = false
}

// refuse says why an interface of this MTU takes no such frame, "" if it does
// (packet_snd of net/packet/af_packet.c).
func refuse(f *nic.Frame, mtu int) string {
	const etherLen, vlanLen = 14, 4
	tagged := len(f.Data) >= etherLen && f.Data[12] == 0x81 && f.Data[13] == 0
	switch {
	case f.Segs > 1, f.Len <= mtu+etherLen, tagged && f.Len == mtu+etherLen+vlanLen:
		return ""
	}
	return "over_mtu"
}

// cursor takes packets from a reader without waiting.
type cursor struct {
	r     *reader
	b     *batch
	at    int
	ended bool
}

// peek is the packets of the batch under way; empty if none has been read yet,
// or at the end.
func (c *cursor) peek() []packet {
	if c.b == nil {
		select {
		case b, more := <-c.r.full:
			c.b, c.ended = b, !more
		default:
		}
		if c.b == nil {
			return nil
		}
	}
	return c.b.packets[c.at:]
}

// slab holds the bytes of what peek shows.
func (c *cursor) slab() []byte { return c.b.slab }

// skip goes on behind n packets.
func (c *cursor) skip(n int) {
	if c.at += n; c.at == len(c.b.packets) {
		c.r.free <- c.b
		c.b, c.at = nil, 0
	}
}
