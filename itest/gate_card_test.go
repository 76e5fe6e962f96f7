package itest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicemu/emulator/gate"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
)

// card is the least card there is: it reads what passes, sends it over one link, and completes in batches. It keeps
// byte limit and ring of every queue, and measures how far they are overrun.
type card struct {
	port, peer *tap.Port
	gate       *gate.Gate
	books      *tap.Counters
	limit      int64 // bytes per queue; negative = none
	slots      int64 // frames per queue
	bps        int64
	coalesce   int64 // ns

	see func(q int, buf []byte) // looks at each frame that is read; may be nil

	wire   []frame
	free   [][]byte
	idleAt int64 // when the link has sent everything
	irqAt  int64 // when it completes what is done, 0 = nothing
	done   [tap.MaxQueues][2]uint64
	most   [tap.MaxQueues]uint64 // largest packet the qdisc held

	samples, over     int
	worst, worstSlots int64
	followTime        atomic.Int64 // ns it took to put the gate back the last time
	slowestFollow     atomic.Int64
	halt              int
	lost              uint64 // before the start: a change of qdiscs may cost a frame
}

type frame struct {
	buf  []byte
	n, q int
	at   int64
}

func monotonic() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// start gates the port and runs the card until the test ends.
func (c *card) start(t testing.TB) {
	t.Helper()
	var err error
	if c.gate, err = gate.New(c.port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.gate.Close() })
	if c.books, err = c.port.Instrument(); err != nil {
		t.Fatal(err)
	}
	if err := c.gate.Install(); err != nil {
		t.Fatal(err)
	}
	for q := range c.port.Queues() { // what was sent before does not count
		c.done[q][0], c.done[q][1] = c.books.Passed(q)
		buf := make([]byte, tap.BufferLen)
		for n := 1; n > 0; {
			if n, err = c.port.Read(q, buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	before, err := c.port.Stats()
	if err != nil {
		t.Fatal(err)
	}
	c.lost = before.TxDropped
	if c.halt, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.run() }()
	t.Cleanup(func() {
		unix.Write(c.halt, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		if err := <-ended; err != nil {
			t.Error(err)
		}
		unix.Close(c.halt)
	})
}

func (c *card) run() error {
	fds := []unix.PollFd{{Fd: int32(c.halt), Events: unix.POLLIN}, {Fd: int32(c.gate.NotifyFD()), Events: unix.POLLIN}}
	for q := range c.port.Queues() {
		fds = append(fds, unix.PollFd{Fd: int32(c.port.FD(q)), Events: unix.POLLIN})
	}
	for q := range c.peer.Queues() {
		fds = append(fds, unix.PollFd{Fd: int32(c.peer.FD(q)), Events: unix.POLLIN})
	}
	for {
		more, err := c.read()
		if err != nil {
			return err
		}
		if err := errors.Join(c.complete(), c.back()); err != nil {
			return err
		}
		c.offer()
		if err := c.gate.Flush(); err != nil {
			return err
		}
		var timeout *unix.Timespec
		if c.irqAt != 0 || more {
			ts := unix.NsecToTimespec(max(0, c.irqAt-monotonic()))
			if more {
				ts = unix.Timespec{}
			}
			timeout = &ts
		}
		if _, err := unix.Ppoll(fds, timeout, nil); err != nil && err != unix.EINTR {
			return err
		}
		if fds[0].Revents != 0 {
			return nil
		}
		if fds[1].Revents != 0 {
			begin := monotonic()
			changed, err := c.gate.Follow()
			if err != nil {
				return err
			}
			if changed {
				took := monotonic() - begin
				c.followTime.Store(took)
				c.slowestFollow.Store(max(took, c.slowestFollow.Load()))
			}
		}
	}
}

func (c *card) read() (more bool, err error) {
	now := monotonic()
	for q := range c.port.Queues() {
		for i := range 64 {
			f := frame{q: q}
			if n := len(c.free); n > 0 {
				f.buf, c.free = c.free[n-1], c.free[:n-1]
			} else {
				f.buf = make([]byte, tap.BufferLen)
			}
			if f.n, err = c.port.Read(q, f.buf); err != nil {
				return false, err
			}
			if f.n == 0 {
				c.free = append(c.free, f.buf)
				break
			}
			if c.see != nil {
				c.see(q, f.buf[:f.n])
			}
			segs, _, bytes := tap.ParseHeader(f.buf).Segments(f.buf[tap.HeaderLen:f.n])
			c.idleAt = max(c.idleAt, now) + int64(bytes+24*segs)*8*1e9/c.bps
			f.at = c.idleAt
			c.wire = append(c.wire, f)
			more = more || i == 63
		}
	}
	if c.irqAt == 0 && len(c.wire) > 0 {
		c.irqAt = c.wire[0].at + c.coalesce
	}
	return more, nil
}

func (c *card) complete() error {
	now := monotonic()
	if c.irqAt == 0 || now < c.irqAt {
		return nil
	}
	n := 0
	for ; n < len(c.wire) && c.wire[n].at <= now; n++ {
		f := c.wire[n]
		if err := c.peer.Write(f.q%c.peer.Queues(), f.buf[:f.n]); err != nil {
			return err
		}
		c.done[f.q][0] += uint64(f.n - tap.HeaderLen)
		c.done[f.q][1]++
		c.free = append(c.free, f.buf)
	}
	c.wire = append(c.wire[:0], c.wire[n:]...)
	c.irqAt = 0
	if len(c.wire) > 0 {
		c.irqAt = c.wire[0].at + c.coalesce
	}
	return nil
}

// back carries the peer's frames, without any delay.
func (c *card) back() error {
	var buf []byte
	for q := range c.peer.Queues() {
		for {
			if buf == nil {
				buf = make([]byte, tap.BufferLen)
			}
			n, err := c.peer.Read(q, buf)
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			if err := c.port.Write(q%c.port.Queues(), buf[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *card) offer() {
	for q := range c.port.Queues() {
		bytes, frames := c.books.Passed(q)
		room := gate.Room{Bytes: 1 << 60, Packets: c.slots - int64(frames-c.done[q][1])}
		if c.limit >= 0 {
			room.Bytes = c.limit - int64(bytes-c.done[q][0])
			c.most[q] = max(c.most[q], c.books.Largest(q))
			over := -room.Bytes - int64(c.most[q])
			c.worst = max(c.worst, over)
			c.samples++
			if over > 0 {
				c.over++
			}
		}
		c.worstSlots = max(c.worstSlots, -room.Packets)
		c.gate.Offer(q, room)
	}
}

// qdisc is one line of `tc -s -j qdisc`.
type qdisc struct {
	Kind, Handle, Parent string
	Root                 bool
	Options              map[string]any
	Packets, Drops       int
	Backlog, Qlen        int
}

func qdiscs(t testing.TB, p *tap.Port) []qdisc {
	t.Helper()
	out := mustRun(t, p.NS(), "tc", "-s", "-j", "qdisc", "show", "dev", p.Name())
	var all []qdisc
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return all
}

// userQdisc finds the qdisc beneath the gate of a queue.
func userQdisc(t testing.TB, p *tap.Port, q int) (qdisc, bool) {
	t.Helper()
	all := qdiscs(t, p)
	i := slices.IndexFunc(all, func(d qdisc) bool { return d.Parent == fmt.Sprintf("%x:1", tap.KickMajor+0x10+q) })
	if i < 0 {
		return qdisc{}, false
	}
	return all[i], true
}

func mustRun(t testing.TB, ns *netns.NS, argv ...string) []byte {
	t.Helper()
	out, err := ns.Command(context.Background(), argv...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// until waits for a condition that other threads bring about.
func until(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		letTimePass()
	}
}

// gatedPair makes two namespaces with a port each, the first of which the card gates.
func gatedPair(t testing.TB, cfg tap.Config) (a, b *tap.Port) {
	t.Helper()
	nsA, nsB := newNS(t, "a"), newNS(t, "b")
	cfg.Name, cfg.Addrs = "nic0", addrs(1)
	a = openPort(t, nsA, cfg)
	b = openPort(t, nsB, tap.Config{Name: "nic0", Addrs: addrs(2), Csum: true, TSO: true})
	// A flood would be over before the neighbour is found.
	mustRun(t, nsA, "ip", "neigh", "replace", "10.9.0.2", "lladdr", b.MAC().String(), "dev", "nic0")
	return a, b
}

// flood sends n UDP datagrams as fast as the socket takes them.
func flood(t testing.TB, p *tap.Port, size, n int) {
	t.Helper()
	err := p.NS().Do(func() error {
		c, err := net.Dial("udp4", "10.9.0.2:9")
		if err != nil {
			return err
		}
		defer c.Close()
		b := make([]byte, size)
		for range n {
			if _, err := c.Write(b); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// judge checks what must hold after any run.
func (c *card) judge(t testing.TB) {
	t.Helper()
	s, err := c.port.Stats()
	if err != nil || s.TxDropped != c.lost {
		t.Errorf("%d frames dropped below the qdisc, %v", s.TxDropped-c.lost, err)
	}
	if c.over*100 > c.samples {
		t.Errorf("more than the limit and one packet in %d of %d samples, at worst %d bytes more", c.over, c.samples, c.worst)
	}
	st := c.gate.Stats()
	t.Logf("%d samples, %d over by at most %d bytes, ring overrun by at most %d frames, %+v", c.samples, c.over, c.worst, c.worstSlots, st)
}
