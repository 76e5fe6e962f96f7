package units

import "time"

// Duration is a length of time in nanoseconds.
type Duration int64

// Multiples of a duration.
const (
	Nanosecond  Duration = 1
	Microsecond          = 1000 * Nanosecond
	Millisecond          = 1000 * Microsecond
	Second               = 1000 * Millisecond
)

// durations follows tc(8), TIMES, and has minutes and hours besides.
var durations = quantity{
	name:    "duration",
	example: "64us",
	finest:  "1ns",
	units:   []unit{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}},
	write:   func(v int64) string { return Duration(v).String() },
}

// ParseDuration reads a duration such as "64us".
func ParseDuration(s string) (Duration, error) {
	v, err := durations.parse(s)
	return Duration(v), err
}

// durationUnits are the units used for writing.
var durationUnits = []unit{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}}

// String writes the duration as ParseDuration reads it.
func (d Duration) String() string { return writeWith(int64(d), durationUnits...) }

// Std is the duration as the standard library has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	if err == nil {
		*d = v
	}
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
