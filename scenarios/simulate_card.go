package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// CardOptions are a what-if of one card: which, under which qdisc, with what to
// send. All values are as on the command line.
type CardOptions struct {
	Device    string
	Set       []string // KNOB=VALUE
	Workloads []string // see SpecHelp; none = as much as one sender can
	Qdisc     string   // none, fifo, fifo:PACKETS, or as tc spells it; empty = fifo:1000
	Rate      string   // of the link; empty = the card's
	Duration  units.Duration
	Sweep     []string // KEY=VALUE,VALUE,…
	Seed      uint64
	Progress  *Progress
}

// SimulateCard runs a what-if in virtual time, one case for each combination of
// the sweep.
func SimulateCard(ctx context.Context, o CardOptions) (*Result, error) {
	cases, err := o.cases()
	if err != nil {
		return nil, err
	}
	for i := range cases {
		if _, err := newCardRun(&cases[i]); err != nil {
			return nil, cases[i].where(err)
		}
	}
	runs := make([]modelRun, len(cases))
	err = eachCase(ctx, len(cases), o.Progress, func(i int) error {
		r, err := newCardRun(&cases[i])
		if err == nil {
			runs[i], err = r.run(ctx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &Result{
		Schema: 1, Scenario: "simulate", Seed: int64(o.Seed), Verdict: VerdictOK, Reasons: []string{}, Notes: []string{},
		Kernel: report.Kernel{Mode: string(format.KernelModel), Reason: "simulate has no kernel: card, qdisc and traffic are models"},
		Clock:  "virtual", Backpressure: "none", Laws: report.Laws{Violations: []string{}},
	}
	for i := range runs {
		r.take(&runs[i])
	}
	r.JudgeLaws()
	return r, nil
}

// cardRun is one case under way.
type cardRun struct {
	*cardCase
	eng    *engine.Engine
	device *nic.Device
	rate   units.Rate // of the link
	warmup engine.Time
	stack  *stack.Stack
	legs   *stack.Legs
	loads  []*cardMeter

	backlog []backlog
	sample  engine.Timer
	sent    nic.Count // up to the end of the warm-up
	packets uint64
}

// newCardRun builds everything and starts nothing.
func newCardRun(c *cardCase) (*cardRun, error) {
	r := &cardRun{cardCase: c, eng: engine.New(c.Seed), legs: stack.NewLegs()}
	if err := r.build(); err != nil {
		return nil, err
	}
	r.backlog = make([]backlog, r.stack.NIC.Queues())
	r.warmup = engine.Time(min(c.Duration/10, units.Second))
	return r, r.makeLoads()
}

func (r *cardRun) build() (err error) {
	if r.device, err = devices.Configured(r.Device, r.Set); err != nil {
		return err
	}
	root, err := parseCardQdisc(r.Qdisc)
	if err != nil {
		return err
	}
	r.stack, err = stack.New(r.eng, nic.NewCPU(r.eng), r.device, func(int) qdisc.Qdisc { return root() })
	if err != nil {
		return err
	}
	if r.rate = r.device.Config.Link.Rate; r.Rate != "" {
		if r.rate, err = units.ParseRate(r.Rate); err != nil {
			return err
		}
		if r.rate < 1000 || r.rate > maxSpecRate {
			return fmt.Errorf("rate %s: expected 1kbit to 1tbit", r.Rate)
		}
		if fastest := r.device.MaxRate(); r.rate > fastest {
			return fmt.Errorf("rate %s: expected at most %v, the fastest link of device %s", r.Rate, fastest, r.Device)
		}
		r.stack.NIC.SetRate(int64(r.rate))
	}
	if r.Duration < units.Millisecond {
		return fmt.Errorf("duration %v: expected at least 1ms", r.Duration)
	}
	return nil
}

// makeLoads makes the workloads' sources.
func (r *cardRun) makeLoads() error {
	if len(r.specs) == 0 {
		kind := "udp"
		if r.device.TSO {
			kind = "tso"
		}
		specs, err := parseSpecs([]string{kind})
		if err != nil {
			return err
		}
		r.specs = specs
	}
	for i := range r.specs {
		spec := &r.specs[i]
		v := &specValues{spec: spec}
		m := &cardMeter{name: spec.Name, cardLoad: spec.kind.make(v, r)}
		if v.err != nil {
			return fmt.Errorf("workload %s: %w", spec.short(), v.err)
		}
		r.loads = append(r.loads, m)
	}
	r.share()
	return nil
}

// share gives the TCP flows what is left of the link: the same to every queue
// that has flows, and to every flow of a queue.
func (r *cardRun) share() {
	left := float64(r.rate) / 8
	flows := map[int]int{}
	for _, m := range r.loads {
		left -= m.wireRate
		if m.sharing != nil {
			for _, q := range m.sharing.Queues {
				flows[q]++
			}
		}
	}
	left = max(left, float64(r.rate)/8/100)
	for _, m := range r.loads {
		if m.sharing == nil {
			continue
		}
		full := tcpPayload + m.headers
		payload := tcpPayload / float64(r.wire(full))
		for i, q := range m.sharing.Queues {
			m.sharing.Rates[i] = left * payload / float64(len(flows)) / float64(flows[q])
			if limit := m.sharing.Limit; limit > 0 {
				m.sharing.Rates[i] = min(m.sharing.Rates[i], float64(limit)/8)
			}
		}
	}
}

const tcpPayload = mtu - ipv4 - tcpHdr

// run carries the case out and reads everything off.
func (r *cardRun) run(ctx context.Context) (run modelRun, err error) {
	r.stack.OnComplete(func(f *nic.Frame) {
		if r.eng.Now() >= r.warmup {
			r.legs.Sent(f)
		}
	})
	for _, m := range r.loads {
		m.watch(r.stack)
	}
	r.eng.Init(&r.sample, r.look)
	if err := advance(ctx, r.eng, r.warmup); err != nil {
		return run, err
	}
	for _, m := range r.loads {
		m.on = true
	}
	r.sent, r.packets = r.stack.NIC.Stats().Sent, r.stack.NIC.Total().Packets
	r.look()
	if err := advance(ctx, r.eng, engine.Time(r.Duration)); err != nil {
		return run, err
	}
	return r.result(), nil
}

func (r *cardRun) look() {
	for q := range r.backlog {
		r.backlog[q].add(uint64(r.stack.Qdisc(q).Backlog))
	}
	r.eng.After(&r.sample, min(modelSamplePeriod, engine.Time(r.Duration)/100))
}

// measured is how long rates were measured, in seconds.
func (r *cardRun) measured() float64 {
	return float64(engine.Time(r.Duration)-r.warmup) / float64(engine.Second)
}

func (r *cardRun) result() modelRun {
	n := nicResult(r.Device, r.stack.NIC)
	n.readModel(r.legs)
	n.ThroughputBPS = float64(n.SentBytes-r.sent.Bytes) * 8 / r.measured()
	n.PPS = float64(n.SentPackets-r.packets) / r.measured()
	n.CPUBusyNs = int64(r.stack.CPU.Busy())
	c := &Case{
		Params: r.params, VirtualS: float64(r.Duration) / float64(units.Second), title: r.title,
		Workloads: map[string]*workload.Result{}, NICs: map[string]*NIC{r.Device: n},
		Qdiscs: []map[string]any{}, Expectations: []Expectation{}, Setup: r.setup(),
	}
	for q := range r.backlog {
		m := qdiscResult(r.stack, q, &r.backlog[q])
		m["dev"] = r.Device
		c.Qdiscs = append(c.Qdiscs, m)
	}
	run := modelRun{c: c, audited: 1}
	for _, m := range r.loads {
		c.Workloads[m.name] = m.result(r.measured())
		if m.early > 0 && m.earliest > engine.Microsecond {
			run.notes = append(run.notes, where(c, fmt.Sprintf("%s: %d frames started before their launch time, by up to %s: this card as it is set does not wait for launch times",
				m.name, m.early, report.Ns(int64(m.earliest)))))
		}
	}
	if err := r.stack.Audit(); err != nil {
		run.violations = append(run.violations, err.Error())
	}
	return run
}

func (m *cardMeter) result(seconds float64) *workload.Result {
	goodput, pps := float64(m.payload)*8/seconds, float64(m.packets)/seconds
	return &workload.Result{
		Kind: format.Kind(strings.SplitN(m.name, "-", 2)[0]), GoodputBPS: &goodput, PPS: &pps, Lost: &m.lost,
		LatencyNS: report.LatencyOf(m.hist, m.between),
	}
}

func (r *cardRun) setup() *Setup {
	s := &Setup{
		CardSetup:  &CardSetup{Device: r.Device, Set: r.device.Given(), Qdisc: r.Qdisc, RateBPS: int64(r.rate)},
		DurationNs: int64(r.Duration), WarmupNs: int64(r.warmup), Workloads: map[string]string{}, short: map[string]string{},
	}
	if s.Qdisc == "" {
		s.Qdisc = defaultCardQdisc
	}
	for i := range r.specs {
		spec := &r.specs[i]
		s.Workloads[spec.Name], s.short[spec.Name] = spec.String(), spec.short()
		if r.loads[i].sharing != nil {
			s.TCP = &tcpSetup
		}
	}
	return s
}

// defaultCardQdisc stands before each queue of a what-if unless another is named.
const defaultCardQdisc = "fifo:1000"

// noLimit is the frames that wait before a card without a qdisc: more than a
// what-if's senders have, but for talkers beyond the speed of the link.
const noLimit = 1 << 20

// parseCardQdisc reads what stands before each transmit queue: none (senders
// wait), fifo, fifo:PACKETS, or a kind and its options as tc spells them, and
// returns what makes one.
func parseCardQdisc(text string) (func() qdisc.Qdisc, error) {
	if text == "" {
		text = defaultCardQdisc
	}
	kind, limit, limited := strings.Cut(text, ":")
	switch {
	case text == "none":
		return func() qdisc.Qdisc { return qdisc.NewPFIFO(noLimit) }, nil
	case kind == "fifo" && limited:
		return qdisc.ParseTC([]string{"pfifo", "limit", limit})
	case kind == "fifo":
		return qdisc.ParseTC([]string{"pfifo"})
	}
	root, err := qdisc.ParseTC(strings.Fields(text))
	var unknown *qdisc.NoModelError
	if errors.As(err, &unknown) {
		err = fmt.Errorf("%w, or none, fifo, fifo:PACKETS", err)
	}
	return root, err
}
