package itest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nicemu/emulator"
	"nicemu/scenarios"
	"nicemu/scenarios/format"
)

// scenarioWithTrace is a scenario file beside its trace: 20 opportunities every 10 ms, which
// are 24 Mbit/s, and a sender of four times as much.
func scenarioWithTrace(t *testing.T) (file, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "up.trace"), []byte(strings.Repeat("10\n", 20)), 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "test.toml"), strings.Replace(fmt.Sprintf(pair, "3s"), `rate = "1gbit"`, `trace = "up.trace"`, 1) + `
[[workload]]
name = "bulk"
kind = "iperf3"
from = "a"
to = "b"
proto = "udp"
rate = "100mbit"
length = "1448b"
`
}

// followsTrace checks that at least a share of a's opportunities were used, and no
// more than there were: each carries 1448 of the 1480 bytes that a frame of bulk
// costs.
func followsTrace(t *testing.T, c *scenarios.Case, least float64) {
	t.Helper()
	clean(t, c)
	const full = 20 * 1504 * 8 * 100 * 1448.0 / 1480
	bulk := c.Workloads["bulk"]
	// iperf3's seconds are not exactly the trace's.
	if got := value(bulk.GoodputBPS); got < least*full || got > 1.1*full {
		t.Errorf("goodput %.2f Mbit/s of %.2f, error %q", got/1e6, full/1e6, bulk.Error)
	}
	if held := c.Backlog("a/eth0"); held < 10_000 {
		t.Errorf("the qdisc held %.0f bytes in the mean", held)
	}
	t.Logf("goodput %.3f Mbit/s of %.3f, mean backlog %.0f bytes", value(bulk.GoodputBPS)/1e6, full/1e6, c.Backlog("a/eth0"))
}

// Without BQL the ring holds what leaves while a busy host is late.
func TestIntegrationALinkFollowsItsTrace(t *testing.T) {
	file, text := scenarioWithTrace(t)
	r := runFile(t, file, text, "nic.bql=false")
	followsTrace(t, r.Cases[0], 0.5)
}

// The guest reads the trace where the host has it.
func TestIntegrationLabALinkFollowsItsTrace(t *testing.T) {
	kernel := guest(t).Kernel
	file, text := scenarioWithTrace(t)
	j := scenarios.LabJob{File: file, Text: text, Way: emulator.Auto, Reason: "a test"}
	s, err := format.Parse(j.File, []byte(j.Text), scenarios.FormatOptions())
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	r, err := scenarios.RunInLab(t.Context(), s, j, labOptions(kernel, &said))
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	followsTrace(t, r.Cases[0], 0.95)
}
