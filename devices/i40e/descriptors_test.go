package i40e

import (
	"testing"

	"nicemu/devices/nic"

	"pgregory.net/rapid"
)

// data is the data descriptors of a send of payload bytes that starts offset
// bytes into a block of 32 KB, without its header descriptor.
func data(r *rules, payload, offset int) int {
	var frags nic.PageFrags
	frags.At(offset)
	f := &nic.Frame{}
	f.GSO(66+payload, 66, 1448)
	frags.LayOut(f)
	return r.descriptors(f) - context(f) - 1
}

func TestPayloadIsCutAsTheMapLoopCuts(t *testing.T) {
	old, now := &rules{maxData: max8K}, &rules{maxData: max12K}
	for _, c := range []struct{ payload, offset, old, now int }{
		{16384, 0, 2, 2}, {32768, 0, 4, 3}, {65536, 0, 8, 6},
		{16384, 1000, 2, 2}, {32768, 1000, 5, 4}, {65536, 1000, 9, 7},
		{16384, 31768, 3, 2}, {32768, 31768, 5, 4}, {65536, 31768, 9, 7},
		{65536, 12288, 9, 6}, {65536, 20480, 9, 6},
	} {
		if a, b := data(old, c.payload, c.offset), data(now, c.payload, c.offset); a != c.old || b != c.now {
			t.Errorf("%d bytes at %d: %d and %d descriptors, want %d and %d", c.payload, c.offset, a, b, c.old, c.now)
		}
	}
	// Over all offsets: least, most, and mean in quarters.
	for _, c := range []struct {
		r                      *rules
		payload                int
		least, most, meanTimes int
	}{
		{old, 16384, 2, 3, 10}, {old, 32768, 4, 5, 20}, {old, 65536, 8, 9, 36},
		{now, 16384, 2, 2, 8}, {now, 32768, 3, 4, 13}, {now, 65536, 6, 7, 25},
	} {
		least, most, sum := 99, 0, 0
		for offset := range 32768 {
			n := data(c.r, c.payload, offset)
			least, most, sum = min(least, n), max(most, n), sum+n
		}
		if mean := (4*sum + 32768/2) / 32768; least != c.least || most != c.most || mean != c.meanTimes {
			t.Errorf("%s, %d bytes: %d to %d, mean %d/4; want %d to %d, mean %d/4", c.r.maxData, c.payload, least, most, mean, c.least, c.most, c.meanTimes)
		}
	}
}

func TestAContiguousBufferIsCutAtPages(t *testing.T) {
	old, now := &rules{maxData: max8K}, &rules{maxData: max12K}
	for _, c := range []struct {
		buf      nic.Buf
		old, now int
	}{
		{nic.Buf{Addr: 0, Len: 65536}, 8, 6},
		{nic.Buf{Addr: 1, Len: 65536}, 8, 5}, // 16383 + 3×12288 + 12289
		{nic.Buf{Addr: 0, Len: 16383}, 2, 1},
		{nic.Buf{Addr: 0, Len: 16384}, 2, 2}, // 12288 + 4096
		{nic.Buf{Addr: 4095, Len: 8193}, 2, 1},
		{nic.Buf{Addr: 0, Len: 1}, 1, 1},
	} {
		if a, b := old.pieces(c.buf), now.pieces(c.buf); a != c.old || b != c.now {
			t.Errorf("%+v: %d and %d descriptors, want %d and %d", c.buf, a, b, c.old, c.now)
		}
	}
}

func TestTheEstimateIsNeverTooSmall(t *testing.T) {
	for _, r := range []*rules{{maxData: max8K}, {maxData: max12K}} {
		for n := 1; n <= 1<<17; n++ {
			got := r.estimateBuf(n)
			if got < r.pieces(nic.Buf{Addr: 4096, Len: n}) || got < r.pieces(nic.Buf{Addr: 1, Len: n}) {
				t.Fatalf("%s: %d bytes estimated at %d descriptors", r.maxData, n, got)
			}
		}
	}
	r := &rules{maxData: max12K}
	for n, want := range map[int]int{12336: 1, 12337: 2, 24672: 2, 24673: 3, 37008: 3, 37009: 4} {
		if got := r.estimateBuf(n); got != want {
			t.Errorf("%d bytes estimated at %d descriptors, want %d", n, got, want)
		}
	}
}

// TestNoWirePacketNeedsMoreThanEightBuffers checks i40e_chk_linearize against
// its purpose: whatever it lets pass is cut so that no wire packet stands in
// more than eight descriptors.
func TestNoWirePacketNeedsMoreThanEightBuffers(t *testing.T) {
	passed, linearized := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := &rules{maxData: rapid.SampledFrom([]string{max8K, max12K}).Draw(t, "max_data")}
		f := &nic.Frame{Linear: 1}
		f.Bufs = append(f.Bufs, nic.Buf{Len: 66})
		total := 66
		most := rapid.SampledFrom([]int{300, 1500, 4096, 20000, 65000}).Draw(t, "most")
		for range rapid.IntRange(1, 17).Draw(t, "frags") {
			n := min(rapid.IntRange(1, most).Draw(t, "len"), 65536-total)
			if n == 0 {
				break
			}
			f.Bufs = append(f.Bufs, nic.Buf{Addr: uint64(rapid.IntRange(0, 8191).Draw(t, "addr")), Len: n})
			total += n
		}
		if rapid.Bool().Draw(t, "gso") {
			f.GSO(total, 66, rapid.IntRange(500, 1448).Draw(t, "mss"))
		} else {
			f.Single(total)
		}
		if r.linearize(f) {
			linearized++
			f.Linearize()
			if r.linearize(f) {
				t.Fatal("one buffer is linearized again")
			}
			return
		}
		passed++
		if n := longest(r, f); n > maxBuffer {
			t.Fatalf("a wire packet of %d descriptors: %+v", n, f)
		}
	})
	if passed == 0 || linearized == 0 {
		t.Errorf("%d passed, %d linearized", passed, linearized)
	}
}

// longest is the most descriptors that one wire packet of f takes data from;
// the headers of a segment are read from the first.
func longest(r *rules, f *nic.Frame) int {
	var ends []int // of each descriptor's data, in payload bytes
	at := 0
	for _, b := range f.Bufs[f.Linear:] {
		for left := b; left.Len > 0; {
			n := left.Len
			if r.maxData == max8K {
				n = min(n, split8K)
			} else if n > field {
				n = split12K
				if left.Addr == b.Addr {
					n += toPage(b.Addr)
				}
			}
			at += n
			ends = append(ends, at)
			left.Addr += uint64(n)
			left.Len -= n
		}
	}
	size := f.SegSize
	if f.Segs == 1 {
		size = at
	}
	most, first := 0, 0
	for begin := 0; begin < at; begin += size {
		end := min(begin+size, at)
		for ends[first] <= begin {
			first++
		}
		last := first
		for ends[last] < end {
			last++
		}
		most = max(most, 1+last-first+1)
	}
	return most
}
