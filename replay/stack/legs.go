package stack

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Leg is a part of a frame's way down, between two of its stamps.
type Leg struct {
	Name, From, To string
	Hist           *hdrhistogram.Histogram // nanoseconds, exact to 0.1 %
}

// Legs are how long sent frames took where.
//
// A GSO frame whose segments are fetched one by one may be on the wire before
// its last byte is in the card: its buffer wait is then 0.
type Legs struct{ list [6]Leg }

// longestLeg is what the histograms hold; longer ones count as this.
const longestLeg = 1000 * engine.Second

// NewLegs returns empty ones.
func NewLegs() *Legs {
	l := &Legs{list: [6]Leg{
		{Name: "qdisc_wait", From: "enqueued", To: "posted"},
		{Name: "ring_wait", From: "posted", To: "fetched"},
		{Name: "buffer_wait", From: "fetched", To: "wire start"},
		{Name: "serialization", From: "wire start", To: "wire end"},
		{Name: "completion", From: "wire end", To: "completed"},
		{Name: "departure", From: "enqueued", To: "wire end"},
	}}
	for i := range l.list {
		l.list[i].Hist = hdrhistogram.New(1, int64(longestLeg), 3)
	}
	return l
}

// Sent records a frame that the driver frees after it was sent; others it
// leaves out. One that a reset of the card freed has no completion.
func (l *Legs) Sent(f *nic.Frame) {
	if f.WireEnd == 0 {
		return
	}
	l.record(0, f.Posted-f.Enqueued)
	l.record(1, f.Fetched-f.Posted)
	l.record(2, f.WireStart-f.Fetched)
	l.record(3, f.WireEnd-f.WireStart)
	if f.Completed != 0 {
		l.record(4, f.Completed-f.WireEnd)
	}
	l.record(5, f.WireEnd-f.Enqueued)
}

func (l *Legs) record(leg int, d engine.Time) {
	l.list[leg].Hist.RecordValue(int64(min(max(0, d), longestLeg))) // in range, so it takes it
}

// All are the legs in the order of a frame's way, then the whole of it.
func (l *Legs) All() []Leg { return l.list[:] }
