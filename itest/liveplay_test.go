package itest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"nicemu/devices"
	"nicemu/devices/nic"
	"nicemu/emulator"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
	"nicemu/replay"
	"nicemu/replay/capture/capturetest"
	"nicemu/scenarios"
	"nicemu/scenarios/liveplay"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// device is a model with knobs turned, as "knob=value".
func device(t *testing.T, name string, knobs ...string) *nic.Device {
	t.Helper()
	d, err := devices.New(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range knobs {
		at := slices.Index([]byte(k), '=')
		if err := d.Set(k[:at], k[at+1:]); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// captureFile writes a capture for the time of the test.
func captureFile(t *testing.T, bytes []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "test.pcap")
	if err := os.WriteFile(name, bytes, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// sameFrames is n frames of a size at one time.
func sameFrames(t *testing.T, n, size int) string {
	f := capturetest.Pcap(binary.LittleEndian, capturetest.Micro, 65535, 1)
	frame := capturetest.UDP(size)
	for range n {
		f.Record(capturetest.Start, 0, size, frame)
	}
	return captureFile(t, f.B)
}

// unlimited are the knobs of a card that is never what limits.
var unlimited = []string{"link.rate=1tbit", "ring.tx=4096"}

// tcpreplayRate has tcpreplay send a capture at top speed to a card of its own
// and returns frames a second, as tcpreplay measures them.
func tcpreplayRate(t *testing.T, way emulator.Way, file string) float64 {
	t.Helper()
	ns, err := netns.Create(fmt.Sprintf("%d-tcpreplay", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Delete()
	loop, err := emulator.NewLoop(1)
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	card, err := loop.NewTAPCard(ns, tap.Config{Name: "eth0", Csum: true, TSO: true}, device(t, "generic", unlimited...), way)
	if err != nil {
		t.Fatal(err)
	}
	defer card.Close()
	if err := card.TakeQdisc(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	// With the priority that nicemu gives itself.
	out, err := ns.Command(t.Context(), "chrt", "--fifo", "1", "tcpreplay", "-t", "-i", "eth0", file).CombinedOutput()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	found := regexp.MustCompile(`Rated: .*?([0-9.]+) pps`).FindSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("tcpreplay: %v\n%s", err, out)
	}
	rate, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return rate
}

// play replays live and fails the test if a law does not hold.
func play(t *testing.T, o liveplay.Options) (*scenarios.Result, *scenarios.Case) {
	t.Helper()
	if o.Device == nil {
		o.Device = device(t, "generic")
	}
	if o.Name == "" {
		o.Name = o.Device.Name
	}
	if o.Side == "" {
		o.Side = liveplay.Qdisc
	}
	if o.Way == "" {
		o.Way = emulator.Auto
	}
	o.Seed = 1
	r, err := liveplay.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Laws.Violations) > 0 || r.Laws.Checked == 0 {
		t.Errorf("laws: %+v", r.Laws)
	}
	return r, r.Cases[0]
}

// At top speed a live replay reaches what tcpreplay does into the same card.
// Pairs take turns, and their ratios' median counts, since other work on the
// machine hits both of a pair alike.
func TestIntegrationTopSpeedReachesTcpreplay(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("tcpreplay"); err != nil {
		t.Skip("tcpreplay is not installed: apt-get install tcpreplay")
	}
	if raceDetector {
		t.Skip("compares speeds, which the race detector changes")
	}
	const pairs, leastRatio = 3, 0.9
	for _, way := range []emulator.Way{emulator.Gate, emulator.Lossy} {
		for _, size := range []int{64, 1514} {
			t.Run(fmt.Sprintf("%s,%d", way, size), func(t *testing.T) {
				file := sameFrames(t, 200_000, size)
				var ratios []float64
				for range pairs {
					theirs := tcpreplayRate(t, way, file)
					_, c := play(t, liveplay.Options{
						StreamOptions: replay.StreamOptions{InputOptions: replay.InputOptions{Files: []string{file}}, Schedule: replay.Schedule{TopSpeed: true}},
						Device:        device(t, "generic", unlimited...), Way: way,
					})
					ours := c.Replay.PPS
					t.Logf("frames/s: tcpreplay %.0f, nicemu %.0f", theirs, ours)
					ratios = append(ratios, ours/theirs)
				}
				slices.Sort(ratios)
				if ratio := ratios[pairs/2]; ratio < leastRatio {
					t.Errorf("%.2f of tcpreplay's rate, want at least %.2f", ratio, leastRatio)
				}
			})
		}
	}
}

// hearing is what a namespace receives: frames of the captures' sender, as they
// came, without VLAN tags, which the kernel takes off.
type hearing struct {
	fd  int
	buf [70 << 10]byte
}

func hear(t *testing.T, ns *netns.NS) *hearing {
	t.Helper()
	f := &hearing{}
	err := ns.Do(func() (err error) {
		const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8 // network order
		if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all); err != nil {
			return err
		}
		return unix.SetsockoptInt(f.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(f.fd) })
	return f
}

// frames are those received so far.
func (f *hearing) frames(t *testing.T) (list [][]byte) {
	t.Helper()
	sender := []byte{2, 0, 0, 0, 0, 1} // of capturetest
	for {
		n, _, err := unix.Recvfrom(f.fd, f.buf[:], 0)
		switch {
		case err == unix.EAGAIN:
			return list
		case err != nil && err != unix.ENETDOWN: // of a card that is gone
			t.Fatal(err)
		case err == nil && bytes.Equal(f.buf[6:12], sender):
			list = append(list, bytes.Clone(f.buf[:n]))
		}
	}
}

func stream(files ...string) replay.StreamOptions {
	return replay.StreamOptions{InputOptions: replay.InputOptions{Files: files}}
}

// Every frame leaves as it is in the capture, in order, not before it is due,
// and a card in another namespace hands it to that kernel.
func TestIntegrationLiveReplaySendsEveryFrameWhenDue(t *testing.T) {
	needRoot(t)
	const frames, gap = 50, 1000 // µs
	f := capturetest.Pcap(binary.LittleEndian, capturetest.Micro, 65535, 1)
	var want [][]byte
	for i := range frames {
		want = append(want, capturetest.UDP(60+29*i))
		f.Record(capturetest.Start, uint32(i*gap), len(want[i]), want[i])
	}
	ns := newNS(t, "far")
	far := hear(t, ns)
	_, c := play(t, liveplay.Options{
		StreamOptions: stream(captureFile(t, f.B)), Device: device(t, "i210"), Peer: ns.Name(), Far: device(t, "i210"),
	})
	if diff := cmp.Diff(want, far.frames(t)); diff != "" {
		t.Error(diff)
	}
	x := c.Replay
	if x.Injected != frames || x.Passed != frames || x.OtherFrames != 0 || c.LatenessNs.Count != frames {
		t.Errorf("injected %d, passed %d, of others %d, lateness of %d", x.Injected, x.Passed, x.OtherFrames, c.LatenessNs.Count)
	}
	if span := float64(frames-1) * gap / 1e6; x.SpanS < span-float64(c.LatenessNs.Max)/1e9 {
		t.Errorf("took %v s, the capture takes %v", x.SpanS, span)
	}
}

// A GSO packet goes through the qdisc in one piece and the card makes segments
// of it, or segments go through the qdisc.
func TestIntegrationLiveReplayOfGSOPackets(t *testing.T) {
	needRoot(t)
	const big, small, header, mss = 14654, 1514, 54, 1460
	wire := uint64(big + (big-header-1)/mss*header + small)
	for offload, frames := range map[replay.Offload]uint64{replay.Keep: 2, replay.Segment: 11} {
		t.Run(string(offload), func(t *testing.T) {
			ns := newNS(t, "far")
			far := hear(t, ns)
			o := stream(captureFile(t, capturetest.TSO()))
			o.Offload = offload
			_, c := play(t, liveplay.Options{StreamOptions: o, Peer: ns.Name(), Far: device(t, "generic")})
			if n := c.NICs[c.Replay.Netns+"/"+c.Replay.Dev]; n.Sent != frames || n.SentBytes != wire {
				t.Errorf("sent %d frames, %d bytes, want %d and %d", n.Sent, n.SentBytes, frames, wire)
			}
			var payload []byte
			got := far.frames(t)
			for _, f := range got[:max(0, len(got)-1)] {
				if length := int(binary.BigEndian.Uint16(f[16:])); length != len(f)-14 {
					t.Errorf("IP length %d of %d bytes", length, len(f))
				}
				payload = append(payload, f[header:]...)
			}
			if want := capturetest.TCP(big)[header:]; uint64(len(got)) != frames || !bytes.Equal(payload, want) {
				t.Errorf("%d frames with %d bytes arrived, want %d with %d", len(got), len(payload), frames, len(want))
			}
		})
	}
}

// What the qdisc has no room for is counted as it counts it, and nothing else is
// lost.
func TestIntegrationLiveReplayCountsWhatTheQdiscDrops(t *testing.T) {
	needRoot(t)
	o := stream(sameFrames(t, 500, 1000))
	o.Schedule.Rate = 100e6
	_, c := play(t, liveplay.Options{
		StreamOptions: o, Device: device(t, "generic", "link.rate=10mbit"), TC: []string{"tc qdisc replace dev {dev} root pfifo limit 10"},
	})
	x := c.Replay
	drops := 0.0
	for _, q := range c.Qdiscs {
		if q["kind"] == "pfifo" {
			drops, _ = q["drops"].(float64)
		}
	}
	if x.ENOBUFS < 100 || x.ENOBUFS != x.QdiscDropped || float64(x.ENOBUFS) != drops {
		t.Errorf("ENOBUFS %d, dropped %d, tc says %v", x.ENOBUFS, x.QdiscDropped, drops)
	}
	if x.Injected != 500 || x.Passed+x.QdiscDropped != 500 || x.OtherFrames != 0 {
		t.Errorf("injected %d, passed %d, dropped %d, of others %d", x.Injected, x.Passed, x.QdiscDropped, x.OtherFrames)
	}
}

// At top speed frames wait instead: none is dropped, however slow the card.
func TestIntegrationTopSpeedWaitsForTheCard(t *testing.T) {
	needRoot(t)
	o := stream(sameFrames(t, 1000, 1000))
	o.Schedule.TopSpeed = true
	_, c := play(t, liveplay.Options{StreamOptions: o, Device: device(t, "generic", "link.rate=100mbit")})
	if x := c.Replay; x.Passed != 1000 || x.QdiscDropped != 0 || x.BPS > 110e6 {
		t.Errorf("passed %d, dropped %d, %.0f bit/s through 100 Mbit/s", x.Passed, x.QdiscDropped, x.BPS)
	}
}

// Priorities by PCP reach the qdisc: pfifo_fast lets the urgent ones overtake.
func TestIntegrationPriorityOvertakesInTheQdisc(t *testing.T) {
	needRoot(t)
	const slow, fast, slowLen, fastLen = 100, 5, 1000, 100
	tagged := func(pcp byte, n int) []byte {
		f := capturetest.UDP(n)
		return slices.Concat(f[:12], []byte{0x81, 0, pcp << 5, 1}, f[12:])
	}
	f := capturetest.Pcap(binary.LittleEndian, capturetest.Micro, 65535, 1)
	for range slow {
		f.Record(capturetest.Start, 0, slowLen+4, tagged(1, slowLen))
	}
	for range fast {
		f.Record(capturetest.Start, 0, fastLen+4, tagged(6, fastLen))
	}
	file := captureFile(t, f.B)
	for by, overtakes := range map[string]bool{"pcp": true, "hash": false} {
		t.Run(by, func(t *testing.T) {
			ns := newNS(t, "far")
			far := hear(t, ns)
			o := stream(file)
			if err := o.Queues.By.UnmarshalText([]byte(by)); err != nil {
				t.Fatal(err)
			}
			play(t, liveplay.Options{
				StreamOptions: o, Device: device(t, "generic", "link.rate=10mbit"), Peer: ns.Name(), Far: device(t, "generic"),
				TC: []string{"qdisc replace dev {dev} root pfifo_fast"},
			})
			got := far.frames(t)
			if len(got) != slow+fast {
				t.Fatalf("%d frames arrived, want %d", len(got), slow+fast)
			}
			last := slices.IndexFunc(got, func(f []byte) bool { return len(f) == fastLen })
			if overtakes != (last < slow/2) {
				t.Errorf("the first urgent frame is number %d of %d", last+1, len(got))
			}
		})
	}
}

// From the wire the frames reach the kernel through the card's receive half,
// which drops what its ring has no room for.
func TestIntegrationLiveReplayFromTheWire(t *testing.T) {
	needRoot(t)
	const frames = 2000
	for _, knobs := range [][]string{{"ring.rx=4096"}, {"ring.rx=16", "coalesce.mode=delay", "coalesce.rx_usecs=100us"}} {
		t.Run(knobs[0], func(t *testing.T) {
			ns := newNS(t, "near")
			near := hear(t, ns)
			o := stream(sameFrames(t, frames, 64))
			o.Schedule.TopSpeed = true
			_, c := play(t, liveplay.Options{StreamOptions: o, Side: liveplay.Wire, Netns: ns.Name(), Device: device(t, "generic", knobs...)})
			n := c.NICs[ns.Name()+"/nicemu0"]
			dropped := n.Dropped["rx_no_descriptor"]
			if got := len(near.frames(t)); c.Replay.Injected != frames || n.Received+dropped != frames || uint64(got) != n.Received {
				t.Errorf("of %d frames %d were received and %d dropped; the kernel got %d", frames, n.Received, dropped, got)
			}
			if (dropped > 0) != (knobs[0] == "ring.rx=16") {
				t.Errorf("%d dropped", dropped)
			}
		})
	}
}

// A namespace of the user's is as before afterwards, and an interface there that
// has the card's name already stays what it is.
func TestIntegrationLiveReplayLeavesTheNamespaceAsItWas(t *testing.T) {
	needRoot(t)
	ns := newNS(t, "users")
	other, err := tap.Open(ns, tap.Config{Name: "nicemu0"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	state := func() string {
		out, err := ns.Command(t.Context(), "sh", "-c", "ip -o -d link; ip -o addr; tc qdisc show").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := state()
	_, c := play(t, liveplay.Options{StreamOptions: stream(captureFile(t, capturetest.TSO())), Netns: ns.Name()})
	if c.Replay.Dev != "nicemu1" {
		t.Errorf("the card was %s", c.Replay.Dev)
	}
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Error(diff)
	}
}

// Ctrl-C in the middle: status 130, and nothing is left.
func TestIntegrationInterruptedLiveReplayLeavesNothing(t *testing.T) {
	needRoot(t)
	bin := buildCommand(t)
	file := captureFile(t, capturetest.ThreePackets())
	for _, args := range [][]string{{}, {"--side", "wire"}, {"--top-speed", "--set", "link.rate=1kbit"}} {
		r := trace(t, bin, append([]string{"replay", file, "--live", "--loop", "1000"}, args...)...)
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		ns := fmt.Sprintf("%s/nicemu-%d-replay", netns.MountDir, r.Process.Pid)
		for deadline := time.Now().Add(20 * time.Second); ; {
			if _, err := os.Stat(ns); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no %s after 20 s; stderr: %s", ns, &r.stderr)
			}
		}
		if err := r.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := r.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
			t.Errorf("%v: %v; stderr: %s", args, err, &r.stderr)
		}
		r.leavesNothing(t)
	}
}
