// Package ixgbe is Intel's 82599 10 Gbit/s card under the Linux ixgbe driver.
//
// It follows drivers/net/ethernet/intel/ixgbe of Linux 6.12 (ixgbe_main.c,
// ixgbe_ethtool.c): descriptor use, the stop and wake thresholds, the work
// limit, write-back threshold and both generations of adaptive interrupt
// moderation, of 2014 and of today. It leaves out flow director, DCB, XDP
// rings, LRO, FCoE and the DMA engine: its bus and packet buffer never limit
// what is modelled here.
package ixgbe

import (
	"nicemu/devices/nic"
	"nicemu/devices/units"
)

const (
	maxDataPerTXD = 16384  // IXGBE_MAX_DATA_PER_TXD
	descNeeded    = 17 + 4 // DESC_NEEDED: MAX_SKB_FRAGS + 4
)

// Moderation modes.
const (
	modeAdaptive     = "adaptive"      // ixgbe_update_itr of Linux 6.12
	modeAdaptive2014 = "adaptive-2014" // the three states of the driver of 2014
	modeFixed        = "fixed"
)

// New returns the profile with the driver's defaults.
func New() *nic.Device {
	d := &nic.Device{
		Name:    "ixgbe",
		Aliases: []string{"82599"},
		Summary: "Intel 82599, 10 Gbit/s",
		TSO:     true, // ixgbe_main.c ixgbe_probe
		CSUM:    true,
		MaxMTU:  9710, // IXGBE_MAX_JUMBO_FRAME_SIZE 9728 - Ethernet header and FCS
		Config: nic.Config{
			Queues:      1,
			Link:        nic.Link{Rate: 10_000_000_000, Preamble: 8, FCS: 4, Gap: 12, MinFrame: 60},
			Ring:        nic.Ring{TX: 512, RX: 512, Spare: 1, Gap: 3, StopAt: descNeeded, WakeAt: 2 * descNeeded},
			BQL:         nic.BQL{On: true, Hold: units.Duration(1e9)},
			Fetch:       nic.Fetch{Outstanding: 1},
			Arbitration: "rr",
			WriteBack:   nic.WriteBack{Threshold: 8, RSStride: 1},
			Coalesce:    nic.Coalesce{Mode: modeAdaptive, Usecs: units.Duration(50e3)},
			NAPI:        nic.NAPI{TXWork: 256, TXAgain: 256, RXWork: 64},
			Watchdog:    units.Duration(5e9),
			HZ:          250,
		},
		Rules: nic.Rules{
			LayOut:      true,
			Descriptors: descriptors,
			Moderation:  moderation,
			Counters:    counters,
		},
	}
	const main, ethtool = "ixgbe_main.c ", "ixgbe_ethtool.c "
	d.Knob("queues", "one of the up to 64 that the card has; pktgen's figures are for one")
	d.Knob("link.rate", "10GBASE, IEEE 802.3").Range(100_000_000, 10_000_000_000)
	d.Knob("ring.tx", ethtool+"ixgbe_set_ringparam, ixgbe.h IXGBE_DEFAULT_TXD, IXGBE_MAX_TXD_82599").Range(64, 8192).RoundUp(8)
	d.Knob("ring.rx", ethtool+"ixgbe_set_ringparam, ixgbe.h IXGBE_DEFAULT_RXD, IXGBE_MAX_RXD_82599").Range(64, 8192).RoundUp(8)
	d.Knob("bql", main+"ixgbe_tx_map, ixgbe_clean_tx_irq")
	d.Knob("bql.limit_min", "net/core/net-sysfs.c")
	d.Knob("bql.limit_max", "net/core/net-sysfs.c")
	d.Knob("bql.hold_time", "net/core/dev.c netdev_init_one_queue")
	d.Knob("writeback.threshold", main+"ixgbe_configure_tx_ring: WTHRESH 8")
	d.Choice("coalesce.mode", &d.Config.Coalesce.Mode, []string{modeAdaptive, modeAdaptive2014, modeFixed},
		"adaptive: Linux 6.12; adaptive-2014: lowest, low and bulk latency; fixed: coalesce.rx_usecs", main+"ixgbe_update_itr")
	d.Knob("coalesce.rx_usecs", ethtool+"ixgbe_set_coalesce; EITR holds it in steps of 2.048 µs at 10 Gbit/s").Range(0, 1_000_000)
	d.Knob("napi.tx_work", "ixgbe.h IXGBE_DEFAULT_TX_WORK (ethtool -C tx-frames-irq)").Range(1, 65535)
	d.Knob("cpu.xmit", "0: the core never limits")
	d.Knob("cpu.interrupt", "0: the core never limits")
	d.Knob("cpu.clean", "0: the core never limits")
	d.Knob("watchdog", main+"ixgbe_probe: netdev->watchdog_timeo")
	d.Knob("hz", "Debian's kernels")
	d.Finish = func() error {
		// ixgbe_poll: a round that used the whole work limit polls again.
		d.Config.NAPI.TXAgain = d.Config.NAPI.TXWork
		return nil
	}
	return d
}

// descriptors is the count of ixgbe_xmit_frame_ring: every buffer in pieces of
// 16 KB, and a context descriptor for offloads.
func descriptors(f *nic.Frame) int {
	n := f.Pieces(maxDataPerTXD)
	if f.Offload {
		n++
	}
	return n
}

// counters are the lines of ixgbe_gstrings_stats that the model keeps.
func counters(n *nic.NIC) []nic.Counter {
	s, sum := n.Stats(), n.Total()
	return []nic.Counter{
		{Name: "rx_packets", Value: s.Delivered.Frames},
		{Name: "tx_packets", Value: s.Sent.Frames},
		{Name: "rx_bytes", Value: s.Delivered.Bytes},
		{Name: "tx_bytes", Value: s.Sent.Bytes},
		{Name: "tx_busy", Value: sum.Busy},
		{Name: "tx_timeout_count", Value: s.TXTimeouts},
		{Name: "tx_restart_queue", Value: sum.Restart},
		{Name: "rx_no_dma_resources", Value: s.RXDropped.Frames},
	}
}
