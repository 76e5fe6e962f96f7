package nic

// PageFrags lays frames out in memory as the kernel's TCP builds its sk_buffs:
// the headers in a linear buffer, the payload in page fragments out of blocks
// of 32 KB (net/core/sock.c SKB_FRAG_PAGE_ORDER with pages of 4 KB), each frame
// right behind the one before. Blocks are not neighbours: no buffer crosses
// from one into the next. A frame without payload to cut, a single packet, is
// one linear buffer. The zero value begins at the start of a block.
type PageFrags struct{ at uint64 }

const fragBlock = 32 << 10

// At moves the start of the next payload to offset bytes into a block.
func (p *PageFrags) At(offset int) { p.at = uint64(offset) }

// LayOut gives f its buffers. It allocates only while f.Bufs grows to what
// such frames need.
func (p *PageFrags) LayOut(f *Frame) {
	f.Bufs, f.Linear = f.Bufs[:0], 1
	if f.Segs == 1 {
		f.Bufs = append(f.Bufs, Buf{Len: f.Len})
		return
	}
	f.Bufs = append(f.Bufs, Buf{Len: f.HdrLen})
	for left := f.Len - f.HdrLen; left > 0; {
		n := min(left, fragBlock-int(p.at%fragBlock))
		f.Bufs = append(f.Bufs, Buf{Addr: p.at, Len: n})
		p.at += uint64(n)
		left -= n
	}
}
