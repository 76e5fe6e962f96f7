package replay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nicemu/devices"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/replay/capture"
	"nicemu/replay/capture/capturetest"
	"nicemu/replay/trace"
)

var (
	update = flag.Bool("update", false, "rewrite the golden files")

	le = binary.LittleEndian
)

// fataler is what *testing.T and *rapid.T have in common here.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// file writes a capture and returns its path.
func file(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// device is a card with knobs turned.
func device(t fataler, name string, set ...string) *nic.Device {
	t.Helper()
	d, err := devices.New(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range set {
		key, value, _ := strings.Cut(s, "=")
		if err := d.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// written is everything that a run writes.
type written struct {
	result    *Result
	json      string
	log       string
	series    string
	wire      []byte
	err       error
	logFrames []logLine
}

// play runs with all outputs and checks the log against the result.
func play(t fataler, o Options) written {
	t.Helper()
	var log, wire, series, doc bytes.Buffer
	o.Log, o.Wire, o.Series = &log, &wire, &series
	r, err := Run(context.Background(), o)
	if r == nil {
		return written{err: err}
	}
	if err := r.WriteJSON(&doc); err != nil {
		t.Fatal(err)
	}
	if r.Verdict == VerdictFailed {
		t.Fatalf("a law does not hold: %v", r.Reasons)
	}
	w := written{r, doc.String(), log.String(), series.String(), wire.Bytes(), err, parseLog(t, log.String())}
	w.checkLog(t)
	return w
}

// logLine is a line of the event log, as somebody reads it who has only its head.
type logLine struct {
	symbol                                                   byte
	time, queue, frame, bytes, packets                       int64
	enqueued, posted, fetched, wireStart, wireEnd, completed int64
	reason                                                   string
}

func parseLog(t fataler, text string) (lines []logLine) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, " ")
		l := logLine{symbol: line[0]}
		into := []*int64{&l.time, &l.queue, &l.frame, &l.bytes, &l.packets}
		switch want := map[byte]int{'+': 6, '-': 12, 'd': 7}[l.symbol]; {
		case len(f) != want:
			t.Fatalf("line %q has %d columns, want %d", line, len(f), want)
		case l.symbol == '-':
			into = append(into, &l.enqueued, &l.posted, &l.fetched, &l.wireStart, &l.wireEnd, &l.completed)
		case l.symbol == 'd':
			l.reason = f[6]
		}
		for i, p := range into {
			v, err := strconv.ParseInt(f[i+1], 10, 64)
			if err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			*p = v
		}
		lines = append(lines, l)
	}
	return lines
}

// checkLog counts from the log alone: every frame that was enqueued left, was dropped or is queued, once, with the bytes that it came with, and
// the sums are those of the result.
func (w *written) checkLog(t fataler) {
	t.Helper()
	card := w.result.card()
	var offered, sent, lost, left nic.Count
	open := map[int64]logLine{}
	wireEnd := map[int64]int64{}
	for _, l := range w.logFrames {
		size := nic.Count{Frames: 1, Bytes: uint64(l.bytes)}
		if l.symbol == '+' {
			if _, twice := open[l.frame]; twice {
				t.Fatalf("frame %d enqueued twice", l.frame)
			}
			open[l.frame] = l
			offered = offered.Plus(size)
			continue
		}
		was, known := open[l.frame]
		if !known || was.bytes != l.bytes || was.queue != l.queue || was.packets != l.packets {
			t.Fatalf("%c of frame %d: enqueued was %v", l.symbol, l.frame, was)
		}
		delete(open, l.frame)
		if l.symbol == 'd' {
			lost = lost.Plus(size)
			continue
		}
		sent = sent.Plus(size)
		if l.enqueued != was.time || l.enqueued > l.posted || l.posted > l.fetched || l.posted > l.wireStart || l.wireStart >= l.wireEnd || l.time != l.wireEnd {
			t.Fatalf("frame %d: times out of order: %+v", l.frame, l)
		}
		if l.wireEnd <= wireEnd[l.queue] {
			t.Fatalf("queue %d: frame %d left at %d, the one before at %d", l.queue, l.frame, l.wireEnd, wireEnd[l.queue])
		}
		wireEnd[l.queue] = l.wireEnd
	}
	for _, l := range open {
		left = left.Plus(nic.Count{Frames: 1, Bytes: uint64(l.bytes)})
	}
	count := func(frames, bytes uint64) nic.Count { return nic.Count{Frames: frames, Bytes: bytes} }
	var dropped nic.Count
	for reason := range card.Dropped {
		dropped = dropped.Plus(count(card.Dropped[reason], card.DroppedBytes[reason]))
	}
	for _, c := range []struct {
		what      string
		got, want nic.Count
	}{
		{"offered", count(card.Offered, card.OfferedBytes), offered},
		{"sent", count(card.Sent, card.SentBytes), sent},
		{"dropped", dropped, lost},
		{"queued", count(card.Queued, card.QueuedBytes), left},
	} {
		if c.got != c.want {
			t.Fatalf("%s: result says %v, the log %v", c.what, c.got, c.want)
		}
	}
}

// frames of a log that left, in the order of their numbers.
func (w *written) left() map[int64]logLine {
	m := map[int64]logLine{}
	for _, l := range w.logFrames {
		if l.symbol == '-' {
			m[l.frame] = l
		}
	}
	return m
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// What every fixture becomes, to the nanosecond.
func TestGoldenLogs(t *testing.T) {
	at := func(s string) (b Bound) {
		if err := b.UnmarshalText([]byte(s)); err != nil {
			t.Fatal(err)
		}
		return b
	}
	tr, err := trace.Parse(strings.NewReader("1\n3\n3\n7\n"), "trace")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		b      []byte
		device *nic.Device
		change func(*Options)
	}{
		{"three", capturetest.ThreePackets(), device(t, "generic"), nil},
		{"three-i210", capturetest.ThreePackets(), device(t, "i210"), nil},
		{"three-speed", capturetest.ThreePackets(), device(t, "generic"), func(o *Options) { o.Schedule.Speed = Speed{3, 1} }},
		{"three-rate", capturetest.ThreePackets(), device(t, "generic"), func(o *Options) { o.Schedule.Rate = 7 * units.Mbit }},
		{"three-pps-loop", capturetest.ThreePackets(), device(t, "generic"), func(o *Options) { o.Schedule.PPS, o.Loop = 3, 2 }},
		{"three-loop", capturetest.ThreePackets(), device(t, "generic"), func(o *Options) { o.Loop = 3 }},
		{"three-top-speed", capturetest.ThreePackets(), device(t, "generic"), func(o *Options) { o.Schedule.TopSpeed = true }},
		{"three-from", capturetest.ThreePackets(), device(t, "generic"), func(o *Options) { o.From = at("1s") }},
		{"three-to", capturetest.ThreePackets(), device(t, "generic"), func(o *Options) { o.To = at("2026-01-01T00:00:01Z") }},
		{"two-interfaces", capturetest.TwoInterfaces(), device(t, "i210"), func(o *Options) { o.Queues.By = QueueBy{key: byInterface} }},
		{"sll2", capturetest.SLL2(), device(t, "generic"), nil},
		{"tso-kept", capturetest.TSO(), device(t, "generic"), nil},
		{"tso-kept-i210", capturetest.TSO(), device(t, "i210"), nil},
		{"tso-segmented", capturetest.TSO(), device(t, "i210"), func(o *Options) { o.Offload = Segment }},
		{"tso-tsnep", capturetest.TSO(), device(t, "tsnep"), nil},
		{"large", capturetest.Large(), device(t, "ixgbe"), nil},
		{"snap-zero", capturetest.SnapZero(), device(t, "generic"), nil},
		{"backward", capturetest.Backward(), device(t, "generic"), nil},
		{"nanosecond", capturetest.Nanosecond(), device(t, "generic", "bql=off"), nil},
		{"launch", capturetest.ThreePackets(), device(t, "i210", "qav=on", "queue0.txtime=on"), func(o *Options) {
			o.Queues.By, o.Launch.Queues = QueueBy{key: byFixed}, LaunchQueues{all: true}
		}},
		{"link-trace", capturetest.TSO(), device(t, "generic"), func(o *Options) { o.Link, o.Offload = tr, Segment }},
		{"fifo", capturetest.TSO(), device(t, "generic"), func(o *Options) { o.Qdisc, o.Offload = Qdisc{fifoQdisc, 2}, Segment }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Device: c.device, Seed: 1}
			o.Files = []string{file(t, "capture", c.b)}
			if c.change != nil {
				c.change(&o)
			}
			w := play(t, o)
			if w.err != nil {
				t.Fatal(w.err)
			}
			golden(t, c.name+".log", w.log)
		})
	}
}

// The document, the series and the table of one run, whole.
func TestGoldenDocument(t *testing.T) {
	o := Options{Device: device(t, "igb", "ring.tx=128"), Name: "i210", Seed: 7}
	o.Files = []string{file(t, "capture", capturetest.TSO())}
	o.Qdisc.kind, o.SeriesInterval = fqCodel, 20*units.Microsecond
	w := play(t, o)
	golden(t, "document.json", strings.ReplaceAll(w.json, o.Files[0], "tso.pcap"))
	golden(t, "series.csv", w.series)
	w.result.Wall, w.result.Cases[0].Replay.Captures[0].File = 0.25, "tso.pcap"
	var table bytes.Buffer
	if err := w.result.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", table.String())
	o.Device, o.SeriesJSON = device(t, "igb", "ring.tx=128"), true
	golden(t, "series.json", play(t, o).series)
}

// packets reads a pcapng back.
func packets(t fataler, b []byte) (list []capture.Packet) {
	t.Helper()
	r, err := capture.NewReader(bytes.NewReader(b), "written")
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Data = bytes.Clone(p.Data)
		list = append(list, p)
	}
}
