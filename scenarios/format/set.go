package format

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// assignment gives a key of a scenario another value.
type assignment struct {
	key   string
	value any
	text  string // as typed on a command line, else empty
	from  origin
}

// settable names what can be assigned and swept.
const settable = "seed, duration, run.KEY, nic.KEY, nic.NAME.KEY, link.KEY, link.END.KEY, workload.KEY or workload.NAME.KEY"

// fixed are keys that tie the parts of a scenario together; a scenario with
// others is another scenario.
var fixed = map[string][]string{
	"nic":      {"name", "netns", "set"},
	"link":     {"ends", "steps"},
	"workload": {"name", "kind", "from", "to", "command"},
}

// Set changes values, each "KEY=VALUE" as for the command line's --set:
//
//	duration=10s  seed=7  run.backpressure=gate
//	nic.KEY=…       a key or a device knob of every NIC, e.g. nic.bql=true, nic.ring.tx=256
//	nic.NAME.KEY=…  of one NIC, by name or as netns/name
//	link.KEY=…, link.END.KEY=…, workload.KEY=…, workload.NAME.KEY=…
//
// A key that is swept is no longer: its one value is the given one. All
// assignments are made before the result is checked; on an error s is as before.
func (s *Scenario) Set(assignments ...string) error {
	next := s.clone()
	var errs Errors
	for _, text := range assignments {
		key, value, ok := strings.Cut(text, "=")
		key = strings.TrimSpace(key)
		if !ok {
			errs = append(errs, &Error{Set: key, Problem: "no value", Expected: "KEY=VALUE"})
			continue
		}
		a := assignment{key, readValue(value), value, origin{set: key}}
		if axis := next.Sweep.axis(key); axis != nil {
			axis.Values, axis.text = []any{a.value}, a.text
			next.origins[element(axis.path, 0)] = a.from
			continue
		}
		next.assignments = append(next.assignments, a)
		errs = append(errs, next.apply(a)...)
	}
	if len(errs) == 0 {
		errs = next.check()
	}
	if err := errs.orNil(); err != nil {
		return err
	}
	*s = *next
	return nil
}

// readValue reads what TOML would read, and takes everything else as text: nobody quotes 1gbit for a shell.
func readValue(text string) any {
	text = strings.TrimSpace(text)
	var doc map[string]any
	if !strings.ContainsAny(text, "\n\r#") && toml.Unmarshal([]byte("v = "+text), &doc) == nil && len(doc) == 1 {
		switch v := doc["v"].(type) {
		case bool, int64, float64, string, []any:
			return v
		}
	}
	return text
}

func (s *Scenario) clone() *Scenario {
	c := *s
	c.NICs = slices.Clone(s.NICs)
	c.Links = slices.Clone(s.Links)
	c.Workloads = slices.Clone(s.Workloads)
	c.Sweep = slices.Clone(s.Sweep)
	c.assignments = slices.Clip(s.assignments)
	c.origins = maps.Clone(s.origins)
	return &c
}

// apply makes one assignment without checking what it means for the whole.
func (s *Scenario) apply(a assignment) Errors {
	t := target{scenario: s, assignment: a}
	head, rest, _ := strings.Cut(a.key, ".")
	switch head {
	case "seed", "duration":
		if rest == "" {
			t.field(head, reflect.ValueOf(s).Elem(), head)
			return t.errs
		}
	case "run":
		t.field("run", reflect.ValueOf(&s.Run).Elem(), rest)
		return t.errs
	case "nic":
		t.nics(rest)
		return t.errs
	case "link":
		t.links(rest)
		return t.errs
	case "workload":
		t.workloads(rest)
		return t.errs
	}
	t.fail(&fault{"unknown key " + quoted(a.key), settable, nearest(head, []string{"seed", "duration", "run", "nic", "link", "workload"})})
	return t.errs
}

// target collects what one assignment touches.
type target struct {
	scenario *Scenario
	assignment
	errs Errors
}

func (t *target) fail(f *fault) {
	t.errs = append(t.errs, t.scenario.errorFrom(t.from, f))
}

func (t *target) nics(rest string) {
	s := t.scenario
	var named []int
	key := rest
	for i := range s.NICs {
		n := &s.NICs[i]
		if k, ok := strings.CutPrefix(rest, n.ID()+"."); ok {
			named, key = append(named, i), k
		} else if k, ok := strings.CutPrefix(rest, n.Name+"."); ok {
			named, key = append(named, i), k
		}
	}
	if len(named) > 1 {
		n := &s.NICs[named[0]]
		t.fail(&fault{fmt.Sprintf("more than one NIC is called %s", n.Name), fmt.Sprintf("its namespace too, e.g. nic.%s.%s", n.ID(), key), ""})
		return
	}
	if len(named) == 0 {
		if name, ok := t.noSuchNIC(rest); ok {
			var ids []string
			for i := range s.NICs {
				ids = append(ids, s.NICs[i].ID())
			}
			t.fail(&fault{"there is no NIC " + quoted(name), "one of " + strings.Join(ids, ", "), nearest(name, ids)})
			return
		}
		for i := range s.NICs {
			named = append(named, i)
		}
	}
	for _, i := range named {
		t.nic(i, key)
	}
}

// noSuchNIC says whether rest is the name of a NIC, none of the scenario's, and
// a key: no knob has a slash, and of "eth9.ring.tx" only the end is one.
func (t *target) noSuchNIC(rest string) (name string, ok bool) {
	name, key, two := strings.Cut(rest, ".")
	if !two || name == "set" {
		return name, false
	}
	if strings.Contains(name, "/") {
		return name, true
	}
	known := func(key string) bool {
		_, field := fieldsOf(reflect.TypeFor[NIC]())[key]
		return field || t.scenario.opts.CheckKnob != nil && slices.ContainsFunc(t.scenario.NICs, func(n NIC) bool {
			return t.scenario.opts.CheckKnob(n.Device, key, t.value) == nil
		})
	}
	return name, !known(rest) && known(key)
}

// nic sets a key of one card, or a knob of its device.
func (t *target) nic(i int, key string) {
	n, path := &t.scenario.NICs[i], element("nic", i)
	v := reflect.ValueOf(n).Elem()
	if _, ok := fieldsOf(v.Type())[key]; ok {
		t.field(path, v, key)
		return
	}
	if k, ok := strings.CutPrefix(key, "set."); ok {
		t.fail(&fault{"knobs are set without the word set", "nic.KEY", "nic." + k})
		return
	}
	if key == "" {
		t.fail(&fault{"no key after nic", settable, ""})
		return
	}
	if f := scalar(t.value); f != nil {
		t.fail(&fault{key + ": " + f.problem, f.expected, ""})
		return
	}
	n.Set = maps.Clone(n.Set)
	if n.Set == nil {
		n.Set = Knobs{}
	}
	n.Set[key] = t.value
	t.scenario.origins[join(join(path, "set"), key)] = t.from
}

func (t *target) links(rest string) {
	s := t.scenario
	for i := range s.Links {
		for _, end := range s.Links[i].Ends {
			if key, ok := strings.CutPrefix(rest, end+"."); ok {
				t.field(element("link", i), reflect.ValueOf(&s.Links[i]).Elem(), key)
				return
			}
		}
	}
	if len(s.Links) == 0 {
		t.fail(&fault{"the scenario has no link", "a [[link]]", ""})
		return
	}
	if end, _, two := strings.Cut(rest, "."); two {
		var ends []string
		for i := range s.Links {
			ends = append(ends, s.Links[i].Ends...)
		}
		t.fail(&fault{"no link ends at " + quoted(end), "one of " + strings.Join(ends, ", "), nearest(end, ends)})
		return
	}
	for i := range s.Links {
		t.field(element("link", i), reflect.ValueOf(&s.Links[i]).Elem(), rest)
	}
}

func (t *target) workloads(rest string) {
	s := t.scenario
	for i := range s.Workloads {
		if key, ok := strings.CutPrefix(rest, s.Workloads[i].Name+"."); ok {
			t.field(element("workload", i), reflect.ValueOf(&s.Workloads[i]).Elem(), key)
			return
		}
	}
	if name, _, two := strings.Cut(rest, "."); two {
		var names []string
		for i := range s.Workloads {
			names = append(names, s.Workloads[i].Name)
		}
		t.fail(&fault{"there is no workload " + quoted(name), "one of " + strings.Join(names, ", "), nearest(name, names)})
		return
	}
	touched := false
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.Kind.has(rest) {
			touched = true
			t.field(element("workload", i), reflect.ValueOf(w).Elem(), rest)
		}
	}
	if !touched {
		t.fail(&fault{"no workload has the key " + quoted(rest), "workload.KEY or workload.NAME.KEY, KEY one of " + strings.Join(allKindKeys(), ", "), nearest(rest, allKindKeys())})
	}
}

// field assigns to one field of a struct.
func (t *target) field(path string, v reflect.Value, key string) {
	place, _, _ := strings.Cut(path, "[")
	i, ok := fieldsOf(v.Type())[key]
	if !ok || slices.Contains(fixed[place], key) {
		names := slices.DeleteFunc(fieldNames(v.Type()), func(n string) bool { return slices.Contains(fixed[place], n) })
		t.fail(&fault{fmt.Sprintf("%s has no key %s that can be set", place, quoted(key)), "one of " + strings.Join(names, ", "), nearest(key, names)})
		return
	}
	at := join(path, key)
	if path == key {
		at = key
	}
	raw := t.value
	if _, isText := raw.(string); !isText && t.text != "" && wantsText(v.Field(i).Type()) {
		raw = strings.TrimSpace(t.text)
	}
	d := decoder{
		fail:  func(_ string, f *fault) { t.fail(f) },
		order: func(string) int { return 0 },
	}
	d.value(at, key, raw, v.Field(i))
	t.scenario.origins[at] = t.from
}

// wantsText says whether a field is written in quotes in a file.
func wantsText(t reflect.Type) bool {
	return t.Kind() == reflect.String ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
