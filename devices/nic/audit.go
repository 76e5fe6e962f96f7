package nic

import "fmt"

// Audit checks the card's laws and names the first that is broken:
//
//   - offered = sent + queued + dropped, in frames and in bytes, per queue;
//   - ring indices keep their order and descriptors add up, never negative;
//   - bytes that BQL holds in flight = bytes of the frames not yet cleaned;
//   - packet buffer bytes in use = bytes fetched or being fetched and not sent;
//   - a queue with nothing left to complete is not stopped;
//   - arrived = delivered + waiting + dropped.
//
// It walks the rings: for tests at every step, for runs at the end.
func (n *NIC) Audit() error {
	for i := range n.tx {
		if err := n.tx[i].audit(); err != nil {
			return fmt.Errorf("queue %d: %w", i, err)
		}
	}
	for i := range n.rx {
		r := &n.rx[i]
		var waiting Count
		for k := range r.n {
			waiting.add(r.ring[(r.first+k)%len(r.ring)].Wire())
		}
		if got := r.stats.Delivered.Plus(waiting).Plus(r.stats.NoDescriptor).Plus(r.stats.Dropped); got != r.stats.Arrived {
			return fmt.Errorf("receive queue %d: arrived %v, but delivered + waiting + dropped = %v", i, r.stats.Arrived, got)
		}
		if r.empty < 0 || r.n+r.empty > len(r.ring) {
			return fmt.Errorf("receive queue %d: %d frames and %d empty descriptors in a ring of %d", i, r.n, r.empty, len(r.ring))
		}
	}
	return nil
}

func (q *txq) audit() error {
	n := q.nic
	if got := q.stats.Sent.Plus(q.queued()).Plus(q.stats.Dropped); got != q.stats.Offered {
		return fmt.Errorf("offered %v, but sent + queued + dropped = %v", q.stats.Offered, got)
	}
	chain := []uint32{q.posted, q.doorbell, q.fetched, q.sent, q.settled, q.reported, q.cleaned}
	for i := 1; i < len(chain); i++ {
		if int32(chain[i-1]-chain[i]) < 0 {
			return fmt.Errorf("ring indices out of order: %v", chain)
		}
	}
	desc, bytes := 0, uint32(0)
	for i := q.cleaned; i != q.posted; i++ {
		desc += q.at(i).desc
		bytes += q.at(i).bql
	}
	if desc != q.used || q.free() < 0 {
		return fmt.Errorf("%d descriptors in use, the frames hold %d, free %d", q.used, desc, q.free())
	}
	if n.cfg.BQL.On && q.bql.Inflight() != bytes {
		return fmt.Errorf("BQL has %d bytes in flight, the frames hold %d", q.bql.Inflight(), bytes)
	}
	if q.posted == q.cleaned && q.stopped() && !n.down.on {
		return fmt.Errorf("stopped (DRV_XOFF %v, STACK_XOFF %v) with nothing left to complete", q.drvXOFF, q.bql.StackXOFF)
	}
	return q.auditBuffer()
}

func (q *txq) auditBuffer() error {
	x := &q.nic.fetcher
	if !x.segment {
		return nil
	}
	bytes := 0
	for i, seg := q.sent, q.sendSeg; i != q.posted; i, seg = i+1, 0 {
		f := q.at(i)
		end := f.Segs
		if next := q.inFlightEnd(); i == next {
			end = q.fetchSeg
		} else if int32(i-next) > 0 {
			break
		}
		for ; seg < end; seg++ {
			bytes += f.segWire(seg)
		}
	}
	if bytes != q.occupied {
		return fmt.Errorf("packet buffer holds %d bytes, the fetched frames make %d", q.occupied, bytes)
	}
	if !x.shared && q.occupied > x.sizes[q.index] {
		return fmt.Errorf("packet buffer of %d bytes holds %d", x.sizes[q.index], q.occupied)
	}
	return nil
}
