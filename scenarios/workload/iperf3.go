package workload

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"nicemu/scenarios/format"
)

const (
	// maxReport bounds what a program may report: iperf3 writes some 300 bytes per flow and second.
	maxReport = 32 << 20
	// connectTimeout is for the control connection.
	connectTimeout = 5 * time.Second
	// overrun is how long beyond its duration a client may take to hand over the results.
	overrun = 15 * time.Second
)

// iperf3 runs one server and one client.
func (r *Runner) iperf3(ctx context.Context, w *format.Workload, target netip.Addr, result *Result) error {
	if err := installed("iperf3", "iperf3"); err != nil {
		return err
	}
	late := fmt.Errorf("iperf3 had not ended %v after its duration", overrun)
	ctx, cancel := context.WithTimeoutCause(ctx, w.Start.Std()+connectTimeout+w.Duration.Std()+overrun, late)
	defer cancel()

	report := &buffer{limit: maxReport}
	server, err := r.iperf3Server(ctx, w, report)
	if err != nil {
		return fmt.Errorf("iperf3 server: %w", err)
	}
	defer server.stop()
	if err := wait(ctx, w.Start.Std()); err != nil {
		return err
	}
	client, clientErr := r.iperf3Client(ctx, w, target)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if client == nil {
		return fmt.Errorf("iperf3 client: %w", clientErr)
	}
	if clientErr == nil {
		// The server writes its report and ends by itself after one client.
		clientErr = server.wait()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	server.stop()
	var received *iperf3Report
	if text, all := report.bytes(); all {
		received, _ = parseIperf3(text) // without it there are no intervals
	}
	client.fill(result, received, w.Proto)
	if client.Error != "" {
		return errors.New("iperf3: " + client.Error)
	}
	return clientErr
}

// iperf3Server starts a server for one client and returns when it listens.
func (r *Runner) iperf3Server(ctx context.Context, w *format.Workload, report *buffer) (*process, error) {
	netns := w.TargetNetns()
	if busy, err := r.listening(netns, w.Port); err != nil || busy {
		if err == nil {
			err = fmt.Errorf("port %d is taken in netns %s", w.Port, netns)
		}
		return nil, err
	}
	cmd := r.Exec(ctx, netns, []string{"iperf3", "--server", "--one-off", "--json", "--port", strconv.Itoa(w.Port)})
	complaints := &buffer{limit: maxOutput}
	cmd.Stdout, cmd.Stderr = report, complaints
	p, err := start(cmd)
	if err != nil {
		return nil, err
	}
	if err := r.awaitListener(ctx, netns, w.Port, p); err != nil {
		p.stop()
		if text, _ := report.bytes(); len(text) > 0 {
			if said, parseErr := parseIperf3(text); parseErr == nil && said.Error != "" {
				return nil, errors.New(said.Error)
			}
		}
		return nil, fmt.Errorf("%w%s", err, lastLine(complaints.text()))
	}
	return p, nil
}

// iperf3Client runs the client to its end. A report comes with an error when
// the client failed after it had something to say.
func (r *Runner) iperf3Client(ctx context.Context, w *format.Workload, target netip.Addr) (*iperf3Report, error) {
	cmd := r.Exec(ctx, w.From, iperf3Args(w, target))
	out, complaints := &buffer{limit: maxReport}, &buffer{limit: maxOutput}
	cmd.Stdout, cmd.Stderr = out, complaints
	p, err := start(cmd)
	if err != nil {
		return nil, err
	}
	err = p.wait()
	text, all := out.bytes()
	if !all {
		return nil, fmt.Errorf("its report is longer than %d bytes", maxReport)
	}
	report, parseErr := parseIperf3(text)
	if parseErr != nil {
		if err != nil {
			return nil, fmt.Errorf("exit status %d%s", p.status(), lastLine(complaints.text()))
		}
		return nil, parseErr
	}
	return report, err
}

// iperf3Args is the client's command line.
func iperf3Args(w *format.Workload, target netip.Addr) []string {
	args := []string{
		"iperf3", "--client", target.String(), "--port", strconv.Itoa(w.Port), "--json",
		"--connect-timeout", strconv.Itoa(int(connectTimeout / time.Millisecond)),
		"--time", strconv.Itoa(int(w.Duration.Std() / time.Second)),
		"--parallel", strconv.Itoa(w.Flows),
	}
	if w.Proto == format.UDP {
		args = append(args, "--udp")
	}
	if w.Rate > 0 {
		args = append(args, "--bitrate", strconv.FormatInt(int64(w.Rate), 10))
	}
	if w.Length > 0 {
		args = append(args, "--length", strconv.FormatInt(int64(w.Length), 10))
	}
	if w.TOS > 0 {
		args = append(args, "--tos", strconv.Itoa(int(w.TOS)))
	}
	if w.Cport > 0 {
		args = append(args, "--cport", strconv.Itoa(w.Cport))
	}
	return append(args, w.Args...)
}
