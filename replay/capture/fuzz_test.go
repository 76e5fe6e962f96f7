package capture

import (
	"bytes"
	"errors"
	"io"
	"runtime/metrics"
	"testing"

	"nicemu/replay/capture/capturetest"
)

// fuzzMemory is what reading one small file may allocate: a window, once grown, and a gzip reader.
const fuzzMemory = 8 << 20

func FuzzReader(f *testing.F) {
	for _, c := range fixtures {
		if len(c.file) < 4096 {
			f.Add(c.file)
		}
	}
	f.Add(capturetest.Gzip(capturetest.TwoInterfaces()))
	f.Add(capturetest.FourGigabytes())
	f.Add(capturetest.Pcapng(be).Interface(0, 10).Simple(60, capturetest.UDP(60)[:10]).Obsolete(0, 1, 5, 60, capturetest.UDP(60)).
		Section(le).Interface(127, 0, opt{Code: 14, Value: make([]byte, 8)}).Statistics(0, 5, opt{Code: 5, Value: make([]byte, 8)}).
		Enhanced(0, 1, 60, parts(rt("10"), "8803 0000", a1, a2, a3, "1000", a4, "0000", snapV4, ip4)).B)
	f.Add(capturetest.Pcap(le, capturetest.Nano, 0, 113).Record(0, 0, 62, parts("0000 0001 0006 0a0000000009 0000 86dd", ip6)).B)
	f.Fuzz(func(t *testing.T, file []byte) {
		before := allocated()
		r, err := NewReader(bytes.NewReader(file), "x")
		if err == nil {
			err = readFuzzed(t, r)
		}
		var bad *FormatError
		if err != io.EOF && !errors.As(err, &bad) {
			t.Fatalf("neither the end nor a FormatError: %v", err)
		}
		if bad != nil && (bad.Expected == "" || bad.Found == "" || !bad.Uncompressed && bad.Offset > int64(len(file))) {
			t.Fatalf("error without place or expectation: %+v", bad)
		}
		if n := allocated() - before; n > fuzzMemory {
			t.Fatalf("%d bytes allocated for a file of %d", n, len(file))
		}
	})
}

// readFuzzed reads to the end as a user does: fields, hash and segments of every packet.
func readFuzzed(t *testing.T, r *Reader) error {
	var s Segmenter
	last := int64(-1)
	for {
		p, err := r.Next()
		if err != nil {
			checkBooks(t, r.Stats())
			return err
		}
		if len(p.Data) > maxCaptured+etherLen || p.WireLen < etherLen || p.WireLen > maxWire+etherLen || len(p.Data) > p.WireLen || p.Offset <= last {
			t.Fatalf("%d bytes of %d at %d", len(p.Data), p.WireLen, p.Offset)
		}
		last = p.Offset
		f := ParseFields(p.Data)
		f.FlowHash(p.Data)
		if f.HeaderLen > f.L4 && f.HeaderLen > len(p.Data) {
			t.Fatalf("headers longer than the frame: %+v", f)
		}
		segmentFuzzed(t, &s, p)
	}
}

func segmentFuzzed(t *testing.T, s *Segmenter, p Packet) {
	n, err := s.Reset(p.Data, p.WireLen, 1448)
	if err != nil {
		return
	}
	for data, wire, ok := s.Next(); ok; data, wire, ok = s.Next() {
		n--
		if len(data) > wire || wire > maxIPLen+64 {
			t.Fatalf("segment of %d bytes, %d on the wire", len(data), wire)
		}
	}
	if n != 0 {
		t.Fatalf("%d segments missing", n)
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
