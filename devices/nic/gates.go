package nic

import (
	"encoding"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"nicemu/devices/engine"
	"nicemu/devices/units"
)

// GateEntry opens the gates of the queues in Mask, closes the others, and lasts
// for Interval: taprio's "sched-entry S MASK INTERVAL".
type GateEntry struct {
	Mask     uint64
	Interval units.Duration
}

// GateList is a gate control list. Its cycle is the sum of its intervals.
type GateList []GateEntry

const longestGate = units.Duration(1<<32 - 1) // tc's sched-entry holds 32 bits of ns

// Cycle is the sum of all intervals.
func (g GateList) Cycle() engine.Time {
	var sum engine.Time
	for _, e := range g {
		sum += engine.Time(e.Interval)
	}
	return sum
}

// MarshalText implements encoding.TextMarshaler.
func (g GateList) MarshalText() ([]byte, error) {
	if len(g) == 0 {
		return []byte("none"), nil
	}
	parts := make([]string, len(g))
	for i, e := range g {
		parts[i] = fmt.Sprintf("%02x %v", e.Mask, e.Interval)
	}
	return []byte(strings.Join(parts, ", ")), nil
}

// UnmarshalText reads entries with commas between, each a hexadecimal mask as
// taprio takes it and an interval: "01 300us, fe 700us"; "none" is no list.
func (g *GateList) UnmarshalText(text []byte) error {
	var list GateList
	if s := string(text); s != "" && s != "none" {
		for part := range strings.SplitSeq(s, ",") {
			fields := strings.Fields(part)
			if len(fields) != 2 {
				return fmt.Errorf("gate entry %q: expected a mask and an interval, e.g. 01 300us", strings.TrimSpace(part))
			}
			mask, err := strconv.ParseUint(strings.TrimPrefix(fields[0], "0x"), 16, 64)
			if err != nil {
				return fmt.Errorf("gate mask %q: expected a hexadecimal number, e.g. 0f", fields[0])
			}
			interval, err := units.ParseDuration(fields[1])
			if err != nil {
				return err
			}
			if interval <= 0 || interval > longestGate {
				return fmt.Errorf("gate interval %v: expected 1ns to %v", interval, longestGate)
			}
			list = append(list, GateEntry{mask, interval})
		}
	}
	*g = list
	return nil
}

// Legal says what [GateList.UnmarshalText] takes.
func (g *GateList) Legal() string {
	return "none, or hexadecimal masks of open queues with their intervals, e.g. 01 300us, fe 700us"
}

// gate is one queue's view of a gate list (IEEE 802.1Q-2018 8.6.8.4): a frame
// may start while the gate is open and stays so until the frame's last byte,
// FCS included, has left. Before the base time all gates are open.
type gate struct {
	nic     *NIC
	base    engine.Time
	cycle   engine.Time
	windows []window // when open, in order; the last one may reach into the next cycle
}

type window struct{ open, shut engine.Time }

// newGate returns nil for a queue whose gate never shuts.
func newGate(n *NIC, list GateList, base engine.Time, q int) *gate {
	g := &gate{nic: n, base: base, cycle: list.Cycle()}
	var at engine.Time
	for _, e := range list {
		end := at + engine.Time(e.Interval)
		if e.Mask>>q&1 == 1 {
			if k := len(g.windows); k > 0 && g.windows[k-1].shut == at {
				g.windows[k-1].shut = end
			} else {
				g.windows = append(g.windows, window{at, end})
			}
		}
		at = end
	}
	k := len(g.windows)
	if k == 1 && g.windows[0] == (window{0, g.cycle}) {
		return nil
	}
	if k > 1 && g.windows[0].open == 0 && g.windows[k-1].shut == g.cycle {
		g.windows[k-1].shut += g.windows[0].shut
		g.windows = g.windows[1:]
	}
	return g
}

// Eligible implements [Shaper].
func (g *gate) Eligible(t engine.Time, _ *Frame, bytes int) (bool, engine.Time) {
	if t < g.base {
		return true, 0
	}
	l := &g.nic.cfg.Link
	need := g.nic.mac.byteTime(l.Preamble + bytes + l.FCS)
	phase := (t - g.base) % g.cycle
	first := sort.Search(len(g.windows), func(i int) bool { return g.windows[i].shut > phase })
	// From the window before, which may reach into this cycle, to this one's
	// next turn.
	for i := first - 1; i <= first+len(g.windows) && len(g.windows) > 0; i++ {
		w, cycle := g.window(i, t-phase)
		begin := max(cycle+w.open, t)
		if begin+need <= cycle+w.shut {
			return begin == t, begin
		}
	}
	return false, engine.Never
}

// window is the i-th window counted from the cycle that starts at start, and
// the start of its own cycle.
func (g *gate) window(i int, start engine.Time) (window, engine.Time) {
	k := len(g.windows)
	if i < 0 {
		return g.windows[i+k], start - g.cycle
	}
	return g.windows[i%k], start + engine.Time(i/k)*g.cycle
}

// Backlog implements [Shaper].
func (g *gate) Backlog(engine.Time, bool) {}

// Sent implements [Shaper].
func (g *gate) Sent(_, _ engine.Time, _ int) {}

var (
	_ Shaper                 = (*gate)(nil)
	_ encoding.TextMarshaler = GateList(nil)
)
