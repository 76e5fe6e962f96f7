package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
)

const (
	defaultDelta = 500 * units.Microsecond
	maxDelta     = 100 * units.Millisecond // frames of so long are in memory
)

// Launch says which frames carry their due time as launch time (SO_TXTIME).
type Launch struct {
	Queues LaunchQueues
	Delta  units.Duration // frames are handed over so long before, as etf's delta; 0 = 500 µs
}

// LaunchQueues are "all" queues on which the card has launch times, or those listed, as in "0,1". The zero value is none.
type LaunchQueues struct {
	all  bool
	list []int
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *LaunchQueues) UnmarshalText(text []byte) error {
	*l = LaunchQueues{}
	if string(text) == "all" {
		l.all = true
		return nil
	}
	for part := range strings.SplitSeq(string(text), ",") {
		q, err := strconv.ParseUint(strings.TrimSpace(part), 10, 16)
		if err != nil {
			return fmt.Errorf("queues %q: expected all, or numbers with commas between, e.g. 0,1", text)
		}
		l.list = append(l.list, int(q))
	}
	return nil
}

func (l LaunchQueues) String() string {
	if l.all {
		return "all"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(l.list), " ", ","), "[]")
}

// MarshalText implements encoding.TextMarshaler.
func (l LaunchQueues) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

func (l *Launch) on() bool { return l.Queues.all || l.Queues.list != nil }

// prepareLaunch finds the queues that launch by time.
func (r *run) prepareLaunch() error {
	l := &r.o.Launch
	if !l.on() {
		return nil
	}
	if !r.o.Schedule.timed() {
		return fmt.Errorf("launch times come from the capture's times, not from %v", r.o.Schedule)
	}
	if l.Delta == 0 {
		l.Delta = defaultDelta
	}
	if l.Delta < 0 || l.Delta > maxDelta {
		return fmt.Errorf("launch delta %v: expected 1ns to %v", l.Delta, maxDelta)
	}
	var able []int
	for q := range r.stack.NIC.Queues() {
		probe := nic.Frame{Queue: q, Launch: engine.Millisecond}
		if rule := r.o.Device.Rules.LaunchTime; rule != nil && rule(r.stack.NIC, &probe) != 0 {
			able = append(able, q)
		}
	}
	if len(able) == 0 {
		return fmt.Errorf("%s has no queue with launch times%s", r.o.Name, txtimeKnobs(r.o.Device))
	}
	if l.Queues.all {
		l.Queues.list = able
	}
	r.feed.ahead, r.feed.launch = engine.Time(l.Delta), make([]bool, r.stack.NIC.Queues())
	for _, q := range l.Queues.list {
		if !slices.Contains(able, q) {
			return fmt.Errorf("queue %d of %s has no launch times, expected one of %v%s", q, r.o.Name, able, txtimeKnobs(r.o.Device))
		}
		r.feed.launch[q] = true
	}
	return nil
}

// txtimeKnobs says what turns launch times on.
func txtimeKnobs(d *nic.Device) string {
	var names []string
	for _, key := range d.Keys() {
		if key == "qav" || strings.HasSuffix(key, "txtime") {
			names = append(names, key)
		}
	}
	if names == nil {
		return ""
	}
	return "; its knobs are " + strings.Join(names, ", ")
}
