package scenarios

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"nicemu/replay/report"
	"nicemu/scenarios/format"
	"nicemu/scenarios/workload"
)

// maxColumns is how many cases stand side by side.
const maxColumns = 6

// WriteTable shows the result to people: one column a case, then what was
// expected and the verdict.
func (r *Result) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s   %s, %s clock, back-pressure %s, seed %d\n", r.Scenario, r.Kernel, r.Clock, r.Backpressure, r.Seed)
	if len(r.Overrides) > 0 {
		fmt.Fprintf(w, "with %s\n", strings.Join(slices.Sorted(slices.Values(r.Overrides)), ", "))
	}
	fmt.Fprintf(w, "%s kernel: %s\n", r.Kernel.Mode, r.Kernel.Reason)
	for cases := range slices.Chunk(r.Cases, maxColumns) {
		fmt.Fprintln(w)
		if err := writeCases(w, cases); err != nil {
			return err
		}
	}
	if err := r.writeExpectations(w); err != nil {
		return err
	}
	return r.writeEnd(w)
}

// writeEnd is what comes of the run: notes, laws and the verdict.
func (r *Result) writeEnd(w io.Writer) error {
	fmt.Fprintln(w)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	return report.Verdict(w, &r.Laws, "card", r.verdict(), r.Reasons)
}

// row is one line of the table: what it is about, the metric, and its value in
// each case.
type row struct {
	group, metric string
	value         func(*Case) string
}

func writeCases(w io.Writer, cases []*Case) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if cases[0].title != "" {
		fmt.Fprint(tw, "\t")
		for _, c := range cases {
			fmt.Fprintf(tw, "%s\t", c.title)
		}
		fmt.Fprintln(tw)
	}
	rows := tableRows(cases)
	width := 0
	for _, r := range rows {
		width = max(width, len([]rune(r.label())))
	}
	last := ""
	for _, r := range rows {
		values := make([]string, len(cases))
		empty := true
		for i, c := range cases {
			values[i] = r.value(c)
			empty = empty && (values[i] == "" || values[i] == "0")
		}
		if empty {
			continue
		}
		label := r.label()
		if r.group == last {
			label = strings.Repeat(" ", len([]rune(r.group))) + label[len(r.group):]
		}
		last = r.group
		// The first column is flush left in a table that is flush right.
		fmt.Fprintf(tw, "%s%s\t", label, strings.Repeat(" ", width-len([]rune(label))))
		for _, v := range values {
			fmt.Fprintf(tw, "%s\t", v)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func (r row) label() string { return r.group + "  " + r.metric }

func tableRows(cases []*Case) []row {
	first := cases[0]
	var rows []row
	for _, name := range slices.Sorted(maps.Keys(first.Workloads)) {
		rows = append(rows, workloadRows(name)...)
	}
	if first.Replay != nil {
		rows = append(rows, replayRows()...)
	}
	for _, id := range slices.Sorted(maps.Keys(first.NICs)) {
		rows = append(rows, nicRows(id)...)
	}
	return append(rows,
		row{"host", "timers late, p99", func(c *Case) string { return report.Ns(c.timersLate().P99) }},
		row{"host", "carries at most", func(c *Case) string {
			if c.HostCeiling == nil {
				return ""
			}
			return report.Rate(c.HostCeiling.BitsPerS)
		}},
		row{"host", "used by others", func(c *Case) string {
			if c.OthersCPU == nil {
				return ""
			}
			return fmt.Sprintf("%.0f %%", 100**c.OthersCPU)
		}},
	)
}

func workloadRows(name string) []row {
	of := func(f func(*workload.Result) string) func(*Case) string {
		return func(c *Case) string {
			if w := c.Workloads[name]; w != nil {
				return f(w)
			}
			return ""
		}
	}
	whole := func(metric string, n func(*workload.Result) *int64) row {
		return row{name, metric, of(func(w *workload.Result) string {
			if v := n(w); v != nil {
				return fmt.Sprint(*v)
			}
			return ""
		})}
	}
	delay := func(metric string, ns func(*report.Latency) int64) row {
		return row{name, metric, of(func(w *workload.Result) string {
			if w.LatencyNS == nil {
				return ""
			}
			return report.Ns(ns(w.LatencyNS))
		})}
	}
	return []row{
		{name, "goodput", of(func(w *workload.Result) string {
			if w.GoodputBPS == nil {
				return ""
			}
			return report.Rate(*w.GoodputBPS)
		})},
		whole("retransmits", func(w *workload.Result) *int64 { return w.Retransmits }),
		whole("lost", func(w *workload.Result) *int64 { return w.Lost }),
		delay("round trip p50", func(l *report.Latency) int64 { return l.P50 }),
		delay("p90", func(l *report.Latency) int64 { return l.P90 }),
		delay("p99", func(l *report.Latency) int64 { return l.P99 }),
		delay("p99.9", func(l *report.Latency) int64 { return l.P999 }),
		delay("max", func(l *report.Latency) int64 { return l.Max }),
		whole("count", func(w *workload.Result) *int64 {
			if w.LatencyNS == nil {
				return nil
			}
			return &w.LatencyNS.Count
		}),
	}
}

func nicRows(id string) []row {
	of := func(f func(*NIC) string) func(*Case) string {
		return func(c *Case) string { return f(c.NICs[id]) }
	}
	largest := func(f func(report.Queue) int) func(*NIC) int {
		return func(n *NIC) int {
			most := 0
			for _, q := range n.Queues {
				most = max(most, f(q))
			}
			return most
		}
	}
	count := func(f func(report.Queue) uint64) func(*NIC) string {
		return func(n *NIC) string {
			var sum uint64
			for _, q := range n.Queues {
				sum += f(q)
			}
			return fmt.Sprint(sum)
		}
	}
	limit := largest(func(q report.Queue) int { return q.Limit })
	inflight := largest(func(q report.Queue) int { return q.InflightMax })
	ring := largest(func(q report.Queue) int { return q.RingMax })
	return []row{
		{id, "packets sent", of(func(n *NIC) string { return fmt.Sprint(n.SentPackets) })},
		{id, "ring used, max", of(func(n *NIC) string { return fmt.Sprint(ring(n)) })},
		{id, "BQL limit, end", of(func(n *NIC) string { return report.Bytes(float64(limit(n))) })},
		{id, "BQL in flight, max", of(func(n *NIC) string { return report.Bytes(float64(inflight(n))) })},
		{id, "STACK_XOFF set", of(count(func(q report.Queue) uint64 { return q.StackXOFF }))},
		{id, "DRV_XOFF set", of(count(func(q report.Queue) uint64 { return q.DrvXOFF }))},
		{id, "interrupts", of(func(n *NIC) string { return fmt.Sprint(n.Interrupts) })},
		{id, "dropped by the card", of(func(n *NIC) string { return formatDrops(n.Dropped) })},
		{id, "dropped below qdisc", of(func(n *NIC) string { return fmt.Sprint(n.BelowQdiscDropped) + " " })},
		{id, "gate excess p99", of(func(n *NIC) string {
			if n.GateExcessBytes == nil || n.GateExcessBytes.Count == 0 {
				return ""
			}
			return report.Bytes(float64(n.GateExcessBytes.P99))
		})},
		{id, "gate excess max", of(func(n *NIC) string {
			if n.GateExcessBytes == nil || n.GateExcessBytes.Count == 0 {
				return ""
			}
			return report.Bytes(float64(n.GateExcessBytes.Max))
		})},
		{id, "gate rescues", of(func(n *NIC) string { return fmt.Sprint(n.GateRescues) })},
		{id, "qdisc backlog, mean", func(c *Case) string { return report.Bytes(c.qdiscSum(id, "backlog_mean")) }},
		{id, "qdisc backlog, max", func(c *Case) string { return report.Bytes(c.qdiscSum(id, "backlog_max")) }},
		{id, "qdisc drops", func(c *Case) string { return fmt.Sprint(c.qdiscSum(id, "drops")) }},
	}
}

// Backlog is the mean of what the qdiscs of a card (netns/name) held while the
// workloads ran, in bytes.
func (c *Case) Backlog(card string) float64 { return c.qdiscSum(card, "backlog_mean") }

// qdiscSum adds up a number over the leaf qdiscs of a card, so that a root and
// its children do not count twice.
func (c *Case) qdiscSum(id, key string) float64 {
	sum := 0.0
	for _, q := range c.Qdiscs {
		if fmt.Sprintf("%v/%v", q["netns"], q["dev"]) != id || slices.Contains([]any{"mq", "mqprio", "taprio", "clsact"}, q["kind"]) {
			continue
		}
		switch v := q[key].(type) {
		case float64:
			sum += v
		case uint64:
			sum += float64(v)
		}
	}
	return sum
}

func (r *Result) writeExpectations(w io.Writer) error {
	tw := report.Table(w)
	header := false
	for _, c := range r.Cases {
		for _, x := range c.Expectations {
			if !header {
				fmt.Fprintln(tw, "\nEXPECTED\tCASE\tMEASURED\tCLAIM\t")
				header = true
			}
			verdict := "ok"
			switch {
			case !x.OK:
				verdict = "FAILED"
			case x.Fitted:
				verdict = "fitted"
			}
			claim := x.Op + " " + formatIn(x.Unit, x.Expected)
			if x.Tolerance > 0 {
				claim += fmt.Sprintf(" ± %.4g %%", 100*x.Tolerance)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", x.Name, c.title, formatIn(x.Unit, x.Value), claim, verdict)
		}
	}
	return tw.Flush()
}

// formatIn writes a number that is in a base unit of results.
func formatIn(unit string, v float64) string {
	switch format.Unit(unit) {
	case format.NS:
		return report.Ns(int64(v))
	case format.BPS:
		return report.Rate(v)
	case format.Bytes:
		return report.Bytes(v)
	}
	return fmt.Sprintf("%.4g", v)
}

func formatDrops(dropped map[string]uint64) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(dropped)) {
		parts = append(parts, fmt.Sprintf("%s %d", reason, dropped[reason]))
	}
	return strings.Join(parts, ", ")
}
