// Package devices lists the card models. Each lives in a package of its own
// that says which driver and datasheet it follows; all stand on package nic.
package devices

import (
	"fmt"
	"slices"
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

// New returns a fresh profile of the device called name, by driver or by chip,
// to be adjusted and built.
func New(name string) (*nic.Device, error) {
	for _, p := range profiles {
		if d := p(); d.Name == name || slices.Contains(d.Aliases, name) {
			return d, nil
		}
	}
	return nil, fmt.Errorf("unknown device %q, expected one of %s", name, strings.Join(Accepted(), ", "))
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

// Names are all devices, each by its driver's name.
func Names() []string {
	var names []string
	for _, p := range profiles {
		names = append(names, p().Name)
	}
	return names
}

// Accepted are all names that New takes: drivers, each followed by its chips.
func Accepted() []string {
	var names []string
	for _, p := range profiles {
		d := p()
		names = append(append(names, d.Name), d.Aliases...)
	}
	return names
}
