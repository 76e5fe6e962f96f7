package scenarios

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nicemu/devices/units"
	"nicemu/scenarios/reproduce"
)

// cardSpec is one workload of a what-if: KIND or KIND:key=value,key=value,…, as for
// the command line. [SpecHelp] says what there is.
type cardSpec struct {
	Name   string // the kind, with a number from the second of a kind on
	kind   *specKind
	values map[string]string
}

// specKind is a kind of workload with the keys that it has.
type specKind struct {
	name, doc string
	keys      []specKey
	make      func(v *specValues, r *cardRun) cardLoad
}

// specKey is one key. Its default stands where none is given; a flag has no
// value.
type specKey struct {
	name, def, doc string
	example        string // where there is no default
	flag           bool
}

var queueKey = specKey{name: "queue", def: "0", doc: "transmit queue"}

// specKinds is all kinds. It is a function, since their makers know [Spec].
func specKinds() []specKind {
	return []specKind{
		{"pktgen", "the kernel's packet generator: past the qdisc, only a full ring stops it; each frame costs cpu.xmit", []specKey{
			{name: "size", def: "60b", doc: "frame without FCS"}, queueKey, {name: "burst", def: "1", doc: "frames behind one doorbell"},
		}, makePktgen},
		{"udp", "datagrams at a constant rate from one socket, as iperf3 -u", []specKey{
			{name: "rate", def: "unlimited", doc: "of payload; unlimited = as its socket's send buffer lets it"},
			{name: "size", def: "1470b", doc: "payload of a datagram"}, queueKey,
		}, makeUDP},
		{"tcp", "bulk TCP flows as the layers below TCP see them (no windows, no loss recovery);\n" +
			"            TCP small queues lets each flow have " + reproduce.TCPPacing.Value + " at its share of the link below itself,\n" +
			"            fitted to " + reproduce.TCPPacing.FittedTo, []specKey{
			{name: "flows", def: "1", doc: "how many"}, {name: "queue", def: "hash", doc: "transmit queue of all, or by hash"},
			{name: "rate", def: "unlimited", doc: "of payload that the program writes to each flow"},
		}, makeTCP},
		{"tso", "one sender of GSO frames that keeps the qdisc supplied", []specKey{
			{name: "size", def: "65160b", doc: "payload of a GSO frame"}, queueKey,
		}, makeTSO},
		{"talker", "one frame an interval, as a TSN application", []specKey{
			{name: "interval", example: "125us", doc: "from one to the next"}, {name: "size", def: "1514b", doc: "frame without FCS"}, queueKey,
			{name: "launch", flag: true, doc: "frames carry their time as launch time (SO_TXTIME)"},
			{name: "offset", def: "0ns", doc: "of the times within the interval"},
			{name: "ahead", def: "500us", doc: "with launch: handed over so long before (etf's delta)"},
		}, makeTalker},
		{"rr", "request and response, one after the other; the card sees the request", []specKey{
			{name: "interval", def: "0ns", doc: "from one request to the next; 0ns = back to back"},
			{name: "size", def: "1b", doc: "payload of the request"}, queueKey,
			{name: "base", def: "0ns", doc: "the rest of the round trip, from the request's end on the wire"},
		}, makeRR},
		{"receive", "frames that arrive at a constant rate; delivered ones cost cpu.copy", []specKey{
			{name: "rate", def: "line", doc: "of frames without FCS; line = back to back"},
			{name: "size", def: "1514b", doc: "frame without FCS"}, {name: "queue", def: "0", doc: "receive queue"},
		}, makeReceive},
	}
}

// SpecHelp describes all kinds of workloads and their keys, with defaults.
func SpecHelp() string {
	var b strings.Builder
	for _, k := range specKinds() {
		fmt.Fprintf(&b, "  %-9s %s\n", k.name, k.doc)
		for _, key := range k.keys {
			switch {
			case key.flag:
				fmt.Fprintf(&b, "            %-18s %s\n", key.name, key.doc)
			case key.def == "":
				fmt.Fprintf(&b, "            %-18s %s; must be given\n", key.name+"=TIME", key.doc)
			default:
				fmt.Fprintf(&b, "            %-18s %s\n", key.name+"="+key.def, key.doc)
			}
		}
	}
	return b.String()
}

// parseSpecs reads workloads and gives them names.
func parseSpecs(texts []string) ([]cardSpec, error) {
	var specs []cardSpec
	count := map[string]int{}
	for _, text := range texts {
		s, err := parseSpec(text)
		if err != nil {
			return nil, fmt.Errorf("workload %q: %w", text, err)
		}
		count[s.kind.name]++
		if s.Name = s.kind.name; count[s.kind.name] > 1 {
			s.Name = fmt.Sprintf("%s-%d", s.kind.name, count[s.kind.name])
		}
		specs = append(specs, s)
	}
	return specs, nil
}

func parseSpec(text string) (cardSpec, error) {
	name, rest, more := strings.Cut(strings.TrimSpace(text), ":")
	kinds := specKinds()
	i := slices.IndexFunc(kinds, func(k specKind) bool { return k.name == name })
	if i < 0 {
		var names []string
		for _, k := range kinds {
			names = append(names, k.name)
		}
		return cardSpec{}, fmt.Errorf("unknown kind %q; expected one of %s", name, strings.Join(names, ", "))
	}
	s := cardSpec{kind: &kinds[i], values: map[string]string{}}
	if more && rest == "" {
		return s, fmt.Errorf("nothing after the colon; expected %s", s.kind.keyNames())
	}
	for part := range strings.SplitSeq(rest, ",") {
		if !more {
			break
		}
		key, value, valued := strings.Cut(part, "=")
		if err := s.set(strings.TrimSpace(key), strings.TrimSpace(value), valued); err != nil {
			return s, err
		}
	}
	for _, key := range s.kind.keys {
		if _, ok := s.values[key.name]; ok || key.flag {
			continue
		}
		if key.def == "" {
			return s, fmt.Errorf("no %s; expected e.g. %s:%s=%s", key.name, s.kind.name, key.name, key.example)
		}
		s.values[key.name] = key.def
	}
	return s, nil
}

func (k *specKind) keyNames() string {
	var names []string
	for _, key := range k.keys {
		if key.flag {
			names = append(names, key.name)
		} else {
			names = append(names, key.name+"=")
		}
	}
	return strings.Join(names, ", ")
}

// set gives a key a value, once.
func (s *cardSpec) set(key, value string, valued bool) error {
	i := slices.IndexFunc(s.kind.keys, func(k specKey) bool { return k.name == key })
	if i < 0 {
		return fmt.Errorf("%s has no key %q; expected %s", s.kind.name, key, s.kind.keyNames())
	}
	if _, twice := s.values[key]; twice {
		return fmt.Errorf("%s is there twice", key)
	}
	switch {
	case s.kind.keys[i].flag && valued && value != "on":
		return fmt.Errorf("%s=%s: expected %s alone, without a value", key, value, key)
	case s.kind.keys[i].flag:
		value = "on"
	case value == "":
		k := &s.kind.keys[i]
		return fmt.Errorf("%s has no value; expected e.g. %s=%s", key, key, k.example+k.def)
	}
	s.values[key] = value
	return nil
}

// with is a copy with another value for a key.
func (s cardSpec) with(key, value string) (cardSpec, error) {
	values := map[string]string{}
	for k, v := range s.values {
		if k != key {
			values[k] = v
		}
	}
	s.values = values
	if slices.ContainsFunc(s.kind.keys, func(k specKey) bool { return k.name == key && k.flag }) && value == "off" {
		return s, nil
	}
	return s, s.set(key, value, true)
}

// String is the workload in full, every key with its value.
func (s *cardSpec) String() string { return s.spell(func(specKey) bool { return true }) }

// short leaves out what has its default.
func (s *cardSpec) short() string {
	return s.spell(func(k specKey) bool { return s.values[k.name] != k.def })
}

func (s *cardSpec) spell(wanted func(specKey) bool) string {
	text, separator := s.kind.name, ":"
	for _, key := range s.kind.keys {
		v, ok := s.values[key.name]
		if !ok || !wanted(key) {
			continue
		}
		text += separator + key.name
		if !key.flag {
			text += "=" + v
		}
		separator = ","
	}
	return text
}

// specValues reads a spec's values; the first mistake stays in err.
type specValues struct {
	spec *cardSpec
	err  error
}

func (v *specValues) fail(key, expected string) {
	if v.err == nil {
		v.err = fmt.Errorf("%s=%s: expected %s", key, v.spec.values[key], expected)
	}
}

func (v *specValues) flag(key string) bool { return v.spec.values[key] != "" }

// is reports whether the key has a word in place of a quantity.
func (v *specValues) is(key, word string) bool { return v.spec.values[key] == word }

func (v *specValues) count(key string, least, most int) int {
	n, err := strconv.Atoi(v.spec.values[key])
	if err != nil || n < least || n > most {
		v.fail(key, fmt.Sprintf("%d to %d", least, most))
		return least
	}
	return n
}

// bytes reads a size; a bare number is bytes too, as ip(8) and pktgen have them.
func (v *specValues) bytes(key string, least, most int) int {
	text := v.spec.values[key]
	if _, err := strconv.Atoi(text); err == nil {
		text += "b"
	}
	n, err := units.ParseSize(text)
	return int(quantity(v, key, n, err, units.Size(least), units.Size(most)))
}

func (v *specValues) rate(key string) units.Rate {
	r, err := units.ParseRate(v.spec.values[key])
	return quantity(v, key, r, err, units.Kbit, maxSpecRate)
}

func (v *specValues) duration(key string, least units.Duration) units.Duration {
	d, err := units.ParseDuration(v.spec.values[key])
	return quantity(v, key, d, err, least, maxSpecDuration)
}

const (
	maxSpecRate     = units.Tbit
	maxSpecDuration = 60 * units.Second
)

// quantity is n if it could be read and is within its limits. A default that is
// a word may be given instead of a quantity, and the caller has looked for it.
func quantity[T ~int64](v *specValues, key string, n T, err error, least, most T) T {
	if err == nil && least <= n && n <= most {
		return n
	}
	expected := fmt.Sprintf("%v to %v", least, most)
	for _, k := range v.spec.kind.keys {
		if k.name == key && k.def != "" && (k.def[0] < '0' || k.def[0] > '9') {
			expected += ", or " + k.def
		}
	}
	if err != nil && v.err == nil {
		v.err = fmt.Errorf("%s=%s: expected a number and a unit, %s", key, v.spec.values[key], expected)
	}
	v.fail(key, expected)
	return max(least, 1) // for a source that never runs
}
