package scenarios

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"nicemu/devices/nic"
	"nicemu/replay/trace"
	"nicemu/scenarios/format"
)

// Traces are the rate traces that a scenario's links follow, in any case, by file.
type Traces map[string]*trace.Trace

// OpenTraces reads the traces of s, each once. Errors are *trace.SyntaxError for
// what is in a trace, and name the key's place in s if its file cannot be read.
func OpenTraces(s *format.Scenario) (Traces, error) {
	traces := Traces{}
	for _, p := range s.Cases() {
		for i, l := range p.Scenario.Links {
			if l.Trace == "" || traces[l.Trace] != nil {
				continue
			}
			t, err := trace.Open(l.Trace)
			var syntax *trace.SyntaxError
			if err != nil && !errors.As(err, &syntax) {
				err = p.Scenario.Fault(fmt.Sprintf("link[%d].trace", i), "trace: "+err.Error(), "a file in mahimahi's format")
			}
			if err != nil {
				return nil, err
			}
			traces[l.Trace] = t
		}
	}
	return traces, nil
}

// Warnings are what is legal in the traces and yet unlikely to be meant.
func (t Traces) Warnings() (all []trace.Warning) {
	for _, file := range slices.Sorted(maps.Keys(t)) {
		all = append(all, t[file].Warnings()...)
	}
	return all
}

// attach has d, which is to be the card of spec, follow the trace of its link.
func (t Traces) attach(s *format.Scenario, spec *format.NIC, d *nic.Device) {
	for i := range s.Links {
		if l := &s.Links[i]; l.Trace != "" && slices.Contains(l.Ends, spec.ID()) {
			trace.NewLink(t[l.Trace]).Attach(d)
		}
	}
}
