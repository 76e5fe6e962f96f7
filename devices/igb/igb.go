// Package igb is Intel's i210 1 Gbit/s card under the Linux igb driver, in its
// legacy mode and in Qav mode (FQTSS), the one for time-sensitive traffic.
//
// It follows drivers/net/ethernet/intel/igb of Linux 6.12 (igb_main.c,
// igb_ethtool.c, igb.h) and the i210 datasheet rev 3.x: descriptor use with the
// context descriptor of every frame on a launch-time queue, stop and wake
// thresholds, write-back, EITR and both adaptive algorithms; in legacy mode one
// 20 KB packet buffer that all queues share in fetch order, and six fetches at a
// time; in Qav mode a packet buffer for each queue, one fetch at a time, store and
// forward, strict priority with queue 0 first, launch times, credits on queues 0
// and 1, and SP_WAIT_SR.
//
// The latency of a fetch is fitted to frames of 1514 bytes in Qav mode, one at a
// time. No figure of small frames is published, so what the card does with them,
// above all in Qav mode, where the latency of each is in the open, is not to be
// relied on. A fetch is a packet, though the card's six requests may belong to
// one long packet; descriptors come without a fetch of their own.
//
// Two rules are inferred, not documented: a fetch starts only while more than
// DTXMXPKTSZ is free in the packet buffer (the driver reports that no frame
// leaves when both are equal), and SP_WAIT_SR keeps the medium free for one
// DTXMXPKTSZ ahead of a launch time (the published counts of frames per cycle
// allow 27.9 to 32.5 µs; the register gives 32.256 µs).
//
// It leaves out: taprio gates, which this card does not offload (with taprio or
// mqprio above it, note that queue 0 is the most urgent, the reverse of
// traffic class order: the driver sets broken_mqprio), the descriptor cache and
// its fetch priorities, timestamps, LAUNCH_OS0 (the driver leaves it 0), a clock
// apart from the engine's, SR-IOV, DMA coalescing, energy-efficient Ethernet,
// flow control, the management controller's traffic, and separate vectors for
// RX and TX with one or two queues: a vector serves a pair.
package igb

import (
	"errors"
	"fmt"

	"nicemu/devices/nic"
	"nicemu/devices/units"
)

const (
	maxDataPerTXD = 32768  // IGB_MAX_DATA_PER_TXD
	descNeeded    = 17 + 4 // DESC_NEEDED: MAX_SKB_FRAGS + 4

	legacyFetches = 6 // pipelined requests for transmit data (i210 datasheet 3.1.4.2.2)
	qavFetches    = 1 // with which the latency is fitted

	srQueues  = 2                           // I210_SR_QUEUES_NUM: queues 0 and 1 may reserve
	txMemory  = 24 * units.KB               // for all packet buffers
	pktUnit   = 64                          // bytes, of DTXMXPKTSZ
	pktLegacy = 0x98 * pktUnit              // I210_DTXMXPKTSZ_DEFAULT
	pktQav    = (4096 - 1) / 64 * pktUnit   // igb_setup_tx_mode
	fetchTime = units.Duration(0xFFFF * 32) // E1000_TQAVCTRL_FETCHTIME_DELTA, steps of 32 ns
)

// card is what the i210 has beyond the skeleton's configuration.
type card struct {
	qav      bool
	msix     bool
	txpbsize []units.Size // TXPBS: one shared, or one per queue
	maxPkt   int          // DTXMXPKTSZ, bytes
	waitSR   bool         // TQAVCTRL.SP_WAIT_SR
	sr       [srQueues]reservation
}

// reservation is what the etf and cbs qdiscs offload to one queue.
type reservation struct {
	txtime bool       // etf offload
	idle   units.Rate // cbs idleslope; 0 = no cbs
	high   units.Size // cbs hicredit
}

func (r *reservation) on() bool { return r.txtime || r.idle > 0 }

// New returns the profile with the driver's defaults: legacy mode, four queues.
func New() *nic.Device {
	d := &nic.Device{
		Name:    "igb",
		Aliases: []string{"i210"},
		Summary: "Intel i210, 1 Gbit/s, legacy and Qav mode",
		TSO:     true, // igb_main.c igb_probe
		CSUM:    true,
		MaxMTU:  9216, // MAX_STD_JUMBO_FRAME_SIZE
		Config: nic.Config{
			Queues:      4,
			Link:        nic.Link{Rate: units.Gbit, Preamble: 8, FCS: 4, Gap: 12, MinFrame: 60},
			Ring:        nic.Ring{TX: 256, RX: 256, Spare: 1, Gap: 3, StopAt: descNeeded, WakeAt: 2 * descNeeded, RXRefill: 16},
			BQL:         nic.BQL{On: true, Hold: units.Second},
			Fetch:       nic.Fetch{Latency: 860, BusRate: 2 * units.Gbit, Payload: 128, Header: 20, Outstanding: legacyFetches, Arbitration: "rr"},
			Arbitration: "strict",
			WriteBack:   nic.WriteBack{Threshold: 16, RSStride: 1},
			Coalesce:    nic.Coalesce{Usecs: 3 * units.Microsecond},
			NAPI:        nic.NAPI{TXWork: 128, TXAgain: 128, RXWork: 64},
			Watchdog:    5 * units.Second,
			HZ:          250,
		},
	}
	c := &card{msix: true, waitSR: true, txpbsize: []units.Size{20 * units.KB}, maxPkt: pktLegacy}
	knobs := c.declare(d)
	d.Finish = func() error { return c.finish(d, knobs) }
	d.Rules = nic.Rules{
		Descriptors: c.descriptors,
		Moderation:  c.moderation,
		LaunchTime:  c.launchTime,
		Shapers:     c.shapers,
		Counters:    counters,
	}
	return d
}

// modal are the knobs whose default depends on the mode.
type modal struct{ txpbsize, maxPkt, outstanding *nic.Knob }

func (c *card) declare(d *nic.Device) modal {
	const main, ethtool, sheet = "igb_main.c ", "igb_ethtool.c ", "i210 datasheet "
	d.Knob("queues", main+"igb_init_queue_configuration: up to 4, as many as there are cores").Range(1, 4)
	d.Knob("link.rate", "1000BASE-T, IEEE 802.3").Range(int64(10*units.Mbit), int64(units.Gbit)).Check(linkRate).Words(legalRate)
	d.Knob("ring.tx", ethtool+"igb_set_ringparam, igb.h IGB_DEFAULT_TXD").Range(64, 4096).RoundUp(8)
	d.Knob("ring.rx", ethtool+"igb_set_ringparam, igb.h IGB_DEFAULT_RXD").Range(64, 4096).RoundUp(8)
	d.Knob("bql", main+"igb_tx_map, igb_clean_tx_irq")
	d.Knob("bql.limit_min", "net/core/net-sysfs.c")
	d.Knob("bql.limit_max", "net/core/net-sysfs.c")
	d.Knob("bql.hold_time", "net/core/dev.c netdev_init_one_queue")

	d.Own("qav", &c.qav, "", "Qav mode (FQTSS): a packet buffer for each queue; the driver enters it with the first etf or cbs offload", main+"igb_offload_apply")
	var k modal
	k.txpbsize = d.Own("txpbsize", &c.txpbsize, "", "TXPBS, transmit packet buffers: one shared in legacy mode, in Qav mode one for each of the four queues, 6kb,6kb,6kb,6kb unless given (8kb,8kb,4kb,4kb before the patch that evened them)",
		main+"igb_setup_tx_mode, e1000_defines.h I210_TXPBSIZE_*").Range(int64(units.KB), int64(txMemory)).Check(wholeKB).Words(legalPBS)
	k.maxPkt = d.Own("dtxmxpktsz", &c.maxPkt, "bytes", "DTXMXPKTSZ: longer frames are dropped (oversize), a fetch starts only while more than this is free, and SP_WAIT_SR keeps that long free; 4032 in Qav mode unless given",
		main+"igb_setup_tx_mode, e1000_defines.h I210_DTXMXPKTSZ_DEFAULT").Range(pktUnit, pktLegacy).Check(pktUnits).Words(legalPkt)
	d.Own("sp_wait_sr", &c.waitSR, "", "TQAVCTRL.SP_WAIT_SR: queues without reservation keep the medium free ahead of a launch time", main+"igb_setup_tx_mode")
	for q := range c.sr {
		r, name := &c.sr[q], fmt.Sprintf("queue%d.", q)
		d.Own(name+"txtime", &r.txtime, "", "launch times on this queue (etf offload)", main+"igb_offload_txtime")
		d.Own(name+"idleslope", &r.idle, "", "credit-based shaper on this queue (cbs offload), rounded up to 16.38431 kbit; 0bit = none", main+"igb_config_tx_modes").
			Range(0, int64(units.Gbit)).Check(wholeKbit).Words(legalIdle)
		d.Own(name+"hicredit", &r.high, "", "most credit that the queue can save; sendslope and locredit are not programmable", main+"igb_config_tx_modes").
			Range(0, (1<<31-1)/creditPerByte)
	}

	d.Knob("fetch.latency", "fitted to 578 Mbit/s of TCP through a 4 KB buffer, [PATCH net-next 1/6] igb: Redistribute memory for transmit packet buffers").Fit()
	d.Knob("fetch.bus_rate", sheet+"1.4.1: PCIe v2.1 2.5 GT/s x1, 8b/10b")
	d.Knob("fetch.payload", "PCIe completions of 128 bytes, the least maximum payload")
	d.Knob("fetch.header", "PCIe: header 12, sequence number 2, LCRC 4, framing 2 bytes")
	k.outstanding = d.Knob("fetch.outstanding", sheet+"3.1.4.2.2: 6 pipelined requests for transmit data, of one packet or of consecutive ones")
	k.outstanding.Doc = "packets being fetched at once; in Qav mode 1 unless given, as fetch.latency was fitted: the rate of small frames there is no measured one"
	d.Knob("fetch.arbitration", main+"igb_setup_tx_mode: TQAVCTRL.DATAFETCHARB clear, round robin")
	d.Config.Fetch.LaunchAhead = fetchTime
	d.Knob("fetch.launch_ahead", main+"igb_config_tx_modes: TQAVCTRL.FETCHTIME_DELTA 0xFFFF").Range(0, int64(fetchTime))
	d.Knob("writeback.threshold", "igb.h IGB_TX_WTHRESH").Range(1, 31)

	d.Own("msix", &c.msix, "", "MSI-X, a vector for each queue pair; off: MSI, one queue pair and the adaptive algorithm for it", main+"igb_set_interrupt_capability")
	d.Knob("coalesce.rx_usecs", ethtool+"igb_set_coalesce: 0 = off, 1 = adaptive, 3 = adaptive with at most 20,000 interrupts a second, 10 to 10000 fixed; EITR holds 8191 µs and drops higher bits").
		Range(0, int64(10*units.Millisecond)).Check(rxUsecs).Words(legalUsecs)
	d.Knob("napi.tx_work", "igb.h IGB_DEFAULT_TX_WORK")
	d.Knob("napi.weight", "netdevice.h NAPI_POLL_WEIGHT")
	d.Knob("cpu.xmit", "0: the core never limits")
	d.Knob("cpu.interrupt", "0: the core never limits")
	d.Knob("cpu.clean", "0: the core never limits")
	d.Knob("cpu.receive", "0: the core never limits")
	d.Knob("watchdog", main+"igb_probe: netdev->watchdog_timeo")
	d.Knob("hz", "Debian's kernels")
	return k
}

// What is legal, in the words of an error: the driver itself says no more than
// EINVAL.
const (
	legalRate  = "10mbit, 100mbit or 1gbit"
	legalPBS   = "sizes in whole kb with commas between, one in legacy mode, four of 24kb in all in Qav mode"
	legalPkt   = "a multiple of 64 bytes from 64 to 9728"
	legalIdle  = "0bit to 1gbit in whole kbit"
	legalUsecs = "0, 1, 3, or 10 to 10000 whole microseconds (the driver answers EINVAL to others)"
)

func refuseUnless(ok bool, legal string) error {
	if ok {
		return nil
	}
	return errors.New("expected " + legal)
}

func linkRate(v int64) error {
	r := units.Rate(v)
	return refuseUnless(r == 10*units.Mbit || r == 100*units.Mbit || r == units.Gbit, legalRate)
}

func wholeKB(v int64) error   { return refuseUnless(v%int64(units.KB) == 0, legalPBS) }
func pktUnits(v int64) error  { return refuseUnless(v%pktUnit == 0, legalPkt) }
func wholeKbit(v int64) error { return refuseUnless(v%int64(units.Kbit) == 0, legalIdle) }

func rxUsecs(v int64) error {
	us := v / int64(units.Microsecond)
	return refuseUnless(v%int64(units.Microsecond) == 0 && us != 2 && (us <= 3 || us >= 10), legalUsecs)
}

// finish derives what depends on the mode and refuses what contradicts it.
func (c *card) finish(d *nic.Device, k modal) error {
	if !c.msix && d.Config.Queues != 1 {
		return fmt.Errorf("without MSI-X the driver has one queue pair, not %d: set queues to 1", d.Config.Queues)
	}
	d.Config.NAPI.TXAgain = d.Config.NAPI.TXWork // igb_clean_tx_irq: an exhausted budget polls on
	if !c.qav {
		return c.legacy(d)
	}
	if !k.txpbsize.Given() {
		c.txpbsize = []units.Size{6 * units.KB, 6 * units.KB, 6 * units.KB, 6 * units.KB}
	}
	if !k.maxPkt.Given() {
		c.maxPkt = pktQav
	}
	if !k.outstanding.Given() {
		d.Config.Fetch.Outstanding = qavFetches
	}
	if n := len(c.txpbsize); n != 4 {
		return fmt.Errorf("txpbsize: Qav mode has a packet buffer for each of the four queues, not %d", n)
	}
	var sum units.Size
	for _, s := range c.txpbsize {
		sum += s
	}
	if sum > txMemory {
		return fmt.Errorf("txpbsize: %v in all, the card has %v", sum, txMemory)
	}
	if d.Config.Link.Rate == 10*units.Mbit {
		return errors.New("Qav mode is for 100mbit and 1gbit (i210 datasheet p. 9)")
	}
	if c.credits() && c.sr[1].txtime && c.sr[1].idle == 0 {
		return errors.New("queue1: with credits on queue 0 and none of its own it would never send: set queue1.idleslope")
	}
	d.Config.PB.Sizes, d.Config.PB.MaxPacket = c.txpbsize[:d.Config.Queues], units.Size(c.maxPkt)
	return nil
}

func (c *card) legacy(d *nic.Device) error {
	if len(c.txpbsize) != 1 {
		return fmt.Errorf("txpbsize: legacy mode has one packet buffer, not %d; set qav to on", len(c.txpbsize))
	}
	for q := range c.sr {
		if c.sr[q].on() {
			return fmt.Errorf("queue%d: launch times and credits need Qav mode; set qav to on", q)
		}
	}
	d.Config.PB.Sizes, d.Config.PB.MaxPacket = c.txpbsize, units.Size(c.maxPkt)
	return nil
}

// descriptors is the count of igb_xmit_frame_ring: every buffer in pieces of
// 32 KB, and a context descriptor for offloads and on launch-time queues.
func (c *card) descriptors(f *nic.Frame) int {
	n := f.Pieces(maxDataPerTXD)
	if f.Offload || c.launches(f.Queue) {
		n++
	}
	return n
}
