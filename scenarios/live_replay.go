package scenarios

import (
	"fmt"

	"nicemu/replay"
	"nicemu/replay/report"
)

// Replay is a live replay's part of its case: what was read, how it was played,
// and what became of it before the card. The case's lateness is that of the
// frames, from when they were due until the kernel or the card had them.
//
// Side "qdisc": injected = passed - other_frames + qdisc_dropped + qdisc_backlog.
// Side "wire": injected is what arrived at the card.
type Replay struct {
	Side   string            `json:"side"` // qdisc, wire
	Netns  string            `json:"netns"`
	Dev    string            `json:"dev"`  // the card's interface there
	Peer   string            `json:"peer"` // namespace at the other end of the link; empty: nobody
	Device string            `json:"device"`
	Set    map[string]string `json:"set"` // knobs turned
	TC     []string          `json:"tc"`  // commands
	replay.Played
	LinkTrace bool `json:"link_trace"`
	replay.StreamStats
	Captures []replay.FileStats `json:"captures"`
	Policy   string             `json:"policy"`

	Injected      uint64             `json:"injected"`
	InjectedBytes uint64             `json:"injected_bytes"`
	Refused       map[string]uint64  `json:"refused"`        // frames that no interface of this MTU takes, by reason
	SpanS         float64            `json:"span_s"`         // from the first to the last
	PPS           float64            `json:"pps"`            // injected in that time
	BPS           float64            `json:"bps"`            // the same, without preamble, FCS and gap
	Starved       uint64             `json:"starved"`        // times that the reader of the captures was behind
	TimersLateNs  report.Percentiles `json:"timers_late_ns"` // all timers of the live loop

	// Side qdisc only.
	ENOBUFS      uint64 `json:"enobufs"`       // sends that the qdisc refused
	QdiscDropped uint64 `json:"qdisc_dropped"` // as tc counts them, refused ones included
	QdiscBacklog uint64 `json:"qdisc_backlog"` // left at the end
	Passed       uint64 `json:"passed"`        // left the qdisc
	OtherFrames  uint64 `json:"other_frames"`  // of them, sent by somebody else in the namespace
}

// timersLate is how late the live loop's timers ran.
func (c *Case) timersLate() report.Percentiles {
	if c.Replay != nil {
		return c.Replay.TimersLateNs
	}
	return c.LatenessNs
}

func replayRows() []row {
	of := func(f func(*Replay) string) func(*Case) string {
		return func(c *Case) string { return f(c.Replay) }
	}
	count := func(f func(*Replay) uint64) func(*Case) string {
		return of(func(r *Replay) string { return fmt.Sprint(f(r)) })
	}
	late := func(ns func(report.Percentiles) int64) func(*Case) string {
		return func(c *Case) string {
			if c.LatenessNs.Count == 0 {
				return ""
			}
			return report.Ns(ns(c.LatenessNs))
		}
	}
	const name = "replay"
	return []row{
		{name, "into", of(func(r *Replay) string { return fmt.Sprintf("%s of %s, %s", r.Side, r.Netns, r.Dev) })},
		{name, "schedule", of(func(r *Replay) string { return r.Schedule })},
		{name, "packets read", count(func(r *Replay) uint64 { return r.Packets })},
		{name, "frames injected", count(func(r *Replay) uint64 { return r.Injected })},
		{name, "refused", of(func(r *Replay) string { return formatDrops(r.Refused) })},
		{name, "sends refused (ENOBUFS)", count(func(r *Replay) uint64 { return r.ENOBUFS })},
		{name, "left the qdisc", count(func(r *Replay) uint64 { return r.Passed })},
		{name, "of others", count(func(r *Replay) uint64 { return r.OtherFrames })},
		{name, "left in the qdisc", count(func(r *Replay) uint64 { return r.QdiscBacklog })},
		{name, "frames/s", of(func(r *Replay) string { return fmt.Sprintf("%.0f", r.PPS) })},
		{name, "rate", of(func(r *Replay) string { return report.Rate(r.BPS) })},
		{name, "late p50", late(func(p report.Percentiles) int64 { return p.P50 })},
		{name, "p90", late(func(p report.Percentiles) int64 { return p.P90 })},
		{name, "p99", late(func(p report.Percentiles) int64 { return p.P99 })},
		{name, "p99.9", late(func(p report.Percentiles) int64 { return p.P999 })},
		{name, "max", late(func(p report.Percentiles) int64 { return p.Max })},
		{name, "reader behind", count(func(r *Replay) uint64 { return r.Starved })},
	}
}
