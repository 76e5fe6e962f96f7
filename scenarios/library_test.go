package scenarios

import (
	"strings"
	"testing"

	"nicemu/devices"
	"nicemu/scenarios/format"
)

// TestAScenarioTakesEveryNameOfADevice: in its file and in an assignment.
func TestAScenarioTakesEveryNameOfADevice(t *testing.T) {
	text := strings.ReplaceAll(twoCards(plainLink, "", probe), "set =", "# set =")
	for _, name := range devices.Accepted() {
		if s := parse(t, strings.ReplaceAll(text, `"generic"`, `"`+name+`"`)); s.NICs[0].Device != name {
			t.Errorf("device is %s, want %s", s.NICs[0].Device, name)
		}
		s := parse(t, text)
		if err := s.Set("nic.device=" + name); err != nil {
			t.Errorf("--set nic.device=%s: %v", name, err)
			continue
		}
		if _, err := newModel(s.Cases()[0].Scenario, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestALinkMayBeSlowerThanItsCardsButNotFaster: as the file, a step and an
// assignment say it.
func TestALinkMayBeSlowerThanItsCardsButNotFaster(t *testing.T) {
	mixed := func(link string) string {
		return strings.Replace(twoCards(link, "", probe), `"generic"`, `"i210"`, 1)
	}
	for link, refused := range map[string]bool{
		"rate = \"300mbit\"\n": false,
		"rate = \"1gbit\"\n":   false,
		"rate = \"10gbit\"\n":  true,
		"rate = \"1gbit\"\nsteps = [{at = \"10ms\", rate = \"1mbit\"}]\n": false,
		"rate = \"1gbit\"\nsteps = [{at = \"10ms\", rate = \"2gbit\"}]\n": true,
	} {
		_, err := format.Parse("x.toml", []byte(mixed(link)), FormatOptions())
		if refused != (err != nil) || refused && !strings.Contains(err.Error(), "device i210; expected at most 1gbit") {
			t.Errorf("%s: %v", link, err)
		}
	}
	s := parse(t, mixed(plainLink))
	if err := s.Set("link.rate=10gbit"); err == nil || !strings.Contains(err.Error(), "device i210; expected at most 1gbit") {
		t.Errorf("assigned: %v", err)
	}
}
