package nic

import (
	"nicemu/devices/dql"
	"nicemu/devices/engine"
)

// txq is one transmit queue: the driver's ring and the card's view of it. The
// indices count frames since start and wrap; each is at most the one before.
type txq struct {
	nic   *NIC
	index int

	ring []*Frame // by index modulo its length, a power of two
	mask uint32

	posted   uint32 // descriptors written by the driver
	doorbell uint32 // told to the card
	fetched  uint32 // wholly in the card
	sent     uint32 // wholly on the wire
	settled  uint32 // write-back latency over
	reported uint32 // visible to the driver
	cleaned  uint32 // freed

	fetchSeg int // next segment of frame `fetched` to fetch
	sendSeg  int // next segment of frame `sent` to send
	ready    int // units in the card and not yet taken by the MAC
	occupied int // bytes of its packet buffer in use
	deficit  int // drr
	stride   int // frames since the last one with report status
	frags    PageFrags
	epoch    uint32

	settle     engine.Timer
	used       int // descriptors between cleaned and posted
	bql        dql.Queue
	drvXOFF    bool
	transStart engine.Time // last time a frame was posted

	shapers []Shaper
	stats   QueueStats
}

func (q *txq) init(n *NIC, i int) {
	size := 1
	for size < n.cfg.Ring.TX {
		size *= 2
	}
	q.nic, q.index = n, i
	q.ring, q.mask = make([]*Frame, size), uint32(size-1)
	hold := int64(n.cfg.BQL.Hold) * int64(n.cfg.HZ) / int64(engine.Second)
	q.bql.DQL = *dql.New(uint32(hold), n.cfg.jiffies(n.eng.Now()))
	limitMax := uint32(dql.MaxLimit)
	if n.cfg.BQL.LimitMax != 0 {
		limitMax = uint32(min(int64(n.cfg.BQL.LimitMax), dql.MaxLimit))
	}
	q.bql.SetMinMax(uint32(min(int64(n.cfg.BQL.LimitMin), dql.MaxLimit)), limitMax)
	n.eng.Init(&q.settle, q.settleDue)
	if n.rules.Shapers != nil {
		q.shapers = n.rules.Shapers(n, i)
	}
	if len(n.cfg.Gates.List) > 0 {
		if g := newGate(n, n.cfg.Gates.List, engine.Time(n.cfg.Gates.BaseTime), i); g != nil {
			q.shapers = append(q.shapers, g)
		}
	}
}

func (q *txq) at(i uint32) *Frame { return q.ring[i&q.mask] }

func (q *txq) free() int { return q.nic.cfg.Ring.TX - q.nic.cfg.Ring.Spare - q.used }

func (q *txq) stopped() bool { return q.drvXOFF || q.bql.StackXOFF }

// XOFF reports the two stop bits of queue q. The stack hands over nothing
// while either is set; pktgen and XDP honour drv only.
func (n *NIC) XOFF(q int) (drv, stack bool) { return n.tx[q].drvXOFF, n.tx[q].bql.StackXOFF }

// Unlimited is what a queue without BQL has available: more than any ring holds.
const Unlimited = 1 << 40

// Available is how many bytes the stack may hand to queue q before BQL stops
// it: negative when it is stopped. Without BQL only the ring limits, see Room.
func (n *NIC) Available(q int) int {
	t := &n.tx[q]
	switch {
	case t.drvXOFF:
		return -1
	case !n.cfg.BQL.On:
		return Unlimited
	}
	return int(t.bql.Avail())
}

// Room is how many more frames of d descriptors each queue q takes before the
// driver stops it; 0 while it is stopped.
func (n *NIC) Room(q, d int) int {
	t := &n.tx[q]
	if t.drvXOFF {
		return 0
	}
	return 1 + max(0, t.free()-n.cfg.Ring.StopAt)/max(1, d)
}

// Descriptors is how many descriptors f takes.
func (n *NIC) Descriptors(f *Frame) int {
	n.layOut(f)
	return n.rules.Descriptors(f)
}

func (n *NIC) layOut(f *Frame) {
	if n.rules.LayOut && len(f.Bufs) == 0 {
		n.tx[f.Queue].frags.LayOut(f)
	}
}

// Post is ndo_start_xmit: it writes the frame's descriptors, reports it to BQL,
// stops the queue when the ring is nearly full and rings the doorbell. It
// reports false, NETDEV_TX_BUSY, if the frame does not fit; the caller keeps
// the frame, but nobody keeps one of XDP: it is dropped. more says that another
// frame follows at once (xmit_more).
func (n *NIC) Post(f *Frame, more bool) bool {
	q := &n.tx[f.Queue]
	n.layOut(f)
	if n.rules.Linearize != nil && n.rules.Linearize(f) {
		f.Linearize()
		q.stats.Linearized++
	}
	d := n.rules.Descriptors(f)
	now := n.eng.Now()
	f.refs = 0
	if reason := n.refuse(q, f); reason != "" {
		q.refuse(f, reason)
		return true
	}
	room := max(d, n.rules.Room(f)) + n.cfg.Ring.Gap
	if f.XDP {
		room += n.cfg.Ring.XDPReserve
	}
	if room > n.cfg.Ring.TX-n.cfg.Ring.Spare {
		q.refuse(f, "more_descriptors_than_ring")
		return true
	}
	if q.free() < room {
		return q.busy(f)
	}
	f.Posted = now
	f.desc = d
	f.launch = 0
	if f.Launch != 0 && n.rules.LaunchTime != nil {
		f.launch = n.rules.LaunchTime(n, f)
	}
	q.ring[q.posted&q.mask] = f
	q.posted++
	q.used += d
	q.transStart = now
	q.markReportStatus(f)
	q.stats.offered(f)
	q.stats.RingMax = max(q.stats.RingMax, q.used)
	if n.cfg.BQL.On {
		f.bql = uint32(n.rules.BQLBytes(f))
		if f.bql > 0 && q.bql.Sent(f.bql, n.cfg.jiffies(now)) {
			q.stats.StackXOFF++
		}
		q.stats.InflightMax = max(q.stats.InflightMax, int(q.bql.Inflight()))
	}
	if q.free() < n.cfg.Ring.StopAt {
		q.setDriverXOFF()
	}
	if n.cfg.Watchdog > 0 && !n.watchdog.Armed() {
		n.eng.After(&n.watchdog, engine.Time(n.cfg.Watchdog))
	}
	if !more || n.cfg.Ring.EveryDoorbell || q.stopped() {
		n.Flush(f.Queue)
	}
	return true
}

// refuse drops a frame that the driver does not queue.
func (q *txq) refuse(f *Frame, reason string) {
	q.stats.Offered.add(f.Wire())
	q.stats.Dropped.add(f.Wire())
	q.nic.drop(f, reason)
}

// refuse says why the driver does not even try to queue f.
func (n *NIC) refuse(q *txq, f *Frame) string {
	switch {
	case n.down.on:
		return "port_down"
	case n.rules.Refuse != nil:
		if reason := n.rules.Refuse(f); reason != "" {
			return reason
		}
	}
	if n.fetcher.oversize(q, f) {
		return "oversize"
	}
	return ""
}

// busy answers for a frame that does not fit: what was posted before it waits
// for no doorbell of the next, since that does not come.
func (q *txq) busy(f *Frame) bool {
	q.stats.Busy++
	if !f.XDP || q.nic.cfg.Ring.XDPReserve == 0 {
		q.setDriverXOFF()
	}
	q.nic.Flush(q.index)
	if !f.XDP {
		return false
	}
	q.stats.Offered.add(f.Wire())
	q.stats.Dropped.add(f.Wire())
	q.nic.drop(f, "xdp_tx_busy")
	return true
}

// Flush rings the doorbell for frames posted with more set.
func (n *NIC) Flush(q int) {
	t := &n.tx[q]
	t.doorbell = t.posted
	n.fetcher.kick(t)
}

func (q *txq) setDriverXOFF() {
	if !q.drvXOFF {
		q.drvXOFF = true
		q.stats.DrvXOFF++
	}
}

// markReportStatus sets RS on the frames that the write-back rule names.
func (q *txq) markReportStatus(f *Frame) {
	wb := &q.nic.cfg.WriteBack
	q.stride++
	if rule := q.nic.rules.ReportStatus; rule != nil {
		f.rs = rule(f, f.desc, q.stride)
	} else {
		f.rs = q.stride >= wb.RSStride || wb.RSFromDesc > 0 && f.desc >= wb.RSFromDesc
	}
	if f.rs {
		q.stride = 0
	}
}

// reset is the driver's answer to a TX time-out: everything in the ring is
// dropped, BQL forgets it, and the queue starts again.
func (q *txq) reset(reason string) {
	n := q.nic
	n.mac.abort(q)
	n.mac.forget(q)
	n.eng.Cancel(&q.settle)
	q.epoch++ // fetches under way no longer count
	first, sent, end := q.cleaned, q.sent, q.posted
	q.doorbell, q.fetched, q.sent, q.settled, q.reported, q.cleaned = end, end, end, end, end, end
	n.fetcher.occupied -= q.occupied
	q.fetchSeg, q.sendSeg, q.ready, q.occupied, q.used = 0, 0, 0, 0, 0
	q.bql.ResetQueue(n.cfg.jiffies(n.eng.Now()))
	q.drvXOFF = n.down.on
	for i := first; i != end; i++ {
		f := q.at(i)
		q.ring[i&q.mask] = nil
		if int32(i-sent) < 0 { // was on the wire already
			n.host.Complete(f)
		} else {
			q.stats.Dropped.add(f.Wire())
			n.drop(f, reason)
		}
	}
	n.mac.kick()
	if !n.down.on {
		n.host.Wake(q.index)
	}
}
