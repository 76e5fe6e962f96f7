// Package units holds quantities as files and flags spell them: a number and a
// unit in the words of tc(8), never a bare number.
//
//	Rate      1gbit  2.5gbit  100mbit  64kibit  8bit  125mbps (bytes per second)
//	Duration  1h  2m  5s  1ms  64us  100ns (minutes and hours: not in tc)
//	Size      1514b  24kb  1mb (binary multiples, as in tc: 1kb = 1024 bytes)
//	Percent   0.1%
//
// Values are int64 in base units and exact: a decimal fraction that does not come
// out as a whole number of base units is refused, not rounded. Text written back
// uses the largest unit that holds the value exactly. Upper and lower case
// are the same, as in tc.
//
// It follows tc's lib/utils_math.c and lib/utils.c and leaves out what tc allows beside this: bare
// numbers, exponents, sizes in bits (kbit), rates in percent of the device's, and the words sec, msecs, usec.
package units

import (
	"fmt"
	"math/bits"
	"strings"
)

// Error says why a text is not a quantity.
type Error struct {
	Quantity string // "rate", "duration", "size" or "percentage"
	Text     string // what was given, shortened to a sensible length
	Problem  string // "no unit"
	Expected string // "a number and a unit, e.g. 1gbit"
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %q: %s; expected %s", e.Quantity, e.Text, e.Problem, e.Expected)
}

// unit is one name and its worth in base units.
type unit struct {
	name  string
	worth int64
}

// quantity describes how one kind of value is spelled.
type quantity struct {
	name    string
	example string
	finest  string             // one base unit
	units   []unit             // accepted when reading
	write   func(int64) string // the way back
}

// maxDigits is how many significant digits a number may have: as many as always fit in a uint64.
const maxDigits = 19

// parse reads "[digits][.digits]unit" as a whole, non-negative number of base units.
func (q *quantity) parse(text string) (int64, error) {
	s := strings.TrimSpace(text)
	if s == "" {
		return 0, q.fail(text, "empty", "")
	}
	if s[0] == '-' {
		return 0, q.fail(text, "negative", "a number that is not negative and a unit, e.g. "+q.example)
	}
	end := 0
	for end < len(s) && (s[end] == '.' || '0' <= s[end] && s[end] <= '9') {
		end++
	}
	number, name := s[:end], strings.TrimLeft(s[end:], " ")
	if number == "" {
		return 0, q.fail(text, "does not start with a number", "")
	}
	if name == "" {
		return 0, q.fail(text, "no unit", "")
	}
	worth := q.worth(name)
	if worth == 0 {
		return 0, q.fail(text, fmt.Sprintf("unknown unit %q", shorten(name)), "one of "+q.unitNames()+", e.g. "+q.example)
	}
	whole, fraction, dotted := strings.Cut(number, ".")
	if strings.Contains(fraction, ".") || dotted && fraction == "" || whole == "" {
		return 0, q.fail(text, fmt.Sprintf("%q is not a number", shorten(number)), "")
	}
	return q.scale(text, strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0"), worth)
}

// scale computes whole.fraction × worth without rounding.
func (q *quantity) scale(text, whole, fraction string, worth int64) (int64, error) {
	if len(whole) > maxDigits {
		return 0, q.fail(text, "too large", "at most "+q.write(maxInt64))
	}
	if len(whole)+len(fraction) > maxDigits {
		return 0, q.fail(text, "too many digits", fmt.Sprintf("at most %d digits", maxDigits))
	}
	var mantissa, divisor uint64 = 0, 1
	for _, c := range []byte(whole + fraction) {
		mantissa = mantissa*10 + uint64(c-'0')
	}
	for range fraction {
		divisor *= 10
	}
	hi, lo := bits.Mul64(mantissa, uint64(worth))
	if hi >= divisor {
		return 0, q.fail(text, "too large", "at most "+q.write(maxInt64))
	}
	value, rest := bits.Div64(hi, lo, divisor)
	if value > maxInt64 {
		return 0, q.fail(text, "too large", "at most "+q.write(maxInt64))
	}
	if rest != 0 {
		return 0, q.fail(text, "finer than "+q.finest, "a multiple of "+q.finest)
	}
	return int64(value), nil
}

const maxInt64 = 1<<63 - 1

// writeWith writes v with the first unit, largest first, that divides it.
func writeWith(v int64, largestFirst ...unit) string {
	last := len(largestFirst) - 1
	for _, u := range largestFirst[:last] {
		if v != 0 && v%u.worth == 0 {
			return fmt.Sprintf("%d%s", v/u.worth, u.name)
		}
	}
	return fmt.Sprintf("%d%s", v, largestFirst[last].name)
}

func (q *quantity) worth(name string) int64 {
	for _, u := range q.units {
		if strings.EqualFold(u.name, name) {
			return u.worth
		}
	}
	return 0
}

func (q *quantity) unitNames() string {
	names := make([]string, len(q.units))
	for i, u := range q.units {
		names[i] = u.name
	}
	return strings.Join(names, " ")
}

func (q *quantity) fail(text, problem, expected string) error {
	if expected == "" {
		expected = "a number and a unit, e.g. " + q.example
	}
	return &Error{Quantity: q.name, Text: shorten(text), Problem: problem, Expected: expected}
}

// shorten keeps hostile input out of error messages.
func shorten(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
