package itest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"nicemu/emulator/tap"
)

// In virtual time the processor's work takes none, so the moment at which a card
// reads a frame is the moment at which it left the qdisc.

// departure is a frame that left the qdisc.
type departure struct {
	queue    int
	at       time.Duration // CLOCK_TAI
	priority int           // of its sender, from its payload
	launch   time.Duration // its launch time, from its payload; CLOCK_TAI
}

// watch has the card note the test frames that it reads; the returned function
// tells which so far.
func (c *card) watch() (seen func() []departure) {
	var mu sync.Mutex
	var all []departure
	c.see = func(q int, buf []byte) {
		if !isTest(buf) {
			return
		}
		payload := buf[tap.HeaderLen+14:]
		mu.Lock()
		defer mu.Unlock()
		all = append(all, departure{
			queue: q, at: clock(unix.CLOCK_TAI), priority: int(payload[0]),
			launch: time.Duration(binary.LittleEndian.Uint64(payload[1:])),
		})
	}
	return func() []departure {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func clock(id int32) time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(id, &ts) // cannot fail for a known clock
	return time.Duration(ts.Nano())
}

// floodPriorities sends n frames of each of the priorities, as fast as the card
// takes them.
func floodPriorities(t testing.TB, p *tap.Port, n int, priorities ...int) {
	t.Helper()
	ended := make(chan error, len(priorities))
	for _, prio := range priorities {
		s := newTalker(t, p, prio)
		go func() {
			for range n {
				if err := s.send(1514, 0); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range priorities {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// talker sends test frames of one socket priority, with a launch time if wanted.
type talker struct {
	fd    int
	to    unix.SockaddrLinklayer
	frame [1 << 11]byte
}

func newTalker(t testing.TB, p *tap.Port, priority int) *talker {
	t.Helper()
	s := &talker{to: unix.SockaddrLinklayer{Ifindex: p.Ifindex()}}
	err := p.NS().Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.fd) })
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_PRIORITY, priority); err != nil {
		t.Fatal(err)
	}
	copy(s.frame[12:], testEtherType[:])
	s.frame[14] = byte(priority)
	return s
}

// launches makes the socket one with launch times of CLOCK_TAI.
func (s *talker) launches(t testing.TB) {
	t.Helper()
	const soTxtime = 61 // SO_TXTIME, with struct sock_txtime
	option := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, unix.CLOCK_TAI), 0)
	if err := unix.SetsockoptString(s.fd, unix.SOL_SOCKET, soTxtime, string(option)); err != nil {
		t.Fatal(err)
	}
}

// send blocks while the socket's send buffer is full.
func (s *talker) send(length int, launch time.Duration) error {
	binary.LittleEndian.PutUint64(s.frame[15:], uint64(launch))
	var control []byte
	if launch != 0 {
		const scmTxtime = 61
		control = make([]byte, unix.CmsgSpace(8))
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		h.Level, h.Type = unix.SOL_SOCKET, scmTxtime
		h.SetLen(unix.CmsgLen(8))
		binary.NativeEndian.PutUint64(control[unix.CmsgLen(0):], uint64(launch))
	}
	return unix.Sendmsg(s.fd, s.frame[:length], control, &s.to, 0)
}

// gatedCard is a card at 1 Gbit/s on a port of 4 queues below the qdiscs of the
// tc lines. The kernel knows its speed.
func gatedCard(t testing.TB, lines ...string) *card {
	t.Helper()
	a, b := gatedPair(t, tap.Config{Queues: 4, Csum: true, TSO: true, Speed: 1000})
	for _, line := range lines {
		tcLine(t, a, line)
	}
	return &card{port: a, peer: b, limit: 30000, slots: 1024, bps: 1e9, coalesce: 10000}
}

// threeWindows gives traffic class 0 three milliseconds of ten, class 1 three,
// and classes 2 and 3 four. Priority N is class N, class N is queue N.
const threeWindows = "stab overhead 24 taprio num_tc 4 map 0 1 2 3 3 3 3 3 3 3 3 3 3 3 3 3 queues 1@0 1@1 1@2 1@3 base-time 0 " +
	"sched-entry S 0x1 3000000 sched-entry S 0x2 3000000 sched-entry S 0xc 4000000 flags 0x0 clockid CLOCK_TAI"

// window is when a queue may send in each 10 ms.
var windows = [4][2]time.Duration{{0, 3 * time.Millisecond}, {3 * time.Millisecond, 6 * time.Millisecond},
	{6 * time.Millisecond, 10 * time.Millisecond}, {6 * time.Millisecond, 10 * time.Millisecond}}

const cycle = 10 * time.Millisecond

// slack is what may pass until the card reads a frame: each look at a clock, of
// whatever program runs meanwhile, takes 256 ns.
const slack = 20 * time.Microsecond

// outside counts the departures outside their window, and those in the wrong queue.
func outside(seen []departure) (early int, astray int, worst string) {
	for _, d := range seen {
		if d.queue != d.priority {
			astray++
		}
		if w := windows[d.queue]; (d.at-w[0])%cycle >= w[1]-w[0]+slack {
			early++
			worst = fmt.Sprintf("queue %d at %v of the cycle", d.queue, d.at%cycle)
		}
	}
	return early, astray, worst
}

func TestIntegrationLabTaprioKeepsItsWindowsAboveTheGate(t *testing.T) {
	if !inLab(t) {
		return
	}
	c := gatedCard(t, "qdisc replace dev {dev} root handle 100: "+threeWindows)
	seen := c.watch()
	c.start(t)
	// Before the first cycle begins, all gates are open.
	until(t, "the schedule to begin", time.Second, func() bool { return clock(unix.CLOCK_TAI)%cycle < 2*time.Millisecond })
	const frames = 4000
	floodPriorities(t, c.port, frames, 0, 1, 2, 3)
	until(t, "all frames out", 10*time.Second, func() bool { return waiting(t, c.port) == 0 })
	all := seen()
	early, astray, worst := outside(all)
	if len(all) != 4*frames || early > 0 || astray > 0 {
		t.Errorf("%d of %d frames left, %d outside their windows (%s), %d in another queue", len(all), 4*frames, early, worst, astray)
	}
	// Who has a window alone fills it: at 1 Gbit/s, 12.304 µs a frame.
	first, last := within(all, 0)
	cycles := int(last/cycle-first/cycle) + 1
	if least := 0.95 * 3000 / 12.304 * float64(cycles-1); frames < least {
		t.Errorf("queue 0 sent %d frames in %d windows of 3 ms", frames, cycles)
	}
	c.judge(t)
}

// within are the first and the last departure of a queue.
func within(seen []departure, queue int) (first, last time.Duration) {
	for _, d := range seen {
		if d.queue == queue {
			if first == 0 {
				first = d.at
			}
			last = d.at
		}
	}
	return first, last
}

// waiting are the packets in the qdiscs of a port. (The JSON of taprio is none in
// iproute2 before 6.7.)
func waiting(t testing.TB, p *tap.Port) (n int) {
	t.Helper()
	root := false
	for line := range strings.Lines(string(mustRun(t, p.NS(), "tc", "-s", "qdisc", "show", "dev", p.Name()))) {
		// taprio counts kicks as if they stayed: it hears nothing of a drop below.
		if strings.HasPrefix(line, "qdisc") {
			root = strings.HasPrefix(line, "qdisc taprio")
		}
		var bytes string
		var packets int
		if got, _ := fmt.Sscanf(strings.TrimSpace(line), "backlog %s %dp", &bytes, &packets); got == 2 && !root {
			n += packets
		}
	}
	return n
}
