package replay

import (
	"fmt"
	"time"

	"nicemu/devices/units"
)

// Bound is one end of a window of time: a span counted from the first packet, or a point in time. The zero value is no bound.
type Bound struct {
	kind boundKind
	ns   int64 // since the first packet, or since the Unix epoch
}

type boundKind int

const (
	open boundKind = iota
	sinceFirst
	absolute
)

// UnmarshalText reads a duration such as "1500ms" or a time such as "2026-01-01T12:00:00.25Z" (RFC 3339).
func (b *Bound) UnmarshalText(text []byte) error {
	if d, err := units.ParseDuration(string(text)); err == nil {
		*b = Bound{sinceFirst, int64(d)}
		return nil
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil || t.Year() < 1678 || t.Year() > 2261 { // what int64 nanoseconds hold
		return fmt.Errorf("%q: expected a duration from the first packet, e.g. 1500ms, or a time, e.g. 2026-01-01T12:00:00Z", text)
	}
	*b = Bound{absolute, t.UnixNano()}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (b Bound) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

func (b Bound) String() string {
	switch b.kind {
	case sinceFirst:
		return units.Duration(b.ns).String()
	case absolute:
		return time.Unix(0, b.ns).UTC().Format(time.RFC3339Nano)
	}
	return ""
}

// window is the times from `from` up to and without `to`.
type window struct{ from, to Bound }

// holds reports whether a packet lies in the window of a capture that begins at first, both in ns since the epoch.
func (w window) holds(t, first int64) bool {
	return !w.from.after(t, first) && (w.to.kind == open || w.to.after(t, first))
}

// check refuses a window that holds nothing in any capture.
func (w window) check() error {
	from := w.from
	if from.kind == open {
		from = Bound{kind: sinceFirst}
	}
	if w.to.kind == from.kind && w.to.ns <= from.ns {
		return fmt.Errorf("the window from %v to %v is empty; expected an end after its start", from, w.to)
	}
	return nil
}

// after reports whether the bound lies after t; false for no bound.
func (b Bound) after(t, first int64) bool {
	switch b.kind {
	case sinceFirst:
		return b.ns > 0 && (t < first || uint64(t)-uint64(first) < uint64(b.ns))
	case absolute:
		return t < b.ns
	}
	return false
}
