package nic

import (
	"encoding"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"nicemu/devices/units"
)

// Knob is one number or choice of a device that a user may override, with its
// legal range and where its default comes from.
type Knob struct {
	Key    string
	Doc    string
	Source string // driver file, datasheet section, standard or paper of the default
	Unit   string // of a plain number, e.g. "descriptors"
	Enum   []string
	Fitted bool // the default was fitted to a published measurement

	min, max, multiple int64
	ptr                any // *int, *bool, *float64, *string, *units.Rate, *units.Size, *units.Duration, *[]units.Size, text
	check              func(v int64) error
	down               bool // multiple rounds down
	power              bool // values go up to a power of two
	words              string
	given              bool
}

// text is a value with a spelling of its own.
type text interface {
	encoding.TextUnmarshaler
	encoding.TextMarshaler
	Legal() string
}

// Given reports whether a user has set the knob.
func (k *Knob) Given() bool { return k.given }

// Range narrows what is legal, both ends included.
func (k *Knob) Range(lo, hi int64) *Knob { k.min, k.max = lo, hi; return k }

// RoundUp makes the driver's rounding: values go up to a multiple of m.
func (k *Knob) RoundUp(m int64) *Knob { k.multiple = m; return k }

// RoundDown makes the driver's rounding: values go down to a multiple of m.
func (k *Knob) RoundDown(m int64) *Knob { k.multiple, k.down = m, true; return k }

// PowerOfTwo makes the driver's rounding: values go up to a power of two.
func (k *Knob) PowerOfTwo() *Knob { k.power = true; return k }

// Check adds a rule that a range cannot say; its error says what is legal.
func (k *Knob) Check(rule func(v int64) error) *Knob { k.check = rule; return k }

// Words say what is legal where range and rounding do not say it well.
func (k *Knob) Words(legal string) *Knob { k.words = legal; return k }

// Fit marks the default as fitted to a published figure.
func (k *Knob) Fit() *Knob { k.Fitted = true; return k }

// Set parses value in the knob's unit and stores it if it is legal.
func (k *Knob) Set(value string) error {
	if err := k.set(strings.TrimSpace(value)); err != nil {
		return fmt.Errorf("%s = %q: %w", k.Key, value, err)
	}
	k.given = true
	return nil
}

func (k *Knob) set(value string) error {
	switch p := k.ptr.(type) {
	case *bool:
		switch value {
		case "on", "true":
			*p = true
		case "off", "false":
			*p = false
		default:
			return fmt.Errorf("expected on or off")
		}
		return nil
	case *string:
		if old, ok := map[string]string{"true": "on", "false": "off"}[value]; ok {
			value = old
		}
		for _, e := range k.Enum {
			if e == value {
				*p = value
				return nil
			}
		}
		return fmt.Errorf("expected %s", k.Legal())
	case *float64:
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v >= float64(k.min) && v <= float64(k.max)) {
			return fmt.Errorf("expected %s", k.Legal())
		}
		*p = v
		return nil
	case *[]units.Size:
		return k.setList(p, value)
	case text:
		return p.UnmarshalText([]byte(value))
	}
	v, err := k.parse(value)
	if err != nil {
		return err
	}
	if v, err = k.legal(v); err != nil {
		return err
	}
	switch p := k.ptr.(type) {
	case *int:
		*p = int(v)
	case *units.Rate:
		*p = units.Rate(v)
	case *units.Size:
		*p = units.Size(v)
	case *units.Duration:
		*p = units.Duration(v)
	}
	return nil
}

func (k *Knob) setList(p *[]units.Size, value string) error {
	var list []units.Size
	if value != "" && value != "none" {
		for part := range strings.SplitSeq(value, ",") {
			s, err := units.ParseSize(strings.TrimSpace(part))
			if err != nil {
				return err
			}
			if _, err := k.legal(int64(s)); err != nil {
				return err
			}
			list = append(list, s)
		}
	}
	*p = list
	return nil
}

// parse reads a number in the knob's unit. Names that end in usecs carry their
// unit, as ethtool's do.
func (k *Knob) parse(value string) (int64, error) {
	switch k.ptr.(type) {
	case *int:
		if size, err := units.ParseSize(value); err == nil && k.Unit == "bytes" {
			return int64(size), nil
		}
		v, err := strconv.ParseInt(value, 0, 64)
		if err != nil {
			return 0, fmt.Errorf("expected a whole number of %s, %s", k.Unit, k.Legal())
		}
		return v, nil
	case *units.Rate:
		v, err := units.ParseRate(value)
		return int64(v), err
	case *units.Size:
		v, err := units.ParseSize(value)
		return int64(v), err
	}
	if us, err := strconv.ParseInt(value, 10, 32); err == nil && strings.HasSuffix(k.Key, "usecs") {
		return us * 1000, nil
	}
	v, err := units.ParseDuration(value)
	return int64(v), err
}

func (k *Knob) legal(v int64) (int64, error) {
	if v < k.min || v > k.max {
		return 0, fmt.Errorf("expected %s", k.Legal())
	}
	if k.check != nil {
		if err := k.check(v); err != nil {
			return 0, err
		}
	}
	if k.multiple > 1 {
		if !k.down {
			v += k.multiple - 1
		}
		v -= v % k.multiple
	}
	if k.power {
		v = 1 << bits.Len64(uint64(v-1))
	}
	return v, nil
}

// Legal says what values the knob takes.
func (k *Knob) Legal() string {
	if k.words != "" {
		return k.words
	}
	if k.Enum != nil {
		return "one of " + strings.Join(k.Enum, ", ")
	}
	s := ""
	switch k.ptr.(type) {
	case *bool:
		return "on or off"
	case text:
		return k.ptr.(text).Legal()
	case *[]units.Size:
		s = "none, or sizes of " + k.format(k.min) + " to " + k.format(k.max) + " with commas between"
	default:
		s = k.format(k.min) + " to " + k.format(k.max)
	}
	if k.multiple > 1 {
		way := "up"
		if k.down {
			way = "down"
		}
		s += ", rounded " + way + " to a multiple of " + k.format(k.multiple)
	}
	if k.power {
		s += ", rounded up to a power of two"
	}
	return s
}

func (k *Knob) format(v int64) string {
	switch k.ptr.(type) {
	case *units.Rate:
		return units.Rate(v).String()
	case *units.Size, *[]units.Size:
		return units.Size(v).String()
	case *units.Duration:
		return units.Duration(v).String()
	}
	return strconv.FormatInt(v, 10)
}

// Value is the present value in the spelling that Set takes.
func (k *Knob) Value() string {
	switch p := k.ptr.(type) {
	case *int:
		return k.format(int64(*p))
	case *bool:
		if *p {
			return "on"
		}
		return "off"
	case *float64:
		return strconv.FormatFloat(*p, 'g', -1, 64)
	case *string:
		return *p
	case *units.Rate:
		return p.String()
	case *units.Size:
		return p.String()
	case *units.Duration:
		return p.String()
	case *[]units.Size:
		if len(*p) == 0 {
			return "none"
		}
		parts := make([]string, len(*p))
		for i, s := range *p {
			parts[i] = s.String()
		}
		return strings.Join(parts, ",")
	case text:
		if v, err := p.MarshalText(); err == nil {
			return string(v)
		}
	}
	panic("nic: knob " + k.Key + " has no type")
}
