// Package tsnep is Engleder's TSN endpoint, a 1 Gbit/s MAC in an FPGA, under the
// Linux tsnep driver.
//
// It follows drivers/net/ethernet/engleder of Linux 6.12 (tsnep_main.c,
// tsnep_tc.c, tsnep_ethtool.c, tsnep_hw.h): rings of 256 fixed descriptors, stop
// and wake thresholds that every poll tests, the room that XDP leaves to the
// stack, a doorbell for every frame, no byte queue limits, no offload of
// segmentation or checksums, interrupt delay in steps of 16 µs, the refill rules
// of the receive ring, and the gate control list of taprio's full offload.
//
// No datasheet is public, so what the hardware makes of an interrupt delay is a
// calibrated guess: see [New]. The gates follow IEEE 802.1Q: a frame must end
// before its gate shuts.
//
// It leaves out: the change from one gate list to another and its extension
// (a list is set once and starts at its base time), timestamps, RX flow rules,
// XSK pools, data copied into descriptors, the bus (a frame is in the card when
// its doorbell rings), and the first pair's interrupt being shared with the link.
package tsnep

import (
	"errors"
	"fmt"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
)

const (
	ringSize   = 256    // TSNEP_RING_SIZE
	descNeeded = 17 + 1 // MAX_SKB_FRAGS + 1

	delayStep = 16 * units.Microsecond  // ECM_INT_DELAY_BASE_US
	delayMax  = 255 * units.Microsecond // what TSNEP_COALESCE_USECS_MAX lets through

	gateEntries  = 255                   // TSNEP_MAX_GCL_NUM
	gateMask     = 0xff                  // TSNEP_GCL_MASK
	gateInterval = 32 * units.Nanosecond // TSNEP_GCL_MIN_INTERVAL
)

// Rules of the interrupt delay.
const (
	modeHoldOff  = "hold-off" // nic.HoldOff
	modeDelay    = "delay"    // nic.Delay
	modeThrottle = "throttle" // nic.Throttle
)

// New returns the profile with the driver's defaults.
//
// The driver writes a delay of 64 µs and the published interval of interrupts is
// 140 µs, with a core that is idle for most of it. Of the simple rules only one
// gives that: a cause within the delay after an interrupt is not timed, the
// first one behind it is, and the interrupt comes a delay later (hold-off). The
// others give 84 µs (delay after the first cause), 86 µs (the same and the
// driver's look for pending work) and 64 µs (at once, but a delay apart):
// coalesce.mode and napi.repoll choose among them.
func New() *nic.Device {
	d := &nic.Device{
		Name:    "tsnep",
		Summary: "Engleder TSN endpoint, 1 Gbit/s",
		TSO:     false, // tsnep_probe: NETIF_F_SG only
		CSUM:    false,
		MaxMTU:  2048, // TSNEP_MAX_FRAME_SIZE
		Config: nic.Config{
			Queues: 1,
			Link:   nic.Link{Rate: units.Gbit, Preamble: 8, FCS: 4, Gap: 12, MinFrame: 60},
			Ring: nic.Ring{
				TX: ringSize, RX: ringSize, Spare: 1, StopAt: descNeeded, WakeAt: 2 * descNeeded,
				WakeOnEmptyPoll: true, XDPReserve: descNeeded, EveryDoorbell: true, RXRefill: 16, RXReuse: ringSize - 64,
			},
			BQL:         nic.BQL{Hold: units.Second},
			Fetch:       nic.Fetch{Outstanding: 1},
			Arbitration: "strict-high",
			WriteBack:   nic.WriteBack{Threshold: 1, RSStride: 1},
			Coalesce:    nic.Coalesce{Mode: modeHoldOff, Usecs: 64 * units.Microsecond},
			NAPI:        nic.NAPI{TXWork: 128, TXAgain: 128, RXWork: 64, Repoll: true},
			HZ:          250,
		},
		Rules: nic.Rules{
			Descriptors: func(f *nic.Frame) int { return max(1, len(f.Bufs)) },
			Moderation:  moderation,
			Counters:    counters,
		},
	}
	d.Finish = func() error { return checkGates(d.Config.Gates.List) }

	const main, ethtool, tc = "tsnep_main.c ", "tsnep_ethtool.c ", "tsnep_tc.c "
	d.Knob("queues", main+"tsnep_queue_init: the first pair; up to 8 if the platform has interrupts txrx-1 to txrx-7").Range(1, 8)
	d.Knob("link.rate", "1000BASE-T, IEEE 802.3").Range(int64(100*units.Mbit), int64(units.Gbit)).Check(linkRate).Words("100mbit or 1gbit")
	d.Choice("arbitration", &d.Config.Arbitration, []string{"strict-high", "strict", "rr"},
		"between queues at the MAC: the last queue first, queue 0 first, or round robin by frame", tc+"tsnep_tc_query_caps: no broken_mqprio, so higher traffic classes, on later queues, are more urgent; not documented")
	d.Knob("gates", tc+"tsnep_taprio: none; up to 255 entries of at least 32ns, masks of transmit queues")
	d.Knob("gates.base_time", tc+"tsnep_enable_gcl")
	d.Choice("coalesce.mode", &d.Config.Coalesce.Mode, []string{modeHoldOff, modeDelay, modeThrottle},
		"hold-off: a delay without, then a delay after the first cause; delay: after the first cause; throttle: at once, but a delay apart",
		"calibrated guess: of these only hold-off gives the ~140 us of [PATCH net-next 0/4] tsnep: Throttle irq")
	d.Knob("coalesce.rx_usecs", main+"tsnep_set_irq_coalesce, TSNEP_COALESCE_USECS_DEFAULT").Range(0, int64(delayMax)).RoundDown(int64(delayStep)).
		Words("0 to 255 microseconds, of which a multiple of 16 is kept (the driver answers ERANGE to more)")
	d.Knob("napi.weight", "netdevice.h NAPI_POLL_WEIGHT")
	d.Knob("napi.repoll", main+"tsnep_poll, tsnep_pending: since the fix of rotten packets, November 2022")
	d.Knob("ring.rx_refill", "tsnep.h TSNEP_RING_RX_REFILL").Range(1, ringSize-1)
	d.Knob("ring.rx_reuse", "tsnep.h TSNEP_RING_RX_REUSE").Range(0, ringSize-1)
	d.Knob("ring.rx_alloc_fail", "0: memory is never short")
	d.Knob("cpu.xmit", "0: the core never limits")
	d.Knob("cpu.interrupt", "0: the core never limits")
	d.Knob("cpu.clean", "0: the core never limits")
	d.Knob("cpu.receive", "0: the core never limits")
	d.Knob("cpu.flush", "0: the core never limits")
	d.Knob("cpu.copy", "0: the core never limits")
	d.Knob("hz", "Debian's kernels")
	return d
}

func linkRate(v int64) error {
	switch units.Rate(v) {
	case 100 * units.Mbit, units.Gbit:
		return nil
	}
	return errors.New("expected 100mbit or 1gbit")
}

// checkGates is tsnep_validate_gcl.
func checkGates(list nic.GateList) error {
	if len(list) > gateEntries {
		return fmt.Errorf("gates: %d entries, the driver answers EINVAL: expected at most %d", len(list), gateEntries)
	}
	for i, e := range list {
		if e.Mask&^gateMask != 0 {
			return fmt.Errorf("gates: entry %d has mask %x, the driver answers EINVAL: expected at most %x", i+1, e.Mask, gateMask)
		}
		if e.Interval < gateInterval {
			return fmt.Errorf("gates: entry %d lasts %v, the driver answers EINVAL: expected at least %v", i+1, e.Interval, gateInterval)
		}
	}
	return nil
}

func moderation(c *nic.Config) nic.Moderation {
	delay := engine.Time(c.Coalesce.Usecs)
	switch c.Coalesce.Mode {
	case modeDelay:
		return &nic.Delay{D: delay}
	case modeThrottle:
		return &nic.Throttle{Interval: delay}
	}
	return &nic.HoldOff{D: delay}
}

// counters are the lines of tsnep_ethtool.c that the model keeps. The card
// counts bytes with the frame check sequence.
func counters(n *nic.NIC) []nic.Counter {
	fcs := uint64(n.Config().Link.FCS)
	var all struct{ rxDropped, allocFailed uint64 }
	var rx, tx []nic.Counter
	for q := range n.Queues() {
		r, name := n.RXQueue(q), fmt.Sprintf("rx_%d_", q)
		rx = append(rx,
			nic.Counter{Name: name + "packets", Value: r.Delivered.Frames},
			nic.Counter{Name: name + "bytes", Value: r.Delivered.Bytes + fcs*r.Delivered.Frames},
			nic.Counter{Name: name + "dropped", Value: r.Dropped.Frames},
			nic.Counter{Name: name + "alloc_failed", Value: r.AllocFailed},
			nic.Counter{Name: name + "no_descriptor_errors", Value: r.NoDescriptor.Frames})
		all.rxDropped += r.Dropped.Frames
		all.allocFailed += r.AllocFailed
	}
	for q := range n.Queues() {
		t, name := n.Queue(q), fmt.Sprintf("tx_%d_", q)
		tx = append(tx,
			nic.Counter{Name: name + "packets", Value: t.Packets},
			nic.Counter{Name: name + "bytes", Value: t.Sent.Bytes + fcs*t.Packets},
			nic.Counter{Name: name + "dropped", Value: t.Dropped.Frames})
	}
	s, sum := n.Stats(), n.Total()
	list := []nic.Counter{
		{Name: "rx_packets", Value: s.Delivered.Frames},
		{Name: "rx_bytes", Value: s.Delivered.Bytes + fcs*s.Delivered.Frames},
		{Name: "rx_dropped", Value: all.rxDropped},
		{Name: "rx_alloc_failed", Value: all.allocFailed},
		{Name: "tx_packets", Value: sum.Packets},
		{Name: "tx_bytes", Value: sum.Sent.Bytes + fcs*sum.Packets},
		{Name: "tx_dropped", Value: sum.Dropped.Frames},
	}
	return append(append(list, rx...), tx...)
}
