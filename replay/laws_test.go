package replay

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nicemu/devices"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/replay/capture"
	"nicemu/replay/capture/capturetest"
)

// drawn is a capture that a property made up.
type drawn struct {
	b       []byte
	times   []int64 // ns since the epoch
	frames  [][]byte
	wire    []int
	largest int
}

// drawCapture makes up to n frames with random gaps, priorities and flows; some are truncated, some GSO, some back in time, if odd.
func drawCapture(t *rapid.T, n int, odd bool) *drawn {
	d := &drawn{}
	f := capturetest.Pcap(le, capturetest.Nano, 0, 1)
	now := int64(capturetest.Start) * 1e9
	for range rapid.IntRange(1, n).Draw(t, "packets") {
		switch rapid.IntRange(0, 5).Draw(t, "gap") {
		case 0:
		case 1:
			now += rapid.Int64Range(0, 3e6).Draw(t, "long gap")
		default:
			now += rapid.Int64Range(0, 20_000).Draw(t, "short gap")
		}
		size := rapid.IntRange(60, 1514).Draw(t, "size")
		at := now
		if odd {
			switch rapid.IntRange(0, 15).Draw(t, "oddity") {
			case 0:
				size = rapid.IntRange(1515, 65000).Draw(t, "GSO")
			case 1:
				at -= rapid.Int64Range(0, 1e6).Draw(t, "back")
			}
		}
		frame := drawFrame(t, size)
		d.wire = append(d.wire, len(frame))
		d.largest = max(d.largest, len(frame))
		if odd && rapid.IntRange(0, 15).Draw(t, "truncate") == 0 {
			frame = frame[:rapid.IntRange(14, len(frame)).Draw(t, "kept")]
		}
		d.times, d.frames = append(d.times, at), append(d.frames, frame)
		f.Record(uint32(at/1e9), uint32(at%1e9), d.wire[len(d.wire)-1], frame)
	}
	d.b = f.B
	return d
}

// drawFrame is UDP or TCP with a random port, DSCP, ECN and perhaps a VLAN tag; checksums are those of another frame, which nobody looks at.
func drawFrame(t *rapid.T, size int) []byte {
	frame := capturetest.UDP(size)
	if rapid.Bool().Draw(t, "TCP") {
		frame = capturetest.TCP(size)
	}
	frame[15] = rapid.Byte().Draw(t, "TOS")
	frame[35] = rapid.Byte().Draw(t, "port")
	if rapid.IntRange(0, 3).Draw(t, "tag") == 0 {
		tag := []byte{0x81, 0, rapid.Byte().Draw(t, "TCI"), 1}
		frame = append(append(append([]byte{}, frame[:12]...), tag...), frame[12:]...)
	}
	return frame
}

func save(t *rapid.T, dir, name string, b []byte) string {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// drawOptions plays up to three captures in any way through any card.
func drawOptions(t *rapid.T, dir string) Options {
	o := Options{Seed: rapid.Uint64().Draw(t, "seed")}
	for i := range rapid.IntRange(1, 3).Draw(t, "files") {
		o.Files = append(o.Files, save(t, dir, string(rune('a'+i)), drawCapture(t, 40, true).b))
	}
	o.Loop = rapid.IntRange(1, 3).Draw(t, "loop")
	switch rapid.IntRange(0, 5).Draw(t, "schedule") {
	case 0:
		o.Schedule.Speed = rapid.SampledFrom([]Speed{{2, 1}, {1, 100}, {333, 10}, {1000, 1}}).Draw(t, "speed")
	case 1:
		o.Schedule.Rate = rapid.SampledFrom([]units.Rate{10 * units.Mbit, 990 * units.Mbit, 100 * units.Gbit}).Draw(t, "rate")
	case 2:
		o.Schedule.PPS = rapid.Int64Range(1, 1e7).Draw(t, "pps")
	case 3:
		o.Schedule.TopSpeed = true
	}
	if rapid.IntRange(0, 3).Draw(t, "window") == 0 {
		o.From = Bound{sinceFirst, rapid.Int64Range(0, 1e6).Draw(t, "from")}
		o.To = Bound{absolute, capturetest.Start*1e9 + rapid.Int64Range(0, 5e6).Draw(t, "to")}
	}
	o.Qdisc = rapid.SampledFrom([]Qdisc{{}, {fifoQdisc, 1}, {fifoQdisc, 20}, {kind: fqCodel}}).Draw(t, "qdisc")
	o.Queues.By.key = queueKey(rapid.IntRange(0, int(byFixed)).Draw(t, "queue by"))
	return o
}

// drawDevice is any card with knobs turned that it takes.
func drawDevice(t *rapid.T, o *Options) (again func()) {
	name := rapid.SampledFrom(devices.Names()).Draw(t, "device")
	var set []string
	for _, s := range []string{"queues=3", "queues=4", "ring.tx=64", "bql=off", "bql=on", "link.rate=100mbit", "writeback.threshold=8", "fetch.latency=5us", "qav=on"} {
		if rapid.IntRange(0, 2).Draw(t, s) == 0 {
			set = append(set, s)
		}
	}
	again = func() {
		d := device(t, name)
		for _, s := range set {
			for i, c := range s {
				if c == '=' {
					_ = d.Set(s[:i], s[i+1:]) // not every card has it
				}
			}
		}
		o.Device = d
	}
	again()
	if d := o.Device; d.Config.Queues < 3 {
		o.PerQueue = false
	} else {
		o.PerQueue = rapid.IntRange(0, 4).Draw(t, "per queue") == 0
	}
	if d := o.Device; d.Check() != nil {
		t.Skip("knobs that contradict each other")
	}
	o.Offload = rapid.SampledFrom([]Offload{"", Segment}).Draw(t, "offload")
	again()
	return again
}

// replayed holds that a run has gone well, and says so if it had nothing to do.
func replayed(t *rapid.T, r *Result, err error) {
	var nothing *NothingError
	if err != nil && !errors.As(err, &nothing) {
		t.Fatal(err)
	}
	if c := r.card(); (nothing != nil) != (c.Offered == c.Dropped[tooLong]) {
		t.Fatalf("error %v, and %d frames were offered, %v dropped", err, c.Offered, c.Dropped)
	}
}

// Whatever is played in whatever way through whatever card: frames and bytes add up, queues keep their order, and a second run writes the same
// bytes. play holds the log against the result, and the run has audited itself.
func TestBooksBalanceAndRunsAreRepeatable(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t, dir)
		again := drawDevice(t, &o)
		first := play(t, o)
		replayed(t, first.result, first.err)
		card := first.result.card()
		if card.Queued != 0 {
			t.Fatalf("%d frames queued at the end", card.Queued)
		}
		if read := packets(t, first.wire); uint64(len(read)) != card.SentPackets {
			t.Fatalf("%d packets sent, the file has %d", card.SentPackets, len(read))
		}
		again()
		second := play(t, o)
		if first.json != second.json || first.log != second.log || first.series != second.series || !bytes.Equal(first.wire, second.wire) {
			t.Fatalf("two runs differ:\n%s\n%s", cmp.Diff(first.log, second.log), cmp.Diff(first.json, second.json))
		}
		again()
		r, err := Run(t.Context(), o)
		replayed(t, r, err)
		var doc bytes.Buffer
		if err := r.WriteJSON(&doc); err != nil {
			t.Fatal(err)
		}
		if doc.String() != first.json {
			t.Fatalf("writing files changes the run:\n%s", cmp.Diff(first.json, doc.String()))
		}
	})
}

// While the card is idle, frame n starts on the wire at the very nanosecond at which the schedule has it, and what is written is what was read, with
// the capture's own times.
func TestAnIdleCardSendsAtTheVeryNanosecond(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		d := drawCapture(t, 30, false)
		spacing := int64(1e5) // more than any frame takes, interrupt included
		f := capturetest.Pcap(le, capturetest.Nano, 0, 1)
		for i := range d.times {
			d.times[i] += int64(i) * spacing
			f.Record(uint32(d.times[i]/1e9), uint32(d.times[i]%1e9), d.wire[i], d.frames[i])
		}
		o := Options{Device: device(t, "generic")}
		o.Files = []string{save(t, dir, "spaced", f.B)}
		w := play(t, o)
		sent := w.left()
		written := packets(t, w.wire)
		for i, at := range d.times {
			l := sent[int64(i+1)]
			due := at - d.times[0]
			if l.enqueued != due || l.posted != due || l.wireStart != due {
				t.Fatalf("frame %d due at %d: %+v", i+1, due, l)
			}
			p := written[i]
			if p.Time != at || p.WireLen != d.wire[i] || !bytes.Equal(p.Data, d.frames[i]) {
				t.Fatalf("packet %d: written at %d with %d bytes, read at %d with %d", i, p.Time, p.WireLen, at, d.wire[i])
			}
		}
	})
}

// A card that is never idle: what is written for a queue is what was read for it, in order, GSO packets as the segments that they become.
func TestWhatLeavesIsWhatWasRead(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		d := drawCapture(t, 40, true)
		o := Options{}
		o.Files = []string{save(t, dir, "captured", d.b)}
		drawDevice(t, &o)
		o.PerQueue, o.MSS = false, rapid.IntRange(0, 1400).Draw(t, "MSS")
		queues := o.Device.Config.Queues
		w := play(t, o)
		dropped := map[int64]bool{}
		for _, l := range w.logFrames {
			if l.symbol == 'd' {
				dropped[l.frame] = true
			}
		}
		want := make([][]capture.Packet, queues)
		number := int64(0)
		for i := range d.frames {
			q := o.Queues.queue(fieldsOf(d.frames[i]), hashOf(d.frames[i]), 0, queues)
			for k, seg := range segmentsOf(t, d.frames[i], d.wire[i], o.MSS) {
				if k == 0 || w.result.Cases[0].Replay.Offload == Segment {
					number++
				}
				if !dropped[number] {
					want[q] = append(want[q], seg)
				}
			}
		}
		written := packets(t, w.wire)
		oneAtATime(t, written, o.Device.Config.Link)
		for _, p := range written {
			left := want[p.Interface]
			if len(left) == 0 || left[0].WireLen != p.WireLen || !bytes.Equal(left[0].Data, p.Data) {
				t.Fatalf("queue %d: packet of %d bytes written at %d, expected one of %v", p.Interface, p.WireLen, p.Time, left)
			}
			want[p.Interface] = left[1:]
		}
		for q := range want {
			if len(want[q]) > 0 {
				t.Fatalf("queue %d: %d packets are missing", q, len(want[q]))
			}
		}
	})
}

// oneAtATime: a packet starts when the one before it is over.
func oneAtATime(t fataler, list []capture.Packet, l nic.Link) {
	t.Helper()
	for i := 1; i < len(list); i++ {
		before := list[i-1]
		takes := int64(before.WireLen+l.Preamble+l.FCS+l.Gap) * 8 * 1e9 / int64(l.Rate)
		if list[i].Time < before.Time+takes-1 { // rounded down
			t.Fatalf("packet %d of %d bytes starts at %d and takes %d ns, the next one starts at %d", i-1, before.WireLen, before.Time, takes, list[i].Time)
		}
	}
}

func fieldsOf(frame []byte) *capture.Fields {
	f := capture.ParseFields(frame)
	return &f
}

func hashOf(frame []byte) uint32 { return fieldsOf(frame).FlowHash(frame) }

// segmentsOf is what leaves the wire for a packet.
func segmentsOf(t fataler, frame []byte, wire, mss int) (list []capture.Packet) {
	f := fieldsOf(frame)
	if wire <= f.L3+capture.DefaultMTU {
		return []capture.Packet{{Data: frame, WireLen: wire}}
	}
	if mss == 0 {
		mss = capture.DefaultMTU - (f.HeaderLen - f.L3)
	}
	var s capture.Segmenter
	if _, err := s.Reset(frame, wire, mss); err != nil {
		return []capture.Packet{{Data: frame, WireLen: wire}}
	}
	for data, n, ok := s.Next(); ok; data, n, ok = s.Next() {
		list = append(list, capture.Packet{Data: bytes.Clone(data), WireLen: n})
	}
	return list
}
