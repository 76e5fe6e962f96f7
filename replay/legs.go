package replay

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/report"
	"nicemu/replay/stack"
)

// queueLegs are the legs of one queue's frames, and how they kept their launch times.
type queueLegs struct {
	*stack.Legs
	late     stack.Histogram // launch time to wire start, for frames that have one
	early    uint64          // frames that started before their launch time
	earliest engine.Time     // by how much, at most
}

func newQueueLegs() *queueLegs { return &queueLegs{Legs: stack.NewLegs(), late: stack.NewHistogram()} }

// sent records a frame that the driver has freed after it was sent.
func (l *queueLegs) sent(f *nic.Frame) {
	l.Sent(f)
	if f.Launch != 0 {
		late := f.WireStart - f.Launch
		l.late.Record(late)
		if late < 0 {
			l.early++
			l.earliest = max(l.earliest, -late)
		}
	}
}

func (l *queueLegs) merge(o *queueLegs) {
	l.Legs.Merge(o.Legs)
	l.late.Merge(&o.late)
	l.early += o.early
	l.earliest = max(l.earliest, o.earliest)
}

// results are the legs' percentiles.
func (l *queueLegs) results() []Leg {
	list := make([]Leg, len(l.Legs))
	for i := range l.Legs {
		leg := &l.Legs[i]
		list[i].Leg = report.Leg{Name: leg.Name, From: leg.From, To: leg.To, Percentiles: leg.Percentiles()}
	}
	return list
}

// distribution is the whole histogram, in few steps.
func distribution(h *stack.Histogram) (list []Quantile) {
	if h.TotalCount() == 0 {
		return nil
	}
	for _, b := range h.CumulativeDistribution() {
		list = append(list, Quantile{b.Quantile, min(b.ValueAt, int64(h.Longest)), b.Count})
	}
	return list
}
