package qdisc

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"nicemu/devices/engine"
	"nicemu/devices/units"
)

// Kinds are the qdiscs that there is a model of, as tc calls them.
var Kinds = []string{"pfifo_fast", "pfifo", "bfifo", "fq_codel"}

// Defaults of an Ethernet device.
const (
	TxQueueLen = 1000
	pschedMTU  = 1514
)

// NoModelError is a qdisc, or an option of one, that tc has and no model has.
type NoModelError struct {
	What     string // "there is no model of the qdisc cake"
	Expected string // "one of …"
}

func (e *NoModelError) Error() string { return e.What + "; expected " + e.Expected }

// ParseTC reads a qdisc as tc spells it, its kind and then its options, e.g.
// "fq_codel limit 100 target 1ms", and returns what makes one. Sizes may be bare
// numbers of bytes where tc's manual has them so; times need a unit.
func ParseTC(words []string) (func() Qdisc, error) {
	if len(words) == 0 {
		return nil, fmt.Errorf("no qdisc; expected one of %s", strings.Join(Kinds, ", "))
	}
	o := options{kind: words[0], words: words[1:]}
	switch o.kind {
	case "pfifo_fast":
		err := o.read(nil)
		return func() Qdisc { return NewPFIFOFast(TxQueueLen) }, err
	case "pfifo":
		limit := TxQueueLen
		err := o.read(map[string]func(string) error{"limit": count(&limit, math.MaxInt32)})
		return func() Qdisc { return NewPFIFO(limit) }, err
	case "bfifo":
		limit := TxQueueLen * pschedMTU
		err := o.read(map[string]func(string) error{"limit": size(&limit)})
		return func() Qdisc { return NewBFIFO(limit) }, err
	case "fq_codel":
		var c FQCodelConfig
		err := o.read(map[string]func(string) error{
			"limit": count(&c.Limit, math.MaxInt32), "flows": count(&c.Flows, 65536), "drop_batch": count(&c.DropBatch, math.MaxInt32),
			"quantum": size(&c.Quantum), "memory_limit": size(&c.MemoryLimit),
			"target": span(&c.Target), "interval": span(&c.Interval),
			"ecn": nil, "noecn": nil,
		})
		c.NoECN = slices.Contains(o.words, "noecn")
		if c.Quantum != 0 {
			c.Quantum = max(256, c.Quantum) // fq_codel_change
		}
		return func() Qdisc { return NewFQCodel(c) }, err
	}
	return nil, &NoModelError{"there is no model of the qdisc " + o.kind, "one of " + strings.Join(Kinds, ", ")}
}

// options are the words behind a kind.
type options struct {
	kind  string
	words []string
}

// read gives each option's value to its reader; one without a reader has no
// value.
func (o *options) read(known map[string]func(string) error) error {
	for i := 0; i < len(o.words); i++ {
		name := o.words[i]
		set, ok := known[name]
		if !ok {
			return &NoModelError{fmt.Sprintf("the model of %s has no option %q", o.kind, name), optionNames(known)}
		}
		if set == nil {
			continue
		}
		if i++; i == len(o.words) {
			return fmt.Errorf("%s: no value after %s", o.kind, name)
		}
		if err := set(o.words[i]); err != nil {
			return fmt.Errorf("%s: %s %s: %w", o.kind, name, o.words[i], err)
		}
	}
	return nil
}

func optionNames(known map[string]func(string) error) string {
	if len(known) == 0 {
		return "none"
	}
	var names []string
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func count(to *int, most int) func(string) error {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("expected 1 to %d", most)
		}
		*to = n
		return nil
	}
}

func size(to *int) func(string) error {
	return func(text string) error {
		if count(to, math.MaxInt32)(text) == nil {
			return nil
		}
		s, err := units.ParseSize(text)
		if err != nil {
			return err
		}
		if s < 1 || s > math.MaxInt32 {
			return fmt.Errorf("expected 1b to %v", units.Size(math.MaxInt32))
		}
		*to = int(s)
		return nil
	}
}

func span(to *engine.Time) func(string) error {
	return func(text string) error {
		d, err := units.ParseDuration(text)
		if err != nil {
			return err
		}
		if d < 1024 {
			return fmt.Errorf("expected at least 1024ns, CoDel's unit of time")
		}
		*to = engine.Time(d)
		return nil
	}
}
