package format

import (
	"fmt"
	"math"
	"slices"
)

// Sweep is a list of keys, each with the values to try, in file order.
type Sweep []Axis

// Axis is one swept key, spelled as for Scenario.Set, and its values as read from
// the file: bool, int64, float64 or string.
type Axis struct {
	Key    string
	Values []any
	path   string // of the key in the file
	text   string // of the one value, when an assignment took the sweep's place
}

// Param is one swept key with the value it has in a case.
type Param struct {
	Key   string
	Value any
}

// Selector picks cases: the params named here have these values.
type Selector []Param

// Limits on sweeps: a run of more cases than this is a mistake.
const (
	maxAxes  = 8
	maxCases = 256
)

// leaf is a value in a tree of tables, with its dotted key and its path.
type leaf struct {
	key, path string
	value     any
}

// leaves flattens nested tables: ring.tx = 1 and "ring.tx" = 1 are the same.
func (d *decoder) leaves(prefix, path string, m map[string]any) []leaf {
	var all []leaf
	for _, key := range d.keys(path, m) {
		at := join(path, key)
		if sub, ok := m[key].(map[string]any); ok {
			all = append(all, d.leaves(prefix+key+".", at, sub)...)
			continue
		}
		all = append(all, leaf{prefix + key, at, m[key]})
	}
	return all
}

// scalar says why v cannot be a knob's or a param's value; nil if it can.
func scalar(v any) *fault {
	switch v := v.(type) {
	case bool, int64:
		return nil
	case string:
		if len(v) > maxText {
			return &fault{fmt.Sprintf("%d bytes of text", len(v)), fmt.Sprintf("at most %d", maxText), ""}
		}
		return nil
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return nil
		}
		return &fault{"not a finite number", "true, false, a number or text", ""}
	}
	return &fault{typeName(v), "true, false, a number or text", ""}
}

func (k *Knobs) set(d *decoder, path string, raw any) *fault {
	m, ok := raw.(map[string]any)
	if !ok {
		return &fault{typeName(raw), "a table of device knobs", ""}
	}
	all := d.leaves("", path, m)
	if len(all) > maxKnobs {
		return &fault{fmt.Sprintf("%d knobs", len(all)), fmt.Sprintf("at most %d", maxKnobs), ""}
	}
	*k = make(Knobs, len(all))
	for _, l := range all {
		if _, twice := (*k)[l.key]; twice {
			d.fail(l.path, &fault{fmt.Sprintf("knob %s is set twice", quoted(l.key)), "one spelling of it", ""})
		} else if f := scalar(l.value); f != nil {
			d.fail(l.path, &fault{l.key + ": " + f.problem, f.expected, ""})
		} else {
			(*k)[l.key] = l.value
		}
	}
	return nil
}

func (s *Selector) set(d *decoder, path string, raw any) *fault {
	m, ok := raw.(map[string]any)
	if !ok {
		return &fault{typeName(raw), `a table of swept keys, e.g. {"nic.bql" = true}`, ""}
	}
	all := d.leaves("", path, m)
	if len(all) > maxAxes {
		return &fault{fmt.Sprintf("%d keys", len(all)), fmt.Sprintf("at most %d", maxAxes), ""}
	}
	for _, l := range all {
		if f := scalar(l.value); f != nil {
			d.fail(l.path, &fault{l.key + ": " + f.problem, f.expected, ""})
			continue
		}
		*s = append(*s, Param{l.key, l.value})
	}
	return nil
}

func (s *Sweep) set(d *decoder, path string, raw any) *fault {
	m, ok := raw.(map[string]any)
	if !ok {
		return &fault{typeName(raw), "a table: a key, and the list of its values", ""}
	}
	all := d.leaves("", path, m)
	if len(all) > maxAxes {
		return &fault{fmt.Sprintf("%d keys", len(all)), fmt.Sprintf("at most %d", maxAxes), ""}
	}
	count := 1
	for _, l := range all {
		if s.axis(l.key) != nil {
			d.fail(l.path, &fault{fmt.Sprintf("%s is swept twice", quoted(l.key)), "one spelling of it", ""})
			continue
		}
		values, ok := l.value.([]any)
		if !ok || len(values) == 0 {
			problem := "an empty list"
			if !ok {
				problem = typeName(l.value)
			}
			d.fail(l.path, &fault{l.key + ": " + problem, "a list of values, e.g. [false, true]", ""})
			continue
		}
		if count *= min(len(values), maxCases+1); count > maxCases {
			d.fail(l.path, &fault{"the sweep has too many cases", fmt.Sprintf("at most %d", maxCases), ""})
			return nil
		}
		for i, v := range values {
			f := scalar(v)
			if f == nil && slices.Contains(values[:i], v) {
				f = &fault{fmt.Sprintf("value %v is there twice", v), "different values", ""}
			}
			if f != nil {
				d.fail(element(l.path, i), &fault{l.key + ": " + f.problem, f.expected, ""})
			}
		}
		*s = append(*s, Axis{Key: l.key, Values: values, path: l.path})
	}
	return nil
}

// axis finds a swept key.
func (s Sweep) axis(key string) *Axis {
	for i := range s {
		if s[i].Key == key {
			return &s[i]
		}
	}
	return nil
}

func (s Sweep) keys() []string {
	keys := make([]string, len(s))
	for i, a := range s {
		keys[i] = a.Key
	}
	return keys
}

// sameValue compares values of params; 1 and 1.0 are the same.
func sameValue(a, b any) bool {
	x, xok := number(a)
	y, yok := number(b)
	if xok && yok {
		return x == y
	}
	return a == b
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
