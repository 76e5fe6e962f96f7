package nic

import "nicemu/devices/engine"

// fetcher moves data from host memory into the packet buffers, one unit at a
// time: a frame, or one segment where the card has packet buffers.
type fetcher struct {
	nic     *NIC
	instant bool
	segment bool  // units are wire packets
	shared  bool  // one packet buffer for all queues
	sizes   []int // per queue; nil = unlimited
	room    int   // a fetch needs more than this free

	flights   []flight // under way, oldest first: they arrive in order
	arrive    engine.Timer
	waiting   engine.Timer // for the fetch time of a launch-time frame
	busFree   engine.Time
	last      int // queue of the newest fetch: round robin goes on behind it
	mostEmpty bool
	occupied  int // bytes of a shared buffer in use
}

type flight struct {
	q     *txq
	epoch uint32
	at    engine.Time
	whole bool // the frame's last unit
}

func (x *fetcher) init(n *NIC) {
	pb := &n.cfg.PB
	x.nic = n
	x.segment = len(pb.Sizes) > 0
	x.instant = !x.segment && n.cfg.Fetch.instant()
	x.shared = len(pb.Sizes) == 1 && len(n.tx) > 1
	x.room = int(pb.MaxPacket)
	x.last = len(n.tx) - 1
	x.mostEmpty = n.cfg.Fetch.Arbitration == "most-empty"
	for i := range n.tx {
		if x.segment {
			x.sizes = append(x.sizes, int(pb.Sizes[min(i, len(pb.Sizes)-1)]))
		}
	}
	x.flights = make([]flight, 0, max(1, n.cfg.Fetch.Outstanding))
	n.eng.Init(&x.arrive, x.arrived)
	n.eng.Init(&x.waiting, x.start)
}

// kick is called when q has a new doorbell.
func (x *fetcher) kick(q *txq) {
	if !x.instant {
		x.start()
		return
	}
	new := int(q.doorbell - q.fetched)
	if new == 0 {
		return
	}
	now := x.nic.eng.Now()
	for i := q.fetched; i != q.doorbell; i++ {
		q.at(i).Fetched = now
	}
	q.fetched = q.doorbell
	q.ready += new
	x.nic.mac.resident(q, new)
	x.nic.mac.kick()
}

// start begins as many fetches as the bus and the buffers allow.
func (x *fetcher) start() {
	for len(x.flights) < cap(x.flights) {
		q := x.pick()
		if q == nil {
			return
		}
		x.begin(q)
	}
}

// pick chooses among the queues with a frame that fits and whose fetch time has
// come: the next one in turn, or the one whose packet buffer is most empty.
func (x *fetcher) pick() *txq {
	n := x.nic
	wake := engine.Never
	var best *txq
	for i := 1; i <= len(n.tx); i++ {
		k := x.last + i
		if k >= len(n.tx) {
			k -= len(n.tx)
		}
		q := &n.tx[k]
		next := q.inFlightEnd()
		if next == q.doorbell || !x.fits(q, q.at(next)) {
			continue
		}
		if f := q.at(next); f.launch != 0 && n.cfg.Fetch.LaunchAhead > 0 {
			if at := f.launch - engine.Time(n.cfg.Fetch.LaunchAhead); at > n.eng.Now() {
				wake = min(wake, at)
				continue
			}
		}
		if !x.mostEmpty {
			best = q
			break
		}
		if best == nil || q.space() > best.space() {
			best = q
		}
	}
	if best != nil {
		x.last = best.index
	} else if wake != engine.Never {
		n.eng.At(&x.waiting, wake)
	}
	return best
}

// space is the free bytes of q's packet buffer.
func (q *txq) space() int {
	x := &q.nic.fetcher
	switch {
	case !x.segment:
		return 0
	case x.shared:
		return x.sizes[q.index] - x.occupied
	}
	return x.sizes[q.index] - q.occupied
}

// inFlightEnd is the frame that the next fetch is for: behind `fetched` and
// behind the frames whose fetch is under way.
func (q *txq) inFlightEnd() uint32 {
	i := q.fetched
	x := &q.nic.fetcher
	for k := range x.flights {
		if fl := &x.flights[k]; fl.q == q && fl.epoch == q.epoch && fl.whole {
			i++
		}
	}
	return i
}

func (x *fetcher) fits(q *txq, f *Frame) bool {
	if !x.segment {
		return true
	}
	free := q.space()
	return free > x.room && free >= f.segWire(q.fetchSeg)
}

// oversize reports whether a segment of f can never enter q's packet buffer.
func (x *fetcher) oversize(q *txq, f *Frame) bool {
	return x.segment && (f.segWire(0) > x.sizes[q.index] || x.room > 0 && f.segWire(0) > x.room)
}

func (x *fetcher) begin(q *txq) {
	n := x.nic
	f := q.at(q.inFlightEnd())
	bytes, whole := f.Wire(), true
	if x.segment {
		bytes = f.segWire(q.fetchSeg)
		q.fetchSeg++
		if whole = q.fetchSeg == f.Segs; whole {
			q.fetchSeg = 0
		}
		q.occupied += bytes
		x.occupied += bytes
	}
	c := &n.cfg.Fetch
	ready := n.eng.Now() + engine.Time(c.Latency) + engine.Time(c.PerDescriptor)*engine.Time(f.desc)
	at := max(ready, x.busFree) + x.busTime(bytes)
	x.busFree = at
	x.flights = append(x.flights, flight{q, q.epoch, at, whole})
	if len(x.flights) == 1 {
		n.eng.At(&x.arrive, at)
	}
}

// busTime is how long bytes of data occupy the bus, in bus packets that each have
// a whole header.
func (x *fetcher) busTime(bytes int) engine.Time {
	c := &x.nic.cfg.Fetch
	if c.BusRate == 0 {
		return 0
	}
	packets := (int64(bytes) + int64(c.Payload) - 1) / int64(c.Payload)
	bits := (int64(bytes) + packets*int64(c.Header)) * 8
	return engine.Time(bits * 1e9 / int64(c.BusRate))
}

func (x *fetcher) arrived() {
	fl := x.flights[0]
	copy(x.flights, x.flights[1:])
	x.flights = x.flights[:len(x.flights)-1]
	if len(x.flights) > 0 {
		x.nic.eng.At(&x.arrive, x.flights[0].at)
	}
	if q := fl.q; fl.epoch == q.epoch {
		if fl.whole {
			q.at(q.fetched).Fetched = x.nic.eng.Now()
			q.fetched++
		}
		q.ready++
		x.nic.mac.resident(q, 1)
	}
	x.start()
	x.nic.mac.kick()
}

// release frees the packet buffer bytes of a unit that the MAC has read.
func (x *fetcher) release(q *txq, bytes int) {
	if !x.segment {
		return
	}
	q.occupied -= bytes
	x.occupied -= bytes
	x.start()
}
