package i40e

import (
	"nicemu/devices/nic"
	"nicemu/devices/units"
)

// Data limits of a descriptor.
const (
	max8K  = "8kb"
	max12K = "12kb"

	field     = 16383 // I40E_MAX_DATA_PER_TXD: 14 bits
	split12K  = 12288 // I40E_MAX_DATA_PER_TXD_ALIGNED: field down to a multiple of readReq
	readReq   = 4096  // I40E_MAX_READ_REQ_SIZE
	split8K   = 8192  // I40E_MAX_DATA_PER_TXD until 2016
	maxBuffer = 8     // I40E_MAX_BUFFER_TXD: data buffers of one wire packet
)

// rules is what the driver does differently, as the knobs say.
type rules struct {
	maxData string
	txUsecs units.Duration
}

// pieces is how many descriptors i40e_tx_map cuts one buffer into.
func (r *rules) pieces(b nic.Buf) int {
	n := b.Len
	if r.maxData == max8K {
		return max(1, (n+split8K-1)/split8K)
	}
	if n <= field {
		return 1
	}
	// The first piece ends at a page boundary, so that the others start there.
	n -= split12K + toPage(b.Addr)
	d := 2
	for ; n > field; n -= split12K {
		d++
	}
	return d
}

// toPage is the bytes from addr to the next boundary of read requests.
func toPage(addr uint64) int { return int(-addr & (readReq - 1)) }

// estimateBuf is i40e_txd_use_count: what the driver takes pieces for before it
// knows the address.
func (r *rules) estimateBuf(n int) int {
	if r.maxData == max8K {
		return max(1, (n+split8K-1)/split8K)
	}
	return n*85>>20 + 1
}

// estimate is i40e_xmit_descriptor_count.
func (r *rules) estimate(f *nic.Frame) int {
	n := 0
	for i := range f.Bufs {
		n += r.estimateBuf(f.Bufs[i].Len)
	}
	return n
}

// context is the descriptors before the data: one for TSO (i40e_create_tx_ctx).
func context(f *nic.Frame) int {
	if f.Segs > 1 {
		return 1
	}
	return 0
}

func (r *rules) descriptors(f *nic.Frame) int {
	n := context(f)
	for i := range f.Bufs {
		n += r.pieces(f.Bufs[i])
	}
	return n
}

// linearize is i40e_chk_linearize: whether a wire packet of f could need more
// than eight buffers.
func (r *rules) linearize(f *nic.Frame) bool {
	switch n := r.estimate(f); {
	case n < maxBuffer:
		return false
	case f.Segs == 1:
		return n != maxBuffer
	}
	return r.sparse(f.Bufs[f.Linear:], f.SegSize)
}

// sparse is __i40e_chk_linearize: headers and the end of one fragment take two
// of the eight buffers, so any six fragments that follow each other must hold
// the rest of a segment. Of the fragment before them only what stands in its
// last descriptor may count.
func (r *rules) sparse(frags []nic.Buf, segment int) bool {
	const window = maxBuffer - 2
	if len(frags) < maxBuffer-1 {
		return false
	}
	sum := 1 - segment
	for _, b := range frags[:window-1] {
		sum += b.Len
	}
	for i := 0; ; i++ {
		sum += frags[i+window-1].Len
		stale := frags[i].Len
		cut := stale - r.lastPiece(frags[i])
		sum -= cut
		stale -= cut
		if sum < 0 {
			return true
		}
		if i == len(frags)-window {
			return false
		}
		sum -= stale
	}
}

// lastPiece is how much of a buffer stands in its last descriptor, as
// __i40e_chk_linearize reckons it.
func (r *rules) lastPiece(b nic.Buf) int {
	n := b.Len
	if r.maxData == max8K {
		for n > split8K {
			n -= split8K
		}
		return n
	}
	if n > field {
		n -= toPage(b.Addr)
		for n > field {
			n -= split12K
		}
	}
	return n
}
