package units

import (
	"fmt"
	"strings"
)

// Percent is a share of one hundred in millionths of a percent: 3% is 3,000,000.
type Percent int64

// Whole is 100%.
const Whole Percent = 100_000_000

// percents has one unit; the base is fine enough for a loss of one frame in 100 million.
var percents = quantity{
	name:    "percentage",
	example: "3%",
	finest:  "0.000001%",
	units:   []unit{{"%", 1e6}},
	write:   func(v int64) string { return Percent(v).String() },
}

// ParsePercent reads a percentage such as "3%" or "0.1%". It may exceed 100%.
func ParsePercent(s string) (Percent, error) {
	v, err := percents.parse(s)
	return Percent(v), err
}

// Fraction is the percentage as a factor: 3% is 0.03.
func (p Percent) Fraction() float64 { return float64(p) / float64(Whole) }

// String writes the percentage as ParsePercent reads it.
func (p Percent) String() string {
	sign, magnitude := "", uint64(p)
	if p < 0 {
		sign, magnitude = "-", -magnitude
	}
	digits := fmt.Sprintf("%d.%06d", magnitude/1e6, magnitude%1e6)
	return sign + strings.TrimRight(strings.TrimRight(digits, "0"), ".") + "%"
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Percent) UnmarshalText(text []byte) error {
	v, err := ParsePercent(string(text))
	if err == nil {
		*p = v
	}
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
