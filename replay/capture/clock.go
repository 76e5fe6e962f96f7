package capture

import (
	"fmt"
	"math"
	"math/bits"
)

// clock converts the time stamps of an interface to nanoseconds since the epoch: ticks · mul / div, or ticks · 10⁹ / 2^shift, + offset.
type clock struct {
	mul, div uint64
	shift    uint // 0: decimal
	offset   int64
	name     string
}

var pow10 = [20]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}

// newClock takes if_tsresol (bit 7: power of 2, else of 10) and if_tsoffset (seconds).
func newClock(resolution uint8, offset int64) (clock, bool) {
	c := clock{mul: 1, div: 1}
	exp := uint(resolution & 0x7f)
	switch {
	case resolution&0x80 != 0:
		c.mul, c.shift, c.name = 1e9, exp, fmt.Sprintf("2^-%d", exp)
	case exp <= 9:
		c.mul, c.name = pow10[9-exp], fmt.Sprintf("10^-%d", exp)
	case exp-9 < uint(len(pow10)):
		c.div, c.name = pow10[exp-9], fmt.Sprintf("10^-%d", exp)
	default: // 2⁶⁴ ticks are less than a nanosecond
		c.mul, c.name = 0, fmt.Sprintf("10^-%d", exp)
	}
	hi, lo := bits.Mul64(uint64(max(offset, -offset)), 1e9)
	if hi != 0 || lo > math.MaxInt64 {
		return c, false
	}
	c.offset = int64(lo)
	if offset < 0 {
		c.offset = -c.offset
	}
	return c, true
}

// ns converts one time stamp; false when it lies outside of int64 (the years 1677 to 2262).
func (c *clock) ns(ticks uint64) (int64, bool) {
	hi, lo := bits.Mul64(ticks, c.mul)
	if s := c.shift; s >= 64 {
		hi, lo = 0, hi>>(s-64)
	} else if s > 0 {
		hi, lo = hi>>s, lo>>s|hi<<(64-s)
	}
	if hi != 0 {
		return 0, false
	}
	if c.div != 1 {
		lo /= c.div
	}
	t := int64(lo) + c.offset
	return t, lo <= math.MaxInt64 && (c.offset <= 0 || t >= c.offset)
}
