package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nicemu/scenarios/format"
)

// maxOutput is how much of a command's output a result keeps.
const maxOutput = 64 << 10

// errOver is the cause of ending a command whose time is up.
var errOver = errors.New("its duration is over")

// exec runs a command until it ends or its duration is over; being ended then
// is no failure.
func (r *Runner) exec(ctx context.Context, w *format.Workload, result *Result) error {
	if err := installed(w.Command[0], ""); err != nil {
		return err
	}
	if err := wait(ctx, w.Start.Std()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.Duration.Std(), errOver)
	defer cancel()
	cmd := r.Exec(ctx, w.From, w.Command)
	output := &buffer{limit: maxOutput}
	cmd.Stdout, cmd.Stderr = output, output
	p, err := start(cmd)
	if err != nil {
		return err
	}
	err = p.wait()
	status := p.status()
	result.ExitStatus, result.Output = &status, output.text()
	if err == nil || context.Cause(ctx) == errOver {
		return nil
	}
	return fmt.Errorf("%s: exit status %d%s", w.Command[0], status, lastLine(result.Output))
}

// lastLine is ": " and the last line a program wrote, for an error; or nothing.
func lastLine(output string) string {
	output = strings.TrimSpace(output)
	line := output[strings.LastIndexByte(output, '\n')+1:]
	if line == "" {
		return ""
	}
	return ": " + line
}
