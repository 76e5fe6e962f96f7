package nic

// Count is frames and their wire bytes, headers of every segment included.
type Count struct {
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"`
}

func (c *Count) add(bytes int) {
	c.Frames++
	c.Bytes += uint64(bytes)
}

// Plus is the sum.
func (c Count) Plus(d Count) Count { return Count{c.Frames + d.Frames, c.Bytes + d.Bytes} }

// Stats is what a card has done since it was made.
type Stats struct {
	Offered    Count            // accepted by the driver
	Sent       Count            // left the MAC
	Dropped    map[string]Count // by reason, transmit side
	Queued     Count            // still in the ring, the buffers or on the wire
	Arrived    Count            // came from the wire
	Delivered  Count            // handed to the stack
	RXDropped  Count            // no receive descriptor was free, or no memory
	Interrupts uint64
	TXTimeouts uint64
}

// QueueStats is one transmit queue's share and its stop bits.
type QueueStats struct {
	Offered, Sent, Dropped Count
	Packets                uint64 // sent on the wire: the segments of GSO frames

	Limit       int    // BQL limit now, bytes
	InflightMax int    // bytes reported to BQL and not completed, at most
	StackXOFF   uint64 // times BQL set the stop bit
	DrvXOFF     uint64 // times the driver set the stop bit
	Restart     uint64 // times the driver woke the queue
	Busy        uint64 // frames refused, NETDEV_TX_BUSY
	RingMax     int    // descriptors in use, at most
	Linearized  uint64 // frames copied into one buffer

	SkbBytes uint64 // of accepted frames: headers of a GSO frame once
	GSO      Count  // accepted GSO frames, with the payload bytes
	XDP      uint64 // accepted frames of XDP
}

// offered counts a frame that the driver accepts.
func (s *QueueStats) offered(f *Frame) {
	s.Offered.add(f.Wire())
	s.SkbBytes += uint64(f.Len)
	if f.Segs > 1 {
		s.GSO.add(f.Len - f.HdrLen)
	}
	if f.XDP {
		s.XDP++
	}
}

// RXStats is one receive queue's share.
type RXStats struct {
	Arrived, Delivered Count
	NoDescriptor       Count  // dropped by the card: no descriptor was free
	Dropped            Count  // dropped by the driver: its page had to serve the ring
	AllocFailed        uint64 // pages that could not be had
}

// Stats adds up all queues. The Dropped map is the card's own: read only.
func (n *NIC) Stats() Stats {
	s := n.stats
	s.Interrupts = 0
	for i := range n.tx {
		q := &n.tx[i]
		s.Offered = s.Offered.Plus(q.stats.Offered)
		s.Sent = s.Sent.Plus(q.stats.Sent)
		s.Queued = s.Queued.Plus(q.queued())
	}
	for i := range n.rx {
		r := &n.rx[i].stats
		s.Arrived = s.Arrived.Plus(r.Arrived)
		s.Delivered = s.Delivered.Plus(r.Delivered)
		s.RXDropped = s.RXDropped.Plus(r.NoDescriptor).Plus(r.Dropped)
	}
	for i := range n.vectors {
		s.Interrupts += n.vectors[i].interrupts
	}
	return s
}

// Queue is the state of transmit queue q.
func (n *NIC) Queue(q int) QueueStats {
	s := n.tx[q].stats
	s.Limit = int(n.tx[q].bql.Limit())
	return s
}

// Total adds up the counts of all transmit queues; what is no count, limit and
// maxima, is zero.
func (n *NIC) Total() (sum QueueStats) {
	for i := range n.tx {
		s := &n.tx[i].stats
		sum.Offered = sum.Offered.Plus(s.Offered)
		sum.Sent = sum.Sent.Plus(s.Sent)
		sum.Dropped = sum.Dropped.Plus(s.Dropped)
		sum.Packets += s.Packets
		sum.StackXOFF += s.StackXOFF
		sum.DrvXOFF += s.DrvXOFF
		sum.Restart += s.Restart
		sum.Busy += s.Busy
		sum.Linearized += s.Linearized
		sum.SkbBytes += s.SkbBytes
		sum.GSO = sum.GSO.Plus(s.GSO)
		sum.XDP += s.XDP
	}
	return sum
}

// RXQueue is what receive queue q has done.
func (n *NIC) RXQueue(q int) RXStats { return n.rx[q].stats }

// Queues is the number of queue pairs.
func (n *NIC) Queues() int { return len(n.tx) }

// Inflight is the bytes that queue q has reported to BQL and not completed.
func (n *NIC) Inflight(q int) int { return int(n.tx[q].bql.Inflight()) }

// Limit is the BQL limit of queue q, in bytes.
func (n *NIC) Limit(q int) int { return int(n.tx[q].bql.Limit()) }

// RingUsed is the descriptors of queue q in use.
func (n *NIC) RingUsed(q int) int { return n.tx[q].used }

// Counters are the driver's ethtool -S lines that this model keeps.
func (n *NIC) Counters() []Counter {
	if n.rules.Counters == nil {
		return nil
	}
	return n.rules.Counters(n)
}

// queued is what has been offered and neither sent nor dropped.
func (q *txq) queued() Count {
	var c Count
	for i := q.sent; i != q.posted; i++ {
		c.add(q.at(i).Wire())
	}
	return c
}
