package nic

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestPayloadRunsThroughBlocksOf32KB(t *testing.T) {
	var p PageFrags
	p.At(1000)
	f := &Frame{}
	f.GSO(66+65536, 66, 1448)
	p.LayOut(f)
	want := []Buf{{0, 66}, {1000, 31768}, {32768, 32768}, {65536, 1000}}
	if !reflect.DeepEqual(f.Bufs, want) || f.Linear != 1 {
		t.Errorf("%v, %d linear", f.Bufs, f.Linear)
	}
	f.Reset()
	f.GSO(66+2000, 66, 1448)
	p.LayOut(f) // right behind
	if want := []Buf{{0, 66}, {66536, 2000}}; !reflect.DeepEqual(f.Bufs, want) {
		t.Errorf("%v", f.Bufs)
	}
	f.Reset()
	f.Single(1514)
	p.LayOut(f)
	if want := []Buf{{0, 1514}}; !reflect.DeepEqual(f.Bufs, want) {
		t.Errorf("%v", f.Bufs)
	}
}

func TestALayoutHoldsTheWholeFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p PageFrags
		p.At(rapid.IntRange(0, 32767).Draw(t, "offset"))
		for range 20 {
			f := &Frame{}
			hdr := rapid.IntRange(54, 100).Draw(t, "hdr")
			f.GSO(hdr+rapid.IntRange(1, 65536).Draw(t, "payload"), hdr, 1448)
			p.LayOut(f)
			sum := 0
			for i, b := range f.Bufs {
				sum += b.Len
				if i > 0 && b.Addr/fragBlock != (b.Addr+uint64(b.Len)-1)/fragBlock {
					t.Fatalf("buffer %+v crosses a block", b)
				}
			}
			if sum != f.Len || len(f.Bufs) > 1+3 {
				t.Fatalf("%d bytes in %d buffers of a frame of %d", sum, len(f.Bufs), f.Len)
			}
		}
	})
}

func TestLayingOutAllocatesNothing(t *testing.T) {
	var p PageFrags
	f := &Frame{}
	lay := func() {
		f.Reset()
		f.GSO(66+65160, 66, 1448)
		p.LayOut(f)
	}
	lay()
	f.Bufs = append(f.Bufs, Buf{}, Buf{}) // as many as it can need
	if n := testing.AllocsPerRun(1000, lay); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}
