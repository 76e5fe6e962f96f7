// Package mana is Microsoft's Azure Network Adapter (MANA) under the Linux mana
// driver: a virtual function whose queues share one cap of the virtual machine.
//
// It follows drivers/net/ethernet/microsoft/mana and include/net/mana of Linux
// 6.12 (mana_en.c, gdma_main.c, mana_ethtool.c): send queues in basic units of
// 32 bytes, stop and wake at 512 bytes free, a doorbell for every packet,
// completion queue polling, and the two patches of 2026 that are not in 6.12:
// BQL as posted and as merged, and the TX watchdog. Behind the queues stand
// deficit round robin and a rate cap, which the published measurements show and
// no document describes. It leaves out the hardware channel, completion errors,
// DMA mapping failures, XDP programs (frames can be marked as theirs) and the
// receive side's coalesced completions.
package mana

import (
	"fmt"

	"nicemu/devices/nic"
	"nicemu/devices/units"
)

// Send queue geometry (include/net/mana/gdma.h).
const (
	basicUnit   = 32  // GDMA_WQE_BU_SIZE: what the ring counts
	maxWQE      = 512 // MAX_TX_WQE_SIZE: the room that stops and wakes a queue
	wqeHeader   = 8
	shortOOB    = 8
	longOOB     = 24
	sge         = 16
	cqePolling  = 512 // CQE_POLLING_BUFFER
	napiWeight  = 64
	minSQ       = 128   // MIN_TX_BUFFERS_PER_QUEUE
	maxSQ       = 16384 // MAX_TX_BUFFERS_PER_QUEUE
	fullTSO     = 65536
	maxSegments = 46 // of fullTSO bytes of payload at an MTU of 1500
	headers     = 66 // Ethernet, IPv4, TCP with timestamps
)

// BQL variants.
const (
	bqlOff    = "off"    // Linux 6.12
	bqlOn     = "on"     // as merged
	bqlV1     = "v1"     // as posted: XDP frames are counted
	bqlMerged = "merged" // XDP frames are left out
)

// rules is what the driver does differently, as the knobs say.
type rules struct {
	bql string
	oob string
}

// New returns the profile with the defaults of Linux 6.12 on a machine of 16
// cores.
func New() *nic.Device {
	r := &rules{bql: bqlOff, oob: "short"}
	d := &nic.Device{
		Name:    "mana",
		Summary: "Microsoft Azure Network Adapter, capped at 10.6 Gbit/s",
		TSO:     true,
		CSUM:    true,
		MaxMTU:  9000,
		Config: nic.Config{
			Queues:      16,
			Link:        nic.Link{Rate: 10_600_000_000},
			Ring:        nic.Ring{TX: 256, RX: 512, StopAt: maxWQE / basicUnit, WakeAt: maxWQE / basicUnit, EveryDoorbell: true},
			BQL:         nic.BQL{Hold: units.Duration(1e9)},
			Fetch:       nic.Fetch{Outstanding: 1},
			Arbitration: "drr",
			Quantum:     fullTSO + maxSegments*headers,
			WriteBack:   nic.WriteBack{Threshold: 1, RSStride: 1},
			Coalesce:    nic.Coalesce{Mode: "throttle"},
			NAPI:        nic.NAPI{TXWork: cqePolling, TXAgain: napiWeight, RXWork: napiWeight},
			Drain:       units.Duration(120e9),
			HZ:          250,
		},
		Rules: nic.Rules{
			LayOut:      true,
			Refuse:      refuse,
			Descriptors: r.units,
			BQLBytes:    r.bqlBytes,
			Counters:    counters,
		},
	}
	const en, ethtool, posted = "mana_en.c ", "mana_ethtool.c ", "[PATCH net-next] net: mana: add BQL support: "
	d.Knob("queues", en+"mana_probe_port: one a core, at most MANA_MAX_NUM_QUEUES 64; 16 on Standard_D16ds_v6")
	d.Knob("link.rate", posted+"throughput capped at 10.6 Gbps; counted without preamble, FCS and gap")
	d.Knob("ring.tx", ethtool+"mana_set_ringparam, mana.h DEF_TX_BUFFERS_PER_QUEUE; in basic units of 32 bytes").
		Range(minSQ, maxSQ).PowerOfTwo()
	d.Knob("ring.rx", ethtool+"mana_set_ringparam, mana.h DEF_RX_BUFFERS_PER_QUEUE").Range(128, 8192).PowerOfTwo()
	d.Choice("oob", &r.oob, []string{"short", "long"}, "out-of-band data of a work request: long with a VLAN tag, or if the vport's offset is above 255",
		en+"mana_start_xmit")
	d.Choice("bql", &r.bql, []string{bqlOff, bqlOn, bqlV1, bqlMerged},
		"byte queue limits by skb->len: none, or as posted (v1, XDP frames counted), or as merged (on)", posted+"and commit 799cdeaa5c39; off: Linux 6.12")
	d.Knob("bql.limit_min", "net/core/net-sysfs.c")
	d.Knob("bql.limit_max", "net/core/net-sysfs.c")
	d.Knob("bql.hold_time", "net/core/dev.c netdev_init_one_queue")
	d.Knob("quantum", "chosen: one full TSO packet in turn, 64 KB of payload with the headers of its 46 segments")
	d.Knob("writeback.latency", "0: a completion is seen when the packet has passed the cap")
	d.Knob("napi.stall_rate", "0: a host that is always on time")
	d.Knob("napi.stall_mean", "0: a host that is always on time")
	d.Knob("cpu.xmit", "0: the core never limits")
	d.Knob("cpu.interrupt", "0: the core never limits")
	d.Knob("cpu.clean", "0: the core never limits")
	d.Knob("cpu.receive", "0: the core never limits")
	d.Knob("watchdog", "none in Linux 6.12; commit 3b194343c250 adds ndo_tx_timeout, then the kernel's default is 5s")
	d.Knob("drain", en+"mana_dealloc_queues")
	d.Knob("hz", "Debian's kernels")
	d.Finish = func() error {
		d.Config.BQL.On = r.bql != bqlOff
		return nil
	}
	return d
}

// units is the work request of a frame in basic units: header, out-of-band data
// and one scatter/gather element for each buffer (mana_gd_post_work_request).
// The first element of a GSO frame holds the headers alone, so a linear part
// with payload behind them needs one more (mana_fix_skb_head).
func (r *rules) units(f *nic.Frame) int {
	elements := len(f.Bufs)
	if f.Segs > 1 && f.Bufs[0].Len > f.HdrLen {
		elements++
	}
	oob := shortOOB
	if r.oob == "long" {
		oob = longOOB
	}
	return (wqeHeader + oob + elements*sge + basicUnit - 1) / basicUnit
}

// refuse drops GSO frames whose headers are not all in the linear part: the
// driver does not linearize (mana_fix_skb_head).
func refuse(f *nic.Frame) string {
	if f.Segs > 1 && (f.Linear == 0 || f.Bufs[0].Len < f.HdrLen) {
		return "headers_not_linear"
	}
	return ""
}

func (r *rules) bqlBytes(f *nic.Frame) int {
	if f.XDP && r.bql != bqlV1 {
		return 0
	}
	return f.Len
}

// counters are the lines of mana_eth_stats and of each send queue that the
// model keeps. Bytes are skb->len; those of TSO are payload.
func counters(n *nic.NIC) []nic.Counter {
	sum := n.Total()
	list := []nic.Counter{{Name: "stop_queue", Value: sum.DrvXOFF}, {Name: "wake_queue", Value: sum.Restart}}
	for q := range n.Queues() {
		s := n.Queue(q)
		name := func(what string) string { return fmt.Sprintf("tx_%d_%s", q, what) }
		list = append(list,
			nic.Counter{Name: name("packets"), Value: s.Offered.Frames},
			nic.Counter{Name: name("bytes"), Value: s.SkbBytes},
			nic.Counter{Name: name("xdp_xmit"), Value: s.XDP},
			nic.Counter{Name: name("tso_packets"), Value: s.GSO.Frames},
			nic.Counter{Name: name("tso_bytes"), Value: s.GSO.Bytes},
		)
	}
	return list
}
