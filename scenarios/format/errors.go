package format

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one thing wrong with a scenario: where, what, and what was expected.
type Error struct {
	File         string
	Line, Column int    // counted from 1, columns in bytes; 0 when Set is given
	Set          string // the key of the assignment handed to Scenario.Set, when the fault lies there
	Problem      string
	Expected     string // empty when the problem says it all
	Suggestion   string // the word that was probably meant, or empty
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Set != "" {
		fmt.Fprintf(&b, "--set %s: ", e.Set)
	} else {
		fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Column)
	}
	b.WriteString(e.Problem)
	if e.Expected != "" {
		b.WriteString("; expected " + e.Expected)
	}
	if e.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", e.Suggestion)
	}
	return b.String()
}

// maxErrors is how many errors one reading reports: more are rarely read.
const maxErrors = 10

// maxNoted is how many values that cannot be read are noted: enough to sort the first ten out of.
const maxNoted = 10 * maxErrors

// Errors is everything found wrong, in file order, at most ten.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find each *Error.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, err := range e {
		all[i] = err
	}
	return all
}

// orNil avoids a non-nil error that holds no errors; it orders, drops repetitions and cuts.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	e = slices.CompactFunc(e, func(a, b *Error) bool { return *a == *b })
	return e[:min(len(e), maxErrors)]
}

// fault is an error that does not know its place yet.
type fault struct {
	problem, expected, suggestion string
}

func (f *fault) Error() string {
	return (&Error{Problem: f.problem, Expected: f.expected, Suggestion: f.suggestion}).Error()
}

// nearest finds the word that was probably meant, or "": at most one slip in four letters, two in eight, else three.
func nearest(word string, words []string) string {
	const longest = 64 // nothing we know is longer
	if len(word) > longest {
		return ""
	}
	best, least := "", min((len(word)+3)/4, 3)+1
	for _, w := range words {
		if d := editDistance(strings.ToLower(word), strings.ToLower(w)); w != word && d < min(least, len(word)) {
			best, least = w, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, substitutions and swaps of
// neighbours (optimal string alignment).
func editDistance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// quoted shows a value from the file without letting it flood the terminal.
func quoted(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
