// Package report is what the results of all commands have in common: parts of
// their JSON documents, figures as people read them, and aligned tables.
//
// Left out: quantities as files and flags spell them, which are package units'.
package report

import (
	"encoding/json"
	"io"

	"nicemu/devices/nic"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// JSON writes v as this program writes all documents: indented, with nothing
// escaped that a reader of files would not want escaped.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Kernel says where a run took place and why there.
type Kernel struct {
	Mode    string `json:"mode"` // host, lab, model
	Release string `json:"release"`
	Reason  string `json:"reason"`
}

func (k Kernel) String() string {
	if k.Release == "" {
		return "no kernel"
	}
	return k.Mode + " kernel " + k.Release
}

// Laws counts audits and lists what they found.
type Laws struct {
	Checked    int      `json:"checked"`
	Violations []string `json:"violations"`
}

// Check counts the audit of what is called so and keeps what it found, if anything.
func (l *Laws) Check(what string, err error) {
	l.Checked++
	if err != nil {
		l.Violations = append(l.Violations, what+": "+err.Error())
	}
}

// Percentiles of a distribution; all zero if Count is.
type Percentiles struct {
	Count int64 `json:"count"`
	P50   int64 `json:"p50"`
	P90   int64 `json:"p90"`
	P99   int64 `json:"p99"`
	P999  int64 `json:"p999"`
	Max   int64 `json:"max"`
}

// PercentilesOf reads a histogram off.
func PercentilesOf(h *hdrhistogram.Histogram) Percentiles {
	return Percentiles{
		Count: h.TotalCount(),
		P50:   h.ValueAtPercentile(50),
		P90:   h.ValueAtPercentile(90),
		P99:   h.ValueAtPercentile(99),
		P999:  h.ValueAtPercentile(99.9),
		Max:   h.Max(),
	}
}

// Latency is a distribution of delays in nanoseconds.
type Latency struct {
	Percentiles
	Between string `json:"between"` // the two points the delay lies between
}

// LatencyOf reads a histogram off.
func LatencyOf(h *hdrhistogram.Histogram, between string) *Latency {
	return &Latency{PercentilesOf(h), between}
}

// Leg is how long sent frames took from one point of their way to another.
type Leg struct {
	Name string `json:"name"`
	From string `json:"from"`
	To   string `json:"to"`
	Percentiles
}

// Queue is what stood in one transmit queue's way.
type Queue struct {
	Limit       int    `json:"limit"`        // BQL limit at the end, bytes
	InflightMax int    `json:"inflight_max"` // bytes
	StackXOFF   uint64 `json:"stack_xoff"`   // times set
	DrvXOFF     uint64 `json:"drv_xoff"`     // times set
	Restart     uint64 `json:"restart"`
	RingMax     int    `json:"ring_max"` // descriptors
}

// QueueOf reads a card's queue off.
func QueueOf(s *nic.QueueStats) Queue {
	return Queue{s.Limit, s.InflightMax, s.StackXOFF, s.DrvXOFF, s.Restart, s.RingMax}
}
