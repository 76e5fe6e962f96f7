// Package scenarios runs experiments: it builds the namespaces, cards and links
// of a scenario file, lets real programs and built-in probes run across them,
// and turns what was measured into one document and one table.
//
// What a file may say is package format's; the traffic is package workload's;
// the cards are package emulator's. Left out: deciding what a good result is,
// beyond the expectations that the file states.
package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nicemu/devices/units"
	"nicemu/emulator"
	"nicemu/replay/report"
	"nicemu/scenarios/format"
)

// Options of a run.
type Options struct {
	Way      emulator.Way  // wanted back-pressure
	Kernel   report.Kernel // the one we are in, for the result; the zero value is the host
	Virtual  bool          // its time is virtual: the host is never late and limits nothing
	Progress *Progress     // nil: silent
}

// LateLimit is the 99th percentile of timer lateness above which the host
// counts as too slow: half a millisecond, some 40 full frames at 1 Gbit/s.
const LateLimit = 500 * time.Microsecond

// LossyReason is what the results of a run without back-pressure begin with.
const LossyReason = "back-pressure is off (lossy): frames are lost below the qdisc, figures of queue management mean nothing"

// Run carries out every case of s in the kernel that we are in. A result
// comes with an error only if the error is the context's.
func Run(ctx context.Context, s *format.Scenario, o Options) (*Result, error) {
	if err := s.CheckPrograms(); err != nil {
		return nil, err
	}
	way, err := emulator.ChooseWay(o.Way)
	if err != nil {
		return nil, err
	}
	o.Way = way
	traces, err := OpenTraces(s)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	r := &Result{
		Schema: 1, Scenario: s.Name, Seed: s.Seed, Verdict: VerdictOK, Reasons: []string{}, Notes: []string{},
		Kernel: o.Kernel, Clock: "real", Backpressure: string(way), Laws: report.Laws{Violations: []string{}},
	}
	if r.Kernel == (report.Kernel{}) {
		r.Kernel = HostKernel("asked for")
	}
	if o.Virtual {
		r.Clock = "virtual"
	}
	if way == emulator.Lossy {
		r.Reasons = append(r.Reasons, LossyReason)
	}
	var ceiling *Ceiling
	if !o.Virtual {
		o.Progress.Step("measuring what this host carries")
		if ceiling, err = measureCeiling(ctx, way); err != nil {
			return nil, err
		}
	}
	points := s.Cases()
	for i := range points {
		o.Progress.Case(i, len(points), points[i].String())
		c, err := runCase(ctx, &points[i], traces, &o, r)
		if err != nil {
			if title := points[i].String(); title != "" {
				err = fmt.Errorf("case %s: %w", title, err)
			}
			return nil, err
		}
		c.HostCeiling = ceiling
		r.Cases = append(r.Cases, c)
		r.note(orphanNotes(points[i].Scenario)...)
		if !o.Virtual {
			r.judgeHost(c, points[i].Scenario, traces)
		}
	}
	o.Progress.Done()
	if err := evaluate(s, points, r); err != nil {
		return nil, err
	}
	r.JudgeLaws()
	r.WallS = time.Since(start).Seconds()
	return r, nil
}

func measureCeiling(ctx context.Context, way emulator.Way) (*Ceiling, error) {
	c, err := emulator.MeasureCeiling(ctx, way)
	if err != nil {
		return nil, fmt.Errorf("measuring what the host carries: %w", err)
	}
	return &Ceiling{c.FramesPerS, c.BitsPerS}, nil
}

// runCase builds the case, lets its workloads run, reads everything off and
// takes it down again.
func runCase(ctx context.Context, p *format.Case, traces Traces, o *Options, r *Result) (c *Case, err error) {
	s := p.Scenario
	t, err := build(ctx, s, traces, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if !o.Virtual {
		defer emulator.Hurry()()
	}

	setup, err := setupOf(s)
	if err != nil {
		return nil, err
	}
	c = &Case{Setup: setup, Params: p.Values(), NICs: map[string]*NIC{}, Expectations: []Expectation{}, title: p.String()}
	// A run that is interrupted, or whose loop fails, ends its workloads.
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		<-t.done
		cancel(t.err)
	}()
	samples := t.startSampling(work)
	began := time.Now()
	before, err := readProcessors()
	if err != nil {
		return nil, errors.Join(err, t.halt())
	}
	if err := t.loop.Do(func() { t.startSteps(s) }); err != nil {
		return nil, errors.Join(err, t.halt())
	}
	c.Workloads, err = t.runWorkloads(work, s, o.Progress)
	c.VirtualS = time.Since(began).Seconds()
	after, statErr := readProcessors()
	if others := after.othersSince(before); !o.Virtual {
		c.OthersCPU = &others
	}
	queues, sampleErr := samples.finish()
	if err = errors.Join(err, statErr, sampleErr); err != nil {
		return nil, errors.Join(err, t.halt())
	}
	if c.Qdiscs, err = t.qdiscs(ctx, queues); err != nil {
		return nil, err
	}
	if err := t.halt(); err != nil {
		return nil, err
	}
	for _, k := range t.cards {
		n, err := ReadCard(k.spec.Device, k.Card, o.Way)
		if err != nil {
			return nil, err
		}
		c.NICs[k.spec.ID()] = n
		r.Laws.Check(where(c, k.spec.ID()), k.NIC().Audit())
	}
	c.LatenessNs = report.PercentilesOf(t.loop.Lateness())
	return c, nil
}

// ReadCard reads a card off, after its loop has ended.
func ReadCard(device string, c *emulator.Card, way emulator.Way) (*NIC, error) {
	n := nicResult(device, c.NIC())
	var err error
	if n.BelowQdiscDropped, err = c.BelowQdiscDropped(); err != nil {
		return nil, err
	}
	n.drop("link_loss", c.Lost())
	n.drop("kernel_refused", c.Refused())
	if way == emulator.Gate {
		p := report.PercentilesOf(c.Excess())
		n.GateExcessBytes = &p
		n.GateRescues = c.GateStats().Rescues
	}
	return n, nil
}

// judgeHost marks the run degraded if the host was too slow for the model.
func (r *Result) judgeHost(c *Case, s *format.Scenario, traces Traces) {
	for _, l := range s.Links {
		rate := l.Rate
		if l.Trace != "" {
			rate = units.Rate(traces[l.Trace].Mean())
		}
		if bits := float64(rate); bits > c.HostCeiling.BitsPerS {
			r.degrade(c, fmt.Sprintf("the link is %v, this host carries %s: %.1f times too fast for it",
				rate, report.Rate(c.HostCeiling.BitsPerS), bits/c.HostCeiling.BitsPerS))
		}
	}
	if late := time.Duration(c.LatenessNs.P99); late > LateLimit {
		r.degrade(c, fmt.Sprintf("the host ran 1 %% of the model's timers more than %v late (limit %v)", late.Round(time.Microsecond), LateLimit))
	}
}
