package replay

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"nicemu/devices/nic"
	"nicemu/replay/report"
	"nicemu/replay/stack"
)

// WriteTable shows the result to people: what was read, what became of it, how long it took where, and the verdict.
func (r *Result) WriteTable(w io.Writer) error {
	x := &r.Cases[0].Replay
	fmt.Fprintln(w, x.headline(r.card().Device, r.Seed))
	if err := report.Tables(w, x.captures, r.card().books, r.card().queues, r.card().delays); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return r.close(w)
}

func (x *Replay) headline(model string, seed uint64) string {
	device := x.Device
	if device != model {
		device += " (" + model + ")"
	}
	parts := []string{device, x.Schedule, "queue by " + x.QueueBy, "offload " + string(x.Offload), "qdisc " + x.Qdisc}
	if x.Qdisc != noQdisc {
		parts[len(parts)-1] += " (model)"
	}
	if x.LinkTrace {
		parts = append(parts, "link trace")
	}
	return "replay: " + strings.Join(append(parts, fmt.Sprintf("seed %d", seed)), ", ")
}

func (x *Replay) captures(w *tabwriter.Writer) {
	fmt.Fprintln(w, "CAPTURE\tFORMAT\tPACKETS\tBYTES\tLINK TYPES\tOUT OF THE ORDINARY")
	for i := range x.Captures {
		f := &x.Captures[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", f.File, f.Format, f.Packets, f.Bytes, f.linkTypes(), orDash(f.oddities()))
	}
	made := []string{report.Count(x.Packets, "packet") + ", " + report.Count(x.Frames, "frame")}
	for _, c := range []struct {
		what string
		n    uint64
	}{{"kept as GSO", x.GSO}, {"segmented", x.Segmented}, {"larger than the MTU and sent as they are", x.Unsegmentable}} {
		if c.n > 0 {
			made = append(made, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if x.Loop > 1 {
		made = append(made, fmt.Sprintf("%d rounds", x.Loop))
	}
	fmt.Fprintf(w, "played\t%s\n", strings.Join(made, ", "))
}

// linkTypes names the link types of all interfaces.
func (f *FileStats) linkTypes() string {
	var names []string
	for _, i := range f.Interfaces {
		if name := i.LinkType.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return orDash(strings.Join(names, ", "))
}

// oddities are the counts that are not 0 of what is not ordinary.
func (f *FileStats) oddities() string {
	var list []string
	add := func(n uint64, what string) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(f.Outside, "outside of the window")
	add(f.Truncated, "truncated")
	add(f.Oversize, "longer than the snap length")
	add(f.LengthRaised, "longer than their original length")
	add(f.ZeroLength, "without data")
	add(f.Untimed, "without time")
	add(f.Backward, "back in time")
	add(f.OverMTU, "larger than the MTU")
	add(f.IPLengthZero, "with IP length 0")
	add(f.SkippedBlock, "other blocks")
	add(f.CaptureDrops, "lost by the capture")
	for _, why := range slices.Sorted(maps.Keys(f.Refused)) {
		add(f.Refused[why], "refused: "+why)
	}
	return strings.Join(list, ", ")
}

func (n *NIC) books(w *tabwriter.Writer) {
	fmt.Fprintln(w, "\tFRAMES\tBYTES\t")
	row := func(what string, c nic.Count) { fmt.Fprintf(w, "%s\t%d\t%d\t\n", what, c.Frames, c.Bytes) }
	row("offered", nic.Count{Frames: n.Offered, Bytes: n.OfferedBytes})
	row("sent", nic.Count{Frames: n.Sent, Bytes: n.SentBytes})
	row("queued", nic.Count{Frames: n.Queued, Bytes: n.QueuedBytes})
	for _, reason := range slices.Sorted(maps.Keys(n.Dropped)) {
		row("dropped: "+reason, nic.Count{Frames: n.Dropped[reason], Bytes: n.DroppedBytes[reason]})
	}
}

// queues leaves out those that were not offered anything.
func (n *NIC) queues(w *tabwriter.Writer) {
	fmt.Fprintln(w, "QUEUE\tOFFERED\tSENT\tRING MAX\tBQL LIMIT\tIN FLIGHT MAX\tSTACK_XOFF\tDRV_XOFF\tDEPARTURE P50\tP99\tMAX")
	for q := range n.Queues {
		x := &n.Queues[q]
		if x.Offered == 0 {
			continue
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d", q, x.Offered, x.Sent, x.RingMax, x.Limit, x.InflightMax, x.StackXOFF, x.DrvXOFF)
		if len(x.LegsNs) > 0 {
			p := x.LegsNs[stack.Departure]
			fmt.Fprintf(w, "\t%s\t%s\t%s", formatNs(p.P50), formatNs(p.P99), formatNs(p.Max))
		}
		fmt.Fprintln(w)
	}
}

func (n *NIC) delays(w *tabwriter.Writer) {
	fmt.Fprintln(w, "DELAY\tFROM\tTO\tCOUNT\tP50\tP90\tP99\tP99.9\tMAX")
	for _, l := range n.LegsNs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", l.Name, l.From, l.To, l.Count,
			formatNs(l.P50), formatNs(l.P90), formatNs(l.P99), formatNs(l.P999), formatNs(l.Max))
	}
}

// close writes the rates and the verdict.
func (r *Result) close(w io.Writer) error {
	c := r.Cases[0]
	if l := c.Replay.Launch; l != nil {
		fmt.Fprintf(w, "launch times on queues %v: %s, late by p50 %s, p99 %s, max %s; %d early by at most %s\n", l.Queues, report.Count(l.LateNs.Count, "frame"),
			formatNs(l.LateNs.P50), formatNs(l.LateNs.P99), formatNs(l.LateNs.Max), l.Early, formatNs(l.EarlyMaxNs))
	}
	load := c.Workloads["replay"]
	fmt.Fprintf(w, "sent %s, %s packets/s, %s in %.9g s of virtual time\n",
		report.Rate(load.GoodputBPS), report.PerSecond(load.PPS), report.Count(r.card().Interrupts, "interrupt"), c.VirtualS)
	speed := float64(c.Replay.Frames) / max(r.Wall, 1e-9)
	fmt.Fprintf(w, "took %.3g s, %s frames/s\n", r.Wall, report.PerSecond(speed))
	return report.Verdict(w, &r.Laws, "card", r.Verdict, r.Reasons)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// formatNs is exact below a microsecond.
func formatNs(ns int64) string {
	if ns < 1000 {
		return fmt.Sprintf("%d ns", ns)
	}
	return report.Ns(ns)
}
