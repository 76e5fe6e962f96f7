package liveplay

import (
	"context"
	"fmt"
	"time"

	"nicemu/devices/engine"
	"nicemu/emulator"
	"nicemu/replay"
	"nicemu/replay/report"
	"nicemu/scenarios"
	"nicemu/scenarios/workload"
)

// policy adds to what replays do with packets that are out of the ordinary.
const policy = replay.Policy + "; longer than the interface's MTU and no GSO packet: refused; truncated: the missing bytes are zeros"

// result reads everything off, after the loop has ended.
func (p *play) result(ctx context.Context) (*scenarios.Result, error) {
	o, b := p.o, p.bench
	did := p.sender.sums()
	c := &scenarios.Case{
		Params: map[string]any{}, VirtualS: p.spanS, NICs: map[string]*scenarios.NIC{}, Expectations: []scenarios.Expectation{},
		Replay: p.played(&did),
	}
	if did.late != nil && !o.Schedule.TopSpeed {
		c.LatenessNs = report.PercentilesOf(did.late)
	}
	r := &scenarios.Result{
		Schema: 1, Scenario: "replay", Seed: int64(o.Seed), Verdict: scenarios.VerdictOK, Reasons: []string{}, Notes: []string{},
		Kernel: scenarios.HostKernel("--live replays in this machine's kernel"),
		Clock:  "real", Backpressure: string(o.Way), Laws: report.Laws{Violations: []string{}},
		Cases: []*scenarios.Case{c},
	}
	card, err := scenarios.ReadCard(o.Name, b.card, o.Way)
	if err != nil {
		return nil, err
	}
	c.NICs[id(b.card)] = card
	r.Laws.Check(id(b.card), b.card.NIC().Audit())
	if b.far != nil {
		far, err := scenarios.ReadCard(o.Name, b.far, o.Way)
		if err != nil {
			return nil, err
		}
		c.NICs[id(b.far)] = far
		r.Laws.Check(id(b.far), b.far.NIC().Audit())
	}
	c.Workloads = map[string]*workload.Result{"replay": p.workload(card, c.Replay)}
	if err := p.qdiscs(ctx, r, c, card); err != nil {
		return nil, err
	}
	p.judge(r, c)
	return r, nil
}

func id(c *emulator.Card) string { return c.TAP().NS().Name() + "/" + c.TAP().Name() }

func (p *play) played(did *sums) *scenarios.Replay {
	o, s := p.o, p.reader.stream
	x := &scenarios.Replay{
		Side: string(o.Side), Netns: p.bench.ns.Name(), Dev: p.bench.card.TAP().Name(), Peer: o.Peer,
		Device: o.Name, Set: o.Device.Given(), TC: append([]string{}, o.TC...),
		Played: s.Played(), LinkTrace: o.Link != nil,
		StreamStats: s.Stats(), Captures: s.Files(), Policy: policy,
		Refused: p.reader.refused, ENOBUFS: did.refused.Frames, Starved: did.starved,
		TimersLateNs: report.PercentilesOf(p.bench.loop.Lateness()),
	}
	sum := did.accepted.Plus(did.refused)
	x.Injected, x.InjectedBytes = sum.Frames, sum.Bytes
	if x.SpanS = float64(did.span) / float64(engine.Second); x.SpanS > 0 {
		x.PPS = float64(x.Injected) / x.SpanS
		x.BPS = 8 * float64(x.InjectedBytes) / x.SpanS
	}
	return x
}

// workload is what came out at the other end: of the card, or in the kernel.
func (p *play) workload(card *scenarios.NIC, x *scenarios.Replay) *workload.Result {
	frames, bytes := card.Sent, card.SentBytes
	if p.o.Side == Wire {
		frames, bytes = card.Received, card.ReceivedBytes
	}
	w := &workload.Result{Kind: "replay"}
	if p.spanS > 0 {
		bps, pps := 8*float64(bytes)/p.spanS, float64(frames)/p.spanS
		w.GoodputBPS, w.PPS = &bps, &pps
	}
	lost := int64(x.Injected) - int64(frames)
	lost = max(0, lost-int64(card.Queued))
	w.Lost = &lost
	return w
}

// qdiscs reads the qdiscs, leaves out the gate's, and holds what went in
// against what came out.
func (p *play) qdiscs(ctx context.Context, r *scenarios.Result, c *scenarios.Case, card *scenarios.NIC) error {
	b, x := p.bench, c.Replay
	list, err := scenarios.Qdiscs(ctx, b.ns, b.card.TAP().Name())
	if err != nil {
		return err
	}
	c.Qdiscs = []map[string]any{}
	for _, q := range list {
		if !scenarios.OfGate(q) {
			q["netns"], q["dev"] = b.ns.Name(), b.card.TAP().Name()
			c.Qdiscs = append(c.Qdiscs, q)
		}
	}
	say := func(format string, args ...any) {
		r.Laws.Violations = append(r.Laws.Violations, fmt.Sprintf(format, args...))
	}
	if made := x.Frames; p.reader.err == nil && made != x.Injected+sum(x.Refused) {
		say("%d frames made of the captures, %d injected, refused %v", made, x.Injected, x.Refused)
	}
	if p.o.Side == Wire {
		if n := b.card.NIC().Stats(); n.Arrived.Frames != x.Injected {
			say("%d frames put on the wire, %d arrived", x.Injected, n.Arrived.Frames)
		}
		return nil
	}
	dropped, backlog := counts(list)
	x.Passed = b.card.Passed() - p.before
	x.QdiscDropped, x.QdiscBacklog = dropped-b.card.GateStats().Kicks, backlog
	if p.tree != tree(list) {
		r.Reasons = append(r.Reasons, "somebody changed the qdiscs meanwhile: their counters began anew, so frames cannot be accounted for")
		return nil
	}
	out := x.Passed + x.QdiscDropped + x.QdiscBacklog
	if out < x.Injected {
		say("injected %d, but left the qdisc %d + dropped by it %d + still in it %d = %d", x.Injected, x.Passed, x.QdiscDropped, x.QdiscBacklog, out)
	} else {
		x.OtherFrames = out - x.Injected
	}
	return nil
}

func sum(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// nothing is a *replay.NothingError if no frame was sent and the captures are
// whole.
func (p *play) nothing() error {
	if did := p.sender.sums(); p.reader.err != nil || did.accepted.Frames+did.refused.Frames > 0 {
		return nil
	}
	return &replay.NothingError{Captures: p.reader.stream.Files(), Refused: p.reader.refused}
}

// judge gives the verdict and its reasons.
func (p *play) judge(r *scenarios.Result, c *scenarios.Case) {
	degrade := func(format string, args ...any) {
		r.Verdict = scenarios.VerdictDegraded
		r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...))
	}
	if p.o.Way == emulator.Lossy {
		r.Reasons = append(r.Reasons, scenarios.LossyReason)
	}
	if err := p.reader.err; err != nil {
		degrade("%v; what came before it was replayed", err)
	}
	if err := p.nothing(); err != nil {
		degrade("%v", err)
	}
	if late := time.Duration(c.LatenessNs.P99); late > scenarios.LateLimit {
		degrade("the host sent 1 %% of the frames more than %v late (limit %v)", late.Round(time.Microsecond), scenarios.LateLimit)
	}
	if p.stuck {
		degrade("nothing moved for %v: frames are queued", drainPatience)
	}
	r.JudgeLaws()
}
