package workload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	listenTimeout = 5 * time.Second
	listenPoll    = time.Millisecond
)

// awaitListener returns when a TCP port of the namespace is listened on, and with
// an error if the program that should do so ends before.
func (r *Runner) awaitListener(ctx context.Context, netns string, port int, p *process) error {
	timeout := time.NewTimer(listenTimeout)
	defer timeout.Stop()
	poll := time.NewTicker(listenPoll)
	defer poll.Stop()
	for {
		if ok, err := r.listening(netns, port); ok || err != nil {
			return err
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended with exit status %d", p.status())
		case <-timeout.C:
			return fmt.Errorf("it did not listen on port %d within %v", port, listenTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll.C:
		}
	}
}

// listening says whether some TCP socket of the namespace listens on the port.
func (r *Runner) listening(netns string, port int) (found bool, err error) {
	err = r.Do(netns, func() error {
		// Of this thread, which is in the namespace; /proc/net is the main thread's.
		for _, table := range []string{"tcp", "tcp6"} {
			f, err := os.Open("/proc/thread-self/net/" + table)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a kernel without IPv6
			}
			if err != nil {
				return err
			}
			here, err := listensOn(f, port)
			f.Close()
			if err != nil {
				return err
			}
			found = found || here
		}
		return nil
	})
	return found, err
}

// listensOn reads a table of net/ipv4/tcp_ipv4.c's tcp4_seq_show: the second field is
// ADDRESS:PORT in hex, the fourth the state.
func listensOn(table io.Reader, port int) (bool, error) {
	const listen = "0A" // TCP_LISTEN
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || f[3] != listen {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
			return true, nil
		}
	}
	return false, lines.Err()
}
