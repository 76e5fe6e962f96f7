package emulator

import (
	"context"
	"testing"

	"nicemu/devices"
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/nic/nictest"
	"nicemu/emulator/tap"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// fakeClock is a waiter without wall time: a sleep moves it to the deadline, or
// to the next frame that the script has.
type fakeClock struct {
	now    int64
	script *fakePort
	end    int64
	stop   context.CancelFunc
}

func (c *fakeClock) Now() int64   { return c.now }
func (c *fakeClock) Interrupt()   {}
func (c *fakeClock) Close() error { return nil }

func (c *fakeClock) Wait(deadline int64, fds []unix.PollFd) error {
	if next := c.script.next(); next < deadline {
		deadline = next
	}
	if deadline > c.end {
		c.stop()
		return nil
	}
	c.now = max(c.now, deadline)
	for i := range fds {
		fds[i].Revents = 0
		if fds[i].Fd >= 0 {
			fds[i].Revents = unix.POLLIN
		}
	}
	return nil
}

// fakePort hands out frames at scripted times, as a TAP would.
type fakePort struct {
	clock *fakeClock
	at    []int64
	size  []int
	read  int
	wrote int

	queues int // all frames come in queue 0
}

func (p *fakePort) Queues() int { return p.queues }
func (p *fakePort) FD(int) int  { return 0 }

func (p *fakePort) next() int64 {
	if p.read == len(p.at) {
		return int64(engine.Never)
	}
	if p.at[p.read] <= p.clock.now {
		return int64(engine.Never) // readable already: no event to wait for
	}
	return p.at[p.read]
}

func (p *fakePort) Read(q int, buf []byte) (int, error) {
	if q != 0 || p.read == len(p.at) || p.at[p.read] > p.clock.now {
		return 0, nil
	}
	n := p.size[p.read] + tap.HeaderLen
	p.read++
	clear(buf[:n])
	return n, nil
}

func (p *fakePort) Write(_ int, frame []byte) error { p.wrote++; return nil }

func (p *fakePort) Passed(q int) (bytes, frames uint64) {
	if q != 0 {
		return 0, 0
	}
	for i, at := range p.at {
		if at <= p.clock.now {
			frames++
			bytes += uint64(p.size[i])
		}
	}
	return bytes, frames
}

func (p *fakePort) Largest(int) uint64 { return 1514 }

// wireTimes records when frames end on the wire.
type wireTimes struct{ ends []engine.Time }

func (w *wireTimes) Transmit(_ *nic.Frame, end engine.Time) { w.ends = append(w.ends, end) }

// The live loop adds nothing to the models: frames that come out of a port at
// given times leave the wire exactly when they leave it in a run without
// kernel that is offered the same frames at the same times.
func TestLiveAndOfflineAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(devices.Names()).Draw(t, "device")
		n := rapid.IntRange(1, 200).Draw(t, "frames")
		at, size := make([]int64, n), make([]int, n)
		now := int64(0)
		for i := range n {
			now += rapid.Int64Range(0, 30_000).Draw(t, "gap")
			at[i], size[i] = now, rapid.IntRange(60, 1514).Draw(t, "size")
		}
		newDevice := func() *nic.Device {
			d, err := devices.New(name)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}

		ctx, cancel := context.WithCancel(context.Background())
		clock := &fakeClock{end: now + 20e9, stop: cancel}
		port := &fakePort{clock: clock, at: at, size: size, queues: newDevice().Config.Queues}
		clock.script = port
		loop := newLoop(1, clock)
		card, err := loop.NewCard("eth0", newDevice(), port, unlimited{})
		if err != nil {
			t.Fatal(err)
		}
		live := &wireTimes{}
		card.wire = live
		if err := loop.Run(ctx); err != nil {
			t.Fatal(err)
		}

		r := nictest.Build(t, newDevice())
		var offline []engine.Time
		r.OnWire = func(_ *nic.Frame, end engine.Time) { offline = append(offline, end) }
		next := 0
		post := func(int) {
			for next < n && engine.Time(at[next]) <= r.Eng.Now() && !r.Stopped(0) {
				f := r.Frame(0)
				f.Single(size[next])
				next++
				r.Post(f, false)
			}
		}
		r.Refill = post
		for i := range n {
			r.Eng.AdvanceTo(engine.Time(at[i]))
			post(0)
		}
		r.Eng.AdvanceTo(r.Eng.Now() + 10*engine.Second)

		if len(live.ends) != n || len(offline) != n {
			t.Fatalf("%d frames offered, %d left live, %d offline", n, len(live.ends), len(offline))
		}
		for i := range offline {
			if live.ends[i] != offline[i] {
				t.Fatalf("frame %d ends at %d live, at %d offline", i, live.ends[i], offline[i])
			}
		}
		if err := card.nic.Audit(); err != nil {
			t.Fatal(err)
		}
	})
}
