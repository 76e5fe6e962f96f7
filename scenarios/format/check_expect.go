package format

import (
	"fmt"
	"slices"
	"strings"

	"nicemu/devices/units"
)

// latencyFields are the members of latency_ns in a result.
var latencyFields = []string{"count", "p50", "p90", "p99", "p999", "max"}

// kindMetrics are the members of a workload's result that are numbers, by kind.
var kindMetrics = map[Kind][]string{
	KindIperf3: {"goodput_bps", "retransmits", "lost", "intervals"},
	KindRR:     {"latency_ns"},
	KindPing:   {"latency_ns", "lost"},
	KindExec:   {"exit_status"},
}

// nicMetrics are the members of a NIC's result that are or hold numbers.
var nicMetrics = []string{
	"offered", "offered_bytes", "sent", "sent_bytes", "sent_packets", "dropped", "dropped_bytes", "queued", "queued_bytes",
	"received", "received_bytes", "gate_excess_bytes", "gate_rescues", "below_qdisc_dropped", "interrupts", "queues", "counters",
}

// metricRoots are where a metric may start.
var metricRoots = []string{"workloads", "nics", "qdiscs", "virtual_s"}

func (c *checker) expectations() {
	for i := range c.Expect {
		e, path := &c.Expect[i], element("expect", i)
		if c.require(path, "name", "a name for the claim") && e.Name == "" {
			c.fail(join(path, "name"), "name is empty", "a name for the claim")
		}
		known := c.require(path, "metric", "a path in the result, e.g. workloads.probe.latency_ns.p50") && c.metric(join(path, "metric"), e.Metric)
		if c.require(path, "value", "what the metric is compared with") && known {
			c.unit(path, e)
		}
		if e.Tolerance > units.Whole {
			c.fail(join(path, "tolerance"), fmt.Sprintf("tolerance is %v", e.Tolerance), "0% to 100%")
		}
		if slices.Contains(e.Kernel, KernelAuto) {
			c.fail(join(path, "kernel"), "kernel is auto", "those where the claim is made: host, lab, model")
		}
		c.selector(join(path, "case"), e.Case)
		c.selector(join(path, "ratio_to"), e.RatioTo)
		for _, to := range e.RatioTo {
			at := slices.IndexFunc(e.Case, func(p Param) bool { return p.Key == to.Key })
			if at < 0 {
				c.fail(join(path, "ratio_to"), fmt.Sprintf("ratio_to names %s, case does not", quoted(to.Key)), "both to name it, with different values")
			} else if sameValue(e.Case[at].Value, to.Value) {
				c.fail(join(path, "ratio_to"), fmt.Sprintf("ratio_to and case have the same %s", quoted(to.Key)), "different values")
			}
		}
	}
}

// metric checks as much of a path as is known before the run.
func (c *checker) metric(at, metric string) bool {
	root, rest, _ := strings.Cut(metric, ".")
	switch root {
	case "workloads":
		return c.workloadMetric(at, rest)
	case "nics":
		return c.nicMetric(at, rest)
	case "qdiscs", "virtual_s":
		return true
	}
	c.suggest(at, "unknown metric "+quoted(metric), "a path that starts with one of "+strings.Join(metricRoots, ", "), nearest(root, metricRoots))
	return false
}

func (c *checker) workloadMetric(at, rest string) bool {
	name, field, _ := strings.Cut(rest, ".")
	var names []string
	for i := range c.Workloads {
		w := &c.Workloads[i]
		names = append(names, w.Name)
		if w.Name != name {
			continue
		}
		if w.Kind == "" {
			return false // noted where the kind should be
		}
		member, within, _ := strings.Cut(field, ".")
		metrics := kindMetrics[w.Kind]
		if !slices.Contains(metrics, member) {
			c.suggest(at, fmt.Sprintf("a workload of kind %s has no metric %s", w.Kind, quoted(member)), "one of "+strings.Join(metrics, ", "), nearest(member, metrics))
			return false
		}
		if member == "latency_ns" && !slices.Contains(latencyFields, within) {
			c.suggest(at, "latency_ns has no member "+quoted(within), "one of "+strings.Join(latencyFields, ", "), nearest(within, latencyFields))
			return false
		}
		return true
	}
	c.suggest(at, fmt.Sprintf("metric: there is no workload %s", quoted(name)), "one of "+strings.Join(names, ", "), nearest(name, names))
	return false
}

func (c *checker) nicMetric(at, rest string) bool {
	for i := range c.NICs {
		field, ok := strings.CutPrefix(rest, c.NICs[i].ID()+".")
		if !ok {
			continue
		}
		member, _, _ := strings.Cut(field, ".")
		if !slices.Contains(nicMetrics, member) {
			c.suggest(at, "a NIC has no metric "+quoted(member), "one of "+strings.Join(nicMetrics, ", "), nearest(member, nicMetrics))
			return false
		}
		return true
	}
	id, _, _ := strings.Cut(rest, ".")
	c.nicRef(at, "metric", id)
	return false
}

// unit checks that the value is spelled in the metric's unit.
func (c *checker) unit(path string, e *Expectation) {
	at, want := join(path, "value"), metricUnit(e.Metric)
	if len(e.RatioTo) > 0 {
		if e.Value.Unit != None {
			c.fail(at, "a ratio has no unit", "a bare number, e.g. 0.25")
		}
		return
	}
	if e.Value.Unit == want {
		return
	}
	example := map[Unit]string{
		None:  "a bare number",
		NS:    `a duration in quotes, e.g. "2ms"`,
		BPS:   `a rate in quotes, e.g. "940mbit"`,
		Bytes: `a size in quotes, e.g. "24kb"`,
	}
	problem := "the value has no unit"
	if e.Value.Unit != None {
		problem = fmt.Sprintf("the value %s has the wrong unit", quoted(e.Value.text))
	}
	c.fail(at, problem, fmt.Sprintf("%s for %s", example[want], e.Metric))
}

// metricUnit reads the unit off the names in a path, as the result's keys carry it.
func metricUnit(metric string) Unit {
	parts := strings.Split(metric, ".")
	unit := None
	for _, part := range parts {
		switch {
		case strings.HasSuffix(part, "_ns"):
			unit = NS
		case strings.HasSuffix(part, "_bps"), part == "intervals":
			unit = BPS
		case strings.HasSuffix(part, "_bytes"):
			unit = Bytes
		}
	}
	if parts[len(parts)-1] == "count" {
		return None
	}
	return unit
}

// selector checks that the cases an expectation speaks of exist.
func (c *checker) selector(path string, sel Selector) {
	for _, p := range sel {
		at := join(path, p.Key)
		axis := c.Sweep.axis(p.Key)
		if axis == nil {
			keys := c.Sweep.keys()
			expected := "one of " + strings.Join(keys, ", ")
			if len(keys) == 0 {
				expected = "a key of [sweep], which there is not"
			}
			c.suggest(at, fmt.Sprintf("%s is not swept", quoted(p.Key)), expected, nearest(p.Key, keys))
			continue
		}
		if !slices.ContainsFunc(axis.Values, func(v any) bool { return sameValue(v, p.Value) }) {
			c.fail(at, fmt.Sprintf("no case has %s = %v", p.Key, p.Value), fmt.Sprintf("one of %v", axis.Values))
		}
	}
}
