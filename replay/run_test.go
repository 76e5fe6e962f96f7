package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nicemu/devices"
	"nicemu/devices/units"
	"nicemu/replay/capture"
	"nicemu/replay/capture/capturetest"
)

// Every beginning of a capture plays or is refused, and the books of what was played balance; play sees to that.
func TestCapturesCutAnywhere(t *testing.T) {
	for _, whole := range [][]byte{capturetest.ThreePackets(), capturetest.TwoInterfaces()} {
		step := 1
		if testing.Short() {
			step = 9
		}
		for n := 0; n < len(whole); n += step {
			path := filepath.Join(t.TempDir(), "cut")
			if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			o := Options{Device: device(t, "generic")}
			o.Files = []string{path}
			w := play(t, o)
			var bad *capture.FormatError
			var nothing *NothingError
			if errors.As(w.err, &nothing) && nothing.Captures[0].Packets == 0 { // the headers alone
				continue
			}
			if w.err != nil && (!errors.As(w.err, &bad) || bad.File != path || bad.Expected == "") {
				t.Fatalf("%d bytes: %v", n, w.err)
			}
			if w.err != nil && w.result != nil && (w.result.Verdict != VerdictDegraded || !strings.Contains(w.result.Reasons[0], "what came before it was replayed")) {
				t.Fatalf("%d bytes: %s %v", n, w.result.Verdict, w.result.Reasons)
			}
		}
	}
}

// 60 bytes of a packet that says it had as many as a capture may say.
func TestThePacketThatClaimsMost(t *testing.T) {
	frame := capturetest.TCP(60)
	frame[16], frame[17] = 0, 0
	f := capturetest.Pcap(le, capturetest.Nano, 0, 1).Record(1, 0, 16<<20, frame).Record(1, 1, 64, capturetest.UDP(64))
	for _, name := range devices.Names() {
		for _, offload := range []Offload{"", Segment} {
			o := Options{Device: device(t, name)}
			o.Files, o.Offload = []string{file(t, "most", f.B)}, offload
			w := play(t, o)
			if card := w.result.card(); w.err != nil || card.Queued != 0 || card.Sent != card.Offered || card.SentBytes < 16<<20 {
				t.Errorf("%s: %v, sent %d of %d, dropped %v, queued %d", name, w.err, card.Sent, card.Offered, card.Dropped, card.Queued)
			}
		}
	}
}

// What nothing can segment and no MTU of the card allows does not come to the card.
func TestAFrameOverTheLargestMTUIsRefused(t *testing.T) {
	for _, name := range devices.Names() {
		o := Options{Device: device(t, name)}
		limit := o.Device.MaxMTU + 14 + 8
		arp := make([]byte, 60)
		arp[12], arp[13] = 0x08, 0x06
		f := capturetest.Pcap(le, capturetest.Nano, 0, 1).Record(1, 0, limit+1, arp).Record(1, 1, 16<<20, arp)
		o.Files = []string{file(t, "long", f.B)}
		w := play(t, o)
		if card := w.result.card(); card.Dropped["over_max_mtu"] != 2 || card.DroppedBytes["over_max_mtu"] != uint64(limit+1+16<<20) {
			t.Errorf("%s: dropped %v %v", name, card.Dropped, card.DroppedBytes)
		}
	}
}

func TestFramesThatTheCardDropsHaveAReason(t *testing.T) {
	o := Options{Device: device(t, "i210", "qav=on")}
	big := capturetest.UDP(5000)
	big[20] = 0x20 // a fragment: nothing segments it
	o.Files = []string{file(t, "big", capturetest.Pcap(le, capturetest.Micro, 0, 1).Record(1, 0, 64, capturetest.UDP(64)).Record(1, 1, 5000, big).B)}
	w := play(t, o)
	card, x := w.result.card(), &w.result.Cases[0].Replay
	if card.Sent != 1 || card.Dropped["oversize"] != 1 || card.DroppedBytes["oversize"] != 5000 || x.Unsegmentable != 1 {
		t.Errorf("sent %d, dropped %v, unsegmentable %d", card.Sent, card.Dropped, x.Unsegmentable)
	}
	if !strings.Contains(w.log, "d 1000 0 2 5000 1 oversize\n") {
		t.Error(w.log)
	}
	if n := len(packets(t, w.wire)); n != 1 {
		t.Errorf("%d packets written", n)
	}
}

// A gate that never opens: what is queued is told, and what the card did not take is not read.
func TestACardThatNeverSendsEndsTheReplay(t *testing.T) {
	for watchdog, verdict := range map[string]string{"0ns": VerdictDegraded, "5s": VerdictOK} {
		o := Options{Device: device(t, "generic", "queues=2", "gates=2 1ms", "watchdog="+watchdog)}
		o.Files, o.Queues.By, o.Loop = []string{file(t, "c", capturetest.ThreePackets())}, QueueBy{key: byFixed}, 2
		w := play(t, o)
		r, card := w.result, w.result.card()
		if r.Verdict != verdict || card.Sent != 0 || card.Queued+card.Dropped["tx_timeout"] != card.Offered || card.Offered != 6 {
			t.Errorf("watchdog %s: %s %v, offered %d, queued %d, dropped %v", watchdog, r.Verdict, r.Reasons, card.Offered, card.Queued, card.Dropped)
		}
	}
	o := Options{Device: device(t, "generic", "queues=2", "gates=2 1ms", "watchdog=0ns")}
	o.Files, o.Queues.By, o.Schedule.TopSpeed = []string{file(t, "c", at(0, make([]int, 1000)...))}, QueueBy{key: byFixed}, true
	w := play(t, o)
	if card := w.result.card(); card.Queued != 65 || card.Offered != 65 || !strings.Contains(w.result.Reasons[0], "65 frames are queued, the rest of the captures was not offered") {
		t.Errorf("queued %d of %d: %v", card.Queued, card.Offered, w.result.Reasons)
	}
}

// fq_codel marks what is ECN capable, and what leaves the wire has the mark and a right checksum.
func TestMarksLeaveWithTheFrame(t *testing.T) {
	f := capturetest.Pcap(le, capturetest.Nano, 0, 1)
	frame := capturetest.UDP(1514)
	frame[15] = 1 // ECT(1)
	check := ipChecksum(frame[14:34])
	frame[24], frame[25] = byte(check>>8), byte(check)
	for i := range 1000 {
		f.Record(1, uint32(i*100_000), len(frame), frame)
	}
	o := Options{Device: device(t, "generic", "link.rate=10mbit"), Qdisc: Qdisc{kind: fqCodel}}
	o.Files = []string{file(t, "ect", f.B)}
	w := play(t, o)
	marked := 0
	for _, p := range packets(t, w.wire) {
		if ipChecksum(p.Data[14:34]) != check && p.Data[15]&3 == 3 {
			marked++
		}
		if got := uint16(p.Data[24])<<8 | uint16(p.Data[25]); got != ipChecksum(p.Data[14:34]) {
			t.Fatalf("header checksum %04x, want %04x", got, ipChecksum(p.Data[14:34]))
		}
	}
	if q := w.result.Cases[0].Qdiscs[0]; marked == 0 || uint64(marked) != q.ECNMark {
		t.Errorf("%d packets with a mark, the qdisc has set %d", marked, q.ECNMark)
	}
}

// ipChecksum is that of a header whose own field counts as 0.
func ipChecksum(h []byte) uint16 {
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		if i != 10 {
			sum += uint32(h[i])<<8 | uint32(h[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

func TestLaunchTimesAreKeptAndWhatIsWrongWithThemIsSaid(t *testing.T) {
	f := capturetest.Pcap(le, capturetest.Nano, 0, 1)
	for i := range 500 {
		f.Record(1, uint32(i*200_000), 100, tagged(7)[:100])
		f.Record(1, uint32(i*200_000+1000), 1514, capturetest.TCP(1514))
	}
	o := Options{Device: device(t, "i210", "qav=on", "queue0.txtime=on")}
	o.Queues.By.key = byPCP
	o.Files, o.Launch.Queues = []string{file(t, "tsn", f.B)}, LaunchQueues{all: true}
	w := play(t, o)
	l := w.result.Cases[0].Replay.Launch
	if l.LateNs.Count != 500 || l.LateNs.Max != 0 || l.EarlyMaxNs >= 32 {
		t.Errorf("%+v", l)
	}
	for _, c := range []struct {
		set   []string
		queue int
		sched Schedule
		delta units.Duration
		want  string
	}{
		{nil, 0, Schedule{}, 0, "igb has no queue with launch times; its knobs are qav, queue0.txtime, queue1.txtime"},
		{[]string{"qav=on", "queue0.txtime=on"}, 1, Schedule{}, 0, "queue 1 of igb has no launch times, expected one of [0]; its knobs are qav, queue0.txtime, queue1.txtime"},
		{[]string{"qav=on", "queue0.txtime=on"}, 0, Schedule{PPS: 1}, 0, "launch times come from the capture's times, not from 1 pps"},
		{[]string{"qav=on", "queue0.txtime=on"}, 0, Schedule{}, units.Second, "launch delta 1s: expected 1ns to 100ms"},
	} {
		o := Options{Device: device(t, "igb", c.set...)}
		o.Files, o.Schedule, o.Launch = []string{"none"}, c.sched, Launch{LaunchQueues{list: []int{c.queue}}, c.delta}
		if _, err := Run(t.Context(), o); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestOptionsThatTheCardDoesNotTake(t *testing.T) {
	path := file(t, "c", capturetest.ThreePackets())
	o := Options{Device: device(t, "tsnep")}
	o.Files, o.Offload = []string{path}, Keep
	if _, err := Run(t.Context(), o); err == nil || err.Error() != "tsnep takes no GSO frames: its driver has no TSO; expected --offload segment" {
		t.Error(err)
	}
	o = Options{Device: device(t, "generic", "ring.stop=300")}
	o.Files = []string{path}
	if _, err := Run(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "device generic: ring of 256 never runs") {
		t.Error(err)
	}
}

// Without a qdisc frames wait at their senders from the time they were due, however far the file is ahead of the card.
func TestSendersWaitWithoutBound(t *testing.T) {
	const n = 20_000 // more than the replay keeps in memory
	o := Options{Device: device(t, "generic", "bql=off")}
	o.Files = []string{largeFile(t, capturetest.TCP(1514), n)}
	w := play(t, o)
	card := w.result.card()
	if card.Sent != n || len(card.Dropped) != 0 {
		t.Fatalf("sent %d, dropped %v", card.Sent, card.Dropped)
	}
	for _, l := range w.left() {
		if l.enqueued != 0 || l.wireEnd != 12208+(l.frame-1)*12304 {
			t.Fatalf("%+v", l)
		}
	}
}

// brokenWriter fails after some bytes.
type brokenWriter struct{ left int }

var errBroken = errors.New("no space left on device")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

func TestErrorsOfWritersEndTheRun(t *testing.T) {
	path := largeFile(t, capturetest.TCP(1514), 20_000)
	for i, set := range []func(*Options, io.Writer){
		func(o *Options, w io.Writer) { o.Log = w },
		func(o *Options, w io.Writer) { o.Wire = w },
		func(o *Options, w io.Writer) { o.Series = w },
	} {
		for _, left := range []int{0, 20_000} {
			o := Options{Device: device(t, "generic"), SeriesInterval: units.Microsecond}
			o.Files = []string{path}
			set(&o, &brokenWriter{left})
			if r, err := Run(t.Context(), o); !errors.Is(err, errBroken) || r != nil {
				t.Errorf("output %d after %d bytes: %v", i, left, err)
			}
		}
	}
}

func TestAnInterruptedRunLeavesWholeFiles(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var wire bytes.Buffer
	o := Options{Device: device(t, "generic"), Wire: &wire, Progress: func(p Progress) {
		if p.Frames > 5000 {
			stop()
		}
	}}
	o.Files, o.Loop = []string{largeFile(t, capturetest.UDP(64), 10_000)}, 1000
	r, err := Run(ctx, o)
	if r != nil || !errors.Is(err, context.Canceled) {
		t.Fatal(r, err)
	}
	if n := len(packets(t, wire.Bytes())); n < 1000 || n > 100_000 {
		t.Errorf("%d packets written", n)
	}
}

// Twice the frames allocate no more.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	small := largeFile(t, capturetest.UDP(64), 5000)
	gso := file(t, "tso", capturetest.TSO())
	allocated := func(loop int, offload Offload) uint64 {
		o := Options{Device: device(t, "igb"), Log: io.Discard, Wire: io.Discard, Series: io.Discard, SeriesInterval: 10 * units.Microsecond}
		o.Files, o.Loop, o.Offload = []string{small, gso}, loop, offload
		o.Schedule.Rate = 100 * units.Mbit
		before := mallocs()
		if _, err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return mallocs() - before
	}
	for _, offload := range []Offload{Keep, Segment} {
		allocated(1, offload)
		const rounds = 8
		if once, more := allocated(rounds, offload), allocated(2*rounds, offload); more > once+rounds*40 { // files are opened anew
			t.Errorf("%s: %d allocations for %d rounds, %d for twice as many", offload, once, rounds, more)
		}
	}
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// 1 GB of capture, made while it is read, in less than 200 MB.
func TestALargeCaptureNeedsLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("a gigabyte")
	}
	frame := capturetest.TCP(1514)
	f := capturetest.Pcap(le, capturetest.Nano, 0, 1).Record(1, 1, len(frame), frame).B
	records := int(units.GB) / (len(f) - 24)
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	fed := make(chan error, 1)
	go func() {
		out, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = io.Copy(out, capturetest.Repeat(f[:24], f[24:], records))
			err = errors.Join(err, out.Close())
		}
		fed <- err
	}()
	runtime.GC()
	var peak uint64
	o := Options{Device: device(t, "igb"), Log: io.Discard, Wire: io.Discard, Series: io.Discard, Progress: func(Progress) { peak = max(peak, memory()) }}
	o.Files = []string{path}
	r, err := Run(t.Context(), o)
	if err := errors.Join(err, <-fed); err != nil {
		t.Fatal(err)
	}
	if card := r.card(); card.Sent != uint64(records) {
		t.Errorf("sent %d of %d", card.Sent, records)
	}
	t.Logf("%d frames in %.2f s, peak memory %d MB", records, r.Wall, peak>>20)
	if peak == 0 || peak > 200<<20 {
		t.Errorf("peak memory %d MB", peak>>20)
	}
}

// memory is what the runtime holds of the operating system's.
func memory() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() - sample[1].Value.Uint64()
}

// tshark and capinfos have nothing to say against what is written, and see what was sent.
func TestWiresharkReadsWhatIsWritten(t *testing.T) {
	for _, c := range []struct {
		name    string
		b       []byte
		packets string
	}{{"TSO", capturetest.TSO(), "11"}, {"two interfaces", capturetest.TwoInterfaces(), "2"}, {"large", capturetest.Large(), "64"}, {"nothing kept", capturetest.SnapZero(), "2"}} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Device: device(t, "igb"), Name: "i210"}
			o.Files = []string{file(t, "in", c.b)}
			path := file(t, "out.pcapng", play(t, o).wire)
			info := command(t, "capinfos", path)
			for _, want := range []string{"Number of packets:   " + c.packets, "Strict time order:   True", "Capture hardware:    i210", "Time precision = nanoseconds (9)", "Number of interfaces in file: 4"} {
				if !strings.Contains(info, want) {
					t.Errorf("capinfos: no %q in\n%s", want, info)
				}
			}
			lines := command(t, "tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.interface_name", "-e", "_ws.expert")
			if n := strings.Count(lines, "\n"); c.packets != strconv.Itoa(n) || strings.Contains(lines, "alformed") {
				t.Errorf("tshark: %d lines\n%s", n, lines)
			}
		})
	}
}

// command runs a program that must have nothing to complain about.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.Command(path, args...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err = cmd.Run()
	said := strings.ReplaceAll(complaints.String(), "Running as user \"root\" and group \"root\". This could be dangerous.\n", "")
	if err != nil || said != "" {
		t.Fatalf("%s: %v\n%s", name, err, said)
	}
	return out.String()
}
