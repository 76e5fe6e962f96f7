package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoTerminal is returned by [Shell] if standard input is no terminal; [Run]
// does not need one.
var ErrNoTerminal = errors.New("a shell in the lab needs a terminal")

// Shell boots the guest with its command on the calling process's terminal, in
// real time. An empty Argv is a login shell. Stdin, Stdout, Stderr, VirtualTime
// and the limits of g are ignored: a person decides when it has gone on for too
// long. Shell returns as [Run] does; a guest that powers off has status 0.
func Shell(ctx context.Context, g Guest) (Result, error) {
	if len(g.Argv) == 0 {
		g.Argv = []string{"/bin/bash", "-l"}
		if _, err := os.Stat(g.Argv[0]); err != nil {
			g.Argv[0] = "/bin/sh"
		}
	}
	g.VirtualTime, g.VirtualLimit = false, 0
	term, err := openTerminal()
	if err != nil {
		return Result{}, err
	}
	defer term.close()
	dir, err := g.makeRunDir(true)
	if err != nil {
		return Result{}, fmt.Errorf("lab: %w", err)
	}
	defer dir.remove()
	control, controlW, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer control.Close()

	k, err := startKernel(dir.path, &g, g.kernelArgs("fd:0,fd:1", 3), term.slave, term.slave, controlW)
	controlW.Close()
	term.slave.Close()
	if err != nil {
		return Result{}, fmt.Errorf("lab: %w", err)
	}
	term.connect()
	stop := context.AfterFunc(ctx, k.kill)
	defer stop()
	s := &session{guest: &g, kernel: k, began: k.began, console: newTail(0)}
	readErr := s.readControl(control)
	<-k.done
	s.result.Wall = time.Since(k.began)
	switch {
	case s.failed != nil:
		return s.result, &GuestError{Reason: s.failed, Detail: s.detail}
	case s.ended, k.err == nil:
		return s.result, nil
	case ctx.Err() != nil:
		return s.result, context.Cause(ctx)
	case readErr != nil:
		return s.result, fmt.Errorf("lab: %w", readErr)
	}
	return s.result, &GuestError{Reason: Crashed, Detail: k.status()}
}

// terminal lends the caller's terminal to a guest through a pseudo terminal of its
// own: the kernel would otherwise leave the caller's in whatever state it died in.
type terminal struct {
	master, slave *os.File
	saved         *unix.Termios
	wake, wakeW   *os.File // closing wakeW ends the copying of input
	resized       chan os.Signal
	copying       sync.WaitGroup
}

func openTerminal() (_ *terminal, err error) {
	t := &terminal{resized: make(chan os.Signal, 1)}
	stdin := int(os.Stdin.Fd())
	if t.saved, err = unix.IoctlGetTermios(stdin, unix.TCGETS); err != nil {
		return nil, ErrNoTerminal
	}
	if t.master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, err
	}
	fail := func(err error) (*terminal, error) {
		t.master.Close()
		return nil, fmt.Errorf("pseudo terminal: %w", err)
	}
	if err := unix.IoctlSetPointerInt(int(t.master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return fail(err)
	}
	n, err := unix.IoctlGetInt(int(t.master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return fail(err)
	}
	if t.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return fail(err)
	}
	if t.wake, t.wakeW, err = os.Pipe(); err != nil {
		t.slave.Close()
		return fail(err)
	}
	t.resize()
	raw := *t.saved
	raw.Iflag &^= unix.BRKINT | unix.ICRNL | unix.INPCK | unix.ISTRIP | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ICANON | unix.IEXTEN | unix.ISIG
	if err := unix.IoctlSetTermios(stdin, unix.TCSETS, &raw); err != nil {
		t.slave.Close()
		t.wake.Close()
		t.wakeW.Close()
		return fail(err)
	}
	return t, nil
}

// connect starts copying between the two terminals.
func (t *terminal) connect() {
	signal.Notify(t.resized, unix.SIGWINCH)
	t.copying.Go(t.copyInput)
	t.copying.Go(func() { io.Copy(os.Stdout, t.master) }) // ends when the kernel's end is closed
	t.copying.Go(func() {
		for range t.resized {
			t.resize()
		}
	})
}

func (t *terminal) copyInput() {
	var buf [1024]byte
	fds := []unix.PollFd{
		{Fd: int32(os.Stdin.Fd()), Events: unix.POLLIN},
		{Fd: int32(t.wake.Fd()), Events: unix.POLLIN},
	}
	for {
		if err := poll(fds, -1); err != nil || fds[1].Revents != 0 {
			return
		}
		n, err := unix.Read(int(fds[0].Fd), buf[:])
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		if _, err := t.master.Write(buf[:n]); err != nil {
			return
		}
	}
}

// resize gives the guest's terminal the size of the caller's.
func (t *terminal) resize() {
	if size, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ); err == nil {
		unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, size)
	}
}

// close ends the copying and restores the caller's terminal.
func (t *terminal) close() {
	signal.Stop(t.resized)
	close(t.resized)
	t.wakeW.Close()
	t.slave.Close()
	t.copying.Wait()
	t.wake.Close()
	t.master.Close()
	unix.IoctlSetTermios(int(os.Stdin.Fd()), unix.TCSETS, t.saved)
}
