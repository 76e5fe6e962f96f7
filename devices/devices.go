// Package devices lists the card models. Each lives in a package of its own
// that says which driver and datasheet it follows; all stand on package nic.
package devices

import (
	"fmt"
	"strings"

	"nicemu/devices/generic"
	"nicemu/devices/i40e"
	"nicemu/devices/igb"
	"nicemu/devices/ixgbe"
	"nicemu/devices/mana"
	"nicemu/devices/nic"
	"nicemu/devices/tsnep"
)

var profiles = []func() *nic.Device{
	generic.New,
	igb.New,
	ixgbe.New,
	i40e.New,
	mana.New,
	tsnep.New,
}

// chips are names that a card has beside its driver's.
var chips = map[string]string{"i210": "igb", "82599": "ixgbe", "xl710": "i40e"}

// New returns a fresh profile of the device called name, by driver or by chip,
// to be adjusted and built.
func New(name string) (*nic.Device, error) {
	driver := name
	if d, ok := chips[name]; ok {
		driver = d
	}
	for _, p := range profiles {
		if d := p(); d.Name == driver {
			return d, nil
		}
	}
	return nil, fmt.Errorf("unknown device %q, expected one of %s", name, strings.Join(Names(), ", "))
}

// Configured is New with knobs set as --set has them, each KNOB=VALUE.
func Configured(name string, settings []string) (*nic.Device, error) {
	d, err := New(name)
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--set %q: expected knob=value", s)
		}
		if err := d.Set(strings.TrimSpace(key), value); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Names are all device names.
func Names() []string {
	var names []string
	for _, p := range profiles {
		names = append(names, p().Name)
	}
	return names
}
