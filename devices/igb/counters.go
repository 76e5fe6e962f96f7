package igb

import (
	"fmt"

	"nicemu/devices/nic"
)

// counters are the lines of igb_gstrings_stats, and of each queue, that the
// model keeps. The card counts octets with the frame check sequence.
func counters(n *nic.NIC) []nic.Counter {
	s, sum := n.Stats(), n.Total()
	fcs := uint64(n.Config().Link.FCS)
	list := []nic.Counter{
		{Name: "rx_packets", Value: s.Delivered.Frames},
		{Name: "tx_packets", Value: sum.Packets},
		{Name: "rx_bytes", Value: s.Delivered.Bytes + fcs*s.Delivered.Frames},
		{Name: "tx_bytes", Value: sum.Sent.Bytes + fcs*sum.Packets},
		{Name: "tx_timeout_count", Value: s.TXTimeouts},
		{Name: "tx_dropped", Value: sum.Dropped.Frames},
	}
	for q := range n.Queues() {
		t, name := n.Queue(q), fmt.Sprintf("tx_queue_%d_", q)
		list = append(list,
			nic.Counter{Name: name + "packets", Value: t.Packets},
			nic.Counter{Name: name + "bytes", Value: t.Sent.Bytes},
			nic.Counter{Name: name + "restart", Value: t.Restart})
	}
	for q := range n.Queues() {
		r, name := n.RXQueue(q), fmt.Sprintf("rx_queue_%d_", q)
		list = append(list,
			nic.Counter{Name: name + "packets", Value: r.Delivered.Frames},
			nic.Counter{Name: name + "bytes", Value: r.Delivered.Bytes},
			nic.Counter{Name: name + "drops", Value: r.NoDescriptor.Frames})
	}
	return list
}
