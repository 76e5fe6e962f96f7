package format

import (
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"strings"
)

// Case is one point of the sweep: a concrete scenario.
type Case struct {
	Params   []Param   // one per swept key, in file order
	Scenario *Scenario // its own copy, with every default filled in and no sweep
}

// Values are the params as a map.
func (c *Case) Values() map[string]any {
	m := make(map[string]any, len(c.Params))
	for _, p := range c.Params {
		m[p.Key] = p.Value
	}
	return m
}

// String is "key=value key=value".
func (c *Case) String() string {
	words := make([]string, len(c.Params))
	for i, p := range c.Params {
		words[i] = fmt.Sprintf("%s=%v", p.Key, p.Value)
	}
	return strings.Join(words, " ")
}

// Cases is the cartesian product of the sweep, the last key changing fastest. A
// scenario without a sweep has one case. Assignments made with Set hold in all of them.
func (s *Scenario) Cases() []Case {
	var all []Case
	for picked := range s.combinations() {
		c, errs := s.build(picked)
		if len(errs) > 0 {
			panic("format: a checked scenario has a faulty case: " + errs.Error())
		}
		c.Scenario.resolve()
		all = append(all, c)
	}
	return all
}

// combinations yields the index of the value each axis takes.
func (s *Scenario) combinations() iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		picked := make([]int, len(s.Sweep))
		for {
			if !yield(picked) {
				return
			}
			i := len(picked) - 1
			for ; i >= 0; i-- {
				if picked[i]++; picked[i] < len(s.Sweep[i].Values) {
					break
				}
				picked[i] = 0
			}
			if i < 0 {
				return
			}
		}
	}
}

// build makes the scenario of one case.
func (s *Scenario) build(picked []int) (Case, Errors) {
	c := Case{Scenario: s.clone()}
	var errs Errors
	for i, axis := range s.Sweep {
		value := axis.Values[picked[i]]
		c.Params = append(c.Params, Param{axis.Key, value})
		from, _ := s.where(element(axis.path, picked[i]))
		errs = append(errs, c.Scenario.apply(assignment{axis.Key, value, axis.text, from})...)
	}
	for _, a := range s.assignments {
		errs = append(errs, c.Scenario.apply(a)...)
	}
	c.Scenario.Sweep = nil
	c.Scenario.assignments = nil
	return c, errs
}

// resolve fills in what depends on other keys.
func (s *Scenario) resolve() {
	for i := range s.Workloads {
		w := &s.Workloads[i]
		w.Duration = s.lasting(w)
		switch w.Kind {
		case KindIperf3:
			w.Proto = orDefault(w.Proto, TCP)
			w.Flows = orDefault(w.Flows, 1)
		case KindRR:
			w.Request = orDefault(w.Request, 1)
			w.Response = orDefault(w.Response, 1)
			w.Warmup = s.warmup(i)
		case KindPing:
			w.Interval = orDefault(w.Interval, defaultPingInterval)
		}
	}
	s.assignPorts()
	s.findTraces()
}

// findTraces makes the names of traces relative to the working directory, as
// those of assignments are.
func (s *Scenario) findTraces() {
	for i := range s.Links {
		l := &s.Links[i]
		from, _ := s.where(join(element("link", i), "trace"))
		if l.Trace != "" && !filepath.IsAbs(l.Trace) && from.set == "" {
			l.Trace = filepath.Join(filepath.Dir(s.source.name), l.Trace)
		}
	}
}

// assignPorts gives each iperf3 server without a port its own, from iperf3's upwards.
func (s *Scenario) assignPorts() {
	type end struct {
		netns string
		port  int
	}
	taken := map[end]bool{}
	for _, w := range s.Workloads {
		taken[end{w.TargetNetns(), w.Port}] = true
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.Kind != KindIperf3 || w.Port != 0 {
			continue
		}
		at := end{w.TargetNetns(), defaultIperf3Port}
		for taken[at] {
			at.port++
		}
		taken[at] = true
		w.Port = at.port
	}
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Matches says whether the case has all of the selector's values.
func (sel Selector) Matches(c *Case) bool {
	for _, want := range sel {
		found := false
		for _, p := range c.Params {
			found = found || p.Key == want.Key && sameValue(p.Value, want.Value)
		}
		if !found {
			return false
		}
	}
	return true
}

// Reference finds the case that e compares c with: the one that has ratio_to's
// values and c's others. Nil if it is not among the cases.
func (e *Expectation) Reference(c *Case, cases []Case) *Case {
	want := c.Values()
	for _, p := range e.RatioTo {
		if _, swept := want[p.Key]; !swept {
			return nil
		}
		want[p.Key] = p.Value
	}
	for i := range cases {
		if maps.EqualFunc(want, cases[i].Values(), sameValue) {
			return &cases[i]
		}
	}
	return nil
}

// Holds says whether a measured value (or ratio), in the base unit of e.Value, meets
// the expectation. The tolerance widens the claim: with op "<=" and tolerance 3%,
// up to 1.03 times the value holds. Not-a-number never does.
func (e *Expectation) Holds(measured float64) bool {
	want := e.Value.Number
	slack := want * e.Tolerance.Fraction()
	if slack < 0 {
		slack = -slack
	}
	switch e.Op {
	case Less:
		return measured < want+slack
	case LessOrEqual:
		return measured <= want+slack
	case Greater:
		return measured > want-slack
	case GreaterOrEqual:
		return measured >= want-slack
	}
	return want-slack <= measured && measured <= want+slack
}
