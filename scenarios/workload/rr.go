package workload

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"nicemu/replay/report"
	"nicemu/scenarios/format"
)

// errEnd says that the other side closed the connection.
var errEnd = errors.New("the connection ended")

// maxLatency is the longest delay a histogram tells from longer ones.
const maxLatency = time.Minute

// newHistogram holds delays of 1 ns to maxLatency with three significant digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(maxLatency), 3)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	h.RecordValue(int64(min(max(d, 1), maxLatency))) // within its range, so it cannot fail
}

// transaction is an rr workload while it runs.
type transaction struct {
	request, response int
	interval          time.Duration
	options           socketOptions
	histogram         *hdrhistogram.Histogram
}

// rr connects once, then sends a request and waits for its response, again and
// again until the duration is over. A delay is the time from the call that sends the request to the
// return of the call that has read the last byte of the response. A request that is under way when
// the time is up does not count, so no delay longer than the duration is seen.
func (r *Runner) rr(ctx context.Context, w *format.Workload, target netip.Addr, result *Result) error {
	t := transaction{
		request: int(w.Request), response: int(w.Response), interval: w.Interval.Std(),
		options:   socketOptions{int(w.TOS), w.Priority},
		histogram: newHistogram(),
	}
	var listener, client *socket
	var at netip.AddrPort
	err := r.Do(w.TargetNetns(), func() (err error) {
		if listener, err = newSocket(family(target), t.options); err == nil {
			at, err = listener.listen(netip.AddrPortFrom(target, uint16(w.Port)))
		}
		return err
	})
	if listener != nil {
		defer listener.close()
	}
	if err != nil {
		return err
	}
	err = r.Do(w.From, func() (err error) {
		client, err = newSocket(family(target), t.options)
		return err
	})
	if err != nil {
		return err
	}
	defer client.close()

	served := make(chan error, 1)
	go func() { served <- t.serve(listener) }()
	err = wait(ctx, w.Start.Std())
	if err == nil {
		var over context.CancelFunc
		ctx, over = context.WithTimeoutCause(ctx, w.Duration.Std(), errOver)
		defer over()
		context.AfterFunc(ctx, client.end)
		asked := make(chan error, 1)
		go func() { asked <- t.ask(client, at, time.Now().Add(w.Warmup.Std())) }()
		err = <-asked
	}
	// Without a client the server's connection ends; without a connection its listener must.
	client.end()
	listener.end()
	if serveErr := <-served; serveErr != nil && ctx.Err() == nil && (err == nil || errors.Is(err, errEnd)) {
		err = serveErr
	}
	return t.conclude(ctx, err, result)
}

// conclude tells the end of the time from a failure.
func (t *transaction) conclude(ctx context.Context, err error, result *Result) error {
	result.LatencyNS = report.LatencyOf(t.histogram, "client: call of send(request) to return of recv(response)")
	if context.Cause(ctx) != errOver {
		return err
	}
	if t.histogram.TotalCount() > 0 {
		return nil
	}
	return errors.New("no response within the duration")
}

// serve answers one connection. The goroutine keeps its thread to itself.
func (t *transaction) serve(listener *socket) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := listener.accept(t.options)
	if err != nil {
		return err
	}
	defer c.close()
	request, response := make([]byte, t.request), make([]byte, t.response)
	for {
		if err := c.read(request); err != nil {
			return nil // the client decides when it is over
		}
		if err := c.write(response); err != nil {
			return nil
		}
	}
}

// ask is the client. The goroutine keeps its thread to itself.
func (t *transaction) ask(c *socket, server netip.AddrPort, warm time.Time) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.connect(server); err != nil {
		return err
	}
	request, response := make([]byte, t.request), make([]byte, t.response)
	next := time.Now()
	for {
		sent := time.Now()
		if err := c.write(request); err != nil {
			return err
		}
		if err := c.read(response); err != nil {
			return err
		}
		now := time.Now()
		if !sent.Before(warm) {
			record(t.histogram, now.Sub(sent))
		}
		if t.interval > 0 {
			// Requests that a slow response delayed are left out, not made up for.
			next = next.Add(t.interval)
			if next.Before(now) {
				next = now
			}
			if err := c.pause(next.Sub(now)); err != nil {
				return err
			}
		}
	}
}

// pause sleeps for d, or until the connection ends. The kernel's timer is finer than the runtime's.
func (s *socket) pause(d time.Duration) error {
	for d > 0 {
		start := time.Now()
		ts := unix.NsecToTimespec(int64(d))
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLRDHUP}}, &ts, nil)
		if n > 0 {
			return errEnd
		}
		if err != unix.EINTR {
			return err
		}
		d -= time.Since(start)
	}
	return nil
}
