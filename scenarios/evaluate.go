package scenarios

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nicemu/scenarios/format"
)

// evaluate checks the scenario's claims against what was measured.
func evaluate(s *format.Scenario, points []format.Case, r *Result) error {
	for i := range points {
		r.Cases[i].Expectations = []Expectation{}
	}
	for k := range s.Expect {
		e := &s.Expect[k]
		if len(e.Kernel) > 0 && !slices.Contains(e.Kernel, format.Kernel(r.Kernel.Mode)) {
			continue
		}
		for i := range points {
			if !e.Case.Matches(&points[i]) {
				continue
			}
			var base *Case
			if len(e.RatioTo) > 0 {
				ref := e.Reference(&points[i], points)
				if ref == nil {
					continue // --set left that case out
				}
				base = r.Cases[slices.IndexFunc(points, func(c format.Case) bool { return c.String() == ref.String() })]
			}
			x, err := evaluateOne(e, r.Cases[i], base)
			if err != nil {
				return fmt.Errorf("expectation %q: %w", e.Name, err)
			}
			r.Cases[i].Expectations = append(r.Cases[i].Expectations, x)
			if !x.OK && (r.Cases[i].degraded || base != nil && base.degraded) {
				r.Reasons = append(r.Reasons, where(r.Cases[i], x.Name+": does not hold, and is not judged, for the host could not keep up"))
			} else if !x.OK {
				r.fail(fmt.Sprintf("%s: measured %.6g, expected %s %.6g", where(r.Cases[i], x.Name), x.Value, x.Op, x.Expected))
			}
		}
	}
	return nil
}

// evaluateOne checks a claim about c, or about the ratio of c to base.
func evaluateOne(e *format.Expectation, c, base *Case) (Expectation, error) {
	value, err := metric(c, e.Metric)
	if err != nil {
		return Expectation{}, err
	}
	if base != nil {
		ref, err := metric(base, e.Metric)
		if err != nil {
			return Expectation{}, err
		}
		value /= ref
	}
	x := Expectation{
		Name: e.Name, Value: value, Expected: e.Value.Number, Op: string(e.Op), Unit: string(e.Value.Unit),
		Tolerance: e.Tolerance.Fraction(), Source: e.Source, Fitted: e.Fitted, OK: e.Holds(value),
	}
	if x.Expected != 0 {
		x.Error = value/x.Expected - 1
	}
	return x, nil
}

// metric follows a dotted path through the case's JSON: members of objects, and
// numbers for elements of arrays. A NIC's name may itself hold dots.
func metric(c *Case, path string) (float64, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	var at any
	if err := json.Unmarshal(text, &at); err != nil {
		return 0, err
	}
	rest := path
	for rest != "" {
		key, next, ok := member(at, rest)
		if !ok {
			// A drop reason or a counter that did not occur is zero.
			if strings.Contains(path, ".dropped.") || strings.Contains(path, ".dropped_bytes.") {
				return 0, nil
			}
			return 0, fmt.Errorf("the result has no %s (at %q)", path, rest)
		}
		at, rest = key, next
	}
	v, ok := at.(float64)
	if !ok {
		return 0, fmt.Errorf("%s is not a number", path)
	}
	return v, nil
}

// member takes the longest prefix of path that names something in at.
func member(at any, path string) (value any, rest string, ok bool) {
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '.') {
		key := path[:end]
		switch at := at.(type) {
		case map[string]any:
			value, ok = at[key]
		case []any:
			i, err := strconv.Atoi(key)
			if ok = err == nil && i >= 0 && i < len(at); ok {
				value = at[i]
			}
		}
		if ok {
			return value, strings.TrimPrefix(path[end:], "."), true
		}
	}
	return nil, "", false
}

func where(c *Case, what string) string {
	if c.title == "" {
		return what
	}
	return c.title + ": " + what
}

// fail makes the verdict failed, with one more reason.
func (r *Result) fail(reason string) {
	r.Verdict = VerdictFailed
	r.Reasons = append(r.Reasons, reason)
}

// JudgeLaws makes the verdict failed if a law does not hold.
func (r *Result) JudgeLaws() {
	for _, v := range r.Laws.Violations {
		r.fail("law: " + v)
	}
}

// degrade says that the host could not keep up with a case; failed stays failed.
func (r *Result) degrade(c *Case, reason string) {
	if r.Verdict == VerdictOK {
		r.Verdict = VerdictDegraded
	}
	c.degraded = true
	r.Reasons = append(r.Reasons, where(c, reason))
}

// Holds says whether all that was stated can be relied on: no expectation and no
// law failed, and none was judged by a case that the host could not keep up
// with.
func (r *Result) Holds() bool {
	for _, c := range r.Cases {
		if c.degraded && len(c.Expectations) > 0 {
			return false
		}
	}
	return r.Verdict != VerdictFailed
}
