package igb

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
)

// EITR values, in quarters of a microsecond (igb.h).
const (
	itrStart = 648 // IGB_START_ITR
	itr4K    = 980 // IGB_4K_ITR
	itr20K   = 196 // IGB_20K_ITR
	itr70K   = 56  // IGB_70K_ITR
)

// interval is what the card makes of an EITR value: igb_write_itr keeps bits
// 14:2, and writes 1 µs for none.
func interval(itr int) engine.Time {
	return engine.Time(max(itr&0x7FFC, 4)) * engine.Microsecond / 4
}

// The two dynamic settings of rx-usecs.
const (
	dynamic             = 1
	dynamicConservative = 3 // at most 20,000 interrupts a second
)

func (c *card) moderation(cfg *nic.Config) nic.Moderation {
	us := int(cfg.Coalesce.Usecs / units.Microsecond)
	if us != dynamic && us != dynamicConservative {
		return &nic.Throttle{Interval: interval(us * 4)}
	}
	a := adaptive{itr: itrStart, conservative: us == dynamicConservative, gigabit: cfg.Link.Rate == units.Gbit}
	if c.msix {
		return &bySize{a}
	}
	return &byState{adaptive: a}
}

// adaptive is what both algorithms share: the value found after one interrupt is
// written at the next.
type adaptive struct {
	nic.Throttle
	itr          int
	conservative bool
	gigabit      bool
}

// Fired implements [nic.Moderation].
func (m *adaptive) Fired(now engine.Time) {
	m.Interval = interval(m.itr)
	m.Throttle.Fired(now)
}

// bySize is igb_update_ring_itr, for several vectors: the interval follows the
// mean size of a packet.
type bySize struct{ adaptive }

// Polled implements [nic.Moderation].
func (m *bySize) Polled(_ engine.Time, w nic.Work) {
	if !m.gigabit {
		m.itr = itr4K
		return
	}
	size := 0
	if w.RXFrames > 0 {
		size = w.RXBytes / w.RXFrames
	}
	if w.TXPackets > 0 {
		size = max(size, w.TXBytes/w.TXPackets)
	}
	if size == 0 {
		return
	}
	size = min(size+24, 3000)
	if size > 300 && size < 1200 {
		m.itr = size / 3
	} else {
		m.itr = size / 2
	}
	if m.conservative {
		m.itr = max(m.itr, itr20K)
	}
}

// byState is igb_set_itr, for a single vector: three states by what an interrupt
// found. The driver's smoothing of a rising interval takes the larger of the old
// and the new one and so does nothing.
type byState struct {
	adaptive
	tx, rx latency
}

type latency int

const (
	lowest latency = iota
	low
	bulk
)

// Polled implements [nic.Moderation].
func (m *byState) Polled(_ engine.Time, w nic.Work) {
	if !m.gigabit {
		m.itr = itr4K
		return
	}
	m.tx = m.tx.next(w.TXPackets, w.TXBytes)
	m.rx = m.rx.next(w.RXFrames, w.RXBytes)
	state := max(m.tx, m.rx)
	if m.conservative {
		state = max(state, low)
	}
	m.itr = [...]int{itr70K, itr20K, itr4K}[state]
}

// next is igb_update_itr.
func (l latency) next(packets, bytes int) latency {
	if packets == 0 {
		return l
	}
	mean := bytes / packets
	switch l {
	case lowest:
		switch {
		case mean > 8000:
			return bulk
		case packets < 5 && bytes > 512:
			return low
		}
	case low:
		switch {
		case bytes > 10000 && (mean > 8000 || packets < 10 || mean > 1200):
			return bulk
		case bytes > 10000 && packets > 35:
			return lowest
		case bytes > 10000:
		case mean > 2000:
			return bulk
		case packets <= 2 && bytes < 512:
			return lowest
		}
	case bulk:
		if bytes > 25000 && packets > 35 || bytes < 1500 {
			return low
		}
	}
	return l
}

var (
	_ nic.Moderation = (*bySize)(nil)
	_ nic.Moderation = (*byState)(nil)
)
