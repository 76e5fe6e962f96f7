package replay

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// legs are the parts of a frame's way, each between two stamps.
//
// Two legs can be 0 where the second stamp comes before the first: a GSO frame whose segments are fetched one by one may be on the wire before its
// last byte is in the card, and a card may report a frame when its last byte has been read, before the FCS has left.
var legs = [...]struct{ name, from, to string }{
	{"qdisc_wait", "enqueued", "posted"},
	{"ring_wait", "posted", "fetched"},
	{"buffer_wait", "fetched", "wire start"},
	{"serialization", "wire start", "wire end"},
	{"completion", "wire end", "completed"},
	{"departure", "enqueued", "wire end"},
	{"total", "enqueued", "completed"},
}

const (
	departureLeg = 5
	lateLeg      = len(legs) // launch time to wire start, for frames that have one
)

// longestLeg is what the histograms hold; longer ones count as this.
const longestLeg = 10_000 * engine.Second

// histogram is of delays in ns, exact to 0.1 %, its maximum to the nanosecond.
type histogram struct {
	*hdrhistogram.Histogram
	max engine.Time
}

func newHistogram() histogram {
	return histogram{Histogram: hdrhistogram.New(1, int64(longestLeg), 3)}
}

func (h *histogram) record(d engine.Time) {
	d = min(max(0, d), longestLeg)
	h.max = max(h.max, d)
	h.RecordValue(int64(d)) // in range, so it takes it
}

func (h *histogram) merge(o *histogram) {
	h.max = max(h.max, o.max)
	h.Merge(o.Histogram)
}

// queueLegs are the legs of one queue's frames.
type queueLegs struct {
	hist     [len(legs) + 1]histogram
	early    uint64      // frames that started before their launch time
	earliest engine.Time // by how much, at most
}

func newQueueLegs() *queueLegs {
	l := &queueLegs{}
	for i := range l.hist {
		l.hist[i] = newHistogram()
	}
	return l
}

// sent records a frame that the driver has freed after it was sent. One that a reset of the card freed has no completion.
func (l *queueLegs) sent(f *nic.Frame) {
	h := &l.hist
	h[0].record(f.Posted - f.Enqueued)
	h[1].record(f.Fetched - f.Posted)
	h[2].record(f.WireStart - f.Fetched)
	h[3].record(f.WireEnd - f.WireStart)
	h[departureLeg].record(f.WireEnd - f.Enqueued)
	if f.Completed != 0 {
		h[4].record(f.Completed - f.WireEnd)
		h[6].record(f.Completed - f.Enqueued)
	}
	if f.Launch != 0 {
		late := f.WireStart - f.Launch
		h[lateLeg].record(late)
		if late < 0 {
			l.early++
			l.earliest = max(l.earliest, -late)
		}
	}
}

func (l *queueLegs) merge(o *queueLegs) {
	for i := range l.hist {
		l.hist[i].merge(&o.hist[i])
	}
	l.early += o.early
	l.earliest = max(l.earliest, o.earliest)
}
