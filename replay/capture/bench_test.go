package capture

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"nicemu/replay/capture/capturetest"
)

// benchmarkFile is read from the page cache, over and over.
func benchmarkFile(b *testing.B, head, record []byte, size int) {
	path := filepath.Join(b.TempDir(), "large")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(f, capturetest.Repeat(head, record, size/len(record))); err != nil {
		b.Fatal(err)
	}
	f.Close()
	b.ReportAllocs()
	b.SetBytes(int64(len(record)))
	var r *Reader
	for b.Loop() {
		if r != nil {
			if _, err = r.Next(); err == nil {
				continue
			}
			r.Close()
		}
		if r, err = Open(path); err != nil {
			b.Fatal(err)
		}
	}
	r.Close()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpackets/s")
}

func BenchmarkRead(b *testing.B) {
	const size = 128 << 20
	for _, c := range []struct {
		name string
		n    int
	}{{"64B", 64}, {"1514B", 1514}} {
		frame := capturetest.TCP(c.n)
		b.Run("pcap/"+c.name, func(b *testing.B) {
			f := capturetest.Pcap(le, capturetest.Nano, 0, 1).Record(1, 1, c.n, frame).B
			benchmarkFile(b, f[:24], f[24:], size)
		})
		b.Run("pcapng/"+c.name, func(b *testing.B) {
			f := capturetest.Pcapng(le).Interface(1, 0, opt{Code: 9, Value: []byte{9}})
			head := len(f.B)
			benchmarkFile(b, f.B[:head:head], f.Enhanced(0, 1, c.n, frame).B[head:], size)
		})
		b.Run("raw IP/"+c.name, func(b *testing.B) {
			f := capturetest.Pcap(le, capturetest.Nano, 0, 101).Record(1, 1, c.n-14, frame[14:]).B
			benchmarkFile(b, f[:24], f[24:], size)
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct {
		name    string
		n       int
		comment []byte
	}{{"64B", 64, nil}, {"1514B", 1514, nil}, {"1514B with comment", 1514, []byte("i210 queue 1")}} {
		b.Run(c.name, func(b *testing.B) {
			w, err := NewWriter(io.Discard, aSection, interfaces...)
			if err != nil {
				b.Fatal(err)
			}
			frame := capturetest.TCP(c.n)
			b.SetBytes(int64(c.n))
			b.ReportAllocs()
			for b.Loop() {
				if err := w.WritePacket(1, 1, frame, c.n, c.comment); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseFields(b *testing.B) {
	frame := capturetest.TCP(1514)
	b.ReportAllocs()
	for b.Loop() {
		if f := ParseFields(frame); f.HeaderLen != 54 {
			b.Fatal(f)
		}
	}
}

func BenchmarkFlowHash(b *testing.B) {
	frame := capturetest.TCP(1514)
	f := ParseFields(frame)
	b.ReportAllocs()
	for b.Loop() {
		f.FlowHash(frame)
	}
}

func BenchmarkSegment(b *testing.B) {
	frame := capturetest.TCP(64<<10 - 100)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	var s Segmenter
	for b.Loop() {
		if _, err := s.Reset(frame, len(frame), 1448); err != nil {
			b.Fatal(err)
		}
		for _, _, ok := s.Next(); ok; _, _, ok = s.Next() {
		}
	}
}
