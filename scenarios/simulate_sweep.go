package scenarios

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cardAxis is a swept key and its values.
type cardAxis struct {
	Key    string
	Values []string
}

// maxAxisCases is how many runs a what-if may make: more are a mistake.
const maxAxisCases = 256

// parseAxis reads KEY=VALUE,VALUE,… The key is a knob of the card, qdisc, rate,
// seed, or WORKLOAD.KEY. Values that have commas themselves are separated by
// semicolons.
func parseAxis(text string) (cardAxis, error) {
	key, list, ok := strings.Cut(text, "=")
	a := cardAxis{Key: strings.TrimSpace(key)}
	if !ok || a.Key == "" || list == "" {
		return a, fmt.Errorf("sweep %q: expected KEY=VALUE,VALUE,… or KEY=VALUE;VALUE;…", text)
	}
	separator := ","
	if strings.Contains(list, ";") {
		separator = ";"
	}
	for value := range strings.SplitSeq(list, separator) {
		value = strings.TrimSpace(value)
		if value == "" || slices.Contains(a.Values, value) {
			return a, fmt.Errorf("sweep %q: value %q; expected different values that are not empty", text, value)
		}
		a.Values = append(a.Values, value)
	}
	return a, nil
}

// cardCase is one combination: the options with its values in place.
type cardCase struct {
	CardOptions
	specs  []cardSpec
	params map[string]any
	title  string
}

func (c *cardCase) where(err error) error {
	if c.title == "" {
		return err
	}
	return fmt.Errorf("%s: %w", c.title, err)
}

// cases are all combinations of the sweep, the last key changing fastest.
func (o *CardOptions) cases() ([]cardCase, error) {
	specs, err := parseSpecs(o.Workloads)
	if err != nil {
		return nil, err
	}
	all := []cardCase{{CardOptions: *o, specs: specs, params: map[string]any{}}}
	seen := map[string]bool{}
	for _, text := range o.Sweep {
		axis, err := parseAxis(text)
		if err != nil {
			return nil, err
		}
		if seen[axis.Key] {
			return nil, fmt.Errorf("sweep %q: %s is swept twice", text, axis.Key)
		}
		seen[axis.Key] = true
		if n := len(all) * len(axis.Values); n > maxAxisCases {
			return nil, fmt.Errorf("the sweep has %d cases; expected at most %d", n, maxAxisCases)
		}
		var next []cardCase
		for i := range all {
			for _, value := range axis.Values {
				c, err := all[i].with(axis.Key, value)
				if err != nil {
					return nil, fmt.Errorf("sweep %q: %w", text, err)
				}
				next = append(next, c)
			}
		}
		all = next
	}
	return all, nil
}

// with is the case with one key set.
func (c cardCase) with(key, value string) (cardCase, error) {
	params := map[string]any{key: value}
	for k, v := range c.params {
		params[k] = v
	}
	c.params, c.title = params, strings.TrimSpace(c.title+" "+key+"="+value)
	name, inner, dotted := strings.Cut(key, ".")
	i := slices.IndexFunc(c.specs, func(s cardSpec) bool { return dotted && s.Name == name })
	switch {
	case i >= 0:
		s, err := c.specs[i].with(inner, value)
		c.specs = slices.Clone(c.specs)
		c.specs[i] = s
		return c, err
	case key == "qdisc":
		c.Qdisc = value
	case key == "rate":
		c.Rate = value
	case key == "seed":
		seed, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return c, fmt.Errorf("seed %q: expected a whole number", value)
		}
		c.Seed = seed
	default:
		c.Set = append(slices.Clip(c.Set), key+"="+value)
	}
	return c, nil
}
