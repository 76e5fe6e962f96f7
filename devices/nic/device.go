package nic

import (
	"fmt"
	"math"

	"nicemu/devices/engine"
	"nicemu/devices/units"
)

// Device is a profile ready to be adjusted and built: a configuration, the
// rules that differ, and the knobs that may be turned.
type Device struct {
	Name    string
	Aliases []string // other names: the chip's, beside the driver's
	Summary string   // one line
	Config  Config
	Rules   Rules

	// What the driver offers to the stack: netdev->features and max_mtu.
	TSO    bool // NETIF_F_TSO: takes GSO frames, else the stack segments them
	CSUM   bool // NETIF_F_HW_CSUM or NETIF_F_IP_CSUM: takes frames without checksum
	MaxMTU int  // bytes

	// Finish checks what a single knob cannot (relations between them) and
	// derives what follows from them. Nil: nothing to do.
	Finish func() error

	knobs    []*Knob
	standard []Knob // all that could be declared
}

// Knobs in the order in which the device declared them.
func (d *Device) Knobs() []*Knob { return d.knobs }

// Given are the values of the knobs that a user has set, as the driver has
// rounded them.
func (d *Device) Given() map[string]string {
	given := map[string]string{}
	for _, k := range d.knobs {
		if k.Given() {
			given[k.Key] = k.Value()
		}
	}
	return given
}

// MaxRate is the fastest link that the card can have.
func (d *Device) MaxRate() units.Rate {
	for _, k := range d.knobs {
		if k.Key == "link.rate" {
			return units.Rate(k.max)
		}
	}
	return d.Config.Link.Rate
}

// Set turns one knob.
func (d *Device) Set(key, value string) error {
	for _, k := range d.knobs {
		if k.Key == key {
			return k.Set(value)
		}
	}
	return &UnknownKnobError{Device: d.Name, Key: key, Known: d.Keys()}
}

// UnknownKnobError is a key that the device does not have.
type UnknownKnobError struct {
	Device, Key string
	Known       []string
}

func (e *UnknownKnobError) Error() string {
	return fmt.Sprintf("device %s has no knob %q; `nicemu devices %s` lists them", e.Device, e.Key, e.Device)
}

// Keys are the names of all knobs.
func (d *Device) Keys() []string {
	keys := make([]string, len(d.knobs))
	for i, k := range d.knobs {
		keys[i] = k.Key
	}
	return keys
}

// Check finishes the configuration and says what in it contradicts itself.
func (d *Device) Check() error {
	if d.Finish != nil {
		if err := d.Finish(); err != nil {
			return err
		}
	}
	c := &d.Config
	if pb := len(c.PB.Sizes); pb > 1 && pb != c.Queues {
		return fmt.Errorf("packet buffers: %d sizes for %d queues; expected one size (shared) or one per queue", pb, c.Queues)
	}
	for _, s := range c.PB.Sizes {
		if s <= c.PB.MaxPacket {
			return fmt.Errorf("packet buffer of %v is never filled: a fetch starts only while more than %v is free", s, c.PB.MaxPacket)
		}
	}
	if usable := c.Ring.TX - c.Ring.Spare; c.Ring.StopAt >= usable || c.Ring.WakeAt > usable {
		return fmt.Errorf("ring of %d never runs: stops below %d free, wakes at %d, usable %d", c.Ring.TX, c.Ring.StopAt, c.Ring.WakeAt, usable)
	}
	if c.Ring.StopAt > c.Ring.WakeAt {
		return fmt.Errorf("ring stops below %d free slots and wakes at %d: it would be woken while it is to stop", c.Ring.StopAt, c.Ring.WakeAt)
	}
	return nil
}

// Build makes the card.
func (d *Device) Build(e *engine.Engine, cpu *CPU, host Host, wire Wire) (*NIC, error) {
	if err := d.Check(); err != nil {
		return nil, fmt.Errorf("device %s: %w", d.Name, err)
	}
	return New(e, cpu, d.Config, d.Rules, host, wire), nil
}

// Own declares a knob that only this device has. ptr points at its value: *int,
// *bool, *float64, *string (with Enum), *units.Rate, *units.Size,
// *units.Duration or *[]units.Size.
func (d *Device) Own(key string, ptr any, unit, doc, source string) *Knob {
	k := &Knob{Key: key, Doc: doc, Source: source, Unit: unit, ptr: ptr, max: math.MaxInt32}
	d.knobs = append(d.knobs, k)
	return k
}

// Choice declares a knob with named values.
func (d *Device) Choice(key string, ptr *string, values []string, doc, source string) *Knob {
	k := d.Own(key, ptr, "", doc, source)
	k.Enum = values
	return k
}

// Knob declares the standard knob of that name, with the source of the default
// in this device's Config.
func (d *Device) Knob(key, source string) *Knob {
	if d.standard == nil {
		d.standard = standardKnobs(&d.Config)
	}
	for i := range d.standard {
		if k := &d.standard[i]; k.Key == key {
			k.Source = source
			d.knobs = append(d.knobs, k)
			return k
		}
	}
	panic("nic: no standard knob " + key)
}

// StandardKeys are the knobs that every part of the skeleton has.
func StandardKeys() []string {
	var keys []string
	for _, k := range standardKnobs(&Config{}) {
		keys = append(keys, k.Key)
	}
	return keys
}

func standardKnobs(c *Config) []Knob {
	const (
		maxRate = int64(1e12)
		maxNs   = int64(10e9)
		maxSize = int64(1 << 30)
	)
	return []Knob{
		{Key: "queues", ptr: &c.Queues, min: 1, max: 64, Unit: "queues", Doc: "transmit and receive queue pairs, one interrupt vector each"},
		{Key: "link.rate", ptr: &c.Link.Rate, min: 1000, max: maxRate, Doc: "speed of the medium"},
		{Key: "link.preamble", ptr: &c.Link.Preamble, max: 64, Unit: "bytes", Doc: "preamble and start delimiter before each wire packet"},
		{Key: "link.fcs", ptr: &c.Link.FCS, max: 64, Unit: "bytes", Doc: "frame check sequence behind each wire packet"},
		{Key: "link.gap", ptr: &c.Link.Gap, max: 1024, Unit: "bytes", Doc: "inter-packet gap"},
		{Key: "link.min_frame", ptr: &c.Link.MinFrame, max: 1024, Unit: "bytes", Doc: "shorter frames are padded to this, FCS not counted"},

		{Key: "ring.tx", ptr: &c.Ring.TX, min: 8, max: 65536, Unit: "descriptors", Doc: "transmit ring of each queue"},
		{Key: "ring.rx", ptr: &c.Ring.RX, min: 8, max: 65536, Unit: "descriptors", Doc: "receive ring of each queue"},
		{Key: "ring.spare", ptr: &c.Ring.Spare, max: 8, Unit: "descriptors", Doc: "slots never used, so that a full ring differs from an empty one"},
		{Key: "ring.gap", ptr: &c.Ring.Gap, max: 64, Unit: "descriptors", Doc: "free slots a frame needs beyond its own, else NETDEV_TX_BUSY"},
		{Key: "ring.stop", ptr: &c.Ring.StopAt, max: 65536, Unit: "descriptors", Doc: "after a frame, fewer free slots than this set DRV_XOFF"},
		{Key: "ring.wake", ptr: &c.Ring.WakeAt, max: 65536, Unit: "descriptors", Doc: "after cleaning, this many free slots clear DRV_XOFF"},
		{Key: "ring.rx_refill", ptr: &c.Ring.RXRefill, max: 65536, Unit: "descriptors", Doc: "empty receive descriptors refilled together while frames are processed; the rest at the end of a round"},
		{Key: "ring.rx_reuse", ptr: &c.Ring.RXReuse, max: 65536, Unit: "descriptors", Doc: "so many empty and no page to be had: a received frame is dropped for its page; 0 = never"},
		{Key: "ring.rx_alloc_fail", ptr: &c.Ring.RXAllocFail, max: 1, Unit: "of 1", Doc: "probability that a page for the receive ring cannot be had"},

		{Key: "bql", ptr: &c.BQL.On, Doc: "byte queue limits in the driver"},
		{Key: "bql.limit_min", ptr: &c.BQL.LimitMin, max: maxSize, Doc: "sysfs byte_queue_limits/limit_min"},
		{Key: "bql.limit_max", ptr: &c.BQL.LimitMax, max: maxSize, Doc: "sysfs byte_queue_limits/limit_max; 0b = the kernel's largest"},
		{Key: "bql.hold_time", ptr: &c.BQL.Hold, max: maxNs, Doc: "sysfs byte_queue_limits/hold_time: slack is kept this long before the limit shrinks"},

		{Key: "fetch.latency", ptr: &c.Fetch.Latency, max: maxNs, Doc: "from the start of a fetch to its first byte in the card"},
		{Key: "fetch.per_descriptor", ptr: &c.Fetch.PerDescriptor, max: maxNs, Doc: "added to a fetch for each descriptor"},
		{Key: "fetch.bus_rate", ptr: &c.Fetch.BusRate, max: maxRate, Doc: "bus speed after line coding; 0bit = unlimited"},
		{Key: "fetch.payload", ptr: &c.Fetch.Payload, min: 1, max: maxSize, Doc: "data in one bus packet"},
		{Key: "fetch.header", ptr: &c.Fetch.Header, max: 4096, Doc: "bus bytes around the data of one bus packet"},
		{Key: "fetch.outstanding", ptr: &c.Fetch.Outstanding, min: 1, max: 1024, Unit: "fetches", Doc: "fetches under way at once"},
		{Key: "fetch.arbitration", ptr: &c.Fetch.Arbitration, Enum: []string{"rr", "most-empty"}, Doc: "which queue's frame is fetched next: round robin, or the queue whose packet buffer has most room"},
		{Key: "fetch.launch_ahead", ptr: &c.Fetch.LaunchAhead, max: maxNs, Doc: "a launch-time frame is fetched at most this long before its time; 0ns = as soon as posted"},

		{Key: "packet_buffers", ptr: &c.PB.Sizes, min: 64, max: maxSize, Doc: "transmit packet buffers: none, one shared, or one per queue"},
		{Key: "max_packet", ptr: &c.PB.MaxPacket, max: maxSize, Doc: "a fetch into a packet buffer starts only while more than this is free"},
		{Key: "arbitration", ptr: &c.Arbitration, Enum: []string{"strict", "strict-high", "rr", "drr"}, Doc: "between queues at the MAC: queue 0 first, the last queue first, round robin by frame, deficit round robin by byte"},
		{Key: "quantum", ptr: &c.Quantum, min: 64, max: maxSize, Doc: "drr: bytes a queue may send in its turn"},
		{Key: "gates", ptr: &c.Gates.List, Doc: "gate control list: masks of the queues that may send, each with how long; the cycle is their sum"},
		{Key: "gates.base_time", ptr: &c.Gates.BaseTime, max: 1e18, Doc: "when the gate control list starts; until then all gates are open"},

		{Key: "writeback.threshold", ptr: &c.WriteBack.Threshold, min: 1, max: 64, Unit: "frames", Doc: "sent frames written back together (WTHRESH); an interrupt flushes"},
		{Key: "writeback.rs_stride", ptr: &c.WriteBack.RSStride, min: 1, max: 64, Unit: "frames", Doc: "status report asked for every n-th frame"},
		{Key: "writeback.rs_descriptors", ptr: &c.WriteBack.RSFromDesc, max: 64, Unit: "descriptors", Doc: "and for frames of at least so many descriptors; 0 = stride only"},
		{Key: "writeback.latency", ptr: &c.WriteBack.Latency, max: maxNs, Doc: "from the end of a frame until the driver can see it"},

		{Key: "coalesce.mode", ptr: &c.Coalesce.Mode, Enum: []string{"throttle", "delay"}, Doc: "throttle: at once, but this long after the last interrupt; delay: this long after the first cause"},
		{Key: "coalesce.rx_usecs", ptr: &c.Coalesce.Usecs, max: int64(units.Duration(100e6)), Doc: "interrupt moderation interval (ethtool -C rx-usecs; the vector is shared by RX and TX)"},

		{Key: "napi.tx_work", ptr: &c.NAPI.TXWork, min: 1, max: 65536, Unit: "frames", Doc: "sent frames cleaned in one round of a poll"},
		{Key: "napi.tx_again", ptr: &c.NAPI.TXAgain, min: 1, max: 65536, Unit: "frames", Doc: "a round that cleaned so many is followed by another at once"},
		{Key: "napi.weight", ptr: &c.NAPI.RXWork, min: 1, max: 65536, Unit: "frames", Doc: "received frames in one round of a poll"},
		{Key: "napi.repoll", ptr: &c.NAPI.Repoll, Doc: "look for work once more after re-arming the interrupt"},
		{Key: "napi.stall_rate", ptr: &c.NAPI.StallRate, max: 1000000, Unit: "per second", Doc: "how often a vector's poll is held up (Poisson)"},
		{Key: "napi.stall_mean", ptr: &c.NAPI.StallMean, max: maxNs, Doc: "mean length of a hold-up (exponential)"},

		{Key: "cpu.xmit", ptr: &c.CPU.Xmit, max: maxNs, Doc: "core time of handing one frame to the driver"},
		{Key: "cpu.interrupt", ptr: &c.CPU.Interrupt, max: maxNs, Doc: "core time of one interrupt and its softirq"},
		{Key: "cpu.clean", ptr: &c.CPU.Clean, max: maxNs, Doc: "core time of cleaning one sent frame"},
		{Key: "cpu.receive", ptr: &c.CPU.Receive, max: maxNs, Doc: "core time of one received frame in the poll"},
		{Key: "cpu.flush", ptr: &c.CPU.Flush, max: maxNs, Doc: "core time, once for each interrupt that received, between the last look at the rings and re-arming: GRO flush, protocol input, wake-up"},
		{Key: "cpu.copy", ptr: &c.CPU.Copy, max: maxNs, Doc: "core time of copying one received frame to user space"},

		{Key: "watchdog", ptr: &c.Watchdog, max: 3600e9, Doc: "TX watchdog: a queue stopped this long without a transmission is reset; 0ns = none"},
		{Key: "drain", ptr: &c.Drain, max: 3600e9, Doc: "taking the port down waits this long for the frames in its rings, then frees them; 0ns = at once"},
		{Key: "hz", ptr: &c.HZ, min: 100, max: 1000, Unit: "jiffies a second", Doc: "timer frequency of the kernel: DQL's hold time counts jiffies"},
	}
}
