package scenarios

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"nicemu/devices"
	"nicemu/devices/nic"
	"nicemu/scenarios/format"
	"nicemu/scenarios/reproduce"
)

// Setup is what a case ran, with every value filled in: one card of a what-if,
// or the cards and links of a scenario. It is the same on every kernel, but for
// TCP, which only models have.
type Setup struct {
	*CardSetup                     // simulate only
	NICs       map[string]NICSetup `json:"nics,omitempty"` // by netns/name
	Links      []LinkSetup         `json:"links,omitempty"`
	DurationNs int64               `json:"duration_ns"`
	WarmupNs   int64               `json:"warmup_ns,omitempty"` // simulate only: rates and delays are measured from then on
	Workloads  map[string]string   `json:"workloads"`
	TCP        *TCPSetup           `json:"tcp,omitempty"` // models of TCP only

	short map[string]string // workloads without what has its default
}

// CardSetup is the card of a what-if.
type CardSetup struct {
	Device  string            `json:"device"`
	Set     map[string]string `json:"set"` // knobs turned, as the driver has rounded them
	Qdisc   string            `json:"qdisc"`
	RateBPS int64             `json:"rate_bps"` // of the link
}

// NICSetup is a card of a scenario.
type NICSetup struct {
	Device  string            `json:"device"`
	Set     map[string]string `json:"set"` // knobs turned, as the driver has rounded them
	TC      []string          `json:"tc"`  // commands
	RateBPS int64             `json:"rate_bps"`
	Queues  int               `json:"queues"`
	MTU     int               `json:"mtu"`
	TSO     bool              `json:"tso"`
	Csum    bool              `json:"csum"`
}

// LinkSetup is a link of a scenario.
type LinkSetup struct {
	Ends    []string    `json:"ends"`
	RateBPS int64       `json:"rate_bps,omitempty"` // 0 = the cards' or the trace's
	DelayNs int64       `json:"delay_ns"`
	Loss    float64     `json:"loss,omitempty"` // share of frames
	Steps   []StepSetup `json:"steps,omitempty"`
	Trace   string      `json:"trace,omitempty"` // file
}

// StepSetup is a change of a link's rate.
type StepSetup struct {
	AtNs    int64 `json:"at_ns"`
	RateBPS int64 `json:"rate_bps"`
}

// TCPSetup is the free parameter of the model of TCP.
type TCPSetup struct {
	PacingNs int64  `json:"pacing_ns"` // what a flow has below itself, in time at its share of the link
	Source   string `json:"source"`
}

var tcpSetup = TCPSetup{int64(reproduce.TCPPacingTime), "fitted to " + reproduce.TCPPacing.FittedTo}

// setupOf fills in what the scenario of a case says. Its cards can be made: the
// caller has made them.
func setupOf(s *format.Scenario) (*Setup, error) {
	u := &Setup{NICs: map[string]NICSetup{}, DurationNs: int64(s.Duration), Workloads: map[string]string{}}
	for i := range s.NICs {
		spec := &s.NICs[i]
		d, err := deviceOf(spec)
		if err != nil {
			return nil, err
		}
		n := NICSetup{
			Device: spec.Device, Set: d.Given(), TC: []string{}, RateBPS: int64(rate(s, spec, d)),
			Queues: spec.Queues, MTU: spec.MTU, TSO: spec.TSO, Csum: spec.Csum,
		}
		delete(n.Set, "queues") // set for every card
		for _, args := range spec.TCCommands() {
			n.TC = append(n.TC, strings.Join(args, " "))
		}
		u.NICs[spec.ID()] = n
	}
	for i := range s.Links {
		l := &s.Links[i]
		x := LinkSetup{Ends: l.Ends, RateBPS: int64(l.Rate), DelayNs: int64(l.Delay), Loss: l.Loss.Fraction(), Trace: l.Trace}
		for _, step := range l.Steps {
			x.Steps = append(x.Steps, StepSetup{int64(step.At), int64(step.Rate)})
		}
		u.Links = append(u.Links, x)
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		u.Workloads[w.Name] = spellWorkload(w)
	}
	return u, nil
}

// deviceOf is the card of spec with its knobs turned.
func deviceOf(spec *format.NIC) (*nic.Device, error) {
	d, err := devices.New(spec.Device)
	if err != nil {
		return nil, err
	}
	return d, configure(d, spec)
}

// spellWorkload is a workload as simulate's are spelled, with the file's keys.
func spellWorkload(w *format.Workload) string {
	var parts []string
	v := reflect.ValueOf(*w)
	for i := range v.NumField() {
		key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("toml"), ",")
		if f := v.Field(i); key != "name" && key != "kind" && !f.IsZero() {
			parts = append(parts, fmt.Sprintf("%s=%v", key, f.Interface()))
		}
	}
	return string(w.Kind) + ":" + strings.Join(parts, ",")
}

// isTCP reports whether a workload is bulk TCP.
func isTCP(w *format.Workload) bool { return w.Kind == format.KindIperf3 && w.Proto != format.UDP }

// orphanNotes say of each bulk TCP workload that sends through a TAP without BQL
// why its figures are not a card's.
func orphanNotes(s *format.Scenario) (notes []string) {
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if isTCP(w) && slices.ContainsFunc(s.NICs, func(n format.NIC) bool {
			peer := s.Peer(&n)
			if n.Netns != w.From || peer == nil || peer.Netns != w.TargetNetns() {
				return false
			}
			d, err := deviceOf(&n)
			return err == nil && !d.Config.BQL.On
		}) {
			notes = append(notes, fmt.Sprintf("workload %s: latency without BQL is an upper bound: a TAP orphans the sk_buff, so TCP small queues does not count what is in the ring", w.Name))
		}
	}
	return notes
}

func (r *Result) note(notes ...string) {
	for _, n := range notes {
		if !slices.Contains(r.Notes, n) {
			r.Notes = append(r.Notes, n)
		}
	}
}
