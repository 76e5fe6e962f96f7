package reproduce

import (
	"fmt"
	"strings"
)

// All are the experiments, in the order of their patches.
func All() []Experiment {
	return []Experiment{
		igbQav,
		manaBQL,
		i40eTXD,
		tsnepIRQ,
		ixgbeRing,
	}
}

// Find gives the experiments of a name or of a card's name; "all" gives all.
func Find(name string) ([]Experiment, error) {
	if name == "all" {
		return All(), nil
	}
	names := []string{"all"}
	for _, x := range All() {
		if name == x.Name || name == x.Device {
			return []Experiment{x}, nil
		}
		names = append(names, x.Device)
	}
	return nil, fmt.Errorf("unknown experiment %q, expected one of %s", name, strings.Join(names, ", "))
}

// Fitted are the parameters of the experiments that are fitted to published figures.
func Fitted(experiments []Experiment) []Parameter {
	all := []Parameter{}
	for _, x := range experiments {
		all = append(all, x.Fitted...)
	}
	return all
}
