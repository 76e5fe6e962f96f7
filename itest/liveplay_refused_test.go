package itest

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"nicemu/emulator"
	"nicemu/emulator/gate"
	"nicemu/emulator/tap"
	"nicemu/replay"
	"nicemu/replay/capture/capturetest"
	"nicemu/scenarios"
	"nicemu/scenarios/liveplay"
)

// A qdisc that this kernel lacks comes with a command that has it; one that no
// kernel has is unknown.
func TestIntegrationLiveReplayNamesARemedyThatExists(t *testing.T) {
	needRoot(t)
	refusal := func(kind string) string {
		_, err := liveplay.Run(t.Context(), liveplay.Options{
			StreamOptions: stream(sameFrames(t, 1, 60)), Side: liveplay.Qdisc, Device: device(t, "generic"), Name: "generic", Way: emulator.Auto,
			TC: []string{"qdisc replace dev {dev} root " + kind},
		})
		var refused *scenarios.KernelError
		if !errors.As(err, &refused) {
			t.Fatalf("%s: %v", kind, err)
		}
		return err.Error()
	}
	if got := refusal("pfifo_fats"); !strings.Contains(got, `unknown qdisc "pfifo_fats"`) || strings.Contains(got, "nicemu lab") {
		t.Error(got)
	}
	const kind = "fq_codel"
	has, err := gate.ProbeQdiscs([]string{kind})
	if err != nil {
		t.Fatal(err)
	}
	var missing *tap.Unsupported
	if !errors.As(has[kind], &missing) {
		t.Skip("this kernel has " + kind)
	}
	if got := refusal(kind); !strings.Contains(got, "modprobe sch_fq_codel") || !strings.Contains(got, "nicemu lab exec ") || strings.Contains(got, "--kernel") {
		t.Error(got)
	}
}

// Frames that are all too long for the interface are no replay, and no success.
func TestIntegrationLiveReplayOfNothingIsAnError(t *testing.T) {
	needRoot(t)
	f := capturetest.Pcap(binary.LittleEndian, capturetest.Micro, 65535, 1)
	long := capturetest.UDP(1600)
	long[12], long[13] = 0x88, 0xb5 // no IP: nothing can cut it
	f.Record(capturetest.Start, 0, len(long), long)
	r, err := liveplay.Run(t.Context(), liveplay.Options{
		StreamOptions: stream(captureFile(t, f.B)), Side: liveplay.Qdisc, Device: device(t, "generic"), Name: "generic", Way: emulator.Auto,
	})
	var nothing *replay.NothingError
	if !errors.As(err, &nothing) || nothing.Refused["over_mtu"] != 1 {
		t.Fatal(err)
	}
	if r.Verdict != scenarios.VerdictDegraded || len(r.Laws.Violations) > 0 {
		t.Errorf("verdict %s, laws %v", r.Verdict, r.Laws.Violations)
	}
}
