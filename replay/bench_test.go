package replay

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"nicemu/devices"
	"nicemu/replay/capture/capturetest"
)

// largeFile writes a capture of n records in ns: frames of frameLen bytes, back to back, all at the same time.
func largeFile(tb testing.TB, frame []byte, n int) string {
	tb.Helper()
	f := capturetest.Pcap(le, capturetest.Nano, 0, 1).Record(capturetest.Start, 0, len(frame), frame).B
	path := filepath.Join(tb.TempDir(), "large.pcap")
	out, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(out, capturetest.Repeat(f[:24], f[24:], n)); err != nil {
		tb.Fatal(err)
	}
	if err := out.Close(); err != nil {
		tb.Fatal(err)
	}
	return path
}

// BenchmarkReplay is a capture through a card at its line rate, from the page cache to the statistics: frames (of the capture) a second, on one
// core.
func BenchmarkReplay(b *testing.B) {
	top := Schedule{TopSpeed: true}
	small, full, gso := capturetest.UDP(64), capturetest.TCP(1514), capturetest.TCP(65226)
	for _, c := range []struct {
		name, device string
		frame        []byte
		files        int
		change       func(*Options)
	}{
		{"igb/64B", "igb", small, 1, nil},
		{"igb/1514B", "igb", full, 1, nil},
		{"ixgbe/64B", "ixgbe", small, 1, nil},
		{"ixgbe/1514B", "ixgbe", full, 1, nil},
		{"mana/1514B", "mana", full, 1, nil},
		{"igb/merge of 4", "igb", full, 4, nil},
		{"igb/fifo at line rate", "igb", full, 1, func(o *Options) { o.Schedule = Schedule{Rate: 990e6}; o.Qdisc = Qdisc{fifoQdisc, 1000} }},
		{"igb/fq_codel", "igb", full, 1, func(o *Options) { o.Qdisc = Qdisc{kind: fqCodel} }},
		{"igb/GSO 64KB kept", "igb", gso, 1, nil},
		{"igb/GSO 64KB segmented", "igb", gso, 1, func(o *Options) { o.Offload = Segment }},
		{"igb/1514B, log", "igb", full, 1, func(o *Options) { o.Log = io.Discard }},
		{"igb/1514B, pcapng", "igb", full, 1, func(o *Options) { o.Wire = io.Discard }},
		{"igb/GSO 64KB kept, pcapng", "igb", gso, 1, func(o *Options) { o.Wire = io.Discard }},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := 32 << 20 / (len(c.frame) + 16) / c.files // of each file, in the page cache
			o := Options{StreamOptions: StreamOptions{Schedule: top}, Seed: 1}
			file := largeFile(b, c.frame, n)
			for range c.files {
				o.Files = append(o.Files, file)
			}
			if c.change != nil {
				c.change(&o)
			}
			n *= c.files
			o.Loop = (b.N + n - 1) / n
			o.Device, _ = devices.New(c.device)
			b.ReportAllocs()
			b.ResetTimer()
			r, err := Run(context.Background(), o)
			b.StopTimer()
			if err != nil || r.Verdict != VerdictOK {
				b.Fatal(r, err)
			}
			card := r.card()
			b.ReportMetric(float64(r.Cases[0].Replay.Frames)/b.Elapsed().Seconds(), "frames/s")
			b.ReportMetric(float64(card.SentPackets)/b.Elapsed().Seconds(), "packets/s")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(r.Cases[0].Replay.Frames), "ns/frame")
		})
	}
}
