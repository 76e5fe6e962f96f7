// Package format reads scenario files: TOML in which every key, value and
// reference is checked, and every error says file, line, column and what was expected.
//
// go-toml reads the document; its AST gives the places. What a file may say is in the
// types Scenario, NIC, Link, Workload and Expectation; what a device's knobs may
// be is asked of the caller, so that this package knows no devices. It runs nothing.
//
// Left out: including other files, and expressions in values.
package format

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"nicemu/devices/units"
)

// Options are what a scenario is checked against beside itself. The zero value
// checks neither devices nor knobs.
type Options struct {
	KnownDevices []string
	// CheckKnob says what is wrong with a knob of a device; value is a bool, int64, float64 or string.
	CheckKnob func(device, key string, value any) error
	// MaxRate is the fastest link of a known device; 0 = without limit.
	MaxRate func(device string) units.Rate
}

// Load reads and checks the scenario file at path.
func Load(path string, opts Options) (*Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return Parse(path, data, opts)
}

// Parse reads and checks a scenario. The name stands in errors, as the file's.
// The error is of type Errors and holds all that is wrong, at most ten.
func Parse(name string, data []byte, opts Options) (*Scenario, error) {
	src := &source{name: name, data: data, offsets: map[string]int{}}
	if len(data) > MaxBytes {
		return nil, Errors{src.errorAt(0, &fault{"the file is too large for a scenario", fmt.Sprintf("at most %d bytes", MaxBytes), ""})}
	}
	var doc map[string]any
	if err := toml.Unmarshal(data, &doc); err != nil {
		return nil, src.syntaxError(err)
	}
	if err := src.locate(); err != nil {
		return nil, err
	}
	s := &Scenario{
		Seed:    1,
		Run:     Run{Kernel: KernelAuto, Backpressure: BackpressureAuto},
		opts:    opts,
		source:  src,
		origins: map[string]origin{},
	}
	var errs Errors
	var unread []string
	d := decoder{
		fail: func(path string, f *fault) {
			if len(errs) == maxNoted {
				return
			}
			errs = append(errs, s.errorAt(path, f))
			unread = append(unread, path)
		},
		order: src.offset,
	}
	d.table("", "the scenario", doc, reflect.ValueOf(s).Elem())
	errs = append(errs, s.checkFile(unread)...)
	if err := errs.orNil(); err != nil {
		return nil, err
	}
	return s, nil
}

// syntaxError gives go-toml's error our form.
func (s *source) syntaxError(err error) error {
	e := &Error{File: s.name, Line: 1, Column: 1, Problem: strings.TrimPrefix(err.Error(), "toml: "), Expected: "well-formed TOML"}
	if strings.HasPrefix(e.Problem, "expected keyword") {
		e.Problem, e.Expected = "syntax error", "a value: text in quotes, a number, true or false"
	} else if expected, ok := strings.CutPrefix(e.Problem, "expected "); ok {
		e.Problem, e.Expected = "syntax error", expected
	}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		e.Line, e.Column = decode.Position()
	}
	return Errors{e}
}

// where finds what a path's value comes from: the nearest assignment or place.
// ok is false when only an enclosing key has one.
func (s *Scenario) where(path string) (from origin, ok bool) {
	for p := path; p != ""; p = parent(p) {
		if o, found := s.origins[p]; found {
			return o, p == path // also of an element: an assigned array replaces the file's
		}
	}
	for p := path; p != ""; p = parent(p) {
		if at, found := s.source.offsets[p]; found {
			return origin{offset: at}, p == path
		}
	}
	return origin{}, false
}

// given says whether a key is in the file or was assigned.
func (s *Scenario) given(path string) bool {
	_, ok := s.where(path)
	return ok
}

func (s *Scenario) errorAt(path string, f *fault) *Error {
	from, _ := s.where(path)
	return s.errorFrom(from, f)
}

func (s *Scenario) errorFrom(from origin, f *fault) *Error {
	if from.set != "" {
		return &Error{File: s.source.name, Set: from.set, Problem: f.problem, Expected: f.expected, Suggestion: f.suggestion}
	}
	return s.source.errorAt(from.offset, f)
}

func (n *NIC) setDefaults() {
	n.Queues, n.MTU, n.TSO, n.Csum = 1, 1500, true, true
}

func (e *Expectation) setDefaults() { e.Op = Equal }

// Fault is an error about the value at a path, such as nic[0].tc[1], with its
// place in the file: for whoever runs the scenario and cannot do what it says.
func (s *Scenario) Fault(path, problem, expected string) error {
	return Errors{s.errorAt(path, &fault{problem, expected, ""})}
}
