package nic

import (
	"math/bits"

	"nicemu/devices/engine"
)

// Shaper holds frames of one queue back at the MAC: a launch time, a credit, a
// gate, a guard for somebody else's launch time.
type Shaper interface {
	// Eligible says whether f, whose next unit is bytes long, may start at t;
	// if not, when to ask again at the latest ([engine.Never]: when another
	// frame becomes resident or has been sent).
	Eligible(t engine.Time, f *Frame, bytes int) (ok bool, retry engine.Time)
	// Backlog tells that the queue now has a resident unit, or none any more.
	Backlog(t engine.Time, on bool)
	// Sent tells of every unit that the queue sent: when it held the medium and
	// its bytes there, both from preamble to gap. It may be told a little ahead
	// of end.
	Sent(start, end engine.Time, wire int)
}

// mac chooses between the queues with a resident unit and serializes it. The
// choice for the next unit falls when the last data byte of the present one has
// been read: FCS and gap are still to come, as in a pipelined arbiter.
type mac struct {
	nic  *NIC
	rate int64 // bits a second; 0 = paused

	readyMask uint64             // queues with a resident unit
	order     engine.FIFO[uint8] // shared packet buffer: whose unit came in which order

	cur      *txq
	curBytes int
	curWire  int // with the bytes around them
	curStart engine.Time
	curLast  bool // the frame's last unit

	free  engine.Time // when the medium may carry the next preamble
	rest  int64       // what free was rounded down by, in 1/rate ns
	done  engine.Timer
	retry engine.Timer

	turn  int  // rr, drr: whose turn it is
	fresh bool // drr: the turn has just come
}

func (m *mac) init(n *NIC) {
	m.nic, m.rate, m.fresh = n, int64(n.cfg.Link.Rate), true
	n.eng.Init(&m.done, m.finish)
	n.eng.Init(&m.retry, m.kick)
}

// resident tells that k more units of q can be sent.
func (m *mac) resident(q *txq, k int) {
	if m.cur != q && m.readyMask>>q.index&1 == 0 {
		for _, s := range q.shapers {
			s.Backlog(m.nic.eng.Now(), true)
		}
	}
	m.readyMask |= 1 << q.index
	if m.nic.fetcher.shared {
		for range k {
			m.order.Push(uint8(q.index))
		}
	}
}

// kick starts a unit if the MAC is idle and some queue may send.
func (m *mac) kick() {
	if m.cur != nil || m.readyMask == 0 || m.rate == 0 {
		return
	}
	start := max(m.nic.eng.Now(), m.free)
	if q := m.pick(start); q != nil {
		m.begin(q, start)
	}
}

// pick arbitrates; if all that is resident is held back, it arms a retry.
func (m *mac) pick(start engine.Time) *txq {
	retry := engine.Never
	switch {
	case m.nic.fetcher.shared:
		q := &m.nic.tx[*m.order.Head()]
		if m.eligible(q, start, &retry) {
			m.order.Pop()
			return q
		}
	case m.nic.cfg.Arbitration == "drr":
		if q := m.deficitRoundRobin(start, &retry); q != nil {
			return q
		}
	case m.nic.cfg.Arbitration == "strict-high":
		for mask := m.readyMask; mask != 0; {
			q := &m.nic.tx[63-bits.LeadingZeros64(mask)]
			if m.eligible(q, start, &retry) {
				return q
			}
			mask &^= 1 << q.index
		}
	default:
		first := 0
		if m.nic.cfg.Arbitration == "rr" {
			first = m.turn
		}
		// From `first` up, then from 0 up to it.
		for _, part := range [2]uint64{m.readyMask >> first << first, m.readyMask &^ (^uint64(0) << first)} {
			for ; part != 0; part &= part - 1 {
				q := &m.nic.tx[bits.TrailingZeros64(part)]
				if m.eligible(q, start, &retry) {
					m.turn = (q.index + 1) % len(m.nic.tx)
					return q
				}
			}
		}
	}
	if retry != engine.Never {
		m.nic.eng.At(&m.retry, retry)
	}
	return nil
}

func (m *mac) eligible(q *txq, start engine.Time, retry *engine.Time) bool {
	for _, s := range q.shapers {
		if ok, at := s.Eligible(start, q.at(q.sent), m.unit(q)); !ok {
			*retry = min(*retry, at)
			return false
		}
	}
	return true
}

// deficitRoundRobin is DRR by wire bytes (Shreedhar and Varghese, 1995). A
// queue that a shaper holds back passes its turn on and keeps its deficit.
func (m *mac) deficitRoundRobin(start engine.Time, retry *engine.Time) *txq {
	for held := 0; held < len(m.nic.tx); {
		q := &m.nic.tx[m.turn]
		switch {
		case q.ready == 0:
			q.deficit = 0
			held++
		case !m.eligible(q, start, retry):
			held++
		default:
			held = 0
			if m.fresh {
				q.deficit += int(m.nic.cfg.Quantum)
				m.fresh = false
			}
			if need := m.unit(q); need <= q.deficit {
				q.deficit -= need
				return q
			}
		}
		m.turn = (m.turn + 1) % len(m.nic.tx)
		m.fresh = true
	}
	return nil
}

// unit is the size of q's next unit.
func (m *mac) unit(q *txq) int {
	f := q.at(q.sent)
	if m.nic.fetcher.segment {
		return f.segWire(q.sendSeg)
	}
	return f.Wire()
}

func (m *mac) begin(q *txq, start engine.Time) {
	f := q.at(q.sent)
	l := &m.nic.cfg.Link
	bytes, packets := m.unit(q), f.Segs
	m.curLast = true
	if m.nic.fetcher.segment {
		packets = 1
		m.curLast = q.sendSeg == f.Segs-1
	}
	if q.sendSeg == 0 {
		f.WireStart = start
	}
	if start != m.free {
		m.rest = 0
	}
	m.curWire = bytes + m.padding(f) + packets*(l.Preamble+l.FCS+l.Gap)
	total := int64(m.curWire)*8*int64(engine.Second) + m.rest
	m.free = start + engine.Time(total/m.rate)
	m.rest = total % m.rate
	f.WireEnd = m.free - m.byteTime(l.Gap)
	m.cur, m.curBytes, m.curStart = q, bytes, start
	if q.ready--; q.ready == 0 {
		m.readyMask &^= 1 << q.index
	}
	m.nic.eng.At(&m.done, m.free-m.byteTime(l.FCS+l.Gap))
}

// padding is the bytes that the MAC adds to what it begins, so that the last
// packet of it has the least length of a frame.
func (m *mac) padding(f *Frame) int {
	last := f.Segs - 1
	if m.nic.fetcher.segment {
		last = m.nic.tx[f.Queue].sendSeg
	}
	return max(0, m.nic.cfg.Link.MinFrame-f.segWire(last))
}

func (m *mac) byteTime(bytes int) engine.Time {
	return engine.Time(int64(bytes) * 8 * int64(engine.Second) / m.rate)
}

// finish runs when the last data byte has been read: the packet buffer is free
// again, the frame is on its way, and the next unit is chosen.
func (m *mac) finish() {
	q, n := m.cur, m.nic
	m.cur = nil
	for _, s := range q.shapers {
		s.Sent(m.curStart, m.free, m.curWire)
		if q.ready == 0 {
			s.Backlog(m.free, false)
		}
	}
	if !m.curLast {
		q.sendSeg++
		n.fetcher.release(q, m.curBytes)
		m.kick()
		return
	}
	f := q.at(q.sent)
	q.sendSeg = 0
	q.sent++
	q.stats.Sent.add(f.Wire())
	q.stats.Packets += uint64(f.Segs)
	n.fetcher.release(q, m.curBytes)
	m.kick()
	n.wire.Transmit(f, f.WireEnd)
	q.frameSent()
}

// abort takes q's unit off the wire.
func (m *mac) abort(q *txq) {
	if m.cur == q {
		m.nic.eng.Cancel(&m.done)
		m.cur = nil
		m.free, m.rest = m.nic.eng.Now(), 0
	}
}

// forget drops what is resident of q.
func (m *mac) forget(q *txq) {
	m.readyMask &^= 1 << q.index
	for _, s := range q.shapers {
		s.Backlog(m.nic.eng.Now(), false)
	}
	for range m.order.Len() {
		if i := m.order.Pop(); i != uint8(q.index) {
			m.order.Push(i)
		}
	}
}

// Head is the frame of queue q that would be sent next, nil if none is
// resident.
func (n *NIC) Head(q int) *Frame {
	if t := &n.tx[q]; t.ready > 0 {
		return t.at(t.sent)
	}
	return nil
}
