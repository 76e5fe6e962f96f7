package nic

import (
	"nicemu/devices/engine"
	"nicemu/devices/units"
)

// Config is what one card is made of: numbers only, each a knob of some
// profile. Rules that are more than a number are in [Rules].
type Config struct {
	Queues int // TX/RX queue pairs, 1..64

	Link  Link
	Ring  Ring
	BQL   BQL
	Fetch Fetch
	PB    PacketBuffers

	Arbitration string     // between queues at the MAC: strict, strict-high, rr, drr
	Quantum     units.Size // drr: bytes a queue may send in its turn
	Gates       Gates

	WriteBack WriteBack
	Coalesce  Coalesce
	NAPI      NAPI
	CPU       CPUCost

	Watchdog units.Duration // TX watchdog; 0 = the driver has none
	Drain    units.Duration // taking the port down waits so long for the frames in its rings
	HZ       int            // jiffies a second (DQL hold time, watchdog)
}

// Link is the medium behind the MAC. The bytes around a frame are those of
// IEEE 802.3: preamble with start delimiter 8, frame check sequence 4,
// inter-packet gap 12.
type Link struct {
	Rate     units.Rate
	Preamble int
	FCS      int
	Gap      int
	MinFrame int // bytes without FCS that a shorter frame is padded to
}

// Ring is the descriptor rings and when the driver stops and wakes a queue.
type Ring struct {
	TX     int // slots
	RX     int // slots
	Spare  int // slots that are never used (1: head equal to tail means empty)
	Gap    int // free slots a frame needs beyond its own, else NETDEV_TX_BUSY
	StopAt int // after a frame: fewer free slots than this set DRV_XOFF
	WakeAt int // after cleaning: as many free slots as this clear it

	WakeOnEmptyPoll bool // wake even if this round cleaned nothing
	XDPReserve      int  // slots that frames of XDP leave to the stack, whose queue they then never stop
	EveryDoorbell   bool // ring the doorbell for every frame: the driver ignores xmit_more

	RXRefill    int     // empty receive descriptors that are refilled together, while frames are processed; the rest at the end of a round
	RXReuse     int     // so many empty and no page to be had: a received frame's page serves the ring and the frame is dropped; 0 = never
	RXAllocFail float64 // probability that a page cannot be had
}

// BQL is byte queue limits in the driver.
type BQL struct {
	On       bool
	LimitMin units.Size
	LimitMax units.Size // 0 = the kernel's DQL_MAX_LIMIT
	Hold     units.Duration
}

// Fetch is how descriptors and data cross the bus after a doorbell. All zero:
// data is in the card as soon as the doorbell rings.
type Fetch struct {
	Latency       units.Duration // first byte of a fetch
	PerDescriptor units.Duration // on top, for every descriptor
	BusRate       units.Rate     // 0 = unlimited
	Payload       units.Size     // bus bytes of data in one completion packet
	Header        units.Size     // bus bytes around them
	Outstanding   int            // fetches under way at once
	Arbitration   string         // whose turn it is: rr, most-empty
	LaunchAhead   units.Duration // a launch-time frame is fetched at most this long before its time
}

func (f *Fetch) instant() bool {
	return f.Latency == 0 && f.PerDescriptor == 0 && f.BusRate == 0 && f.LaunchAhead == 0
}

// PacketBuffers is the card's transmit memory. With no size the ring itself is
// the buffer and a GSO frame crosses the MAC as one unit; with sizes every
// segment is fetched and sent by itself, store and forward.
type PacketBuffers struct {
	Sizes     []units.Size // one = shared by all queues, in fetch order; else one per queue
	MaxPacket units.Size   // a fetch may start only while more than this is free
}

// Gates is the gate control list of a card that offloads taprio: which queues
// may send when, without an end, from BaseTime on. No list: all, always.
type Gates struct {
	List     GateList
	BaseTime units.Duration
}

// WriteBack is when the card reports sent frames to the driver.
type WriteBack struct {
	Threshold  int            // frames reported together (WTHRESH); an interrupt flushes
	RSStride   int            // report status asked for every n-th frame...
	RSFromDesc int            // ...and for each of at least so many descriptors; 0 = stride only
	Latency    units.Duration // from the end of the frame until the driver can see it
}

// Coalesce is interrupt moderation. Mode names a rule of [Rules.Moderation].
type Coalesce struct {
	Mode  string
	Usecs units.Duration
}

// NAPI is the poll of one vector.
type NAPI struct {
	TXWork  int  // frames of one queue cleaned in a round
	TXAgain int  // a round that cleaned so many is followed by another at once
	RXWork  int  // frames received in a round (the NAPI weight)
	Repoll  bool // after re-arming, poll again at once if work came meanwhile

	StallRate float64        // times a second that a vector's poll is held up; 0 = never
	StallMean units.Duration // mean length of a hold-up (exponential)
}

// CPUCost is host core time.
type CPUCost struct {
	Xmit      units.Duration // handing one frame to the driver, as a source spends it
	Interrupt units.Duration // entering and leaving interrupt and softirq
	Clean     units.Duration // one sent frame
	Receive   units.Duration // one received frame in the poll
	Flush     units.Duration // once for each interrupt that received: GRO flush, protocol input, wake-up, before re-arming
	Copy      units.Duration // one received frame to user space
}

func (c *Config) jiffies(t engine.Time) uint64 {
	return 4_000_000 + uint64(t)/uint64(engine.Second/engine.Time(c.HZ))
}
