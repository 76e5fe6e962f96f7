package emulator

import (
	"fmt"
	"os"
	"time"
	"unsafe"

	"nicemu/devices/engine"

	"golang.org/x/sys/unix"
)

// poller is the real clock: CLOCK_MONOTONIC and ppoll, whose time-out has
// nanoseconds. Go's own timers are not used: an idle runtime rounds them to a
// millisecond.
type poller struct {
	epoch   time.Time
	event   int // eventfd of Interrupt
	fds     []unix.PollFd
	virtual bool  // see NewVirtualLoop
	read    int64 // clock at the last Now
}

func newPoller(virtual bool) (*poller, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &poller{epoch: time.Now(), event: fd, virtual: virtual}, nil
}

// preciseTimers makes this thread's sleeps exact: no 50 µs of timer slack, and
// ahead of everything that is not real-time, as an interrupt of the card would
// be. Without the right to that the host's lateness is greater, and measured.
func preciseTimers() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	if err != nil && err != unix.EPERM {
		return fmt.Errorf("real-time scheduling: %w", err)
	}
	return nil
}

// Now implements waiter. The time package reads CLOCK_MONOTONIC without a
// system call, except in User Mode Linux.
func (p *poller) Now() int64 {
	p.read = int64(time.Since(p.epoch))
	return p.read
}

// Wait implements waiter.
func (p *poller) Wait(deadline int64, fds []unix.PollFd) error {
	p.fds = append(p.fds[:0], unix.PollFd{Fd: int32(p.event), Events: unix.POLLIN})
	p.fds = append(p.fds, fds...)
	var timeout *unix.Timespec
	if deadline != int64(engine.Never) {
		if !p.virtual { // else it has not moved
			p.Now()
		}
		ts := unix.NsecToTimespec(max(0, deadline-p.read))
		timeout = &ts
	}
	if err := p.poll(timeout); err != nil && err != unix.EINTR {
		return os.NewSyscallError("ppoll", err)
	}
	if p.fds[0].Revents != 0 {
		var n [8]byte
		unix.Read(p.event, n[:]) // only resets the event; nothing to read is fine
	}
	copy(fds, p.fds[1:])
	return nil
}

func (p *poller) poll(timeout *unix.Timespec) error {
	if !p.virtual {
		_, err := unix.Ppoll(p.fds, timeout, nil)
		return err
	}
	// Behind the scheduler's back, which would give this thread's processor away
	// and get it back each time: some ten system calls of its own.
	_, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(p.fds))), uintptr(len(p.fds)),
		uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Interrupt implements waiter.
func (p *poller) Interrupt() {
	one := [8]byte{1}
	unix.Write(p.event, one[:]) // fails only if the event is set as often as it can be
}

// Close implements waiter.
func (p *poller) Close() error { return unix.Close(p.event) }

var _ waiter = (*poller)(nil)
