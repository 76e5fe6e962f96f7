package units

import (
	"encoding"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTextMeansWhatTcSays(t *testing.T) {
	rate := func(s string) (int64, error) { v, err := ParseRate(s); return int64(v), err }
	duration := func(s string) (int64, error) { v, err := ParseDuration(s); return int64(v), err }
	size := func(s string) (int64, error) { v, err := ParseSize(s); return int64(v), err }
	percent := func(s string) (int64, error) { v, err := ParsePercent(s); return int64(v), err }
	for _, c := range []struct {
		parse func(string) (int64, error)
		text  string
		want  int64
	}{
		{rate, "8bit", 8},
		{rate, "0bit", 0},
		{rate, "10kbit", 10_000},
		{rate, "100mbit", 100_000_000},
		{rate, "1gbit", 1_000_000_000},
		{rate, "1Gbit", 1_000_000_000},
		{rate, " 1 gbit ", 1_000_000_000},
		{rate, "2.5gbit", 2_500_000_000},
		{rate, "0.000000001gbit", 1},
		{rate, "0001.500gbit", 1_500_000_000},
		{rate, "1tbit", 1_000_000_000_000},
		{rate, "64kibit", 65_536},
		{rate, "1bps", 8},
		{rate, "125mbps", 1_000_000_000},
		{rate, "0.125bps", 1},
		{rate, "1kibps", 8192},
		{duration, "100ns", 100},
		{duration, "64us", 64_000},
		{duration, "1.5m", 90_000_000_000},
		{duration, "2h", 7_200_000_000_000},
		{duration, "1.5ms", 1_500_000},
		{duration, "5s", 5_000_000_000},
		{duration, "9223372036854775807ns", math.MaxInt64},
		{size, "1514b", 1514},
		{size, "24kb", 24_576},
		{size, "24k", 24_576},
		{size, "0.5kb", 512},
		{size, "2mb", 2 << 20},
		{size, "1g", 1 << 30},
		{percent, "3%", 3_000_000},
		{percent, "0.000001%", 1},
		{percent, "150%", 150_000_000},
	} {
		got, err := c.parse(c.text)
		if err != nil || got != c.want {
			t.Errorf("%q = %d, %v; want %d", c.text, got, err, c.want)
		}
	}
}

func TestBadTextSaysWhatWasExpected(t *testing.T) {
	for _, c := range []struct {
		err  func(string) error
		text string
		want string
	}{
		{rateError, "10", `rate "10": no unit; expected a number and a unit, e.g. 1gbit`},
		{rateError, "", `rate "": empty; expected a number and a unit, e.g. 1gbit`},
		{rateError, "-1gbit", `rate "-1gbit": negative; expected a number that is not negative and a unit, e.g. 1gbit`},
		{rateError, "fast", `rate "fast": does not start with a number; expected a number and a unit, e.g. 1gbit`},
		{rateError, "1..5gbit", `rate "1..5gbit": "1..5" is not a number; expected a number and a unit, e.g. 1gbit`},
		{rateError, "1.gbit", `rate "1.gbit": "1." is not a number; expected a number and a unit, e.g. 1gbit`},
		{rateError, ".5gbit", `rate ".5gbit": ".5" is not a number; expected a number and a unit, e.g. 1gbit`},
		{rateError, "1.5bit", `rate "1.5bit": finer than 1bit; expected a multiple of 1bit`},
		{rateError, "10000000tbit", `rate "10000000tbit": too large; expected at most 9223372036854775807bit`},
		{rateError, "9223372036854775808bit", `rate "9223372036854775808bit": too large; expected at most 9223372036854775807bit`},
		{rateError, "99999999999999999999bit", `rate "99999999999999999999bit": too large; expected at most 9223372036854775807bit`},
		{rateError, "1.0000000000000000001gbit", `rate "1.0000000000000000001gbit": too many digits; expected at most 19 digits`},
		{durationError, "5", `duration "5": no unit; expected a number and a unit, e.g. 64us`},
		{durationError, "5d", `duration "5d": unknown unit "d"; expected one of ns us ms s m h, e.g. 64us`},
		{durationError, "0.5ns", `duration "0.5ns": finer than 1ns; expected a multiple of 1ns`},
		{sizeError, "1kbit", `size "1kbit": unknown unit "kbit"; expected one of b kb mb gb k m g, e.g. 24kb`},
		{sizeError, "-3kb", `size "-3kb": negative; expected a number that is not negative and a unit, e.g. 24kb`},
		{percentError, "3", `percentage "3": no unit; expected a number and a unit, e.g. 3%`},
		{percentError, "0.0000001%", `percentage "0.0000001%": finer than 0.000001%; expected a multiple of 0.000001%`},
		{percentError, "99999999999999%", `percentage "99999999999999%": too large; expected at most 9223372036854.775807%`},
	} {
		err := c.err(c.text)
		if err == nil {
			t.Errorf("%q: no error; want %s", c.text, c.want)
		} else if err.Error() != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, err, c.want)
		}
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: %T is not an *Error", c.text, err)
		}
	}
}

func rateError(s string) error     { _, err := ParseRate(s); return err }
func durationError(s string) error { _, err := ParseDuration(s); return err }
func sizeError(s string) error     { _, err := ParseSize(s); return err }
func percentError(s string) error  { _, err := ParsePercent(s); return err }

func TestTextIsWrittenWithTheLargestExactUnit(t *testing.T) {
	for _, c := range []struct {
		value encoding.TextMarshaler
		want  string
	}{
		{Rate(0), "0bit"}, {Rate(8), "8bit"}, {2500 * Mbit, "2500mbit"}, {40 * Gbit, "40gbit"}, {Rate(1001), "1001bit"},
		{Duration(0), "0ns"}, {64 * Microsecond, "64us"}, {1500 * Microsecond, "1500us"}, {5 * Second, "5s"}, {-5 * Second, "-5s"},
		{Size(0), "0b"}, {Size(1514), "1514b"}, {24 * KB, "24kb"}, {3 * GB, "3gb"},
		{Percent(0), "0%"}, {Percent(100_000), "0.1%"}, {Percent(10_000_000), "10%"}, {Percent(-100_000), "-0.1%"},
		{Duration(math.MinInt64), "-9223372036854775808ns"}, {Percent(math.MinInt64), "-9223372036854.775808%"},
	} {
		got, err := c.value.MarshalText()
		if err != nil || string(got) != c.want {
			t.Errorf("%d is written %s, %v; want %s", c.value, got, err, c.want)
		}
	}
}

func TestALargeTextStaysOutOfTheMessage(t *testing.T) {
	for _, text := range []string{strings.Repeat("9", 1e6), "1" + strings.Repeat("x", 1e6), strings.Repeat(".", 1e6)} {
		if err := rateError(text); err == nil || len(err.Error()) > 400 {
			t.Errorf("%d bytes of text give %d bytes of message", len(text), len(err.Error()))
		}
	}
}

func TestWrittenTextReadsBackAsTheSameValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64Range(0, math.MaxInt64).Draw(t, "value")
		for _, c := range []struct {
			value encoding.TextMarshaler
			back  func(string) (any, error)
		}{
			{Rate(v), func(s string) (any, error) { return ParseRate(s) }},
			{Duration(v), func(s string) (any, error) { return ParseDuration(s) }},
			{Size(v), func(s string) (any, error) { return ParseSize(s) }},
			{Percent(v), func(s string) (any, error) { return ParsePercent(s) }},
		} {
			text, _ := c.value.MarshalText()
			got, err := c.back(string(text))
			if err != nil || got != any(c.value) {
				t.Fatalf("%d is written %s and read back as %v, %v", c.value, text, got, err)
			}
		}
	})
}

func TestAFailedReadLeavesTheValueAlone(t *testing.T) {
	r, d, s, p := Gbit, Second, KB, Percent(5)
	for _, v := range []encoding.TextUnmarshaler{&r, &d, &s, &p} {
		if v.UnmarshalText([]byte("nonsense")) == nil {
			t.Errorf("%T read nonsense", v)
		}
	}
	if r != Gbit || d != Second || s != KB || p != 5 {
		t.Errorf("values changed: %v %v %v %v", r, d, s, p)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1gbit", "2.5gbit", "64us", "24kb", "0.1%", "-1", "", "9e9bit", "1.5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParseRate(text); err == nil {
			if r < 0 {
				t.Fatalf("%q is the negative rate %d", text, r)
			}
			if back, err := ParseRate(r.String()); err != nil || back != r {
				t.Fatalf("%q: %v reads back as %v, %v", text, r, back, err)
			}
		}
		for _, err := range []error{durationError(text), sizeError(text), percentError(text)} {
			if err != nil && len(err.Error()) > 400 {
				t.Fatalf("message of %d bytes", len(err.Error()))
			}
		}
	})
}
