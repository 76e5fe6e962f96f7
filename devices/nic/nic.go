// Package nic is the skeleton that all card models share: how a driver and its
// card transmit and receive, from the qdisc's hand-over to the wire and back.
//
// The way of a frame down, each stage an index into the queue's ring that
// chases the one before:
//
//	Post        driver half: descriptors, BQL, stop bits          (txq.go)
//	doorbell    the card may look                                 (txq.go)
//	fetched     data crossed the bus into a packet buffer         (fetch.go)
//	sent        arbitrated and serialized by the MAC              (mac.go)
//	reported    written back, visible to the driver               (completion.go)
//	cleaned     interrupt, NAPI poll, BQL completed, queue woken  (completion.go)
//
// and up: Receive, RX ring, the same interrupt and poll, Deliver (rx.go).
//
// It follows the shape common to the Intel and Microsoft drivers of Linux 6.12
// (drivers/net/ethernet/intel, drivers/net/ethernet/microsoft/mana), with the
// kernel's own rules for the two stop bits (include/linux/netdevice.h,
// include/net/netdev_queues.h). It leaves out: PCI configuration, DMA mapping,
// link negotiation, checksums as bytes, and everything a frame's timing does
// not depend on.
//
// A NIC is a pure state machine on one [engine.Engine]: no I/O, no goroutine,
// no wall clock, no allocation per frame.
package nic

import (
	"fmt"

	"nicemu/devices/engine"
)

// Host is the kernel above the driver.
type Host interface {
	// Wake schedules queue q: a stop bit was cleared. The other bit may still
	// be set; see [NIC.XOFF].
	Wake(q int)
	// Complete gives a sent or dropped frame back: the sk_buff is freed.
	Complete(f *Frame)
	// Deliver hands a received frame to the stack.
	Deliver(f *Frame)
}

// Wire is what the MAC sends to. A wire that keeps the frame retains it.
type Wire interface {
	// Transmit takes a frame whose last bit leaves the MAC at end, at or after
	// the current time.
	Transmit(f *Frame, end engine.Time)
}

// Rules are what a device does differently and no number says.
type Rules struct {
	// LayOut gives frames without Bufs the layout of [PageFrags] before any
	// other rule sees them.
	LayOut bool
	// Refuse says why the driver drops a frame at once, "" if it does not.
	// Nil: never.
	Refuse func(*Frame) string
	// Linearize says whether the driver copies a frame into one buffer before
	// it maps it. Nil: never.
	Linearize func(*Frame) bool
	// Descriptors is how many ring slots a frame takes. Nil: one for each
	// buffer and one more for Offload.
	Descriptors func(*Frame) int
	// Room is how many slots the driver looks for before it maps a frame,
	// where it only estimates. Nil: Descriptors.
	Room func(*Frame) int
	// ReportStatus says whether a frame of so many slots, the stride-th since
	// the last report, asks for one. Nil: by WriteBack.
	ReportStatus func(f *Frame, desc, stride int) bool
	// BQLBytes is what the driver reports to BQL, 0 for a frame that it leaves
	// out. Nil: wire bytes with the headers of every segment.
	BQLBytes func(*Frame) int
	// Moderation makes the rule of one vector. Nil: by Coalesce.Mode,
	// "throttle" or "delay".
	Moderation func(c *Config) Moderation
	// LaunchTime is when the card will start f, as its descriptor says: what
	// is left of f.Launch, 0 for at once. [LaunchTime] holds it back so long.
	// Nil: the card knows no launch times.
	LaunchTime func(n *NIC, f *Frame) engine.Time
	// Shapers are asked by the MAC before it sends from queue q. Nil: none.
	Shapers func(n *NIC, q int) []Shaper
	// Counters are the driver's own names of ethtool -S, in its order.
	Counters func(n *NIC) []Counter
}

// Counter is one line of ethtool -S.
type Counter struct {
	Name  string
	Value uint64
}

// NIC is one card with its driver.
type NIC struct {
	// immutable after New
	cfg   Config
	rules Rules
	eng   *engine.Engine
	cpu   *CPU
	host  Host
	wire  Wire

	tx      []txq
	rx      []rxq
	vectors []vector
	fetcher fetcher
	mac     mac

	watchdog engine.Timer
	down     down
	stats    Stats
}

// New makes a card from a checked configuration. Cards that share a core share
// cpu.
func New(e *engine.Engine, cpu *CPU, cfg Config, rules Rules, host Host, wire Wire) *NIC {
	if rules.Descriptors == nil {
		rules.Descriptors = linearDescriptors
	}
	if rules.Room == nil {
		rules.Room = rules.Descriptors
	}
	if rules.BQLBytes == nil {
		rules.BQLBytes = (*Frame).Wire
	}
	n := &NIC{cfg: cfg, rules: rules, eng: e, cpu: cpu, host: host, wire: wire}
	n.stats.Dropped = map[string]Count{}
	n.tx = make([]txq, cfg.Queues)
	for i := range n.tx {
		n.tx[i].init(n, i)
	}
	n.rx = make([]rxq, cfg.Queues)
	for i := range n.rx {
		n.rx[i].init(n)
	}
	n.vectors = make([]vector, cfg.Queues)
	for i := range n.vectors {
		n.vectors[i].init(n, i)
	}
	n.fetcher.init(n)
	n.mac.init(n)
	e.Init(&n.watchdog, n.watch)
	e.Init(&n.down.timer, n.drain)
	return n
}

// Config is the card's configuration.
func (n *NIC) Config() *Config { return &n.cfg }

// Engine is the clock that the card runs on.
func (n *NIC) Engine() *engine.Engine { return n.eng }

// CPU is the core that runs the card's interrupts.
func (n *NIC) CPU() *CPU { return n.cpu }

func linearDescriptors(f *Frame) int {
	d := max(1, len(f.Bufs))
	if f.Offload {
		d++
	}
	return d
}

// SetRate changes the speed of the link from the next frame on; 0 pauses it.
func (n *NIC) SetRate(bitsPerSecond int64) {
	n.mac.rate = bitsPerSecond
	n.mac.kick()
}

// drop gives a frame back unsent and counts why.
func (n *NIC) drop(f *Frame, reason string) {
	c := n.stats.Dropped[reason]
	c.add(f.Wire())
	n.stats.Dropped[reason] = c
	f.WireStart, f.WireEnd = 0, 0 // a reset may have cut it off
	n.host.Complete(f)
}

// watch is dev_watchdog of net/sched/sch_generic.c: if a queue has been stopped
// without a transmission for the whole time-out, the driver resets the card.
func (n *NIC) watch() {
	timeout := engine.Time(n.cfg.Watchdog)
	busy := false
	for i := range n.tx {
		q := &n.tx[i]
		if q.posted == q.cleaned {
			continue
		}
		if q.stopped() && n.eng.Now()-q.transStart >= timeout {
			n.stats.TXTimeouts++
			for i := range n.tx {
				n.tx[i].reset("tx_timeout")
			}
			return
		}
		busy = true
	}
	if busy {
		n.eng.After(&n.watchdog, timeout)
	}
}

func (n *NIC) String() string {
	return fmt.Sprintf("%d queues at %v", len(n.tx), n.cfg.Link.Rate)
}
