package scenarios

import (
	"fmt"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/replay/source"
	"nicemu/replay/stack"
	"nicemu/scenarios/reproduce"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// cardLoad is the traffic of one workload of a what-if.
type cardLoad struct {
	headers  int              // of a frame, which are no payload
	flows    int              // flow numbers that start takes
	wireRate float64          // what it takes of the medium, bytes a second; 0 = what is left
	between  string           // the two points of its delay
	delay    cardDelay        // of a sent frame
	arrivals *source.Arrivals // comes from the wire
	start    func(s *stack.Stack)
	sharing  *source.TCP // wants its share of the link before it starts
}

// cardDelay is what a workload measures of a sent frame.
type cardDelay func(f *nic.Frame, end engine.Time) engine.Time

func departure(f *nic.Frame, end engine.Time) engine.Time { return end - f.Enqueued }

func lateness(f *nic.Frame, _ engine.Time) engine.Time { return f.WireStart - f.Launch }

const (
	betweenDeparture = "enqueued to wire end"
	betweenLaunch    = "launch time to wire start"
	betweenReceive   = "last bit arrived to delivered"
)

// queue reads a queue of the card.
func (r *cardRun) queue(v *specValues) int {
	return v.count("queue", 0, r.device.Config.Queues-1)
}

// frame is the largest frame that the card's driver takes, without FCS.
func (r *cardRun) frame() int { return r.device.MaxMTU + etherHdr }

func makePktgen(v *specValues, r *cardRun) cardLoad {
	src := &source.Pktgen{Bytes: v.bytes("size", udpHeaders, r.frame()), Queue: r.queue(v), Burst: v.count("burst", 1, 64)}
	return cardLoad{headers: udpHeaders, flows: 1, between: betweenDeparture, delay: departure, start: src.Start}
}

const udpHeaders = source.UDPHeader

const (
	mtu        = 1500 // of what-ifs
	leastFrame = etherHdr + 1
)

func makeUDP(v *specValues, r *cardRun) cardLoad {
	src := &source.UDP{
		Payload: v.bytes("size", 1, mtu-ipv4-udpHdr), Queue: r.queue(v), Rate: maxSpecRate, SendBuffer: source.SendBuffer,
	}
	l := cardLoad{headers: udpHeaders, flows: 1, between: betweenDeparture, delay: departure, start: src.Start}
	if !v.is("rate", "unlimited") {
		src.Rate = v.rate("rate")
		l.wireRate = float64(src.Rate) / 8 * float64(r.wire(udpHeaders+src.Payload)) / float64(src.Payload)
	}
	return l
}

func makeTCP(v *specValues, r *cardRun) cardLoad {
	n := v.count("flows", 1, 1024)
	src := &source.TCP{Pacing: reproduce.TCPPacingTime, Spread: tcpSpread, Segmented: !r.device.TSO, Rates: make([]float64, n)}
	if !v.is("rate", "unlimited") {
		src.Limit = v.rate("rate")
	}
	fixed := 0
	if hash := v.is("queue", "hash"); !hash {
		fixed = r.queue(v)
	}
	for range n {
		q := fixed
		if v.is("queue", "hash") {
			q = r.eng.Rand().IntN(r.device.Config.Queues)
		}
		src.Queues = append(src.Queues, q)
	}
	return cardLoad{headers: source.TCPHeader, flows: n, between: betweenDeparture, delay: departure, start: src.Start, sharing: src}
}

func makeTSO(v *specValues, r *cardRun) cardLoad {
	if !r.device.TSO && v.err == nil {
		v.err = fmt.Errorf("%s takes no GSO frames: its driver has no TSO; expected another kind", r.device.Name)
	}
	src := &source.Bulk{Payload: v.bytes("size", 1, 65535-source.TCPHeader), Queue: r.queue(v)}
	return cardLoad{headers: source.TCPHeader, flows: 1, between: betweenDeparture, delay: departure, start: src.Start}
}

func makeTalker(v *specValues, r *cardRun) cardLoad {
	src := &source.Talker{
		Bytes: v.bytes("size", leastFrame, r.frame()), Queue: r.queue(v),
		Cycle: engine.Time(v.duration("interval", units.Microsecond)), Offset: engine.Time(v.duration("offset", 0)),
		Untimed: !v.flag("launch"),
	}
	l := cardLoad{headers: etherHdr, flows: 1, between: betweenDeparture, delay: departure, start: src.Start}
	if ahead := engine.Time(v.duration("ahead", 0)); v.flag("launch") {
		src.Ahead = ahead
		l.between, l.delay = betweenLaunch, lateness
	}
	l.wireRate = float64(r.wire(src.Bytes)) * float64(engine.Second) / float64(src.Cycle)
	return l
}

func makeRR(v *specValues, r *cardRun) cardLoad {
	src := &source.Requests{
		Bytes: source.TCPHeader + v.bytes("size", 1, source.MSS), Queue: r.queue(v),
		Interval: engine.Time(v.duration("interval", 0)), Base: engine.Time(v.duration("base", 0)),
		BaseMean: turnaround, // so that it does not keep step; not part of its delay
	}
	l := cardLoad{headers: source.TCPHeader, flows: 1, start: src.Start, between: betweenDeparture, delay: departure}
	if src.Base > 0 {
		l.between += fmt.Sprintf(", and %v", units.Duration(src.Base))
		l.delay = func(f *nic.Frame, end engine.Time) engine.Time { return departure(f, end) + src.Base }
	}
	return l
}

func makeReceive(v *specValues, r *cardRun) cardLoad {
	src := &source.Arrivals{Bytes: v.bytes("size", leastFrame, r.frame()), Queue: r.queue(v)}
	line := units.Rate(int64(r.rate) * int64(src.Bytes) / int64(r.wire(src.Bytes)))
	src.Rate = line
	if !v.is("rate", "line") {
		if src.Rate = v.rate("rate"); src.Rate > line {
			v.fail("rate", fmt.Sprintf("at most %v, which is all that a link of %v carries", line, r.rate))
		}
	}
	return cardLoad{headers: etherHdr, flows: 1, between: betweenReceive, arrivals: src, start: src.Start}
}

// wire is the bytes that a frame takes of the medium.
func (r *cardRun) wire(frame int) int {
	l := &r.device.Config.Link
	return max(frame, l.MinFrame) + l.Preamble + l.FCS + l.Gap
}

// cardMeter measures what becomes of one workload's frames after the warm-up.
type cardMeter struct {
	cardLoad
	name             string
	first            uint32 // flow number
	payload, packets uint64
	lost             int64
	early            uint64      // frames that started before their launch time
	earliest         engine.Time // by how much, at most
	on               bool        // the warm-up is over
	hist             *hdrhistogram.Histogram
}

func (m *cardMeter) mine(f *nic.Frame) bool { return f.Flow-m.first < uint32(m.flows) }

// watch starts the workload under the meter.
func (m *cardMeter) watch(s *stack.Stack) {
	m.first, m.hist = s.Flows(0), source.NewLatency()
	if m.arrivals != nil {
		m.arrivals.Lost = m.lose
		s.OnDeliver(func(f *nic.Frame) { m.passed(f, s.Eng.Now()-f.Enqueued) })
	}
	s.OnWire(func(f *nic.Frame, end engine.Time) {
		if m.delay != nil {
			m.passed(f, m.delay(f, end))
		}
	})
	s.OnDrop(func(f *nic.Frame, _ string) { m.lose(f) })
	s.OnComplete(func(f *nic.Frame) {
		if f.WireEnd == 0 {
			m.lose(f)
		}
	})
	m.start(s)
}

// passed counts a frame that has come through, so long after it set out.
func (m *cardMeter) passed(f *nic.Frame, d engine.Time) {
	if !m.on || !m.mine(f) {
		return
	}
	m.payload += uint64(f.Len - m.headers)
	m.packets += uint64(f.Segs)
	if d < 0 {
		m.early++
		m.earliest = max(m.earliest, -d)
	}
	m.hist.RecordValue(min(max(0, int64(d)), m.hist.HighestTrackableValue()))
}

func (m *cardMeter) lose(f *nic.Frame) {
	if m.on && m.mine(f) {
		m.lost += int64(f.Segs)
	}
}
