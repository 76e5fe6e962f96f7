package lab

import (
	"slices"
	"strings"
	"sync"
)

// Qdiscs are the kinds of qdiscs that the lab kernel has, sorted: those of its
// configuration, and those without a switch (register_qdisc in
// net/sched/sch_api.c, sch_fifo.c; clsact is sch_ingress.c's).
var Qdiscs = sync.OnceValue(func() []string {
	kinds := []string{"bfifo", "clsact", "mq", "noqueue", "pfifo", "pfifo_fast", "pfifo_head_drop"}
	for line := range strings.Lines(kernelConfig) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "CONFIG_NET_SCH_")
		if name, on := strings.CutSuffix(name, "=y"); ok && on {
			kinds = append(kinds, strings.ToLower(name))
		}
	}
	slices.Sort(kinds)
	return kinds
})

// HasQdisc says whether the lab kernel has a kind of qdisc.
func HasQdisc(kind string) bool { return slices.Contains(Qdiscs(), kind) }
