// Package emulator runs card models live, between the kernels of network
// namespaces, in real time.
//
// The way of a frame, each stage a function below or in the file named, in
// this order:
//
//	read       a frame that left the qdisc, from a TAP queue          (card.go)
//	post       driver half of the model: descriptors, BQL, stop bits  (devices/nic)
//	transmit   hardware half: fetch, arbitration, serialization       (devices/nic)
//	wire       propagation, loss                                      (link.go)
//	receive    RX half of the peer: ring, interrupt, poll             (devices/nic)
//	write      into the peer's TAP                                    (card.go)
//
// Behind them follows, once in each turn of the loop, the credit that the model
// gives back to the qdisc (card.go, package gate).
//
// One locked OS thread does all of it, so the models need no lock. Model time
// is CLOCK_MONOTONIC since the start of the run: a timer that is late still runs
// at its own model time, so lateness of the host delays frames on their way to
// the kernel but never adds up in the model. How late, is measured.
//
// Limits: a TAP orphans the sk_buff, so TCP small queues stops counting bytes
// once a frame has left the qdisc; a TAP read carries no launch time and no
// priority beyond the choice of the queue.
package emulator

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"nicemu/devices/engine"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Loop is the live clock and everything that runs on it. Make cards and links
// first, then call Run once; afterwards only Do may touch them.
type Loop struct {
	eng    *engine.Engine
	frames *frames
	cards  []*Card
	links  []*link

	waiter   waiter
	origin   int64 // clock reading at model time 0
	lateness *hdrhistogram.Histogram
	err      error // the first failure of a port; ends the run

	mu     sync.Mutex
	calls  []func()    // from other goroutines, see Do
	called atomic.Bool // there are some: spares the loop the lock
	done   chan struct{}
}

// waiter is the loop's clock and its sleep.
type waiter interface {
	// Now reads a monotonic clock, in nanoseconds.
	Now() int64
	// Wait sleeps until the clock shows deadline, a descriptor of fds is
	// readable, or Interrupt is called. Descriptors below 0 are skipped.
	Wait(deadline int64, fds []unix.PollFd) error
	// Interrupt ends a Wait from another goroutine.
	Interrupt()
	Close() error
}

// NewLoop makes an empty loop; seed drives what is random in models and links.
func NewLoop(seed uint64) (*Loop, error) { return newPolledLoop(seed, false) }

// NewVirtualLoop makes a loop for a kernel whose time is virtual: processor work
// takes none, so the clock need not be read twice in a turn, and each system call
// is dear. The loop's thread keeps a processor of the Go scheduler to itself, so
// GOMAXPROCS must be at least 2, and a garbage collection waits until it wakes.
func NewVirtualLoop(seed uint64) (*Loop, error) { return newPolledLoop(seed, true) }

func newPolledLoop(seed uint64, virtual bool) (*Loop, error) {
	w, err := newPoller(virtual)
	if err != nil {
		return nil, err
	}
	return newLoop(seed, w), nil
}

func newLoop(seed uint64, w waiter) *Loop {
	return &Loop{
		eng:      engine.New(seed),
		frames:   newFrames(),
		waiter:   w,
		lateness: hdrhistogram.New(1, int64(10*engine.Second), 3),
		done:     make(chan struct{}),
	}
}

// Engine is the loop's clock.
func (l *Loop) Engine() *engine.Engine { return l.eng }

// Clock reads the time, which is past that of the engine by as much as the
// timer under way is late. For timers and [Loop.Do] only.
func (l *Loop) Clock() engine.Time { return engine.Time(l.waiter.Now() - l.origin) }

// Run turns the loop until ctx ends or a port fails.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.done)
	runtime.LockOSThread() // never unlocked: the thread has priorities that nobody else should get
	unhurry := context.AfterFunc(ctx, l.waiter.Interrupt)
	defer unhurry()
	if err := preciseTimers(); err != nil {
		return err
	}
	defer holdGC()()
	fds := l.descriptors()
	l.origin = l.waiter.Now()
	for ctx.Err() == nil && l.err == nil {
		l.advance()
		l.runCalls()
		for _, c := range l.cards {
			c.read()
		}
		for _, c := range l.cards {
			c.giveCredit()
		}
		l.wait(fds)
	}
	l.runCalls()
	return l.err
}

// liveHeap is the heap in bytes up to which a live run collects no garbage.
const liveHeap = 2 << 30

// holdGC puts garbage collection off. To collect, the runtime stops all threads
// and waits for the last of them; on a busy host that one may wait for a core
// itself, and the loop with it. A run makes little garbage.
func holdGC() (resume func()) {
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(liveHeap)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// advance runs every timer that is due, at its own time, and measures how late.
func (l *Loop) advance() {
	now := engine.Time(l.waiter.Now() - l.origin)
	for l.eng.Next() <= now {
		l.lateness.RecordValue(max(1, int64(now-l.eng.Next())))
		l.eng.Step()
	}
	l.eng.AdvanceTo(now)
}

func (l *Loop) wait(fds []unix.PollFd) {
	deadline := int64(l.eng.Next())
	i := 0
	for _, c := range l.cards {
		if c.unread() {
			return
		}
		i += c.wanted(fds[i:])
	}
	if deadline != int64(engine.Never) {
		deadline += l.origin
	}
	if err := l.waiter.Wait(deadline, fds[:i]); err != nil {
		l.fail(fmt.Errorf("live loop: %w", err))
	}
	for _, c := range l.cards {
		n := len(c.queues) + 1
		c.woken(fds[:n])
		fds = fds[n:]
	}
}

func (l *Loop) descriptors() []unix.PollFd {
	n := 0
	for _, c := range l.cards {
		n += c.port.Queues() + 1
	}
	return make([]unix.PollFd, n)
}

func (l *Loop) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// ErrStopped is returned by Do when the loop has ended.
var ErrStopped = errors.New("the live loop has stopped")

// Do runs fn on the loop's thread between two turns and waits for it: the way
// to read statistics or change a rate while traffic flows.
func (l *Loop) Do(fn func()) error {
	ran := make(chan struct{})
	l.mu.Lock()
	l.calls = append(l.calls, func() { fn(); close(ran) })
	l.called.Store(true)
	l.mu.Unlock()
	l.waiter.Interrupt()
	select {
	case <-ran:
		return nil
	case <-l.done:
		select {
		case <-ran:
			return nil
		default:
			return ErrStopped
		}
	}
}

func (l *Loop) runCalls() {
	if !l.called.Load() {
		return
	}
	l.mu.Lock()
	calls := l.calls
	l.calls = nil
	l.called.Store(false)
	l.mu.Unlock()
	for _, fn := range calls {
		fn()
	}
}

// Lateness is how late timers ran since the start, in nanoseconds. Read it
// through Do, or after Run.
func (l *Loop) Lateness() *hdrhistogram.Histogram { return l.lateness }

// Close frees the loop's descriptors, after Run.
func (l *Loop) Close() error { return l.waiter.Close() }

// Connect joins two cards by a full-duplex link; the cards' MACs run at its
// rate.
func (l *Loop) Connect(a, b *Card, cfg LinkConfig) {
	ab, ba := newLink(l, &cfg, b), newLink(l, &cfg, a)
	a.wire, b.wire = ab, ba
	l.links = append(l.links, ab, ba)
	if cfg.Rate > 0 {
		a.nic.SetRate(cfg.Rate)
		b.nic.SetRate(cfg.Rate)
	}
}

// Trace changes the rate of a link between two cards as the steps say, counted
// from now.
func (l *Loop) Trace(a, b *Card, steps []RateStep) {
	if len(steps) == 0 {
		return
	}
	start := l.eng.Now()
	t := &engine.Timer{}
	l.eng.Init(t, func() {
		a.nic.SetRate(steps[0].Rate)
		b.nic.SetRate(steps[0].Rate)
		if steps = steps[1:]; len(steps) > 0 {
			l.eng.At(t, start+steps[0].At)
		}
	})
	l.eng.At(t, start+steps[0].At)
}
