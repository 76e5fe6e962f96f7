package emulator

import (
	"fmt"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/emulator/tap"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Port is where a card meets a kernel: frames that left the qdisc come out of
// its queues, received frames go back in. Every frame carries a
// virtio_net_hdr in front.
type Port interface {
	Queues() int
	// FD is readable when queue q has a frame.
	FD(q int) int
	// Read copies the next frame of queue q into buf; 0 means that there is
	// none now.
	Read(q int, buf []byte) (int, error)
	// Write gives a received frame to the kernel, as from receive queue q.
	Write(q int, frame []byte) error
	// Passed counts what has left the qdisc for queue q since the start, frames
	// still unread included; bytes as skb->len.
	Passed(q int) (bytes, frames uint64)
	// Largest is the largest packet that entered the qdisc of queue q lately, in
	// wire bytes: GSO packets are whole there even if the card has no TSO.
	Largest(q int) uint64
}

// Backpressure makes the qdisc above a port hold what the card has no room
// for.
type Backpressure interface {
	// Credit tells what queue q may still take from the qdisc, counting from
	// what has passed so far.
	Credit(q int, c Credit)
	// Flush carries out the credits of one turn of the loop.
	Flush() error
	// NotifyFD becomes readable when Notified should be called; -1 = never.
	NotifyFD() int
	Notified() error
}

// Credit is the room that a card has for one queue's frames.
type Credit struct {
	Bytes  int // until BQL stops the queue; negative = stopped
	Frames int // until the ring stops the queue; 0 = stopped
}

// readFrames and readBytes bound what a turn of the loop reads from one queue,
// so that no other queue and no timer waits long for a flood: the kernel's
// dev_weight, and two GSO frames.
const (
	readFrames = 64
	readBytes  = 128 << 10
)

// Card is a card model in a namespace. It is the model's kernel on one side
// ([nic.Host]) and its link on the other ([nic.Wire]).
type Card struct {
	loop *Loop
	name string
	nic  *nic.NIC
	port Port
	back Backpressure
	wire nic.Wire

	tap           *tap.Port // behind port, if it is one
	droppedBefore uint64    // tx_dropped when the qdisc was taken

	queues  []cardQueue
	excess  *hdrhistogram.Histogram // bytes below the qdisc beyond limit + one largest frame
	refused nic.Count               // received frames that the kernel did not take
}

// cardQueue is the port side of one transmit queue.
type cardQueue struct {
	frames, bytes uint64     // read so far, bytes as skb->len
	held          *nic.Frame // read, and refused by the ring: posted first after the wake-up
	polled        bool       // the kernel said that there is something to read
	missed        uint64     // passed when a read found nothing
	largest       tracker    // wire bytes of a packet in the qdisc, lately
	descriptors   tracker    // descriptors of a frame, lately
}

// NewCard builds device d for a port.
func (l *Loop) NewCard(name string, d *nic.Device, port Port, back Backpressure) (*Card, error) {
	if d.Config.Queues != port.Queues() {
		return nil, fmt.Errorf("%s: the device has %d queues, its port %d", name, d.Config.Queues, port.Queues())
	}
	c := &Card{loop: l, name: name, port: port, back: back, excess: hdrhistogram.New(1, 1<<32, 3)}
	n, err := d.Build(l.eng, nic.NewCPU(l.eng), c, c)
	if err != nil {
		return nil, err
	}
	c.nic = n
	c.queues = make([]cardQueue, port.Queues())
	l.cards = append(l.cards, c)
	return c, nil
}

// NIC is the model; touch it through [Loop.Do] only.
func (c *Card) NIC() *nic.NIC { return c.nic }

// read posts what has left the qdisc, as far as the card's stop bits allow.
// Frames of a stopped queue stay unread in the TAP's own ring.
func (c *Card) read() {
	for q := range c.queues {
		bytes := 0
		for n := 0; n < readFrames && bytes < readBytes && c.open(q); n++ {
			f := c.next(q)
			if f == nil {
				break
			}
			bytes += f.Len
			if !c.nic.Post(f, false) {
				c.queues[q].held = f
			}
		}
	}
}

// open reports whether queue q may post and may have something to post. The
// books spare most reads that would find nothing.
func (c *Card) open(q int) bool {
	if drv, stack := c.nic.XOFF(q); drv || stack {
		return false
	}
	k := &c.queues[q]
	_, passed := c.port.Passed(q)
	return k.held != nil || k.polled || passed != k.frames && passed != k.missed
}

func (c *Card) next(q int) *nic.Frame {
	k := &c.queues[q]
	if f := k.held; f != nil {
		k.held = nil
		return f
	}
	k.polled = false
	_, passed := c.port.Passed(q)
	n, err := c.port.Read(q, c.loop.frames.scratch)
	if err != nil {
		c.loop.fail(fmt.Errorf("%s: read queue %d: %w", c.name, q, err))
		return nil
	}
	if n == 0 {
		k.missed = passed // lost in a full ring, or not in it yet
		return nil
	}
	f := c.loop.frames.take(n)
	describe(f)
	f.Queue = q
	f.Enqueued = c.loop.eng.Now()
	k.frames++
	k.bytes += uint64(f.Len)
	k.descriptors.see(c.nic.Descriptors(f))
	return f
}

// describe fills in what the virtio_net_hdr says of a frame.
func describe(f *nic.Frame) {
	h := tap.ParseHeader(f.Data)
	frame := f.Data[tap.HeaderLen:]
	f.Single(len(frame))
	if segs, hdr, _ := h.Segments(frame); segs > 1 {
		f.GSO(len(frame), hdr, int(h.GSOSize))
	}
	f.Offload = h.GSOType != 0 || h.Flags != 0
}

// Arrive puts a frame without FCS into receive queue q, as if its last bit had
// come over the wire now. It copies the bytes. False: no descriptor was free,
// and the card has counted the drop. For timers only.
func (c *Card) Arrive(q int, frame []byte) bool {
	p := c.loop.frames
	clear(p.scratch[:tap.HeaderLen])
	f := p.take(tap.HeaderLen + copy(p.scratch[tap.HeaderLen:], frame))
	f.Single(len(frame))
	f.Queue = q
	if !c.nic.Receive(f) {
		p.release(f)
		return false
	}
	return true
}

// giveCredit tells the qdisc how much more the card takes.
func (c *Card) giveCredit() {
	for q := range c.queues {
		k := &c.queues[q]
		bytes, frames := c.port.Passed(q)
		if k.frames > frames { // some were there before the books began
			k.bytes, k.frames = bytes, frames
		}
		unread := Credit{Bytes: int(bytes - k.bytes), Frames: int(frames - k.frames)}
		room := c.nic.Room(q, k.descriptors.max())
		c.back.Credit(q, Credit{
			Bytes:  c.nic.Available(q) - unread.Bytes,
			Frames: room - unread.Frames,
		})
		if c.nic.Config().BQL.On {
			k.largest.see(int(c.port.Largest(q)))
			over := c.nic.Inflight(q) + unread.Bytes - c.nic.Limit(q) - k.largest.max()
			c.excess.RecordValue(int64(max(0, over)))
		}
	}
	if err := c.back.Flush(); err != nil {
		c.loop.fail(fmt.Errorf("%s: %w", c.name, err))
	}
}

// unread reports whether the loop has to go on reading before it sleeps.
func (c *Card) unread() bool {
	for q := range c.queues {
		if c.open(q) {
			return true
		}
	}
	return false
}

// wanted fills in the descriptors that are to end the loop's sleep.
func (c *Card) wanted(fds []unix.PollFd) int {
	for q := range c.queues {
		fds[q] = unix.PollFd{Fd: -1, Events: unix.POLLIN}
		if drv, stack := c.nic.XOFF(q); !drv && !stack {
			fds[q].Fd = int32(c.port.FD(q))
		}
	}
	fds[len(c.queues)] = unix.PollFd{Fd: int32(c.back.NotifyFD()), Events: unix.POLLIN}
	return len(c.queues) + 1
}

// woken takes what the sleep found.
func (c *Card) woken(fds []unix.PollFd) {
	for q := range c.queues {
		if fds[q].Revents != 0 {
			c.queues[q].polled = true
		}
	}
	if fds[len(c.queues)].Revents != 0 {
		if err := c.back.Notified(); err != nil {
			c.loop.fail(fmt.Errorf("%s: %w", c.name, err))
		}
	}
}

// Wake implements [nic.Host]. The next turn of the loop finds the queue open.
func (c *Card) Wake(int) {}

// Complete implements [nic.Host].
func (c *Card) Complete(f *nic.Frame) { c.loop.frames.release(f) }

// Deliver implements [nic.Host]: write, the last hop.
func (c *Card) Deliver(f *nic.Frame) {
	if err := c.port.Write(f.Queue%c.port.Queues(), f.Data); err != nil {
		c.refused = c.refused.Plus(nic.Count{Frames: 1, Bytes: uint64(f.Wire())})
	}
	c.loop.frames.release(f)
}

// Transmit implements [nic.Wire]: a card without a link sends into the void.
func (c *Card) Transmit(f *nic.Frame, end engine.Time) {
	if c.wire != nil {
		c.wire.Transmit(f, end)
	}
}

var (
	_ nic.Host = (*Card)(nil)
	_ nic.Wire = (*Card)(nil)
)

// tracker is the maximum over the last one to two windows of values.
type tracker struct{ now, before, n int }

const trackerWindow = 1024

func (t *tracker) see(v int) {
	t.now = max(t.now, v)
	if t.n++; t.n == trackerWindow {
		t.before, t.now, t.n = t.now, 0, 0
	}
}

func (t *tracker) max() int { return max(t.now, t.before) }
