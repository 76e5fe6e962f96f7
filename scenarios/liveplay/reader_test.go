package liveplay

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"nicemu/emulator/tap"
	"nicemu/replay"
	"nicemu/replay/capture/capturetest"

	"github.com/google/go-cmp/cmp"
)

func open(t testing.TB, file []byte, o replay.StreamOptions) *replay.Stream {
	t.Helper()
	name := filepath.Join(t.TempDir(), "test.pcap")
	if err := os.WriteFile(name, file, 0o644); err != nil {
		t.Fatal(err)
	}
	o.Files = []string{name}
	s, err := replay.OpenStream(o, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func pcap() *capturetest.File {
	return capturetest.Pcap(binary.LittleEndian, capturetest.Micro, 262144, 1)
}

// Frames stand in the batches in order, over the edges of batches too, each
// behind an empty header if asked for; what the capture has cut off is zeros,
// also where a slab was used before.
func TestReaderGivesEveryFrameItsWireLength(t *testing.T) {
	const frames = 3000
	f := pcap()
	whole := capturetest.UDP(1000)
	for i := range frames {
		f.Record(capturetest.Start, uint32(i), 1000, whole[:14+i%987])
	}
	for _, vnet := range []bool{false, true} {
		r := newReader(open(t, f.B, replay.StreamOptions{}), 1500, vnet)
		c := cursor{r: r}
		r.run(t.Context())
		seen := 0
		for {
			ps := c.peek()
			if len(ps) == 0 {
				break
			}
			p := ps[0]
			got := c.slab()[p.from:p.to]
			if vnet {
				if tap.ParseHeader(got) != (tap.Header{}) {
					t.Fatalf("frame %d has a header", seen)
				}
				got = got[tap.HeaderLen:]
			}
			want := make([]byte, 1000)
			copy(want, whole[:14+seen%987])
			if !bytes.Equal(got, want) || p.wire != 1000 || int(p.due) != seen*1000 {
				t.Fatalf("frame %d: %d bytes of the wire, due at %d ns, as it was: %v", seen, p.wire, p.due, bytes.Equal(got, want))
			}
			seen++
			c.skip(1)
		}
		if seen != frames || !c.ended || len(r.free) != batches {
			t.Errorf("%d frames, ended: %v, %d free batches", seen, c.ended, len(r.free))
		}
	}
}

// What a packet socket would refuse is counted and left out (packet_snd).
func TestReaderRefusesWhatNoInterfaceTakes(t *testing.T) {
	tagged := func(n int) []byte {
		f := make([]byte, n)
		f[12] = 0x81
		return f
	}
	f := pcap()
	for _, frame := range [][]byte{make([]byte, 14), make([]byte, 1514), make([]byte, 1515), tagged(1518), tagged(1519)} {
		f.Record(capturetest.Start, 0, len(frame), frame)
	}
	r := newReader(open(t, f.B, replay.StreamOptions{}), 1500, false)
	r.run(t.Context())
	var sizes []int
	for _, p := range (<-r.full).packets {
		sizes = append(sizes, p.wire)
	}
	if diff := cmp.Diff([]int{14, 1514, 1518}, sizes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]uint64{"over_mtu": 2}, r.refused); diff != "" {
		t.Error(diff)
	}
}

// Packets go together only as long as they have one priority.
func TestTakeStopsAtAnotherPriority(t *testing.T) {
	ps := make([]packet, 2*burst)
	if n := take(ps); n != burst {
		t.Errorf("%d of %d alike", n, len(ps))
	}
	ps[5].queue = 1
	if n := take(ps); n != 5 {
		t.Errorf("%d before another priority, want 5", n)
	}
	if n := take(ps[5:]); n != 1 {
		t.Errorf("%d of the other priority, want 1", n)
	}
}

// The reader's steady state is its own memory.
func BenchmarkReader(b *testing.B) {
	f := pcap()
	for i := range 1000 {
		f.Record(capturetest.Start, uint32(i), 1514, capturetest.TCP(1514))
	}
	o := replay.StreamOptions{}
	o.Loop = 1 << 30
	r := newReader(open(b, f.B, o), 1500, true)
	batch := <-r.free
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(batch.packets) {
		r.fill(batch)
	}
}
