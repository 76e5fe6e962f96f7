package nic

import "nicemu/devices/engine"

// Frame is one sk_buff on its way through a card: a single wire packet, or a
// GSO frame that the card sends as several.
type Frame struct {
	Data []byte // what the port read or the capture held; may be nil in a model run

	Len      int    // bytes, as skb->len: headers once and the whole payload, no FCS
	Segs     int    // wire packets it becomes, at least 1
	SegSize  int    // payload bytes of every segment but the last; 0 for a single packet
	HdrLen   int    // header bytes that every segment repeats
	Queue    int    // transmit queue; receive queue on the way up
	Priority uint32 // skb->priority
	Offload  bool   // asks for checksum, TSO or VLAN insertion: a context descriptor on most cards
	XDP      bool   // sent by XDP_TX or XDP_REDIRECT, past the qdisc and the stop bits
	ECN      uint8  // the two ECN bits of the IP header (RFC 3168): 0 not capable, 1 and 2 capable, 3 marked
	Bufs     []Buf  // how the sk_buff lies in memory; nil = one linear buffer
	Linear   int    // with Bufs: how many of them are the linear part (0 or 1)

	Launch engine.Time // launch time asked for (SO_TXTIME); 0 = none
	Flow   uint32
	Seq    uint64

	Stamps

	Next *Frame // for the list that holds it, as sk_buff's next

	launch engine.Time // when the card may start it; 0 = at once
	desc   int         // descriptors held in the ring
	bql    uint32      // bytes reported to BQL
	rs     bool        // report status asked for
	refs   int8
}

// Buf is one DMA-contiguous piece of an sk_buff.
type Buf struct {
	Addr uint64 // bus address: its low bits decide where a card splits the piece
	Len  int    // bytes
}

// Stamps are the times of a frame's way down, each the zero value until passed.
type Stamps struct {
	Enqueued  engine.Time // given to the qdisc or source queue
	Posted    engine.Time // descriptors written
	Fetched   engine.Time // data wholly in the card
	WireStart engine.Time // first bit of the (first) preamble
	WireEnd   engine.Time // last bit of the (last) FCS
	Completed engine.Time // descriptors freed by the driver
}

// Wire is the frame's bytes on the wire without preamble, FCS and gap, with the
// headers of every segment: what qdisc_pkt_len counts.
func (f *Frame) Wire() int { return f.Len + (f.Segs-1)*f.HdrLen }

// segWire is the wire bytes of segment i.
func (f *Frame) segWire(i int) int {
	if f.Segs == 1 {
		return f.Len
	}
	if i < f.Segs-1 {
		return f.HdrLen + f.SegSize
	}
	return f.Len - (f.Segs-1)*f.SegSize
}

// Single makes f a plain frame of n bytes.
func (f *Frame) Single(n int) { f.Len, f.Segs, f.SegSize, f.HdrLen = n, 1, 0, 0 }

// GSO makes f a frame of n bytes whose hdr header bytes are repeated before
// every size bytes of payload.
func (f *Frame) GSO(n, hdr, size int) {
	f.Len, f.HdrLen, f.SegSize = n, hdr, size
	f.Segs = max(1, (n-hdr+size-1)/size)
	f.Offload = true
	if f.Segs == 1 {
		f.SegSize = 0
	}
}

// Linearize copies the frame into one buffer at the start of a page:
// skb_linearize.
func (f *Frame) Linearize() {
	f.Bufs = append(f.Bufs[:0], Buf{Len: f.Len})
	f.Linear = 1
}

// Pieces is how many descriptors the frame's data takes if each holds at most so
// many bytes; a frame without buffers is one.
func (f *Frame) Pieces(most int) (n int) {
	piece := func(bytes int) int { return max(1, (bytes+most-1)/most) }
	if len(f.Bufs) == 0 {
		return piece(f.Len)
	}
	for i := range f.Bufs {
		n += piece(f.Bufs[i].Len)
	}
	return n
}

// Retain keeps f for a second owner; each owner calls Release once.
func (f *Frame) Retain() { f.refs++ }

// Release gives one ownership up and reports whether it was the last, on which
// the frame may be used again.
func (f *Frame) Release() bool {
	f.refs--
	return f.refs < 0
}

// Reset empties a frame for its next use and keeps its memory.
func (f *Frame) Reset() {
	*f = Frame{Data: f.Data, Bufs: f.Bufs[:0]}
}
