package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"nicemu/emulator"
	"nicemu/lab"
	"nicemu/replay/report"
	"nicemu/scenarios/format"
)

// LabJob is a run that is handed to the lab kernel: the caller writes it down in
// a directory that both sides see, this program in the guest reads it there,
// carries it out, and leaves the result beside it.
type LabJob struct {
	File   string       // the scenario's file name, for errors
	Text   string       // what is in it
	Set    []string     // assignments on top, as for format.Scenario.Set
	Way    emulator.Way // wanted back-pressure
	Reason string       // why in the lab
}

// Names in the job directory.
const (
	labJobFile    = "job.json"
	labResultFile = "result.json"
)

// LabOptions say how the lab runs a job.
type LabOptions struct {
	Kernel string                    // from lab.Build
	Argv   func(dir string) []string // the command that calls RunLabJob with dir; Argv[0] calls lab.Init
	Stderr io.Writer                 // what the guest says meanwhile
}

// GuestStatus is the exit status of a guest whose command failed and said why.
type GuestStatus int

func (s GuestStatus) Error() string {
	return fmt.Sprintf("the run in the lab failed with exit status %d", int(s))
}

// RunInLab carries out the job in the lab kernel, in virtual time. The scenario s
// is what the job's text and assignments make.
func RunInLab(ctx context.Context, s *format.Scenario, j LabJob, o LabOptions) (*Result, error) {
	start := time.Now()
	dir, remove, err := lab.TempDir()
	if err != nil {
		return nil, err
	}
	defer remove()
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, labJobFile), text, 0o600); err != nil {
		return nil, err
	}
	g, err := labGuest(s, dir, o)
	if err != nil {
		return nil, err
	}
	ended, err := lab.Run(ctx, g)
	if err != nil {
		return nil, err
	}
	r, err := readLabResult(filepath.Join(dir, labResultFile))
	if errors.Is(err, fs.ErrNotExist) && ended.Status != 0 {
		return nil, GuestStatus(ended.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("result of the run in the lab: %w", err)
	}
	r.WallS = time.Since(start).Seconds()
	points := s.Cases()
	for i, c := range r.Cases {
		c.title = points[i].String()
	}
	return r, nil
}

func readLabResult(path string) (*Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Result{}
	return r, json.Unmarshal(text, r)
}

// labEpoch is the date in the guest when it boots: the same for every run.
var labEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// What a case may need in guest time beyond its workloads, and how much longer
// real time may be than guest time before the guest counts as lost.
const (
	labCaseSlack = 30 * time.Second
	labSlowdown  = 200
)

func labGuest(s *format.Scenario, dir string, o LabOptions) (g lab.Guest, err error) {
	argv := o.Argv(dir)
	var virtual time.Duration
	for _, p := range s.Cases() {
		virtual += labCaseSlack + time.Duration(p.Scenario.Duration)
		for i := range p.Scenario.Workloads {
			w := &p.Scenario.Workloads[i]
			virtual += time.Duration(w.Start) + time.Duration(w.Duration)
		}
	}
	g = lab.Guest{
		Kernel: o.Kernel, Init: argv[0], Argv: argv, JobDir: dir,
		Env:         append(lab.DefaultEnv(), labRuntime...),
		VirtualTime: true, Clock: labEpoch, Seed: uint64(s.Seed) + 1, // 0 would be no seed
		VirtualLimit: virtual, WallLimit: labSlowdown * virtual,
		Stdout: o.Stderr, Stderr: o.Stderr,
	}
	g.Dir, err = os.Getwd()
	return g, err
}

// labRuntime keeps the Go runtime quiet: each of its own wake-ups costs as much
// real time as a frame.
var labRuntime = []string{"GOMAXPROCS=2", "GOGC=off", "GOMEMLIMIT=400MiB", "GODEBUG=asyncpreemptoff=1"}

// RunLabJob is the guest's side of RunInLab. An error is for the guest's standard
// error, and its exit status for RunInLab.
func RunLabJob(ctx context.Context, dir string, p *Progress) (*Result, error) {
	text, err := os.ReadFile(filepath.Join(dir, labJobFile))
	if err != nil {
		return nil, err
	}
	var j LabJob
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, err
	}
	s, err := format.Parse(j.File, []byte(j.Text), FormatOptions())
	if err != nil {
		return nil, err
	}
	if err := s.Set(j.Set...); err != nil {
		return nil, err
	}
	k := report.Kernel{Mode: string(format.KernelLab), Release: release(), Reason: j.Reason}
	r, err := Run(ctx, s, Options{Way: j.Way, Kernel: k, Virtual: true, Progress: p})
	if err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, labResultFile))
	if err != nil {
		return nil, err
	}
	return r, errors.Join(r.WriteJSON(f), f.Close())
}
