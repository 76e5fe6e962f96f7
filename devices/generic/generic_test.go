package generic

import (
	"slices"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/nic/nictest"
)

// A short and a full frame posted at 0 at 1 Gbit/s, with a fetch before each
// and an interrupt 10 µs after the first cause.
//
//	A fetch takes 1000 ns and 200 ns for the one descriptor; one at a time:
//	        fetched   starts   medium free          FCS ends   data read
//	A 100   1200      1200     1200 + 124*8 = 2192  2096       2064
//	B 1514  2400      2400     2400+1538*8 = 14704  14608      14576
//	A is read at 2064: the interrupt comes at 12064 and cleans A only. B is read
//	at 14576: the next comes at 24576.
func TestTwoFramesToTheNanosecond(t *testing.T) {
	r := nictest.Build(t, New(), "bql=off", "coalesce.mode=delay", "coalesce.rx_usecs=10", "fetch.latency=1us", "fetch.per_descriptor=200ns")
	var got []nic.Stamps
	r.OnComplete = func(f *nic.Frame) { got = append(got, f.Stamps) }
	for _, size := range []int{100, 1514} {
		r.Send(0, size)
	}
	r.Eng.AdvanceTo(engine.Millisecond)
	want := []nic.Stamps{
		{Fetched: 1200, WireStart: 1200, WireEnd: 2096, Completed: 12064},
		{Fetched: 2400, WireStart: 2400, WireEnd: 14608, Completed: 24576},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A frame of 14 bytes takes as long as one of 60: 84 bytes with what is around
// it, 672 ns at 1 Gbit/s.
func TestShortFramesArePadded(t *testing.T) {
	r := nictest.Build(t, New(), "bql=off")
	var starts []engine.Time
	r.OnWire = func(f *nic.Frame, _ engine.Time) { starts = append(starts, f.WireStart) }
	for _, size := range []int{14, 60, 61, 60} {
		r.Send(0, size)
	}
	r.Eng.AdvanceTo(engine.Millisecond)
	if want := []engine.Time{0, 672, 1344, 2024}; !slices.Equal(starts, want) {
		t.Errorf("starts %v, want %v", starts, want)
	}
}

// A frame that can never fit the ring is dropped by name, and stops nothing.
func TestAFrameLargerThanTheRingIsDropped(t *testing.T) {
	r := nictest.Build(t, New(), "ring.tx=64")
	f := r.Frame(0)
	f.Single(6400)
	f.Bufs = make([]nic.Buf, 64)
	for i := range f.Bufs {
		f.Bufs[i].Len = 100
	}
	taken := r.Post(f, false)
	drops := r.NIC.Stats().Dropped["more_descriptors_than_ring"]
	if !taken || drops != (nic.Count{Frames: 1, Bytes: 6400}) || r.Stopped(0) {
		t.Errorf("taken %v, drops %v, stopped %v", taken, drops, r.Stopped(0))
	}
	if err := r.NIC.Audit(); err != nil {
		t.Error(err)
	}
}
