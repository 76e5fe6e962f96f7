package scenarios

import (
	"context"
	"os/exec"
	"sync"
	"time"

	"nicemu/devices/engine"
	"nicemu/emulator"
	"nicemu/scenarios/format"
	"nicemu/scenarios/workload"
)

// runner lets workloads into the topology's namespaces.
func (t *topology) runner() *workload.Runner {
	return &workload.Runner{
		Exec: func(ctx context.Context, netns string, argv []string) *exec.Cmd {
			return t.ns[netns].Command(ctx, argv...)
		},
		Do: func(netns string, fn func() error) error { return t.ns[netns].Do(fn) },
	}
}

// runWorkloads runs all of them, side by side, and returns what each measured.
// The first that fails ends the others.
func (t *topology) runWorkloads(ctx context.Context, s *format.Scenario, p *Progress) (map[string]*workload.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]*workload.Result, len(s.Workloads))
	run := t.runner()
	var wg sync.WaitGroup
	for i := range s.Workloads {
		w := &s.Workloads[i]
		wg.Go(func() {
			var err error
			if results[i], err = run.Run(ctx, w, s.Target(w)); err != nil {
				cancel(err)
			}
		})
	}
	shown := p.clock(time.Duration(s.Duration))
	wg.Wait()
	shown()
	named := map[string]*workload.Result{}
	for i := range s.Workloads {
		named[s.Workloads[i].Name] = results[i]
	}
	return named, context.Cause(ctx)
}

// startSteps begins the rate changes of all links; on the loop's thread.
func (t *topology) startSteps(s *format.Scenario) {
	for i := range s.Links {
		l := &s.Links[i]
		var steps []emulator.RateStep
		for _, step := range l.Steps {
			steps = append(steps, emulator.RateStep{At: engine.Time(step.At), Rate: int64(step.Rate)})
		}
		t.loop.Trace(t.card(l.Ends[0]).Card, t.card(l.Ends[1]).Card, steps)
	}
}
