package workload

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"nicemu/replay/report"
	"nicemu/scenarios/format"
)

// lastReply is how long ping waits for replies after its last request, in seconds.
const lastReply = 1

// ping runs ping of iputils: as many requests as fit in the duration.
func (r *Runner) ping(ctx context.Context, w *format.Workload, target netip.Addr, result *Result) error {
	if err := installed("ping", "iputils-ping"); err != nil {
		return err
	}
	if err := wait(ctx, w.Start.Std()); err != nil {
		return err
	}
	late := fmt.Errorf("ping had not ended %v after its duration", overrun)
	ctx, cancel := context.WithTimeoutCause(ctx, w.Duration.Std()+overrun, late)
	defer cancel()
	cmd := r.Exec(ctx, w.From, pingArgs(w, target))
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	out, complaints := &buffer{limit: maxReport}, &buffer{limit: maxOutput}
	cmd.Stdout, cmd.Stderr = out, complaints
	p, err := start(cmd)
	if err != nil {
		return err
	}
	err = p.wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	text, all := out.bytes()
	if !all {
		return fmt.Errorf("ping wrote more than %d bytes", maxReport)
	}
	if parseErr := parsePing(text, result); parseErr != nil {
		return errors.Join(parseErr, fmt.Errorf("ping: exit status %d%s", p.status(), lastLine(complaints.text())))
	}
	if result.LatencyNS.Count == 0 {
		return fmt.Errorf("no reply to %d echo requests", *result.Lost)
	}
	return err
}

// pingArgs is ping's command line.
func pingArgs(w *format.Workload, target netip.Addr) []string {
	count := max(1, w.Duration/max(w.Interval, 1))
	args := []string{
		"ping", "-n", "-c", strconv.FormatInt(int64(count), 10), "-W", strconv.Itoa(lastReply),
		"-i", strconv.FormatFloat(w.Interval.Std().Seconds(), 'f', -1, 64),
	}
	if w.Length > 0 {
		args = append(args, "-s", strconv.FormatInt(int64(w.Length), 10))
	}
	if w.TOS > 0 {
		args = append(args, "-Q", strconv.Itoa(int(w.TOS)))
	}
	return append(append(args, w.Args...), target.String())
}

// parsePing reads what ping of iputils writes: a line with "time=N ms" per reply, three significant digits,
// and a summary "N packets transmitted, M received". Replies that came twice count once.
func parsePing(text []byte, result *Result) error {
	h := newHistogram()
	sent := int64(-1)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if n, ok := strings.CutSuffix(line[:max(0, strings.Index(line, " transmitted"))], " packets"); ok {
			if v, err := strconv.ParseInt(n, 10, 64); err == nil {
				sent = v
			}
			continue
		}
		_, rest, ok := strings.Cut(line, " time=")
		if !ok || strings.Contains(line, "(DUP!)") {
			continue
		}
		number, _, _ := strings.Cut(rest, " ms")
		ms, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return fmt.Errorf("ping's output: cannot read %q", line)
		}
		record(h, time.Duration(ms*float64(time.Millisecond)+0.5))
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("ping's output: %w", err)
	}
	if sent < 0 {
		return errors.New("ping wrote no summary")
	}
	lost := sent - h.TotalCount()
	result.Lost = &lost
	result.LatencyNS = report.LatencyOf(h, "ping: echo request sent to echo reply received")
	return nil
}
