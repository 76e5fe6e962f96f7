package liveplay

import (
	"context"
	"os"
	"runtime"
	"time"

	"nicemu/devices/engine"

	"golang.org/x/sys/unix"
)

// flood sends at top speed, from a thread beside the loop's, as programs run
// beside the interrupts of their card. Like theirs, what it has on its way is
// bounded by its socket's buffer, and it waits for room.
type flood struct {
	ctx    context.Context
	in     *reader
	socket *socket

	started bool
	span    time.Duration // from the start to the last frame
	err     error
	ended   chan struct{}
}

func newFlood(ctx context.Context, r *reader, s *socket) *flood {
	return &flood{ctx: ctx, in: r, socket: s, ended: make(chan struct{})}
}

func (f *flood) start() {
	f.started = true
	go func() {
		defer close(f.ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f.err = f.run()
	}()
}

func (f *flood) run() error {
	start := time.Now()
	for b := range f.in.full {
		for ps := b.packets; len(ps) > 0; {
			n, err := f.send(b.slab, ps)
			if err != nil {
				return err
			}
			ps = ps[n:]
		}
		f.in.free <- b
		f.span = time.Since(start)
	}
	return nil
}

// send sends those of the first packets that find room, and waits if none does.
func (f *flood) send(slab []byte, ps []packet) (n int, err error) {
	if n, err = f.socket.fitting(ps[:take(ps)]); err != nil {
		return 0, err
	}
	if n > 0 {
		return n, f.socket.send(slab, ps[:n])
	}
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	const patience = 50 // ms between looks at the world outside
	fds := [1]unix.PollFd{{Fd: int32(f.socket.fd), Events: unix.POLLOUT}}
	if _, err := unix.Poll(fds[:], patience); err != nil && err != unix.EINTR {
		return 0, os.NewSyscallError("poll", err)
	}
	return 0, nil
}

// wait returns when the thread is gone, which the end of ctx makes it.
func (f *flood) wait() {
	if f.started {
		<-f.ended
	}
}

func (f *flood) done() <-chan struct{} { return f.ended }

func (f *flood) sums() sums {
	return sums{accepted: f.socket.accepted, refused: f.socket.refused, span: engine.Time(f.span), err: f.err}
}

var _ sender = (*flood)(nil)
