package scenarios

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/scenarios/format"
	"nicemu/scenarios/workload"
)

// meter measures what becomes of the flows of one workload.
type meter struct {
	eng        *engine.Engine
	first, n   uint32 // flow numbers
	headers    int    // of a frame
	begin, end engine.Time

	payload, packets uint64 // received from begin to end
	perSecond        []uint64
	lost             int64 // packets
}

// watch measures from now on, for as long as the workload lasts, what the other
// end receives of the n flows that start next.
func (m *meter) watch(v *way, n, headers int) {
	s := v.from.stack
	*m = meter{eng: s.Eng, first: s.Flows(0), n: uint32(n), headers: headers, begin: s.Eng.Now(), end: s.Eng.Now() + engine.Time(v.w.Duration)}
	v.to.stack.OnDeliver(m.receive)
	v.from.onLoss(func(f *nic.Frame) {
		if m.mine(f) {
			m.lost += int64(f.Segs)
		}
	})
}

func (m *meter) mine(f *nic.Frame) bool { return f.Flow-m.first < m.n }

func (m *meter) receive(f *nic.Frame) {
	now := m.eng.Now()
	if !m.mine(f) || now < m.begin || now >= m.end {
		return
	}
	payload := uint64(f.Len - m.headers)
	m.payload += payload
	m.packets += uint64(f.Segs)
	second := int((now - m.begin) / engine.Second)
	for len(m.perSecond) <= second {
		m.perSecond = append(m.perSecond, 0)
	}
	m.perSecond[second] += payload
}

// result has the rates so far; of the seconds, those that are over.
func (m *meter) result(kind format.Kind) *workload.Result {
	span := min(m.eng.Now(), m.end) - m.begin
	seconds := float64(span) / float64(engine.Second)
	goodput, pps := float64(m.payload)*8/seconds, float64(m.packets)/seconds
	r := &workload.Result{Kind: kind, GoodputBPS: &goodput, PPS: &pps}
	for i := range int(span / engine.Second) {
		bits := 0.0
		if i < len(m.perSecond) {
			bits = float64(m.perSecond[i]) * 8
		}
		r.Intervals = append(r.Intervals, bits)
	}
	return r
}
