package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Result is what a boot left behind.
type Result struct {
	Status  int           // exit status of the command; 128 + signal number if it was killed
	Elapsed time.Duration // guest time the command took
	Boot    time.Duration // real time from the start of the kernel to the start of the command
	Wall    time.Duration // real time of everything
	Console string        // the last lines of the kernel's console, usually none
}

// Reasons why a guest did not finish; errors.Is finds them in a *[GuestError].
var (
	// Crashed: the kernel ended before the command did: a panic, or nothing left
	// in virtual time that could ever happen.
	Crashed = errors.New("the guest kernel died")
	// Stalled: neither output nor the heartbeat that the guest's init sends every
	// 100 ms of guest time came for StallLimit of real time. In virtual time this
	// is what a program looks like that spins: the clock stands still meanwhile.
	Stalled = errors.New("the guest makes no progress")
	// WallTimeout: WallLimit was reached.
	WallTimeout = errors.New("the guest exceeded its limit of real time")
	// VirtualTimeout: the command still ran after VirtualLimit of guest time.
	VirtualTimeout = errors.New("the command exceeded its limit of guest time")
	// NotStarted: init could not start the command.
	NotStarted = errors.New("the guest could not start the command")
)

// GuestError says why a guest did not finish and what it said last.
type GuestError struct {
	Reason  error  // one of the reasons above
	Detail  string // may be empty
	Console string // last lines of the guest's console
}

func (e *GuestError) Error() string {
	s := e.Reason.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Console != "" {
		s += "\nits console said last:\n" + e.Console
	}
	return s
}

func (e *GuestError) Unwrap() error { return e.Reason }

// Run boots the guest, runs its command and returns when the guest is gone. A
// command that ends, with whatever status, is no error. Cancelling ctx kills the
// guest; so does the death of the calling process. Errors: a *[GuestError], the
// cause of ctx, or what kept the kernel from starting.
func Run(ctx context.Context, g Guest) (Result, error) {
	if len(g.Argv) == 0 {
		return Result{}, errors.New("lab: no command given")
	}
	dir, err := g.makeRunDir(false)
	if err != nil {
		return Result{}, fmt.Errorf("lab: %w", err)
	}
	defer dir.remove()

	control, controlW, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer control.Close()
	console, consoleW, err := os.Pipe()
	if err != nil {
		controlW.Close()
		return Result{}, err
	}
	defer console.Close()
	// A full pipe would have to wait for the reader in real time, while virtual
	// time runs on. Best effort: the host may allow less.
	unix.FcntlInt(controlW.Fd(), unix.F_SETPIPE_SZ, 1<<20)

	k, err := startKernel(dir.path, &g, g.kernelArgs("null,fd:1", 3), nil, consoleW, controlW)
	controlW.Close()
	consoleW.Close()
	if err != nil {
		return Result{}, fmt.Errorf("lab: %w", err)
	}
	s := &session{guest: &g, kernel: k, console: newTail(40)}
	return s.run(ctx, control, console)
}

// session is a booted guest, seen from the host.
type session struct {
	guest   *Guest
	kernel  *kernel
	began   time.Time
	result  Result
	console *tail

	life    atomic.Int64 // real time of the last message, ns since began
	writing atomic.Bool  // Stdout or Stderr keeps us, not the guest
	ended   bool         // the guest reported the command's end
	failed  error        // reason reported by the guest
	detail  string
}

func (s *session) run(ctx context.Context, control, console io.Reader) (Result, error) {
	s.began = s.kernel.began
	var readers sync.WaitGroup
	readers.Go(func() { s.readConsole(console) })
	var readErr error
	readers.Go(func() {
		if readErr = s.readControl(control); readErr != nil {
			s.kernel.kill()
		}
	})

	killedFor := s.supervise(ctx)
	readers.Wait() // they end with the last process that holds the other ends
	s.result.Wall = time.Since(s.began)
	s.result.Console = s.console.String()

	switch {
	case s.failed != nil:
		return s.result, &GuestError{s.failed, s.detail, s.result.Console}
	case s.ended:
		return s.result, nil
	case killedFor != nil && ctx.Err() != nil:
		return s.result, context.Cause(ctx)
	case killedFor != nil:
		return s.result, &GuestError{killedFor, s.lastSeen(), s.result.Console}
	case readErr != nil:
		return s.result, fmt.Errorf("lab: %w", readErr)
	}
	return s.result, &GuestError{Crashed, s.kernel.status(), s.result.Console}
}

// supervise waits for the kernel's end and brings it about if need be; it then
// returns why.
func (s *session) supervise(ctx context.Context) error {
	stall := s.guest.StallLimit
	if stall == 0 {
		stall = DefaultStall
	}
	var wall <-chan time.Time
	if s.guest.WallLimit > 0 {
		t := time.NewTimer(s.guest.WallLimit)
		defer t.Stop()
		wall = t.C
	}
	look := time.NewTicker(min(time.Second, stall/4))
	defer look.Stop()
	for {
		var reason error
		select {
		case <-s.kernel.done:
			return nil
		case <-ctx.Done():
			reason = ctx.Err()
		case <-wall:
			reason = WallTimeout
		case <-look.C:
			if s.writing.Load() || time.Since(s.began)-time.Duration(s.life.Load()) < stall {
				continue
			}
			reason = Stalled
		}
		s.kernel.kill()
		return reason
	}
}

func (s *session) lastSeen() string {
	return fmt.Sprintf("last sign of life %v after its start, at guest time %v",
		time.Duration(s.life.Load()).Round(time.Millisecond), s.result.Elapsed)
}

func (s *session) readConsole(console io.Reader) {
	for sc := bufio.NewScanner(console); sc.Scan(); {
		s.console.add(sc.Text())
	}
	io.Copy(io.Discard, console) // after a line beyond the scanner's limit
}

// readControl handles the guest's messages up to the end of its kernel. Its
// errors are those of Stdout and Stderr, and errProtocol.
func (s *session) readControl(control io.Reader) error {
	in := &messageReader{r: bufio.NewReaderSize(control, 1<<16)}
	var started time.Duration // guest clock
	for {
		m, err := in.next()
		if errors.Is(err, errProtocol) {
			return err
		} else if err != nil {
			return nil // the kernel is gone, in the midst of a message if it was killed
		}
		s.life.Store(int64(time.Since(s.began)))
		switch m.kind {
		case msgStarted:
			started = m.clock
			s.result.Boot = time.Since(s.began)
		case msgBeat:
			s.result.Elapsed = m.clock - started
		case msgStdout:
			err = s.write(s.guest.Stdout, m.data)
		case msgStderr:
			err = s.write(s.guest.Stderr, m.data)
		case msgExit:
			s.ended = true
			s.result.Status, s.result.Elapsed = m.status, m.clock-started
		case msgTimeout:
			s.failed = VirtualTimeout
			s.detail = s.guest.VirtualLimit.String()
			s.result.Elapsed = m.clock - started
		case msgFailed:
			s.failed, s.detail = NotStarted, string(m.data)
		}
		if err != nil {
			return err
		}
	}
}

func (s *session) write(w io.Writer, data []byte) error {
	if w == nil {
		return nil
	}
	s.writing.Store(true)
	_, err := w.Write(data)
	s.life.Store(int64(time.Since(s.began)))
	s.writing.Store(false)
	return err
}
