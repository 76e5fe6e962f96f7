package stack

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/report"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longestDelay is what histograms hold; longer ones count as this.
const longestDelay = 10_000 * engine.Second

// Histogram is of delays in ns, exact to 0.1 %, its maximum to the nanosecond.
type Histogram struct {
	*hdrhistogram.Histogram
	Longest engine.Time
}

// NewHistogram returns an empty one.
func NewHistogram() Histogram {
	return Histogram{Histogram: hdrhistogram.New(1, int64(longestDelay), 3)}
}

// Record adds a delay; a negative one counts as 0.
func (h *Histogram) Record(d engine.Time) {
	d = min(max(0, d), longestDelay)
	h.Longest = max(h.Longest, d)
	h.RecordValue(int64(d)) // in range, so it takes it
}

// Merge adds all delays of o.
func (h *Histogram) Merge(o *Histogram) {
	h.Longest = max(h.Longest, o.Longest)
	h.Histogram.Merge(o.Histogram)
}

// Percentiles are those of the delays, none longer than the longest was.
func (h *Histogram) Percentiles() report.Percentiles {
	p := report.PercentilesOf(h.Histogram)
	for _, v := range []*int64{&p.P50, &p.P90, &p.P99, &p.P999, &p.Max} {
		*v = min(*v, int64(h.Longest))
	}
	return p
}

// Leg is a part of a frame's way down, between two of its stamps.
type Leg struct {
	Name, From, To string
	Histogram
}

// Legs are how long sent frames took where, in the order of their way.
//
// Two legs can be 0 where the second stamp comes before the first: a GSO frame
// whose segments are fetched one by one may be on the wire before its last byte
// is in the card, and a card may report a frame when its last byte has been
// read, before the FCS has left.
type Legs [7]Leg

// Departure and Total are legs over the others: up to the end on the wire, and
// up to the completion.
const (
	Departure = 5
	Total     = 6
)

// NewLegs returns empty ones.
func NewLegs() *Legs {
	l := &Legs{
		{Name: "qdisc_wait", From: "enqueued", To: "posted"},
		{Name: "ring_wait", From: "posted", To: "fetched"},
		{Name: "buffer_wait", From: "fetched", To: "wire start"},
		{Name: "serialization", From: "wire start", To: "wire end"},
		{Name: "completion", From: "wire end", To: "completed"},
		Departure: {Name: "departure", From: "enqueued", To: "wire end"},
		Total:     {Name: "total", From: "enqueued", To: "completed"},
	}
	for i := range l {
		l[i].Histogram = NewHistogram()
	}
	return l
}

// Sent records a frame that the driver frees after it was sent; others it
// leaves out. One that a reset of the card freed has no completion.
func (l *Legs) Sent(f *nic.Frame) {
	if f.WireEnd == 0 {
		return
	}
	l[0].Record(f.Posted - f.Enqueued)
	l[1].Record(f.Fetched - f.Posted)
	l[2].Record(f.WireStart - f.Fetched)
	l[3].Record(f.WireEnd - f.WireStart)
	l[Departure].Record(f.WireEnd - f.Enqueued)
	if f.Completed != 0 {
		l[4].Record(f.Completed - f.WireEnd)
		l[Total].Record(f.Completed - f.Enqueued)
	}
}

// Merge adds all frames of o.
func (l *Legs) Merge(o *Legs) {
	for i := range l {
		l[i].Merge(&o[i].Histogram)
	}
}
