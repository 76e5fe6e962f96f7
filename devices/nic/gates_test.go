package nic

import (
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/units"

	"pgregory.net/rapid"
)

// TestGateAgreesWithTheListReadEntryByEntry: a frame may start at t if every
// entry from t to the end of the frame opens the gate; if it may not, the time
// given to ask again is the first at which it may.
func TestGateAgreesWithTheListReadEntryByEntry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.Custom(func(t *rapid.T) GateEntry {
			return GateEntry{rapid.Uint64Range(0, 3).Draw(t, "mask"), units.Duration(rapid.Int64Range(1, 12).Draw(t, "interval"))}
		})
		list := GateList(rapid.SliceOfN(entry, 1, 6).Draw(t, "list"))
		base := engine.Time(rapid.Int64Range(0, 30).Draw(t, "base"))
		n := &NIC{}
		n.mac.nic, n.mac.rate = n, 8e9 // a byte a nanosecond
		open := func(at engine.Time) bool {
			at = (at - base) % list.Cycle()
			for _, e := range list {
				if at < engine.Time(e.Interval) {
					return e.Mask&1 == 1
				}
				at -= engine.Time(e.Interval)
			}
			panic("past the cycle")
		}
		fits := func(at engine.Time, bytes int) bool {
			if at < base {
				return true
			}
			for i := range engine.Time(bytes) {
				if !open(at + i) {
					return false
				}
			}
			return true
		}
		bytes := rapid.IntRange(1, 15).Draw(t, "bytes")
		at := engine.Time(rapid.Int64Range(0, 100).Draw(t, "t"))
		ok, retry := true, engine.Time(0)
		if g := newGate(n, list, base, 0); g != nil {
			ok, retry = g.Eligible(at, nil, bytes)
		}
		if want := fits(at, bytes); ok != want {
			t.Fatalf("at %d: may start %v, the list says %v", at, ok, want)
		}
		if ok {
			return
		}
		first := at
		for ; first < at+3*list.Cycle() && !fits(first, bytes); first++ {
		}
		if first == at+3*list.Cycle() {
			first = engine.Never
		}
		if retry != first {
			t.Fatalf("at %d: ask again at %d, the list says %d", at, retry, first)
		}
	})
}
