package ixgbe

import (
	"math"
	"slices"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/nic/nictest"
	"nicemu/devices/units"
)

// The published rows: pktgen, one core, 64-byte packets, 10 s
// ([net-next PATCH 2/5] ixgbe: increase default TX ring buffer to 1024, 2014).
// The core time of a packet, 186.48 ns, is fitted to the row of 1024; the row of
// 512 does not depend on it.
func TestRingSizeLimitsPktgenAsPublished(t *testing.T) {
	for _, row := range []struct {
		ring      string
		published float64
		tolerance float64
	}{
		{"512", 3_930_065, 0.001},
		{"768", 5_312_249, 0.01},
		{"1024", 5_362_722, 0.01},
		{"1536", 5_361_390, 0.01},
		{"2048", 5_362_439, 0.01},
		{"4096", 5_359_744, 0.01},
	} {
		d := New()
		d.Config.CPU.Xmit, d.Config.CPU.Clean, d.Config.CPU.Interrupt = units.Duration(146), units.Duration(40), units.Duration(325)
		r := nictest.Build(t, d, "ring.tx="+row.ring, "coalesce.mode="+modeAdaptive2014)
		r.Pktgen(0, 60)
		r.Eng.AdvanceTo(100 * engine.Millisecond)
		before := r.NIC.Stats().Sent.Frames
		r.Eng.AdvanceTo(300 * engine.Millisecond)
		pps := float64(r.NIC.Stats().Sent.Frames-before) * 5
		err := r.NIC.Audit()
		if e := pps/row.published - 1; math.Abs(e) > row.tolerance || err != nil {
			t.Errorf("ring %s: %.0f pps, published %.0f, error %+.3f %%, audit %v", row.ring, pps, row.published, 100*e, err)
		} else {
			t.Logf("ring %s: %.0f pps, published %.0f, error %+.3f %%", row.ring, pps, row.published, 100*e)
		}
	}
}

func TestBulkStateSticksAt490(t *testing.T) {
	m := &adaptive2014{itr: itr20K}
	for range 200 {
		m.Polled(0, work(500, 30000))
	}
	if m.itr != 490 || m.Interval != 124_928 {
		t.Fatalf("EITR %d, interval %d ns; want 490 and 124928", m.itr, m.Interval)
	}
}

func work(frames, bytes int) nic.Work {
	return nic.Work{TXFrames: frames, TXPackets: frames, TXBytes: bytes}
}

// Three full frames posted at 0, fixed moderation of 50 µs, no BQL.
//
//	One frame is 8+1514+4+12 = 1538 bytes, 1230.4 ns at 10 Gbit/s. What rounding
//	leaves over goes to the next frame of the same burst.
//	frame   starts   medium free   FCS ends (gap 9.6 ns before)   data read (FCS and gap 12.8 ns)
//	1            0   1230 + 0.4    1221                           1218
//	2         1230   2460 + 0.8    2451                           2448
//	3         2460   3691 + 0.2    3682                           3679
//	The first interrupt comes at once, at 1218, and cleans frame 1. EITR 200
//	counts 25 units of 2048 ns: the next comes at 1218 + 51200 = 52418 and cleans
//	the other two; WTHRESH 8 has held them back until then.
func TestThreeFramesToTheNanosecond(t *testing.T) {
	r := nictest.Build(t, New(), "bql=off", "coalesce.mode="+modeFixed, "coalesce.rx_usecs=50")
	var got []nic.Stamps
	r.OnComplete = func(f *nic.Frame) { got = append(got, f.Stamps) }
	for range 3 {
		r.Send(0, 1514)
	}
	r.Eng.AdvanceTo(engine.Millisecond)
	want := []nic.Stamps{
		{WireStart: 0, WireEnd: 1221, Completed: 1218},
		{WireStart: 1230, WireEnd: 2451, Completed: 52418},
		{WireStart: 2460, WireEnd: 3682, Completed: 52418},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
