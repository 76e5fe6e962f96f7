package scenarios

import (
	"fmt"

	"nicemu/devices"
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/replay/qdisc"
	"nicemu/replay/report"
	"nicemu/replay/stack"
	"nicemu/scenarios/format"
	"nicemu/scenarios/workload"
)

// model is a case without a kernel: cards on one engine, the links between them,
// and the traffic.
type model struct {
	s      *format.Scenario
	traces Traces
	eng    *engine.Engine
	cards  []*modelCard
	loads  []load
	notes  []string
}

// modelCard is a card under models of the kernel.
type modelCard struct {
	spec    *format.NIC
	device  *nic.Device
	stack   *stack.Stack
	legs    *stack.Legs
	flows   uint32    // see own
	backlog []backlog // of each queue's qdisc, seen while the workloads run
	sample  engine.Timer

	peer   *modelCard // at the other end of its link; nil = none
	out    *modelLink
	onLost []func(*nic.Frame) // what the link or the peer's receiving ring has lost of what it sent
}

// newModel builds everything and starts nothing.
func newModel(s *format.Scenario, traces Traces) (*model, error) {
	m := &model{s: s, traces: traces, eng: engine.New(uint64(s.Seed))}
	pool := &nic.Pool{} // shared: frames cross links
	for i := range s.NICs {
		c, err := m.newCard(i)
		if err != nil {
			return nil, err
		}
		c.stack.Pool = pool
		m.cards = append(m.cards, c)
	}
	for i := range s.Links {
		m.connect(&s.Links[i])
	}
	for i := range s.Workloads {
		if err := m.addLoad(i); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *model) newCard(i int) (*modelCard, error) {
	spec, path := &m.s.NICs[i], fmt.Sprintf("nic[%d]", i)
	d, err := devices.New(spec.Device)
	if err != nil {
		return nil, err
	}
	if err := configure(d, spec); err != nil {
		return nil, m.s.Fault(path, fmt.Sprintf("nic %s: %v", spec.ID(), err), "")
	}
	if spec.MTU > d.MaxMTU {
		return nil, m.s.Fault(path+".mtu", fmt.Sprintf("mtu is %d", spec.MTU), fmt.Sprintf("at most %d, which is all that %s's driver takes", d.MaxMTU, d.Name))
	}
	m.traces.attach(m.s, spec, d)
	root, err := m.qdiscs(i)
	if err != nil {
		return nil, err
	}
	c := &modelCard{spec: spec, device: d, legs: stack.NewLegs(), backlog: make([]backlog, spec.Queues)}
	if c.stack, err = stack.New(m.eng, nic.NewCPU(m.eng), d, func(q int) qdisc.Qdisc { return root[q]() }); err != nil {
		return nil, m.s.Fault(path, err.Error(), "")
	}
	c.flows = uint32(i)
	c.stack.Flows(i << flowBits)
	c.stack.OnComplete(func(f *nic.Frame) {
		if c.own(f) {
			c.legs.Sent(f)
		}
	})
	m.eng.Init(&c.sample, c.look)
	return c, nil
}

// flowBits is how many flow numbers each card has to itself: a receiver's driver
// may free a frame too.
const flowBits = 20

// own reports whether the card has sent f.
func (c *modelCard) own(f *nic.Frame) bool { return (f.Flow-1)>>flowBits == c.flows }

func (m *model) card(id string) *modelCard {
	for _, c := range m.cards {
		if c.spec.ID() == id {
			return c
		}
	}
	panic("scenarios: no card " + id) // the format checked the reference
}

// segmented says that the stack has to segment: the card or its user has turned
// TSO off.
func (c *modelCard) segmented() bool { return !c.device.TSO || !c.spec.TSO || !c.spec.Csum }

// lost hands a frame of this card that is gone to everybody who wants to know.
func (c *modelCard) lost(f *nic.Frame) {
	for _, see := range c.onLost {
		see(f)
	}
}

// look samples the qdiscs' backlogs.
func (c *modelCard) look() {
	for q := range c.backlog {
		c.backlog[q].add(uint64(c.stack.Qdisc(q).Backlog))
	}
	c.stack.Eng.After(&c.sample, modelSamplePeriod)
}

// modelSamplePeriod is how often backlogs are looked at; reading one costs a run
// next to nothing.
const modelSamplePeriod = engine.Millisecond

// at has fn called at a time from the start.
func (m *model) at(t units.Duration, fn func()) {
	timer := &engine.Timer{}
	m.eng.Init(timer, fn)
	m.eng.At(timer, engine.Time(t))
}

// schedule arms everything that happens at a time of its own and returns when
// the case is over.
func (m *model) schedule() engine.Time {
	for i := range m.s.Links {
		l := &m.s.Links[i]
		for _, step := range l.Steps {
			m.at(step.At, func() { m.setRate(l, step.Rate) })
		}
	}
	end := units.Duration(0)
	for i, l := range m.loads {
		w := &m.s.Workloads[i]
		m.at(w.Start, func() { l.start(); m.share() })
		m.at(w.Start+w.Duration, func() { l.stop(); m.share() })
		end = max(end, w.Start+w.Duration)
	}
	if len(m.loads) == 0 {
		end = m.s.Duration
	}
	for _, c := range m.cards {
		m.eng.After(&c.sample, modelSamplePeriod)
	}
	return engine.Time(end)
}

// results are the workloads' by name.
func (m *model) results() map[string]*workload.Result {
	named := map[string]*workload.Result{}
	for i, l := range m.loads {
		named[m.s.Workloads[i].Name] = l.result()
	}
	return named
}

// result reads a card off.
func (c *modelCard) result() *NIC {
	n := nicResult(c.spec.Device, c.stack.NIC)
	if c.out != nil {
		n.drop("link_loss", c.out.lost)
	}
	n.readModel(c.legs)
	return n
}

// readModel adds what only runs on models know.
func (n *NIC) readModel(legs *stack.Legs) {
	for _, l := range legs[:stack.Total] {
		n.LegsNs = append(n.LegsNs, report.Leg{Name: l.Name, From: l.From, To: l.To, Percentiles: report.PercentilesOf(l.Histogram.Histogram)})
	}
}

// qdiscResults are the card's qdiscs as `tc -j -s qdisc show` has them, one for
// each transmit queue.
func (c *modelCard) qdiscResults() []map[string]any {
	var all []map[string]any
	for q := range c.backlog {
		m := qdiscResult(c.stack, q, &c.backlog[q])
		m["netns"], m["dev"] = c.spec.Netns, c.spec.Name
		all = append(all, m)
	}
	return all
}

// qdiscResult are the counters of one queue's qdisc model, in tc's spelling.
func qdiscResult(s *stack.Stack, q int, b *backlog) map[string]any {
	m := asMap(s.Qdisc(q))
	m["queue"], m["model"], m["backlog_mean"], m["backlog_max"] = q, true, b.mean(), b.max
	return m
}

// audit checks the laws of the card, of the stack above it and of the wire
// behind it.
func (c *modelCard) audit() error {
	if err := c.stack.Audit(); err != nil {
		return err
	}
	if c.out != nil {
		return c.out.audit()
	}
	return nil
}
