package qdisc

import (
	"math"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// FQCodelConfig is what `tc qdisc add … fq_codel` takes; each zero value but
// ECN's is the kernel's default.
type FQCodelConfig struct {
	Limit       int         // packets; 10240
	Flows       int         // 1024
	Quantum     int         // bytes; 1514
	Target      engine.Time // 5 ms
	Interval    engine.Time // 100 ms
	MemoryLimit int         // bytes of memory; 32 MB
	DropBatch   int         // packets dropped at once when full; 64
	NoECN       bool        // drop even frames that may be marked
}

// FQCodelStats are fq_codel's own counters, in tc's spelling.
type FQCodelStats struct {
	MaxPacket      int    `json:"maxpacket"`
	DropOverlimit  uint64 `json:"drop_overlimit"`
	ECNMark        uint64 `json:"ecn_mark"`
	NewFlowCount   uint64 `json:"new_flow_count"`
	NewFlowsLen    int    `json:"new_flows_len"`
	OldFlowsLen    int    `json:"old_flows_len"`
	DropOverMemory uint64 `json:"drop_overmemory"`
	MemoryUsage    int    `json:"memory_usage"`
}

// FQCodel is a model of fq_codel: deficit round robin over flows with priority
// for new ones, CoDel in each. A frame's flow is its Flow number modulo the
// number of flows.
type FQCodel struct {
	cfg              FQCodelConfig
	target, interval codelTime

	flows    []flow
	new, old flowList

	qlen, backlog, memory int
	stats                 Stats
	xstats                FQCodelStats
}

type flow struct {
	queue   list
	backlog int // bytes
	deficit int
	codel   codel
	next    *flow
	active  bool
}

// mtu is psched_mtu of an Ethernet device: CoDel lets so little backlog be.
const mtu = 1514

// skbOverhead is the memory of an sk_buff beside its data: the structure, the
// shared info and head room, about what skb->truesize counts.
const skbOverhead = 768

func truesize(f *nic.Frame) int { return f.Len + skbOverhead }

// NewFQCodel returns an empty qdisc.
func NewFQCodel(cfg FQCodelConfig) *FQCodel {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&cfg.Limit, 10240)
	def(&cfg.Flows, 1024)
	def(&cfg.Quantum, 1514)
	def(&cfg.MemoryLimit, 32<<20)
	def(&cfg.DropBatch, 64)
	if cfg.Target == 0 {
		cfg.Target = 5 * engine.Millisecond
	}
	if cfg.Interval == 0 {
		cfg.Interval = 100 * engine.Millisecond
	}
	return &FQCodel{
		cfg: cfg, target: codelClock(cfg.Target), interval: codelClock(cfg.Interval),
		flows: make([]flow, cfg.Flows), stats: Stats{Kind: "fq_codel"},
	}
}

// Enqueue implements [Qdisc].
func (q *FQCodel) Enqueue(f *nic.Frame, now engine.Time, drop Drop) {
	fl := &q.flows[f.Flow%uint32(len(q.flows))]
	f.Enqueued = now
	fl.queue.push(f)
	fl.backlog += f.Wire()
	q.backlog += f.Wire()
	q.memory += truesize(f)
	q.qlen++
	if !fl.active {
		q.new.push(fl)
		q.xstats.NewFlowCount++
		fl.deficit = q.cfg.Quantum
	}
	overMemory := q.memory > q.cfg.MemoryLimit
	if q.qlen <= q.cfg.Limit && !overMemory {
		return
	}
	reason := Overlimit
	if overMemory {
		reason = OverMemory
	}
	dropped := q.dropFattest(reason, drop)
	q.xstats.DropOverlimit += dropped
	if overMemory {
		q.xstats.DropOverMemory += dropped
	}
}

// dropFattest drops half the backlog of the longest flow, at its head, up to a
// batch.
func (q *FQCodel) dropFattest(reason string, drop Drop) (n uint64) {
	fat := &q.flows[0]
	for i := range q.flows {
		if fl := &q.flows[i]; fl.backlog > fat.backlog {
			fat = fl
		}
	}
	for bytes, half := 0, fat.backlog/2; ; {
		f := q.take(fat)
		bytes += f.Wire()
		q.stats.Drops++
		n++
		drop(f, reason)
		if n == uint64(q.cfg.DropBatch) || bytes >= half {
			break
		}
	}
	fat.codel.count += uint32(n)
	return n
}

// Dequeue implements [Qdisc].
func (q *FQCodel) Dequeue(now engine.Time, drop Drop) *nic.Frame {
	for {
		from := &q.new
		if from.head == nil {
			if from = &q.old; from.head == nil {
				return nil
			}
		}
		fl := from.head
		if fl.deficit <= 0 {
			if from == &q.old {
				q.old.credit(q.cfg.Quantum)
			} else {
				fl.deficit += q.cfg.Quantum
				from.pop()
				q.old.push(fl)
			}
			continue
		}
		f := q.dequeueFlow(fl, codelClock(now), drop)
		if f == nil {
			// An emptied new flow waits behind the old ones, or it would
			// starve them by coming back as new.
			from.pop()
			if from == &q.new && q.old.head != nil {
				q.old.push(fl)
			}
			continue
		}
		fl.deficit -= f.Wire()
		q.stats.sent(f)
		return f
	}
}

// dequeueFlow is CoDel: it drops or marks at the head and gives what is left.
func (q *FQCodel) dequeueFlow(fl *flow, now codelTime, drop Drop) *nic.Frame {
	c := &fl.codel
	f := q.take(fl)
	if f == nil {
		c.dropping = false
		return nil
	}
	above := q.above(c, f, now)
	if !c.dropping {
		if above {
			if !q.mark(f) {
				f, _ = q.discard(fl, f, now, drop)
			}
			c.enter(now, q.interval)
		}
		return f
	}
	if !above {
		c.dropping = false
		return f
	}
	for c.dropping && now.atLeast(c.dropNext) {
		c.count++
		c.newton()
		if q.mark(f) {
			c.dropNext = c.law(c.dropNext, q.interval)
			return f
		}
		if f, above = q.discard(fl, f, now, drop); !above {
			c.dropping = false
		} else {
			c.dropNext = c.law(c.dropNext, q.interval)
		}
	}
	return f
}

// discard drops f and looks at the next frame of its flow.
func (q *FQCodel) discard(fl *flow, f *nic.Frame, now codelTime, drop Drop) (next *nic.Frame, above bool) {
	q.stats.Drops++
	drop(f, CoDel)
	next = q.take(fl)
	return next, q.above(&fl.codel, next, now)
}

func (q *FQCodel) above(c *codel, f *nic.Frame, now codelTime) bool {
	if f == nil {
		c.firstAbove = 0
		return false
	}
	q.xstats.MaxPacket = max(q.xstats.MaxPacket, f.Wire())
	return c.above(now-codelClock(f.Enqueued), q.target, q.interval, now, q.backlog <= mtu)
}

// mark sets congestion experienced on a frame that may carry it.
func (q *FQCodel) mark(f *nic.Frame) bool {
	if q.cfg.NoECN || f.ECN == 0 {
		return false
	}
	f.ECN = 3
	q.xstats.ECNMark++
	return true
}

// take removes the head of a flow, nil if it is empty.
func (q *FQCodel) take(fl *flow) *nic.Frame {
	f := fl.queue.pop()
	if f != nil {
		fl.backlog -= f.Wire()
		q.backlog -= f.Wire()
		q.memory -= truesize(f)
		q.qlen--
	}
	return f
}

// Len implements [Qdisc].
func (q *FQCodel) Len() int { return q.qlen }

// Bytes implements [Qdisc].
func (q *FQCodel) Bytes() int { return q.backlog }

// Stats implements [Qdisc].
func (q *FQCodel) Stats() Stats {
	s, x := q.stats, q.xstats
	s.Backlog, s.Qlen = q.backlog, q.qlen
	x.MemoryUsage, x.NewFlowsLen, x.OldFlowsLen = q.memory, q.new.n, q.old.n
	s.FQCodelStats = &x
	return s
}

// flowList is a queue of active flows.
type flowList struct {
	head, tail *flow
	n          int
}

func (l *flowList) push(fl *flow) {
	fl.next, fl.active = nil, true
	if l.head == nil {
		l.head = fl
	} else {
		l.tail.next = fl
	}
	l.tail = fl
	l.n++
}

func (l *flowList) pop() {
	l.head.active = false
	l.head = l.head.next
	l.n--
}

// credit gives every flow in turn a quantum and its place at the end, until the
// head may send. Passes over the whole list in which no flow may send are done
// at once: a GSO packet costs some 45 quanta.
func (l *flowList) credit(quantum int) {
	passes := math.MaxInt
	for fl := l.head; fl != nil && passes > 0; fl = fl.next {
		if fl.deficit > 0 {
			passes = 0
		} else {
			passes = min(passes, 1-fl.deficit/quantum)
		}
	}
	for fl := l.head; fl != nil && passes > 0; fl = fl.next {
		fl.deficit += passes * quantum
	}
	for l.head.deficit <= 0 {
		fl := l.head
		fl.deficit += quantum
		l.pop()
		l.push(fl)
	}
}

var _ Qdisc = (*FQCodel)(nil)
