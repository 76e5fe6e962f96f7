package scenarios

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"nicemu/devices/units"
	"nicemu/replay/report"
	"nicemu/scenarios/workload"
)

// WriteCardTable shows a what-if to people: one run in detail, or a sweep as one
// row a case with a plot below. Fancy plots have bars of block characters.
func (r *Result) WriteCardTable(w io.Writer, fancy bool) error {
	first := r.Cases[0]
	fmt.Fprintln(w, first.Setup.headline(r))
	parts := []func(*tabwriter.Writer){first.writeCardLoads, first.writeCardQueues, first.writeCardLegs}
	if len(r.Cases) > 1 {
		parts = []func(*tabwriter.Writer){r.writeCardSweep}
	}
	if err := report.Tables(w, parts...); err != nil {
		return err
	}
	if len(r.Cases) > 1 {
		r.plotSweep(w, fancy)
	} else {
		first.writeCardCounters(w)
	}
	return r.writeEnd(w)
}

// headline is what all cases have in common.
func (s *Setup) headline(r *Result) string {
	swept := func(key string) bool { _, ok := r.Cases[0].Params[key]; return ok }
	parts := []string{s.Device}
	for _, k := range slices.Sorted(maps.Keys(s.Set)) {
		if !swept(k) {
			parts = append(parts, k+"="+s.Set[k])
		}
	}
	if !swept("qdisc") {
		parts = append(parts, "qdisc "+s.Qdisc)
	}
	if !swept("rate") && !swept("link.rate") {
		parts = append(parts, "link "+report.Rate(float64(s.RateBPS)))
	}
	parts = append(parts, fmt.Sprintf("%v of virtual time, measured after %v", units.Duration(s.DurationNs), units.Duration(s.WarmupNs)))
	if !swept("seed") {
		parts = append(parts, fmt.Sprintf("seed %d", r.Seed))
	}
	if len(r.Cases) > 1 {
		for _, name := range slices.Sorted(maps.Keys(s.short)) {
			parts = append(parts, s.short[name])
		}
	}
	return strings.Join(parts, ", ")
}

func (c *Case) theCard() *NIC { return c.NICs[c.Setup.Device] }

func (c *Case) writeCardLoads(w *tabwriter.Writer) {
	fmt.Fprintln(w, "WORKLOAD\tGOODPUT\tPACKETS/S\tLOST\tP50\tP90\tP99\tMAX\tDELAY")
	for _, name := range slices.Sorted(maps.Keys(c.Workloads)) {
		x := c.Workloads[name]
		l := x.LatencyNS
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", c.Setup.short[name], report.Rate(*x.GoodputBPS), report.PerSecond(*x.PPS), *x.Lost,
			report.Ns(l.P50), report.Ns(l.P90), report.Ns(l.P99), report.Ns(l.Max), l.Between)
	}
}

func (c *Case) writeCardQueues(w *tabwriter.Writer) {
	n := c.theCard()
	fmt.Fprintln(w, "QUEUE\tRING MAX\tDRV_XOFF\tBQL LIMIT\tIN FLIGHT MAX\tSTACK_XOFF\tQDISC BACKLOG\tMAX\tQDISC DROPS\t")
	for q, x := range n.Queues {
		qd := c.Qdiscs[q]
		if x.RingMax == 0 && len(n.Queues) > 1 {
			continue
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%d\t%s\t%s\t%v\t\n", q, x.RingMax, x.DrvXOFF, report.Bytes(float64(x.Limit)), report.Bytes(float64(x.InflightMax)),
			x.StackXOFF, report.Bytes(float64(qd["backlog_mean"].(uint64))), report.Bytes(float64(qd["backlog_max"].(uint64))), qd["drops"])
	}
}

func (c *Case) writeCardLegs(w *tabwriter.Writer) {
	fmt.Fprintln(w, "DELAY OF SENT FRAMES\tFROM\tTO\tCOUNT\tP50\tP90\tP99\tP99.9\tMAX")
	for _, l := range c.theCard().LegsNs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", strings.ReplaceAll(l.Name, "_", " "), l.From, l.To, l.Count,
			report.Ns(l.P50), report.Ns(l.P90), report.Ns(l.P99), report.Ns(l.P999), report.Ns(l.Max))
	}
}

func (c *Case) writeCardCounters(w io.Writer) {
	n := c.theCard()
	fmt.Fprintf(w, "\nsent %s, %s packets/s; %s interrupts/s; core busy %.3g %%\n",
		report.Rate(n.ThroughputBPS), report.PerSecond(n.PPS), report.PerSecond(float64(n.Interrupts)/c.VirtualS), 100*float64(n.CPUBusyNs)/1e9/c.VirtualS)
	if len(n.Dropped) > 0 {
		fmt.Fprintf(w, "dropped by the card: %s\n", formatDrops(n.Dropped))
	}
	var counters []string
	for _, name := range slices.Sorted(maps.Keys(n.Counters)) {
		if v := n.Counters[name]; v > 0 {
			counters = append(counters, fmt.Sprintf("%s %d", name, v))
		}
	}
	if len(counters) > 0 {
		fmt.Fprintf(w, "ethtool -S: %s\n", strings.Join(counters, ", "))
	}
}

// column is one figure of a sweep.
type column struct {
	head   string
	number func(*Case) float64
	format func(float64) string
	plot   bool
}

// throughput is the figure that every sweep shows.
const throughput = "THROUGHPUT"

// columns are the figures that say most about the workloads there are.
func (r *Result) columns() []column {
	ns := func(v float64) string { return report.Ns(int64(v)) }
	list := []column{
		{throughput, func(c *Case) float64 { return c.theCard().ThroughputBPS }, report.Rate, true},
		{"PACKETS/S", func(c *Case) float64 { return c.theCard().PPS }, report.PerSecond, false},
	}
	names := slices.Sorted(maps.Keys(r.Cases[0].Workloads))
	for _, name := range names {
		load := func(f func(*workload.Result) float64) func(*Case) float64 {
			return func(c *Case) float64 { return f(c.Workloads[name]) }
		}
		up := strings.ToUpper(name)
		kind := r.Cases[0].Workloads[name].Kind
		if len(names) > 1 && kind != "rr" || kind == "receive" {
			list = append(list, column{up + " GOODPUT", load(func(x *workload.Result) float64 { return *x.GoodputBPS }), report.Rate, kind == "receive"})
		}
		list = append(list,
			column{up + " P50", load(func(x *workload.Result) float64 { return float64(x.LatencyNS.P50) }), ns, false},
			column{up + " P99", load(func(x *workload.Result) float64 { return float64(x.LatencyNS.P99) }), ns, len(names) == 1 || kind == "rr" || kind == "talker"},
			column{up + " LOST", load(func(x *workload.Result) float64 { return float64(*x.Lost) }), plain, false},
		)
	}
	queues := func(f func(report.Queue) float64, combine func(a, b float64) float64) func(*Case) float64 {
		return func(c *Case) (v float64) {
			for _, q := range c.theCard().Queues {
				v = combine(v, f(q))
			}
			return v
		}
	}
	most := func(a, b float64) float64 { return max(a, b) }
	sum := func(a, b float64) float64 { return a + b }
	return append(list,
		column{"RING MAX", queues(func(q report.Queue) float64 { return float64(q.RingMax) }, most), plain, false},
		column{"DRV_XOFF", queues(func(q report.Queue) float64 { return float64(q.DrvXOFF) }, sum), plain, false},
		column{"BQL LIMIT", queues(func(q report.Queue) float64 { return float64(q.Limit) }, most), report.Bytes, false},
		column{"IN FLIGHT", queues(func(q report.Queue) float64 { return float64(q.InflightMax) }, most), report.Bytes, false},
		column{"STACK_XOFF", queues(func(q report.Queue) float64 { return float64(q.StackXOFF) }, sum), plain, false},
		column{"INTERRUPTS/S", func(c *Case) float64 { return float64(c.theCard().Interrupts) / c.VirtualS }, report.PerSecond, false},
		column{"CORE", func(c *Case) float64 { return float64(c.theCard().CPUBusyNs) / 1e9 / c.VirtualS }, func(v float64) string { return fmt.Sprintf("%.3g %%", 100*v) }, false},
	)
}

func plain(v float64) string { return fmt.Sprintf("%.0f", v) }

// varies reports whether the figure is not the same in all cases.
func (col *column) varies(cases []*Case) bool {
	first := col.format(col.number(cases[0]))
	return slices.ContainsFunc(cases, func(c *Case) bool { return col.format(col.number(c)) != first })
}

// writeCardSweep is one row a case; figures that are the same in all of them
// stand in a line below.
func (r *Result) writeCardSweep(w *tabwriter.Writer) {
	keys, columns := r.sweptKeys(), r.columns()
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t", strings.ToUpper(k))
	}
	var same []string
	columns = slices.DeleteFunc(columns, func(col column) bool {
		if col.head == throughput || col.varies(r.Cases) {
			return false
		}
		if v := col.number(r.Cases[0]); v != 0 {
			same = append(same, col.head+" "+col.format(v))
		}
		return true
	})
	for _, col := range columns {
		fmt.Fprintf(w, "%s\t", col.head)
	}
	fmt.Fprintln(w)
	for _, c := range r.Cases {
		for _, k := range keys {
			fmt.Fprintf(w, "%v\t", c.Params[k])
		}
		for _, col := range columns {
			fmt.Fprintf(w, "%s\t", col.format(col.number(c)))
		}
		fmt.Fprintln(w)
	}
	if len(same) > 0 {
		fmt.Fprintf(w, "in all cases: %s\n", strings.Join(same, ", "))
	}
}

// sweptKeys are in the order of the sweep, which is that of the titles.
func (r *Result) sweptKeys() []string {
	title := r.Cases[0].title
	keys := slices.Sorted(maps.Keys(r.Cases[0].Params))
	slices.SortFunc(keys, func(a, b string) int {
		return strings.Index(" "+title, " "+a+"=") - strings.Index(" "+title, " "+b+"=")
	})
	return keys
}

// barCells is the longest bar, in characters.
const barCells = 40

// plotSweep draws a bar for each case and plotted figure.
func (r *Result) plotSweep(w io.Writer, fancy bool) {
	width := 0
	for _, c := range r.Cases {
		width = max(width, len([]rune(c.title)))
	}
	for _, col := range r.columns() {
		most := 0.0
		for _, c := range r.Cases {
			most = max(most, col.number(c))
		}
		if !col.plot || !col.varies(r.Cases) {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", strings.ToLower(col.head))
		for _, c := range r.Cases {
			v := col.number(c)
			fmt.Fprintf(w, "  %-*s  %s  %s\n", width, c.title, bar(v/most, fancy), col.format(v))
		}
	}
}

// bar is a share of barCells, in eighths of a character or in whole ones.
func bar(share float64, fancy bool) string {
	if !fancy {
		n := int(share*barCells + 0.5)
		return strings.Repeat("#", n) + strings.Repeat(" ", barCells-n)
	}
	const full = '█' // U+2588; ▉ to ▏ follow it, an eighth less each
	eighths := int(share*barCells*8 + 0.5)
	text := []rune(strings.Repeat(string(full), eighths/8))
	if rest := eighths % 8; rest > 0 {
		text = append(text, full+rune(8-rest))
	}
	return string(text) + strings.Repeat(" ", barCells-len(text))
}
