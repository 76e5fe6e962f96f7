package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Table aligns tab-separated columns, flush left, when it is flushed.
func Table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// Tables writes aligned tables, each after an empty line.
func Tables(w io.Writer, tables ...func(*tabwriter.Writer)) error {
	for _, write := range tables {
		fmt.Fprintln(w)
		t := Table(w)
		write(t)
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Verdict writes what audits, each of one such thing, and the run came to.
func Verdict(w io.Writer, l *Laws, thing, verdict string, reasons []string) error {
	_, err := fmt.Fprintf(w, "laws: %s audited, %s\nverdict: %s\n", Count(l.Checked, thing), Count(len(l.Violations), "violation"), verdict)
	for _, reason := range reasons {
		_, err = fmt.Fprintf(w, "  %s\n", reason)
	}
	return err
}
