package itest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
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

func TestIntegrationCardHoldsNoMoreThanItsLimitAndOnePacket(t *testing.T) {
	for _, queues := range []int{1, 4} {
		for _, limit := range []int64{30000, 130000} {
			for _, load := range []string{"udp-100", "udp-1448", "udp-1448-each", "tcp-tso", "tcp"} {
				t.Run(fmt.Sprintf("queues=%d/limit=%d/%s", queues, limit, load), func(t *testing.T) {
					tso := load == "tcp-tso"
					a, b := gatedPair(t, tap.Config{Queues: queues, Csum: tso, TSO: tso})
					c := &card{port: a, peer: b, limit: limit, slots: 1024, bps: 1e9, coalesce: 64000}
					if strings.HasSuffix(load, "-each") { // every frame completes by itself, and slowly enough for that
						c.coalesce, c.bps = 0, 2e8
					}
					c.start(t)
					seen := false
					var stop atomic.Bool
					watched := make(chan bool)
					go func() {
						defer close(watched)
						for !stop.Load() && !seen {
							for q := range queues {
								d, ok := userQdisc(t, a, q)
								seen = seen || ok && d.Backlog > 0
							}
						}
					}()
					switch load {
					case "udp-100":
						flood(t, a, 100, 100000)
					case "udp-1448":
						flood(t, a, 1448, 40000)
					case "udp-1448-each":
						flood(t, a, 1448, 10000)
					default:
						transfer(t, a.NS(), listen(t, b.NS(), "10.9.0.2:5000"), make([]byte, 40<<20))
					}
					stop.Store(true)
					<-watched
					if !seen {
						t.Error("never a backlog in the qdisc")
					}
					c.judge(t)
				})
			}
		}
	}
}

// tcLine runs tc as a person would.
func tcLine(t testing.TB, p *tap.Port, line string) {
	t.Helper()
	mustRun(t, p.NS(), append([]string{"tc"}, strings.Fields(strings.ReplaceAll(line, "{dev}", p.Name()))...)...)
}

// idleCard starts a gated card without a limit worth mentioning.
func idleCard(t testing.TB, queues int, lines ...string) *card {
	t.Helper()
	a, b := gatedPair(t, tap.Config{Queues: queues, Csum: true, TSO: true})
	for _, line := range lines {
		tcLine(t, a, line)
	}
	c := &card{port: a, peer: b, limit: 130000, slots: 1024, bps: 1e9, coalesce: 50000}
	c.start(t)
	return c
}

func TestIntegrationGateKeepsTheOptionsOfTheQdiscsItFinds(t *testing.T) {
	for _, c := range []struct {
		queues int
		lines  []string
		kinds  []string
		limits []any
	}{
		{1, nil, []string{"pfifo_fast"}, []any{nil}},
		{4, nil, []string{"pfifo_fast", "pfifo_fast", "pfifo_fast", "pfifo_fast"}, []any{nil, nil, nil, nil}},
		{1, []string{"qdisc add dev {dev} root pfifo limit 77"}, []string{"pfifo"}, []any{77.0}},
		{1, []string{"qdisc add dev {dev} root handle 1: bfifo limit 123456"}, []string{"bfifo"}, []any{123456.0}},
		{1, []string{"qdisc add dev {dev} root pfifo"}, []string{"pfifo"}, []any{1000.0}},
		{4, []string{"qdisc add dev {dev} root pfifo limit 9"}, []string{"pfifo"}, []any{9.0}},
		{2, []string{"qdisc add dev {dev} root handle 1: mq", "qdisc add dev {dev} parent 1:2 handle 20: bfifo limit 5555"},
			[]string{"pfifo_fast", "bfifo"}, []any{nil, 5555.0}},
	} {
		t.Run(fmt.Sprint(c.queues, c.lines), func(t *testing.T) {
			card := idleCard(t, c.queues, c.lines...)
			flood(t, card.port, 100, 100) // grants must not change the limit
			if card.gate.Lanes() != len(c.kinds) {
				t.Fatalf("%d lanes, want %d", card.gate.Lanes(), len(c.kinds))
			}
			for q, kind := range c.kinds {
				d, ok := userQdisc(t, card.port, q)
				if !ok || d.Kind != kind || c.limits[q] != nil && d.Options["limit"] != c.limits[q] {
					t.Errorf("queue %d: %+v, want %s limit %v", q, d, kind, c.limits[q])
				}
			}
		})
	}
}

func TestIntegrationGateFollowsTheUser(t *testing.T) {
	type step struct {
		line  string
		lanes int
		queue int
		kind  string
		limit any
	}
	for queues, steps := range map[int][]step{
		1: {
			{"qdisc replace dev {dev} root pfifo limit 123", 1, 0, "pfifo", 123.0},
			{"qdisc replace dev {dev} root handle 5: bfifo limit 45678", 1, 0, "bfifo", 45678.0},
			{"qdisc replace dev {dev} root handle 5: bfifo limit 56789", 1, 0, "bfifo", 56789.0},
			{"qdisc replace dev {dev} root pfifo", 1, 0, "pfifo", 1000.0},
			{"qdisc replace dev {dev} root pfifo_fast", 1, 0, "pfifo_fast", nil},
			{"qdisc replace dev {dev} root tbf rate 1gbit burst 200k limit 300000", 1, 0, "tbf", nil},
			{"qdisc del dev {dev} root", 1, 0, "pfifo_fast", nil},
		},
		4: {
			{"qdisc replace dev {dev} root handle 1: mq", 4, 3, "pfifo_fast", nil},
			{"qdisc replace dev {dev} parent 1:3 handle 30: pfifo limit 31", 4, 2, "pfifo", 31.0},
			{"qdisc replace dev {dev} parent 1:3 handle 30: pfifo limit 32", 4, 2, "pfifo", 32.0},
			{"qdisc replace dev {dev} root bfifo limit 99999", 1, 0, "bfifo", 99999.0},
			{"qdisc replace dev {dev} root handle 2: mq", 4, 0, "pfifo_fast", nil},
		},
	} {
		t.Run(fmt.Sprintf("queues=%d", queues), func(t *testing.T) {
			c := idleCard(t, queues)
			for _, s := range steps {
				typed := monotonic()
				tcLine(t, c.port, s.line)
				until(t, fmt.Sprintf("%s limit %v beneath the gate after tc %s", s.kind, s.limit, s.line), 2*time.Second, func() bool {
					d, ok := userQdisc(t, c.port, s.queue)
					return ok && d.Kind == s.kind && (s.limit == nil || d.Options["limit"] == s.limit)
				})
				took := time.Duration(monotonic() - typed)
				t.Logf("%v after typing, the last time it took %v: tc %s", took, time.Duration(c.followTime.Load()), s.line)
				before := passedPackets(c)
				flood(t, c.port, 1000, 200)
				until(t, "traffic after tc "+s.line, time.Second, func() bool { return passedPackets(c) > before })
			}
			if work := time.Duration(c.slowestFollow.Load()); work > 50*time.Millisecond {
				t.Errorf("the gate was put back in %v", work)
			}
		})
	}
}

func passedPackets(c *card) (n uint64) {
	for q := range c.port.Queues() {
		_, p := c.books.Passed(q)
		n += p
	}
	return n
}

func TestIntegrationGateCarriesAWholeHierarchyAlong(t *testing.T) {
	a, b := gatedPair(t, tap.Config{Csum: true, TSO: true})
	for _, line := range []string{
		"qdisc replace dev {dev} root handle 1: htb default 20",
		"class add dev {dev} parent 1: classid 1:1 htb rate 800mbit",
		"class add dev {dev} parent 1:1 classid 1:10 htb rate 300mbit ceil 800mbit prio 1",
		"class add dev {dev} parent 1:1 classid 1:20 htb rate 500mbit ceil 800mbit prio 2",
		"qdisc add dev {dev} parent 1:10 handle 10: pfifo limit 50",
		"qdisc add dev {dev} parent 1:20 handle 20: bfifo limit 500000",
		"filter add dev {dev} parent 1: protocol ip prio 3 u32 match ip dport 5001 0xffff flowid 1:10",
	} {
		tcLine(t, a, line)
	}
	state := func() string {
		var classes []string
		for _, line := range strings.Split(string(mustRun(t, a.NS(), "tc", "class", "show", "dev", "nic0")), "\n") {
			if strings.HasPrefix(line, "class htb 1:") { // in whatever order
				classes = append(classes, line)
			}
		}
		slices.Sort(classes)
		return strings.Join(classes, "\n") + "\n" + string(mustRun(t, a.NS(), "tc", "filter", "show", "dev", "nic0", "parent", "1:"))
	}
	before := state()
	if !strings.Contains(before, "1:10") || !strings.Contains(before, "1389") {
		t.Fatalf("not there before:\n%s", before)
	}
	c := &card{port: a, peer: b, limit: 130000, slots: 1024, bps: 1e9, coalesce: 50000}
	c.start(t)
	if after := state(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	transfer(t, a.NS(), listen(t, b.NS(), "10.9.0.2:5001"), make([]byte, 3<<20))
	for _, want := range []qdisc{{Handle: "1:", Parent: "7e10:1", Kind: "htb"}, {Handle: "10:", Parent: "1:10", Kind: "pfifo"}, {Handle: "20:", Parent: "1:20", Kind: "bfifo"}} {
		all := qdiscs(t, a)
		i := slices.IndexFunc(all, func(d qdisc) bool { return d.Handle == want.Handle && d.Parent == want.Parent && d.Kind == want.Kind })
		if i < 0 {
			t.Errorf("no %+v in %+v", want, all)
		} else if want.Handle == "10:" && all[i].Packets < 20 {
			t.Errorf("the filter sent %d packets to %+v", all[i].Packets, want)
		}
	}
	// The user goes on where they are used to.
	tcLine(t, a, "class add dev {dev} parent 1:1 classid 1:30 htb rate 100mbit")
	tcLine(t, a, "qdisc add dev {dev} parent 1:30 handle 300: pfifo limit 3")
}

func TestIntegrationGateRepairsWhatIsTakenOutOfIt(t *testing.T) {
	for line, kind := range map[string]string{
		"qdisc del dev {dev} parent 7e00:1":                      "pfifo_fast",
		"qdisc del dev {dev} parent 7e00:2":                      "pfifo_fast",
		"qdisc del dev {dev} parent 7e10:1":                      "pfifo_fast",
		"qdisc replace dev {dev} parent 7e00:2 bfifo limit 500k": "bfifo",
	} {
		t.Run(line, func(t *testing.T) {
			c := idleCard(t, 1)
			tcLine(t, c.port, line)
			until(t, "gate whole again", 2*time.Second, func() bool {
				var places []string
				for _, d := range qdiscs(t, c.port) {
					places = append(places, d.Parent+" "+d.Kind)
				}
				return slices.Contains(places, "7e00:1 pfifo") && slices.Contains(places, "7e00:2 tbf") && slices.Contains(places, "7e10:1 "+kind)
			})
			transfer(t, c.port.NS(), listen(t, c.peer.NS(), "10.9.0.2:5001"), make([]byte, 1<<20))
		})
	}
}

func TestIntegrationGatesOfSeveralQueuesAreIndependent(t *testing.T) {
	a, b := gatedPair(t, tap.Config{Queues: 4})
	books, err := a.Instrument()
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	if err := g.Install(); err != nil {
		t.Fatal(err)
	}
	_ = b
	var ranges [16]tap.QueueRange
	for prio := range ranges {
		ranges[prio] = tap.QueueRange{First: prio % 4, Count: 1}
	}
	if err := a.Steer(ranges); err != nil {
		t.Fatal(err)
	}
	send := rawSender(t, a)
	var before [4]uint64
	for q := range 4 {
		for range 12 { // more would wait for room in the socket's send buffer
			send(q, 1000)
		}
	}
	for q := range 4 { // each gate began with credit for one packet, which anything may have used
		_, before[q] = books.Passed(q)
		if before[q] > 3 {
			t.Fatalf("queue %d: %d packets passed without credit", q, before[q])
		}
		g.Offer(q, gate.Room{Bytes: -1})
	}
	g.Offer(2, gate.Room{Bytes: 100000, Packets: 7})
	if err := g.Flush(); err != nil {
		t.Fatal(err)
	}
	for q := range 4 {
		_, n := books.Passed(q)
		n -= before[q]
		if q != 2 && n != 0 || q == 2 && (n == 0 || n > 7) {
			t.Errorf("queue %d: %d packets passed, room was for 7 in queue 2", q, n)
		}
	}
}

func TestIntegrationPingAlwaysPassesAnOpenGate(t *testing.T) {
	for _, limit := range []int64{0, 1, 100, 3000} {
		t.Run(fmt.Sprintf("limit=%d", limit), func(t *testing.T) {
			a, b := gatedPair(t, tap.Config{Csum: true, TSO: true})
			c := &card{port: a, peer: b, limit: limit, slots: 1024, bps: 1e9}
			c.start(t)
			l := listen(t, b.NS(), "10.9.0.2:5000")
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				b := make([]byte, 64)
				for {
					if _, err := conn.Read(b); err != nil {
						return
					}
					conn.Write(b[:1])
				}
			}()
			var slowest time.Duration
			err := a.NS().Do(func() error {
				conn, err := net.Dial("tcp", "10.9.0.2:5000")
				if err != nil {
					return err
				}
				defer conn.Close()
				b := make([]byte, 1)
				for range 3000 {
					begin := time.Now()
					if _, err := conn.Write(b); err != nil {
						return err
					}
					if _, err := conn.Read(b); err != nil {
						return err
					}
					slowest = max(slowest, time.Since(begin))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if slowest > 150*time.Millisecond { // a retransmission comes after 200 ms
				t.Errorf("slowest round trip %v", slowest)
			}
			c.judge(t)
		})
	}
}

func TestIntegrationFlushAllocatesNothing(t *testing.T) {
	a, _ := gatedPair(t, tap.Config{Queues: 4})
	g, err := gate.New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	if err := g.Install(); err != nil {
		t.Fatal(err)
	}
	room := int64(1)
	before := g.Stats().Grants
	allocs := testing.AllocsPerRun(1000, func() {
		room = room*7%1000000 + 200000*(room%2)
		for q := range 4 {
			g.Offer(q, gate.Room{Bytes: room, Packets: 10000})
		}
		if err := g.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	if n := g.Stats().Grants - before; allocs != 0 || n < 1000 {
		t.Fatalf("%v allocations, %d grants", allocs, n)
	}
}

func BenchmarkIntegrationGrantAndKick(b *testing.B) {
	for _, queues := range []int{1, 4} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			p, _ := gatedPair(b, tap.Config{Queues: queues})
			g, err := gate.New(p)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { g.Close() })
			if err := g.Install(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			wide := false
			before := g.Stats().Grants
			for b.Loop() {
				wide = !wide
				room := gate.Room{Bytes: 100000, Packets: 10000}
				if wide {
					room.Bytes = 1000000
				}
				for q := range queues {
					g.Offer(q, room)
				}
				if err := g.Flush(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(g.Stats().Grants-before)/float64(b.N), "grants/op")
		})
	}
}

func TestIntegrationProbeFindsWhatThisKernelHas(t *testing.T) {
	if err := netns.CheckPrivilege(); err != nil {
		t.Skip(err)
	}
	has, err := gate.ProbeQdiscs([]string{"tbf", "pfifo", "mq", "no_such_qdisc"})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"tbf", "pfifo", "mq"} {
		if has[kind] != nil {
			t.Errorf("%s: %v", kind, has[kind])
		}
	}
	var lacks *tap.Unsupported
	if !errors.As(has["no_such_qdisc"], &lacks) {
		t.Errorf("no_such_qdisc: %v", has["no_such_qdisc"])
	}
}

func TestIntegrationQdiscThatHoldsOnPurposeIsNoRescue(t *testing.T) {
	a, _ := gatedPair(t, tap.Config{})
	tcLine(t, a, "qdisc add dev {dev} root tbf rate 8kbit burst 2000 limit 100000")
	g, err := gate.New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	if err := g.Install(); err != nil {
		t.Fatal(err)
	}
	send := rawSender(t, a)
	for range 20 {
		send(0, 1500)
	}
	g.Offer(0, gate.Room{Bytes: 100000, Packets: 100})
	if err := g.Flush(); err != nil {
		t.Fatal(err)
	}
	rescued, err := g.Rescue(0)
	if err != nil || rescued || g.Stats().Rescues != 0 {
		t.Fatalf("rescued %t, %+v, %v", rescued, g.Stats(), err)
	}
}

func TestIntegrationTrafficGoesOnAfterTheInterfaceWasDown(t *testing.T) {
	c := idleCard(t, 1)
	mustRun(t, c.port.NS(), "ip", "link", "set", "nic0", "down")
	mustRun(t, c.port.NS(), "ip", "link", "set", "nic0", "up")
	transfer(t, c.port.NS(), listen(t, c.peer.NS(), "10.9.0.2:5001"), make([]byte, 5<<20))
	c.judge(t)
}

// typed are lines of people who use qdiscs that not every kernel has. The last one of a line is the one to look at.
var typed = []struct {
	kinds  []string
	queues int
	lines  []string
}{
	{[]string{"fq_codel"}, 1, []string{"qdisc add dev {dev} root fq_codel target 7ms interval 80ms limit 777 quantum 300 noecn"}},
	{[]string{"fq"}, 1, []string{"qdisc add dev {dev} root fq limit 500 flow_limit 50 maxrate 300mbit"}},
	{[]string{"codel"}, 1, []string{"qdisc add dev {dev} root handle 3: codel limit 99 target 3ms"}},
	{[]string{"sfq"}, 1, []string{"qdisc add dev {dev} root sfq perturb 10 quantum 3000"}},
	{[]string{"pie"}, 1, []string{"qdisc add dev {dev} root pie limit 200 target 20ms ecn"}},
	{[]string{"cake"}, 1, []string{"qdisc add dev {dev} root cake bandwidth 500mbit diffserv4 rtt 50ms overhead 18"}},
	{[]string{"netem"}, 1, []string{"qdisc add dev {dev} root netem delay 5ms 1ms loss 1% limit 4000"}},
	{[]string{"netem"}, 1, []string{"qdisc add dev {dev} root handle 1: netem delay 5ms", "qdisc add dev {dev} parent 1:1 handle 10: pfifo limit 22"}},
	{[]string{"prio"}, 1, []string{"qdisc add dev {dev} root handle 1: prio bands 4 priomap 3 3 2 2 1 1 0 0 1 1 1 1 1 1 1 1", "qdisc add dev {dev} parent 1:2 handle 12: pfifo limit 44"}},
	{[]string{"ets"}, 1, []string{"qdisc add dev {dev} root handle 1: ets bands 4 strict 2 quanta 3000 1500"}},
	{[]string{"hfsc"}, 1, []string{"qdisc add dev {dev} root handle 1: hfsc default 1", "class add dev {dev} parent 1: classid 1:1 hfsc sc rate 300mbit ul rate 500mbit", "qdisc add dev {dev} parent 1:1 handle 11: pfifo limit 45"}},
	{[]string{"mqprio", "fq_codel"}, 4, []string{
		"qdisc add dev {dev} root handle 100: mqprio num_tc 2 map 0 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 3@1 hw 0",
		"qdisc add dev {dev} parent 100:2 handle 20: fq_codel limit 55",
	}},
	{[]string{"taprio"}, 4, []string{
		"qdisc add dev {dev} root handle 100: stab overhead 24 taprio num_tc 4 map 3 3 3 2 3 0 0 3 3 3 3 3 3 3 3 3 queues 1@0 1@1 1@2 1@3 base-time 1000 sched-entry S 0x5 300000 sched-entry S 0xa 200000 clockid CLOCK_TAI",
	}},
	{[]string{"taprio", "etf", "fq_codel"}, 2, []string{
		"qdisc add dev {dev} root handle 100: taprio num_tc 2 map 1 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 queues 1@0 1@1 base-time 0 sched-entry S 0x1 300000 sched-entry S 0x2 200000 clockid CLOCK_TAI",
		"qdisc replace dev {dev} parent 100:2 fq_codel limit 66",
		"qdisc replace dev {dev} parent 100:1 etf clockid CLOCK_TAI delta 200000",
	}},
	{[]string{"mqprio", "cbs"}, 2, []string{
		"qdisc add dev {dev} root handle 100: mqprio num_tc 2 map 0 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0",
		"qdisc replace dev {dev} parent 100:1 handle 7: cbs idleslope 98688 sendslope -901312 hicredit 153 locredit -1389",
	}},
}

func TestIntegrationGateKeepsEveryKindOfQdisc(t *testing.T) {
	if err := netns.CheckPrivilege(); err != nil {
		t.Skip(err)
	}
	var kinds []string
	for _, c := range typed {
		kinds = append(kinds, c.kinds...)
	}
	has, err := gate.ProbeQdiscs(kinds)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range typed {
		t.Run(c.lines[len(c.lines)-1], func(t *testing.T) {
			for _, kind := range c.kinds {
				if has[kind] != nil {
					t.Skip(has[kind])
				}
			}
			a, b := gatedPair(t, tap.Config{Queues: c.queues, Csum: true, TSO: true})
			for _, line := range c.lines {
				tcLine(t, a, line)
			}
			before := userOptions(t, a)
			d := &card{port: a, peer: b, limit: 130000, slots: 1024, bps: 1e9, coalesce: 50000}
			d.start(t)
			if after := userOptions(t, a); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			if got := transfer(t, a.NS(), listen(t, b.NS(), "10.9.0.2:5001"), make([]byte, 2<<20)); len(got) != 2<<20 {
				t.Errorf("%d bytes arrived", len(got))
			}
		})
	}
}

// schedule is a taprio's, on a line with others: while one waits for its first cycle, tc shows both, or an empty one.
var schedule = regexp.MustCompile(`\s*(base-time \d+ cycle-time \d+ cycle-time-extension \d+)`)

// userOptions lists kind and options of the qdiscs that are not the gate's, in order and each once, without the handles,
// which the kernel may choose. (The JSON of hfsc and taprio is none.)
func userOptions(t testing.TB, p *tap.Port) string {
	t.Helper()
	var lines []string
	shown := schedule.ReplaceAllString(string(mustRun(t, p.NS(), "tc", "qdisc", "show", "dev", p.Name())), "\n$1")
	for _, line := range strings.Split(shown, "\n") {
		line = strings.TrimSpace(line)
		if strings.Contains(line, " cycle-time 0 ") {
			continue
		}
		if strings.Contains(line, " 7e") && !strings.Contains(line, "parent 7e1") || strings.HasPrefix(line, "qdisc clsact") {
			continue
		}
		line = place.ReplaceAllString(line, "$1")
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var place = regexp.MustCompile(`^(qdisc \S+) \S+: (root refcnt \d+|parent \S+)`)
