package devices

import (
	"slices"
	"strings"
	"testing"
)

// TestEveryAcceptedNameIsOneCard: drivers and chips share one space of names.
func TestEveryAcceptedNameIsOneCard(t *testing.T) {
	all := Accepted()
	for _, want := range []string{"igb", "i210", "ixgbe", "82599", "i40e", "xl710"} {
		if !slices.Contains(all, want) {
			t.Errorf("%s is not accepted", want)
		}
	}
	seen := map[string]bool{}
	for _, name := range all {
		d, err := New(name)
		if err != nil || d.Name != name && !slices.Contains(d.Aliases, name) || seen[name] {
			t.Errorf("%s: %v, %v, seen before: %v", name, d, err, seen[name])
		}
		seen[name] = true
	}
	if _, err := New("e1000"); err == nil || !strings.HasSuffix(err.Error(), strings.Join(all, ", ")) {
		t.Errorf("%v, want all of %v", err, all)
	}
}

// TestNoCardIsFasterThanItsLink: the limit on links is the knob's.
func TestNoCardIsFasterThanItsLink(t *testing.T) {
	for _, name := range Names() {
		d, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		fastest := d.MaxRate()
		if err := d.Set("link.rate", fastest.String()); err != nil {
			t.Errorf("%s: its fastest link: %v", name, err)
		}
		if err := d.Set("link.rate", (fastest + 1).String()); err == nil {
			t.Errorf("%s: %v is legal, beyond %v", name, fastest+1, fastest)
		}
	}
}
