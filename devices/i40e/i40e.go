// Package i40e is Intel's XL710 40 Gbit/s card under the Linux i40e driver.
//
// It follows drivers/net/ethernet/intel/i40e of Linux 6.12 (i40e_txrx.c,
// i40e_ethtool.c), and its state of before February 2016 for the older data
// limit of a descriptor: how buffers are cut into descriptors, the estimate for
// the room check, the rule of eight buffers for a wire packet with
// linearisation, status reports for every fourth frame with head write-back,
// stop and wake thresholds, and the adaptive interrupt moderation with timers
// for receive and transmit. It leaves out flow director (and its descriptor for
// every 20th packet of a flow), second VLAN tags and tunnels (and their context
// descriptors), XDP rings, DCB and the transmit scheduler. A frame that asked
// for no status report may raise the interrupt that writes it back.
package i40e

import (
	"fmt"

	"nicemu/devices/nic"
	"nicemu/devices/units"
)

const (
	descNeeded = 17 + 6 // DESC_NEEDED: MAX_SKB_FRAGS + 6
	wbStride   = 4      // WB_STRIDE
)

// Modes of moderation.
const (
	modeAdaptive = "adaptive"
	modeFixed    = "fixed"
)

// New returns the profile with the driver's defaults.
func New() *nic.Device {
	r := &rules{maxData: max12K, txUsecs: 50e3}
	d := &nic.Device{
		Name:    "i40e",
		Aliases: []string{"xl710"},
		Summary: "Intel XL710, 40 Gbit/s",
		TSO:     true,
		CSUM:    true,
		MaxMTU:  9702,
		Config: nic.Config{
			Queues:      1,
			Link:        nic.Link{Rate: 40_000_000_000, Preamble: 8, FCS: 4, Gap: 12, MinFrame: 60},
			Ring:        nic.Ring{TX: 512, RX: 512, Spare: 1, Gap: 4 + 1, StopAt: descNeeded, WakeAt: 2 * descNeeded},
			BQL:         nic.BQL{On: true, Hold: units.Duration(1e9)},
			Fetch:       nic.Fetch{Payload: 1, Outstanding: 1},
			Arbitration: "rr",
			WriteBack:   nic.WriteBack{Threshold: 1, RSStride: wbStride, RSFromDesc: wbStride},
			Coalesce:    nic.Coalesce{Mode: modeAdaptive, Usecs: 50e3},
			NAPI:        nic.NAPI{TXWork: 256, TXAgain: 256, RXWork: 64},
			Watchdog:    units.Duration(5e9),
			HZ:          250,
		},
		Rules: nic.Rules{
			LayOut:      true,
			Linearize:   r.linearize,
			Descriptors: r.descriptors,
			Room:        r.estimate,
			Moderation:  r.moderation,
			Counters:    counters,
		},
	}
	d.Rules.ReportStatus = func(f *nic.Frame, desc, stride int) bool {
		wb := &d.Config.WriteBack
		return desc-context(f) >= wb.RSFromDesc || stride >= wb.RSStride
	}
	const txrx, ethtool = "i40e_txrx.c ", "i40e_ethtool.c "
	d.Knob("queues", "one of the many that the card has: the published figures are for one stream")
	d.Knob("link.rate", "40GBASE, IEEE 802.3").Range(100_000_000, 40_000_000_000)
	d.Knob("ring.tx", ethtool+"i40e_set_ringparam, i40e.h I40E_DEFAULT_NUM_DESCRIPTORS, I40E_MAX_NUM_DESCRIPTORS_XL710").Range(64, 8160).RoundUp(32)
	d.Knob("ring.rx", ethtool+"i40e_set_ringparam").Range(64, 8160).RoundUp(32)
	d.Choice("max_data", &r.maxData, []string{max8K, max12K},
		"data in one descriptor of a buffer that needs several: 8kb until 2016, 12kb since, the rest of a page more in the first",
		txrx+"i40e_tx_map, i40e_txrx.h I40E_MAX_DATA_PER_TXD_ALIGNED; 8kb: before [next PATCH 4/4] i40e/i40evf: Allow up to 12K bytes of data per Tx descriptor")
	d.Knob("bql", txrx+"i40e_tx_map, i40e_clean_tx_irq")
	d.Knob("bql.limit_min", "net/core/net-sysfs.c")
	d.Knob("bql.limit_max", "net/core/net-sysfs.c")
	d.Knob("bql.hold_time", "net/core/dev.c netdev_init_one_queue")
	d.Knob("fetch.bus_rate", "0bit: the bus never limits")
	d.Knob("fetch.per_descriptor", "0: descriptors cost nothing")
	d.Knob("writeback.rs_stride", txrx+"i40e_tx_map, WB_STRIDE")
	d.Knob("writeback.rs_descriptors", txrx+"i40e_tx_map, WB_STRIDE; of data, without the context descriptor").Range(1, 64)
	d.Choice("coalesce.mode", &d.Config.Coalesce.Mode, []string{modeAdaptive, modeFixed},
		"adaptive: both directions adapt; fixed: coalesce.rx_usecs and coalesce.tx_usecs", txrx+"i40e_update_itr")
	d.Knob("coalesce.rx_usecs", ethtool+"__i40e_set_coalesce, i40e_txrx.h I40E_ITR_RX_DEF; in steps of 2 us").Range(0, 8160e3).RoundDown(2000).
		Doc = "interrupt moderation interval for received frames (ethtool -C rx-usecs)"
	d.Own("coalesce.tx_usecs", &r.txUsecs, "", "interrupt moderation interval for sent frames (ethtool -C tx-usecs)",
		ethtool+"__i40e_set_coalesce, i40e_txrx.h I40E_ITR_TX_DEF; in steps of 2 us").Range(0, 8160e3).RoundDown(2000)
	d.Knob("napi.tx_work", "i40e.h I40E_DEFAULT_IRQ_WORK (ethtool -C tx-frames-irq)").Range(1, 65535)
	d.Knob("cpu.xmit", "0: the core never limits")
	d.Knob("cpu.interrupt", "0: the core never limits")
	d.Knob("cpu.clean", "0: the core never limits")
	d.Knob("watchdog", "i40e_main.c i40e_config_netdev: netdev->watchdog_timeo")
	d.Knob("hz", "Debian's kernels")
	d.Finish = func() error {
		// i40e_napi_poll: a ring whose budget was used up polls again.
		d.Config.NAPI.TXAgain = d.Config.NAPI.TXWork
		return nil
	}
	return d
}

// counters are the lines of i40e_gstrings_veb_stats and of the rings that the
// model keeps.
func counters(n *nic.NIC) []nic.Counter {
	s, sum := n.Stats(), n.Total()
	list := []nic.Counter{
		{Name: "rx_packets", Value: s.Delivered.Frames},
		{Name: "tx_packets", Value: sum.Packets},
		{Name: "rx_bytes", Value: s.Delivered.Bytes},
		{Name: "tx_bytes", Value: s.Sent.Bytes},
		{Name: "tx_linearize", Value: sum.Linearized},
		{Name: "tx_busy", Value: sum.Busy},
		{Name: "tx_stopped", Value: sum.DrvXOFF},
		{Name: "tx_restart", Value: sum.Restart},
		{Name: "tx_timeout", Value: s.TXTimeouts},
	}
	for q := range n.Queues() {
		s := n.Queue(q)
		list = append(list,
			nic.Counter{Name: fmt.Sprintf("tx-%d.packets", q), Value: s.Packets},
			nic.Counter{Name: fmt.Sprintf("tx-%d.bytes", q), Value: s.Sent.Bytes})
	}
	return list
}
