package itest

import (
	"encoding/json"
	"strings"
	"testing"

	"nicemu/emulator"
	"nicemu/scenarios"
	"nicemu/scenarios/format"
)

// What a result says of its setup is the scenario's, whatever the kernel: only
// the model of TCP has a parameter of its own.
func TestIntegrationTheSetupIsTheSameOnEveryKernel(t *testing.T) {
	set := []string{"duration=1s", "nic.bql=false", "nic.ring.tx=512", "link.rate=100mbit"}
	load := func() *format.Scenario {
		s, err := scenarios.Load("bql-latency", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Set(set...); err != nil {
			t.Fatal(err)
		}
		return s
	}
	model, err := scenarios.Simulate(t.Context(), load(), scenarios.Options{})
	if err != nil {
		t.Fatal(err)
	}
	model.Cases[0].Setup.TCP = nil
	want, err := json.Marshal(model.Cases[0].Setup)
	if err != nil {
		t.Fatal(err)
	}
	same := func(t *testing.T, r *scenarios.Result) {
		c := r.Cases[0]
		if got, _ := json.Marshal(c.Setup); string(got) != string(want) {
			t.Errorf("%s\nmodel: %s", got, want)
		}
		if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "upper bound") {
			t.Errorf("notes %q", r.Notes)
		}
		for id, n := range c.NICs {
			if n.SentPackets < n.SentBytes/1514 || n.SentPackets < n.Sent {
				t.Errorf("%s: %d packets, %d frames, %d bytes", id, n.SentPackets, n.Sent, n.SentBytes)
			}
		}
		if measured := c.OthersCPU != nil; measured != (r.Clock == "real") {
			t.Errorf("%s clock: others' share of the processors is measured: %v", r.Clock, measured)
		}
	}
	t.Run("host", func(t *testing.T) {
		needRoot(t)
		r, err := scenarios.Run(t.Context(), load(), scenarios.Options{Way: emulator.Auto})
		if err != nil {
			t.Fatal(err)
		}
		same(t, r)
	})
	t.Run("lab", func(t *testing.T) { same(t, runScenarioInLab(t, "bql-latency", set...)) })
}
