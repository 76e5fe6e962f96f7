package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/emulator"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
	"nicemu/lab"
	"nicemu/scenarios/format"
)

// topology is a case's namespaces, cards and links, alive from build to Close.
type topology struct {
	ns    map[string]*netns.NS
	loop  *emulator.Loop
	cards []*card
	stop  context.CancelFunc
	done  chan struct{} // closed when the loop has ended
	err   error         // why it ended; read after done
}

// card is one emulated card with its place in the scenario.
type card struct {
	*emulator.Card
	spec *format.NIC
	ns   *netns.NS
}

// build makes everything and starts the live loop. On an error nothing is left.
func build(ctx context.Context, s *format.Scenario, traces Traces, o *Options) (t *topology, err error) {
	t = &topology{ns: map[string]*netns.NS{}, stop: func() {}, done: make(chan struct{})}
	close(t.done)
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	for _, n := range s.Netns {
		// The process number keeps runs side by side apart.
		ns, err := netns.Create(fmt.Sprintf("%d-%s", os.Getpid(), n.Name))
		if err != nil {
			return t, err
		}
		t.ns[n.Name] = ns
	}
	newLoop := emulator.NewLoop
	if o.Virtual {
		newLoop = emulator.NewVirtualLoop
	}
	if t.loop, err = newLoop(uint64(s.Seed)); err != nil {
		return t, err
	}
	for i := range s.NICs {
		if err := t.addCard(ctx, s, traces, &s.NICs[i], o.Way); err != nil {
			return t, fmt.Errorf("nic %s: %w", s.NICs[i].ID(), err)
		}
	}
	for i := range s.Links {
		t.connect(&s.Links[i])
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	t.done = make(chan struct{})
	go func() {
		defer close(t.done)
		t.err = t.loop.Run(run)
	}()
	return t, nil
}

func (t *topology) addCard(ctx context.Context, s *format.Scenario, traces Traces, spec *format.NIC, way emulator.Way) error {
	d, err := deviceOf(spec)
	if err != nil {
		return err
	}
	if spec.MTU > d.MaxMTU {
		return fmt.Errorf("mtu is %d; expected at most %d, which is all that %s's driver takes", spec.MTU, d.MaxMTU, d.Name)
	}
	traces.attach(s, spec, d)
	ns := t.ns[spec.Netns]
	csum := spec.Csum && d.CSUM
	cfg := tap.Config{
		Name: spec.Name, Queues: d.Config.Queues, MTU: spec.MTU, Csum: csum, TSO: spec.TSO && d.TSO && csum,
		Speed: int(rate(s, spec, d) / units.Mbit), Addrs: spec.Addr,
	}
	c, err := t.loop.NewTAPCard(ns, cfg, d, way)
	if err != nil {
		return err
	}
	k := &card{Card: c, spec: spec, ns: ns}
	t.cards = append(t.cards, k)
	for _, line := range spec.TCCommands() {
		if err := TC(ctx, ns, line, "--kernel lab"); err != nil {
			return err
		}
	}
	return c.TakeQdisc()
}

// rate is that of the card's link, as Loop.Connect will set it.
func rate(s *format.Scenario, spec *format.NIC, d *nic.Device) units.Rate {
	for i := range s.Links {
		if l := &s.Links[i]; l.Rate > 0 && slices.Contains(l.Ends, spec.ID()) {
			return l.Rate
		}
	}
	return d.Config.Link.Rate
}

// configure turns the knobs that the scenario names.
func configure(d *nic.Device, spec *format.NIC) error {
	if err := d.Set("queues", fmt.Sprint(spec.Queues)); err != nil {
		return err
	}
	for _, key := range d.Keys() { // in the device's order, so that a run does not depend on a map's
		if v, ok := spec.Set[key]; ok {
			if err := d.Set(key, fmt.Sprint(v)); err != nil {
				return err
			}
		}
	}
	return d.Check()
}

// TC runs one tc command in a namespace as a person would type it, without the
// "tc". A refusal is a *KernelError; its remedy for a qdisc that only the lab
// kernel has says useLab.
func TC(ctx context.Context, ns *netns.NS, args []string, useLab string) error {
	out, err := ns.Command(ctx, append([]string{"tc"}, args...)...).CombinedOutput()
	if err == nil {
		return nil
	}
	line := "tc " + strings.Join(args, " ")
	said := strings.TrimSpace(string(out))
	kind := qdiscKind(args)
	switch noKernel, noTC := strings.Contains(said, "qdisc kind is unknown"), strings.Contains(said, "Unknown qdisc"); {
	case (noKernel || noTC) && !lab.HasQdisc(kind):
		return &KernelError{
			What:   fmt.Sprintf("`%s`: unknown qdisc %q: neither this kernel nor the lab kernel has one of that kind", line, kind),
			Remedy: "expected one of " + strings.Join(lab.Qdiscs(), ", "),
		}
	case noKernel:
		return &KernelError{
			What:   fmt.Sprintf("`%s`: this kernel lacks that qdisc (%s)", line, firstLine(said)),
			Remedy: fmt.Sprintf("`nicemu doctor` lists what is there; load its module (modprobe sch_%s), or use the lab kernel, which has it (%s)", kind, useLab),
		}
	}
	return &KernelError{What: fmt.Sprintf("`%s`: %s", line, said), Err: err}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSuffix(line, ".")
}

func (t *topology) connect(l *format.Link) {
	cfg := emulator.LinkConfig{Rate: int64(l.Rate), Delay: engine.Time(l.Delay), Loss: l.Loss.Fraction()}
	t.loop.Connect(t.card(l.Ends[0]).Card, t.card(l.Ends[1]).Card, cfg)
}

func (t *topology) card(id string) *card {
	for _, c := range t.cards {
		if c.spec.ID() == id {
			return c
		}
	}
	panic("scenarios: no card " + id) // the format checked the reference
}

// halt stops the live loop and returns its error. Afterwards models may be
// read directly.
func (t *topology) halt() error {
	t.stop()
	<-t.done
	return t.err
}

// Close removes everything, in the reverse order of building.
func (t *topology) Close() error {
	errs := []error{t.halt()}
	for _, c := range t.cards {
		errs = append(errs, c.Close())
	}
	for _, ns := range t.ns {
		errs = append(errs, ns.Delete())
	}
	if t.loop != nil {
		errs = append(errs, t.loop.Close())
	}
	return errors.Join(errs...)
}
