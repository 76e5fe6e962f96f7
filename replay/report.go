package replay

import (
	"fmt"
	"strings"
	"time"

	"nicemu/devices/engine"
	"nicemu/replay/report"
	"nicemu/replay/stack"
)

// result reads everything off the run that has ended; nothing is not nil if nothing was replayed.
func (r *run) result(wall time.Duration, nothing error) *Result {
	streamed := r.feed.stream.Stats().Frames - uint64(r.feed.held.Len())
	if r.feed.next != nil {
		streamed--
	}
	c := &Case{
		Params:       map[string]any{},
		VirtualS:     float64(r.eng.Now()) / float64(engine.Second),
		Qdiscs:       []QdiscStats{},
		Expectations: []any{},
		Replay:       r.replay(),
	}
	all := newQueueLegs()
	for _, l := range r.legs {
		if l != nil {
			all.merge(l)
		}
	}
	card := r.card(all)
	c.NICs = map[string]*NIC{r.o.Name: card}
	c.Workloads = map[string]*Workload{"replay": r.workload(card, all)}
	for q := range r.qdiscs {
		c.Qdiscs = append(c.Qdiscs, QdiscStats{r.o.Name, q, true, r.stack.Qdisc(q)})
	}
	if r.o.Launch.on() {
		c.Replay.Launch = &LaunchResult{
			Queues: r.o.Launch.Queues.list, DeltaNs: int64(r.o.Launch.Delta), LateNs: all.late.Percentiles(),
			Early: all.early, EarlyMaxNs: int64(all.earliest),
		}
	}
	res := &Result{
		Schema: 1, Scenario: "replay", Seed: r.o.Seed, Verdict: VerdictOK, Reasons: []string{},
		Kernel: report.Kernel{Mode: "model", Reason: "replay without --live runs in virtual time"},
		Clock:  "virtual", Backpressure: "none",
		Laws:  report.Laws{Checked: 1, Violations: r.book.audit(r.stack, streamed)},
		Cases: []*Case{c},
		Wall:  wall.Seconds(),
	}
	r.judge(res, card, nothing)
	return res
}

// judge gives the verdict and its reasons.
func (r *run) judge(res *Result, card *NIC, nothing error) {
	if nothing != nil {
		res.Verdict = VerdictDegraded
		res.Reasons = append(res.Reasons, nothing.Error())
	}
	if r.feed.err != nil {
		res.Verdict = VerdictDegraded
		res.Reasons = append(res.Reasons, fmt.Sprintf("%v; what came before it was replayed", r.feed.err))
	}
	if r.stuck {
		res.Verdict = VerdictDegraded
		why := fmt.Sprintf("nothing has left the card since %d ns: %d frames are queued", r.book.progress, card.Queued)
		if !r.feed.done() {
			why += ", the rest of the captures was not offered"
		}
		res.Reasons = append(res.Reasons, why)
	}
	if v := res.Laws.Violations; len(v) > 0 {
		res.Verdict = VerdictFailed
		res.Reasons = append(res.Reasons, v...)
	}
	if res.Laws.Violations == nil {
		res.Laws.Violations = []string{}
	}
}

func (r *run) replay() Replay {
	o, s := r.o, r.feed.stream
	return Replay{
		Device: o.Name, Set: o.Device.Given(), Played: s.Played(), Qdisc: o.Qdisc.String(), LinkTrace: o.Link != nil,
		EpochNs: s.Epoch(), OriginNs: int64(r.feed.origin), StreamStats: s.Stats(), Captures: s.Files(), Policy: Policy,
	}
}

// about is the run in one line, for the heads of files.
func (r *run) about() string {
	x := r.replay()
	parts := []string{"device " + x.Device}
	if x.Device != r.o.Device.Name {
		parts[0] += " (" + r.o.Device.Name + ")"
	}
	for _, k := range r.o.Device.Knobs() {
		if k.Given() {
			parts = append(parts, k.Key+"="+k.Value())
		}
	}
	parts = append(parts, "schedule "+x.Schedule, "queue by "+x.QueueBy, "offload "+string(x.Offload), "qdisc "+x.Qdisc, fmt.Sprintf("seed %d", r.o.Seed))
	if x.Loop > 1 {
		parts = append(parts, fmt.Sprintf("loop %d", x.Loop))
	}
	if r.o.Launch.on() {
		parts = append(parts, fmt.Sprintf("launch time on queues %v", r.o.Launch.Queues.list))
	}
	if x.LinkTrace {
		parts = append(parts, "link trace")
	}
	return strings.Join(parts, ", ")
}

func (r *run) workload(card *NIC, all *queueLegs) *Workload {
	departure := &all.Legs[stack.Departure]
	w := &Workload{
		Kind:      "replay",
		LatencyNs: report.Latency{Percentiles: departure.Percentiles(), Between: departure.From + " to " + departure.To},
	}
	for _, n := range card.Dropped {
		w.Lost += n
	}
	if span := float64(r.book.last-r.book.first) / float64(engine.Second); card.Sent > 0 && span > 0 {
		w.GoodputBPS = float64(card.SentBytes) * 8 / span
		w.PPS = float64(card.SentPackets) / span
	}
	return w
}

func (r *run) card(all *queueLegs) *NIC {
	n := r.stack.NIC
	offered, sent, left := r.book.offered(), r.book.sent(), queued(r.stack)
	c := &NIC{
		Device:  r.o.Device.Name,
		Offered: offered.Frames, OfferedBytes: offered.Bytes,
		Sent: sent.Frames, SentBytes: sent.Bytes,
		SentPackets: n.Total().Packets, Queued: left.Frames, QueuedBytes: left.Bytes,
		Dropped: map[string]uint64{}, DroppedBytes: map[string]uint64{},
		Interrupts: n.Stats().Interrupts,
		LegsNs:     all.results(),
		Counters:   map[string]uint64{},
	}
	for i := range c.LegsNs {
		c.LegsNs[i].Distribution = distribution(&all.Legs[i].Histogram)
	}
	for reason, count := range r.book.dropped {
		c.drop(reason, count)
	}
	for q := range n.Queues() {
		t, b := n.Queue(q), &r.book.queues[q]
		x := NICQueue{
			Queue: report.QueueOf(&t), Offered: b.offered.Frames, OfferedBytes: b.offered.Bytes, Sent: b.sent.Frames, SentBytes: b.sent.Bytes, LegsNs: []Leg{},
		}
		if r.legs[q] != nil {
			x.LegsNs = r.legs[q].results()
		}
		c.Queues = append(c.Queues, x)
	}
	for _, counter := range n.Counters() {
		c.Counters[counter.Name] = counter.Value
	}
	return c
}
