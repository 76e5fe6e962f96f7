package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"

	"nicemu/devices/engine"
	"nicemu/replay/report"
	"nicemu/scenarios/format"
)

// Simulate carries out every case of s on models alone, in virtual time: no
// kernel, no namespace, no rights. Cards and links are those of a live run, the
// qdiscs are those of package qdisc, and workloads become the sources of package
// source, with the limits stated there. The result is a function of s: the same
// bytes from run to run.
//
// Figures differ from a live run's where a TAP differs from a card: it orphans
// frames, so that TCP small queues does not count what is in the ring, and a ring
// without BQL holds what TCP's windows allow. Here the ring counts.
//
// It is an error, with its place in the file, if s needs what there is no model
// of: programs, other qdiscs, classes and filters, a way over more than one link.
func Simulate(ctx context.Context, s *format.Scenario, o Options) (*Result, error) {
	r := &Result{
		Schema: 1, Scenario: s.Name, Seed: s.Seed, Verdict: VerdictOK, Reasons: []string{}, Notes: []string{},
		Kernel: report.Kernel{Mode: string(format.KernelModel), Reason: "asked for; cards, qdiscs and traffic are models"},
		Clock:  "virtual", Backpressure: "none", Laws: report.Laws{Violations: []string{}},
	}
	traces, err := OpenTraces(s)
	if err != nil {
		return nil, err
	}
	points := s.Cases()
	for i := range points {
		if _, err := newModel(points[i].Scenario, traces); err != nil {
			return nil, err
		}
	}
	runs := make([]modelRun, len(points))
	err = eachCase(ctx, len(points), o.Progress, func(i int) (err error) {
		runs[i], err = simulateCase(ctx, &points[i], traces)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range runs {
		r.take(&runs[i])
	}
	if err := evaluate(s, points, r); err != nil {
		return nil, err
	}
	r.JudgeLaws()
	return r, nil
}

// modelRun is what one case on models gives.
type modelRun struct {
	c          *Case
	audited    int
	violations []string
	notes      []string // what to know about the models when reading the figures
}

func (r *Result) take(run *modelRun) {
	r.Cases = append(r.Cases, run.c)
	r.Laws.Checked += run.audited
	for _, v := range run.violations {
		r.Laws.Violations = append(r.Laws.Violations, where(run.c, v))
	}
	r.note(run.notes...)
}

// eachCase runs do for 0 to n-1 on as many cores as there are, each on an engine
// of its own, and returns the error of the lowest number.
func eachCase(ctx context.Context, n int, p *Progress, do func(i int) error) error {
	p.Step(fmt.Sprintf("0 of %d cases", n))
	defer p.Done()
	errs := make([]error, n)
	next := make(chan int)
	var mu sync.Mutex
	ended := 0
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = do(i)
				mu.Lock()
				ended++
				p.Step(fmt.Sprintf("%d of %d cases", ended, n))
				mu.Unlock()
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// simulateCase runs one case to its end and reads everything off.
func simulateCase(ctx context.Context, p *format.Case, traces Traces) (run modelRun, err error) {
	m, err := newModel(p.Scenario, traces)
	if err != nil {
		return run, err
	}
	end := m.schedule()
	if err := advance(ctx, m.eng, end); err != nil {
		return run, err
	}
	c := &Case{
		Params: p.Values(), VirtualS: float64(end) / float64(engine.Second), title: p.String(),
		Workloads: m.results(), NICs: map[string]*NIC{}, Qdiscs: []map[string]any{}, Expectations: []Expectation{},
	}
	for _, k := range m.cards {
		c.NICs[k.spec.ID()] = k.result()
		c.Qdiscs = append(c.Qdiscs, k.qdiscResults()...)
		run.audited++
		if err := k.audit(); err != nil {
			run.violations = append(run.violations, k.spec.ID()+": "+err.Error())
		}
	}
	if c.Setup, err = setupOf(p.Scenario); err != nil {
		return run, err
	}
	for i := range p.Scenario.Workloads {
		if isTCP(&p.Scenario.Workloads[i]) {
			c.Setup.TCP = &tcpSetup
		}
	}
	run.c, run.notes = c, m.notes
	return run, nil
}

// advance runs the engine up to end, and looks now and then whether anybody
// still wants it.
func advance(ctx context.Context, e *engine.Engine, end engine.Time) error {
	const look = engine.Millisecond
	for e.Now() < end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.AdvanceTo(min(end, e.Now()+look))
	}
	return nil
}

// asMap is v as its JSON reads.
func asMap(v any) map[string]any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs of numbers and text
	}
	m := map[string]any{}
	if err := json.Unmarshal(text, &m); err != nil {
		panic(err)
	}
	return m
}
