// Package workload runs the traffic of a scenario between namespaces and measures it.
//
// Real programs do the work where there are any: iperf3 for bulk traffic, ping of
// iputils, any command. Built in is rr, a TCP request and response after the
// manner of netperf's TCP_RR, with a histogram instead of a mean.
//
// Left out: UDP talkers with launch times, and replay of captures.
package workload

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"nicemu/replay/report"
	"nicemu/scenarios/format"
)

// Runner is how workloads reach the scenario's namespaces, by the names they have there.
type Runner struct {
	// Exec makes the command argv, to be run inside the namespace, with exec.CommandContext.
	Exec func(ctx context.Context, netns string, argv []string) *exec.Cmd
	// Do calls fn on a thread inside the namespace and returns its error. A socket
	// made by fn belongs to that namespace for good.
	Do func(netns string, fn func() error) error
}

// Result is what one workload measured, in base units. What does not apply to
// its kind is absent.
type Result struct {
	Kind        format.Kind     `json:"kind"`
	GoodputBPS  *float64        `json:"goodput_bps,omitempty"` // payload received, mean over the run
	PPS         *float64        `json:"pps,omitempty"`         // packets of the wire received, a second; models only
	Retransmits *int64          `json:"retransmits,omitempty"` // TCP segments
	Lost        *int64          `json:"lost,omitempty"`        // UDP datagrams, or echo requests without reply
	LatencyNS   *report.Latency `json:"latency_ns,omitempty"`
	Intervals   []float64       `json:"intervals,omitempty"` // payload received in each second, bits per second
	ExitStatus  *int            `json:"exit_status,omitempty"`
	Output      string          `json:"output,omitempty"` // the end of what the program wrote
	Error       string          `json:"error,omitempty"`
}

// MissingProgram says that a program a workload needs is not installed.
type MissingProgram struct {
	Program string
	Package string // Debian's, if known
}

func (e *MissingProgram) Error() string {
	s := fmt.Sprintf("the program %s is not installed", e.Program)
	if e.Package != "" {
		s += ": apt-get install " + e.Package
	}
	return s
}

// Run carries out one workload of a resolved case and returns when it is over
// and every process and socket of it is gone. Target is the server's address,
// as format.Scenario.Target finds it.
//
// The result is never nil and holds whatever was measured; its Error is the text
// of the returned error. A command that fails by its exit status is an error too.
// When ctx ends, Run ends within about half a second and returns the cause.
func (r *Runner) Run(ctx context.Context, w *format.Workload, target netip.Addr) (*Result, error) {
	result := &Result{Kind: w.Kind}
	var err error
	switch w.Kind {
	case format.KindIperf3:
		err = r.iperf3(ctx, w, target, result)
	case format.KindRR:
		err = r.rr(ctx, w, target, result)
	case format.KindPing:
		err = r.ping(ctx, w, target, result)
	case format.KindExec:
		err = r.exec(ctx, w, result)
	default:
		err = fmt.Errorf("no workload of kind %q", w.Kind)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx) // what it broke on the way is a consequence
	}
	if err != nil {
		err = fmt.Errorf("workload %s: %w", w.Name, err)
		result.Error = err.Error()
	}
	return result, err
}

// wait returns after d, or with an error when ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
