package ixgbe

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// eitrUnit is the step of the EITR interval at 10 Gbit/s: bits 11:3 of the
// value count 2.048 µs (82599 datasheet 8.2.3.5.12; DPDK ixgbe states 2048 ns).
const eitrUnit = 2048 * engine.Nanosecond

// interval is what the card makes of an EITR value in quarters of a microsecond.
func interval(itr int) engine.Time { return engine.Time(itr&0xFF8>>3) * eitrUnit }

func moderation(c *nic.Config) nic.Moderation {
	switch c.Coalesce.Mode {
	case modeAdaptive2014:
		m := &adaptive2014{itr: itr20K}
		m.Interval = interval(m.itr)
		return m
	case modeFixed:
		return &nic.Throttle{Interval: interval(int(c.Coalesce.Usecs / 250))}
	}
	m := &adaptive{hz: engine.Time(c.HZ), fast: c.Link.Rate == 10_000_000_000 || c.Link.Rate == 100_000_000}
	m.tx, m.rx = adaptiveMax|adaptiveLatency, adaptiveMax|adaptiveLatency
	m.set(itr20K / 4)
	return m
}

// Named EITR values, in quarters of a microsecond (ixgbe.h).
const (
	itr100K = 40
	itr20K  = 200
	itr8K   = 500 // IXGBE_8K_ITR of 2014
)

// adaptive2014 is ixgbe_update_itr and ixgbe_set_itr as of 2014: three states
// by bytes per microsecond, and a weighted step from one value to the next.
// Integer rounding makes it stay at 490 where bulk asks for 500.
type adaptive2014 struct {
	nic.Throttle
	itr    int
	tx, rx latency
}

type latency int

const (
	lowestLatency latency = iota
	lowLatency
	bulkLatency
)

func (m *adaptive2014) Polled(_ engine.Time, w nic.Work) {
	us := m.itr >> 2
	m.tx = m.tx.next(w.TXFrames, w.TXBytes, us)
	m.rx = m.rx.next(w.RXFrames, w.RXBytes, us)
	want := [...]int{itr100K, itr20K, itr8K}[max(m.tx, m.rx)]
	if want != m.itr {
		m.itr = 10 * want * m.itr / (9*want + m.itr)
		m.Interval = interval(m.itr)
	}
}

// next is the state after an interval of us microseconds.
func (l latency) next(packets, bytes, us int) latency {
	if packets == 0 || us == 0 {
		return l
	}
	perUs := bytes / us
	switch {
	case l == lowestLatency && perUs > 10:
		return lowLatency
	case l == lowLatency && perUs > 20:
		return bulkLatency
	case l == lowLatency && perUs <= 10:
		return lowestLatency
	case l == bulkLatency && perUs <= 20:
		return lowLatency
	}
	return l
}

// adaptive is ixgbe_update_itr and ixgbe_set_itr of Linux 6.12: each direction
// asks for a value, and the lesser one becomes the vector's. Small steps start
// from the vector's value, not from what the direction last asked for.
type adaptive struct {
	nic.Throttle
	hz      engine.Time
	fast    bool        // 10 Gbit/s and 100 Mbit/s share a divisor
	us      int         // q_vector->itr in microseconds
	tx, rx  int         // microseconds, with adaptiveLatency
	updated engine.Time // in jiffies
}

// Flags and bounds in microseconds (ixgbe.h IXGBE_ITR_ADAPTIVE_*).
const (
	adaptiveLatency = 0x80
	adaptiveMin     = 10
	adaptiveMax     = 126
	adaptiveMask    = 0x7f
)

func (m *adaptive) Polled(now engine.Time, w nic.Work) {
	jiffies := now / (engine.Second / m.hz)
	stale := jiffies > m.updated+1 // time_after(jiffies, next_update)
	m.tx = m.update(m.tx, w.TXPackets, w.TXBytes, stale)
	m.rx = m.update(m.rx, w.RXFrames, w.RXBytes, stale)
	m.updated = jiffies
	// Compared with the flag, so that a side without it wins.
	m.set(min(m.rx, m.tx) & adaptiveMask)
}

func (m *adaptive) set(us int) { m.us, m.Interval = us, interval(4*us) }

// update is what a direction asks for whose last value was cur.
func (m *adaptive) update(cur, packets, bytes int, stale bool) int {
	switch {
	case stale:
		return adaptiveMin | adaptiveLatency
	case packets == 0:
		return min(m.us+2, adaptiveMax) | cur&adaptiveLatency
	case packets < 4 && bytes < 9000:
		return m.byMeanSize(bytes/packets, true) | adaptiveLatency
	case packets < 48:
		return min(m.us+2, adaptiveMax)
	case packets < 96:
		return m.us
	case packets < 256:
		return max(m.us/2, adaptiveMin)
	}
	return m.byMeanSize(bytes/packets, false)
}

func (m *adaptive) byMeanSize(mean int, latency bool) int {
	v := 32256
	switch {
	case mean <= 60:
		v = 5120
	case mean <= 316:
		v = 40*mean + 2720
	case mean <= 1084:
		v = 15*mean + 11452
	case mean < 1968:
		v = 5*mean + 22420
	}
	if latency {
		v /= 2
	}
	if m.fast {
		return 2 * ((v + 511) / 512)
	}
	return 2 * ((min(v, 8064) + 127) / 128)
}
