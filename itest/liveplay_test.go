package itest

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"nicemu/devices"
	"nicemu/devices/nic"
	"nicemu/emulator"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
	"nicemu/replay"
	"nicemu/replay/capture/capturetest"
	"nicemu/scenarios"
	"nicemu/scenarios/liveplay"
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
	out, err := ns.Command(t.Context(), "tcpreplay", "-t", "-i", "eth0", file).CombinedOutput()
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
