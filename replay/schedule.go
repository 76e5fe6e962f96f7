package replay

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"nicemu/devices/engine"
	"nicemu/devices/units"
)

// Schedule says when frames are due, all counted from the first one, so that nothing drifts: at the capture's own times if it is empty; one of its
// fields says otherwise.
type Schedule struct {
	Speed    Speed      // the capture's times divided by a factor
	Rate     units.Rate // bits of frames a second, without preamble, FCS and gap, as tcpreplay counts them
	PPS      int64      // frames a second, evenly
	TopSpeed bool       // as soon as the card takes them
}

// Speed is a factor such as 2x or 0.25x, exact.
type Speed struct{ num, den uint64 }

const maxSpeedDigits = 9

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Speed) UnmarshalText(text []byte) error {
	number, found := strings.CutSuffix(string(text), "x")
	whole, fraction, dotted := strings.Cut(number, ".")
	num, err := strconv.ParseUint(whole+fraction, 10, 64)
	if !found || err != nil || num == 0 || len(whole+fraction) > maxSpeedDigits || dotted && fraction == "" {
		return fmt.Errorf("speed %q: expected a factor above 0 with at most %d digits and an x, e.g. 2x or 0.25x", text, maxSpeedDigits)
	}
	*s = Speed{num, 1}
	for range fraction {
		s.den *= 10
	}
	return nil
}

func (s Speed) String() string {
	if s.num == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(s.num)/float64(s.den), 'f', -1, 64) + "x"
}

// MarshalText implements encoding.TextMarshaler.
func (s Speed) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Schedule) String() string {
	switch {
	case s.Speed.num != 0:
		return s.Speed.String()
	case s.Rate != 0:
		return s.Rate.String()
	case s.PPS != 0:
		return fmt.Sprintf("%d pps", s.PPS)
	case s.TopSpeed:
		return "top speed"
	}
	return "original times"
}

// check refuses what contradicts itself.
func (s Schedule) check() error {
	ways := 0
	for _, on := range []bool{s.Speed.num != 0, s.Rate != 0, s.PPS != 0, s.TopSpeed} {
		if on {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("speed, rate, packets a second and top speed: expected one of them")
	case s.Rate < 0:
		return fmt.Errorf("rate %d: expected more than 0", s.Rate)
	case s.PPS < 0 || s.PPS > int64(engine.Second):
		return fmt.Errorf("%d packets a second: expected 1 to %d", s.PPS, engine.Second)
	}
	return nil
}

// timed reports whether frames keep the capture's times, scaled or not.
func (s Schedule) timed() bool { return s.Rate == 0 && s.PPS == 0 && !s.TopSpeed }

// horizon is the latest time at which a frame may be due; models need room behind it.
const horizon = engine.Time(1) << 62

// clock tells frame by frame when each is due.
type clock struct {
	Schedule
	frames, bits uint64 // before this one
}

// next is when a frame of so many bytes is due that the capture has at, in ns since its first packet; false if that is beyond the horizon.
func (c *clock) next(at int64, bytes int) (engine.Time, bool) {
	due, ok := uint64(at), true
	switch {
	case c.Speed.num != 0:
		due, ok = mulDiv(uint64(at), c.Speed.den, c.Speed.num)
	case c.Rate != 0:
		due, ok = mulDiv(c.bits, uint64(engine.Second), uint64(c.Rate))
	case c.PPS != 0:
		due, ok = mulDiv(c.frames, uint64(engine.Second), uint64(c.PPS))
	case c.TopSpeed:
		due = 0
	}
	c.frames++
	c.bits += 8 * uint64(bytes)
	return engine.Time(due), ok && due < uint64(horizon)
}

// mulDiv is a·b/c, rounded down; false if it needs more than 64 bits.
func mulDiv(a, b, c uint64) (uint64, bool) {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return 0, false
	}
	q, _ := bits.Div64(hi, lo, c)
	return q, true
}
