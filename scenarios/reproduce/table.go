package reproduce

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"nicemu/replay/report"
)

// Widths from which on a cell goes on in the next line, so that tables fit 120
// columns.
const (
	conditionWidth = 27
	metricWidth    = 25
	meaningWidth   = 40
	nameWidth      = 25
	fittedToWidth  = 30
	whyWidth       = 110
)

// WriteTable prints rows as aligned columns, and their reasons below. Live
// figures have columns if there is one.
func WriteTable(w io.Writer, rows []Row) error {
	tw := report.Table(w)
	live := slices.ContainsFunc(rows, func(r Row) bool { return r.Live != nil })
	head := []string{"EXPERIMENT", "CONDITION", "METRIC", "PUBLISHED", "MODEL", "ERROR"}
	if live {
		head = append(head, "LIVE", "ERROR")
	}
	writeCells(tw, append(head, "UNIT", "", ""))
	var whys []string
	for i := range rows {
		r := &rows[i]
		note := ""
		if r.Why != "" {
			if !slices.Contains(whys, r.Why) {
				whys = append(whys, r.Why)
			}
			note = fmt.Sprintf("[%d]", 1+slices.Index(whys, r.Why))
		}
		cells := []string{r.Experiment, wrap(r.Condition, conditionWidth), wrap(r.Metric, metricWidth), r.published(), figure(&r.Model), percent(r.ModelError)}
		if live {
			cells = append(cells, figure(r.Live), percent(r.LiveError))
		}
		writeCells(tw, append(cells, r.Unit, r.kind(), note))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i, why := range whys {
		text := fmt.Sprintf("[%d] %s", i+1, why)
		if _, err := fmt.Fprintln(w, strings.ReplaceAll(wrap(text, whyWidth), "\n", "\n    ")); err != nil {
			return err
		}
	}
	return nil
}

// WriteFitted prints what was fitted.
func WriteFitted(w io.Writer, parameters []Parameter) error {
	tw := report.Table(w)
	writeCells(tw, []string{"FITTED", "VALUE", "MEANING", "FITTED TO"})
	for _, p := range parameters {
		writeCells(tw, []string{wrap(p.Name, nameWidth), p.Value, wrap(p.Meaning, meaningWidth), wrap(p.FittedTo, fittedToWidth)})
	}
	return tw.Flush()
}

// writeCells writes a row of a table, on as many lines as its highest cell has.
func writeCells(w io.Writer, cells []string) {
	lines := make([][]string, len(cells))
	height := 0
	for i, c := range cells {
		lines[i] = strings.Split(c, "\n")
		height = max(height, len(lines[i]))
	}
	for y := range height {
		for i := range cells {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			if y < len(lines[i]) {
				fmt.Fprint(w, lines[i][y])
			}
		}
		fmt.Fprintln(w)
	}
}

// wrap breaks text into lines of at most so many characters: at spaces, else
// after a slash or an underscore.
func wrap(text string, width int) string {
	runes := []rune(text)
	var lines []string
	for len(runes) > width {
		at := width // of the next line's beginning
		for _, breaks := range []string{" ", "/_"} {
			last := strings.LastIndexAny(string(runes[:width]), breaks)
			if last > 0 {
				at = len([]rune(string(runes[:width])[:last])) + 1
				break
			}
		}
		lines = append(lines, strings.TrimSpace(string(runes[:at])))
		runes = runes[at:]
	}
	return strings.Join(append(lines, string(runes)), "\n")
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
