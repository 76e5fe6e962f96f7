package reproduce

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"nicemu/replay/report"
)

// WriteTable prints rows as aligned columns, and their reasons below.
func WriteTable(w io.Writer, rows []Row) error {
	tw := report.Table(w)
	fmt.Fprintln(tw, "EXPERIMENT\tCONDITION\tMETRIC\tPUBLISHED\tMODEL\tERROR\tLIVE\tERROR\tUNIT\t\t")
	var whys []string
	number := map[string]int{}
	for i := range rows {
		r := &rows[i]
		note := ""
		if r.Why != "" {
			if number[r.Why] == 0 {
				whys = append(whys, r.Why)
				number[r.Why] = len(whys)
			}
			note = fmt.Sprintf("[%d]", number[r.Why])
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Experiment, r.Condition, r.Metric,
			r.published(), figure(&r.Model), percent(r.ModelError), figure(r.Live), percent(r.LiveError), r.Unit, r.kind(), note)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i, why := range whys {
		if _, err := fmt.Fprintf(w, "[%d] %s\n", i+1, why); err != nil {
			return err
		}
	}
	return nil
}

// WriteFitted prints what was fitted.
func WriteFitted(w io.Writer, parameters []Parameter) error {
	tw := report.Table(w)
	fmt.Fprintln(tw, "FITTED\tVALUE\tMEANING\tFITTED TO")
	for _, p := range parameters {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", p.Name, p.Value, p.Meaning, p.FittedTo)
	}
	return tw.Flush()
}

func (r *Row) kind() string {
	switch {
	case !r.OK:
		return "OFF"
	case r.Published == nil:
		return "prediction"
	case r.Fitted:
		return "fitted"
	}
	return "ok"
}

func (r *Row) published() string {
	s := figure(r.Published)
	if r.Published != nil && r.relation != "=" {
		s = r.relation + s
	}
	return s
}

// figure prints four to seven digits, as measurements are quoted.
func figure(v *float64) string {
	if v == nil {
		return "-"
	}
	digits := 0
	if a := math.Abs(*v); a != 0 && a < 1000 {
		digits = max(0, 3-int(math.Floor(math.Log10(a))))
	}
	s := strconv.FormatFloat(*v, 'f', min(digits, 6), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%+.2f%%", 100**v)
}
