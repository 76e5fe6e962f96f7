package i40e

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
)

// The adaptive range in microseconds and its flag (i40e_txrx.h
// I40E_ITR_ADAPTIVE_*).
const (
	itrLatency = 0x8000
	itrMask    = 0x1ffe
	itrMin     = 2
	itrMax     = 126
	itrStep    = 2
	itrDefault = 50 // I40E_ITR_20K

	countdown = 3 // ITR_COUNTDOWN_START
)

func (r *rules) moderation(c *nic.Config) nic.Moderation {
	if c.Coalesce.Mode == modeFixed {
		return &timers{rx: engine.Time(c.Coalesce.Usecs), tx: engine.Time(r.txUsecs)}
	}
	m := &adaptive{hz: engine.Time(c.HZ), divisor: divisor(c.Link.Rate)}
	m.tx, m.rx = itr{itrDefault, itrDefault}, itr{itrDefault, itrDefault}
	m.program()
	return m
}

// timers is the two ITR timers of a vector: both run from the last interrupt.
type timers struct {
	rx, tx engine.Time
	last   engine.Time
	fired  bool
}

func (m *timers) due(now, interval engine.Time) engine.Time {
	if !m.fired {
		return now
	}
	return max(now, m.last+interval)
}

// Due implements [nic.Moderation].
func (m *timers) Due(now engine.Time) engine.Time { return m.due(now, m.rx) }

// DueTX implements [nic.TXModeration].
func (m *timers) DueTX(now engine.Time) engine.Time { return m.due(now, m.tx) }

// Fired implements [nic.Moderation].
func (m *timers) Fired(now engine.Time) { m.last, m.fired = now, true }

// Polled implements [nic.Moderation].
func (m *timers) Polled(engine.Time, nic.Work) {}

// itr is one direction's interval in microseconds, with the flag.
type itr struct{ target, current int }

// adaptive is i40e_update_itr for both directions, and i40e_update_enable_itr,
// which programs one of them after an interrupt.
type adaptive struct {
	timers
	hz        engine.Time
	divisor   int
	tx, rx    itr
	updated   engine.Time
	countdown int
}

// Polled implements [nic.Moderation].
func (m *adaptive) Polled(now engine.Time, w nic.Work) {
	stale := now-m.updated > engine.Second/m.hz // next_update: one jiffy on
	m.updated = now
	m.tx.target = m.updateTX(w.TXPackets, w.TXBytes, stale)
	m.rx.target = m.updateRX(w.RXFrames, w.RXBytes, stale)
	switch {
	case m.rx.target < m.rx.current:
		m.set(&m.rx)
	case m.tx.target < m.tx.current, m.rx.target-m.rx.current < m.tx.target-m.tx.current:
		m.set(&m.tx)
	case m.rx.target != m.rx.current:
		m.set(&m.rx)
	default:
		m.countdown = max(0, m.countdown-1)
	}
}

func (m *adaptive) set(i *itr) {
	i.current = i.target
	m.countdown = countdown
	m.program()
}

func (m *adaptive) program() {
	m.timers.rx = engine.Time(m.rx.current&itrMask) * engine.Microsecond
	m.timers.tx = engine.Time(m.tx.current&itrMask) * engine.Microsecond
}

func (m *adaptive) updateTX(packets, bytes int, stale bool) int {
	switch {
	case stale:
		return itrMax | itrLatency
	case m.countdown > 0:
		return m.tx.target
	case packets < 4 && m.tx.target == itrMax && m.rx.target&itrMask == itrMax:
		return itrMax | itrLatency
	case packets > 32:
		m.tx.target &^= itrLatency
	}
	return m.byPackets(m.tx.target, packets, bytes)
}

func (m *adaptive) updateRX(packets, bytes int, stale bool) int {
	switch {
	case stale:
		return itrMin | itrLatency
	case m.countdown > 0:
		return m.rx.target
	case packets > 0 && packets < 4 && bytes < 9000 && m.tx.target&itrLatency != 0:
		return m.byMeanSize(bytes/packets, itrLatency)
	}
	return m.byPackets(m.rx.target, packets, bytes)
}

// byPackets keeps the packets of one interval between 56 and 112.
func (m *adaptive) byPackets(target, packets, bytes int) int {
	switch cur := min(m.tx.current, m.rx.current) & itrMask; {
	case packets < 56:
		return clamp(target + itrStep)
	case packets <= 112:
		return cur
	case packets <= 256:
		return max(cur/2&itrMask, itrMin)
	}
	return m.byMeanSize(bytes/packets, 0)
}

// byMeanSize is the interval that a bulk stream of such frames asks for.
func (m *adaptive) byMeanSize(mean, flag int) int {
	v := 32256
	switch {
	case mean <= 60:
		v = 4096
	case mean <= 380:
		v = 40*mean + 1696
	case mean <= 1084:
		v = 15*mean + 11452
	case mean <= 1980:
		v = 5*mean + 22420
	}
	if flag != 0 {
		v /= 2
	}
	d := itrStep * m.divisor
	return clamp(flag + (v+d-1)/d*itrStep)
}

func clamp(i int) int {
	if i&itrMask > itrMax {
		return i&itrLatency | itrMax
	}
	return i
}

// divisor is i40e_itr_divisor.
func divisor(rate units.Rate) int {
	switch {
	case rate >= 40_000_000_000:
		return 1024
	case rate >= 20_000_000_000:
		return 512
	case rate >= 10_000_000_000:
		return 256
	}
	return 32
}

var _ nic.TXModeration = (*timers)(nil)
