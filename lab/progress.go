package lab

import (
	"fmt"
	"io"
	"time"
)

// Progress is one report of a running [Build].
type Progress struct {
	Stage       string        // "download", "unpack", "configure", "compile", "wait"
	Done, Total int           // objects, in stage "compile"; otherwise 0
	Left        time.Duration // estimate, in stage "compile"; 0 while unknown
	Note        string        // what is being worked on
}

// PrintProgress returns a callback for [BuildOptions] that writes to w: one line
// kept up to date if w is a terminal, otherwise a line per stage and per tenth of
// the compilation.
func PrintProgress(w io.Writer, terminal bool) func(Progress) {
	lastStage, lastTenth := "", -1
	return func(p Progress) {
		line := "lab kernel: " + p.Stage
		if p.Note != "" {
			line += " " + p.Note
		}
		tenth := 0
		if p.Total > 0 {
			tenth = 10 * p.Done / p.Total
			line = fmt.Sprintf("lab kernel: compile %d of %d objects", p.Done, p.Total)
			if p.Left > 0 {
				line += fmt.Sprintf(", about %v left", p.Left.Round(time.Second))
			}
		}
		switch {
		case terminal && p.Done > 0 && p.Done == p.Total:
			fmt.Fprintf(w, "\r\x1b[K%s\n", line)
		case terminal:
			fmt.Fprintf(w, "\r\x1b[K%s", line)
		case p.Stage != lastStage || tenth != lastTenth:
			fmt.Fprintln(w, line)
		}
		lastStage, lastTenth = p.Stage, tenth
	}
}

// meter turns a count of objects into reports with an estimate of the time left.
// Only the rate of this run counts: what an earlier run left behind is done.
type meter struct {
	report      func(Progress)
	now         func() time.Time
	began       time.Time
	first, done int
	total       int
}

func newMeter(report func(Progress), now func() time.Time, done, total int) *meter {
	return &meter{report: report, now: now, began: now(), first: done, done: done, total: max(done, total)}
}

// step counts one more object. The total is what a complete build was measured
// to have; a different source may exceed it a little.
func (m *meter) step(name string) {
	m.done++
	m.total = max(m.total, m.done)
	var left time.Duration
	if n := m.done - m.first; n >= 10 { // fewer say nothing about the rate
		left = m.now().Sub(m.began) * time.Duration(m.total-m.done) / time.Duration(n)
	}
	m.report(Progress{Stage: "compile", Done: m.done, Total: m.total, Left: left, Note: name})
}

// finish reports that all is done, whatever the measured total said.
func (m *meter) finish() {
	m.report(Progress{Stage: "compile", Done: m.done, Total: m.done})
}
