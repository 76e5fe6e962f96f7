package itest

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"nicemu/lab"
)

// inLabEnv tells this test binary that it runs inside the lab kernel.
const inLabEnv = "NICEMU_ITEST_IN_LAB"

// inLab reports whether the test runs inside the lab kernel. If not, it runs this
// very test there, in virtual time, and takes over the outcome.
func inLab(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inLabEnv) != "" {
		return true
	}
	runTestsInLab(t, "^"+t.Name()+"$")
	return false
}

// runTestsInLab runs the tests of this binary that pattern selects inside the
// lab kernel.
func runTestsInLab(t *testing.T, pattern string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g := guest(t, self, "-test.v", "-test.run="+pattern)
	g.Env = append(lab.DefaultEnv(), inLabEnv+"=1", "GOMAXPROCS=2")
	g.Seed, g.Clock = 1, time.Unix(1_900_000_000, 0)
	g.WallLimit = 5 * time.Minute
	var out bytes.Buffer
	g.Stdout, g.Stderr = &out, &out
	r, err := lab.Run(t.Context(), g)
	said := strings.TrimSpace(out.String())
	if err != nil || r.Status != 0 {
		t.Fatalf("in the lab: status %d, %v\n%s", r.Status, err, said)
	}
	if strings.Contains(said, "--- SKIP") || !strings.Contains(said, "--- PASS") {
		t.Fatalf("in the lab, which has everything, not all was tested:\n%s", said)
	}
	t.Logf("in the lab, %v of guest time in %v:\n%s", r.Elapsed.Round(time.Millisecond), r.Wall.Round(time.Millisecond), said)
}

// letTimePass is for loops that wait for others: in virtual time the clock stands
// still while anybody works.
func letTimePass() {
	if os.Getenv(inLabEnv) != "" {
		time.Sleep(time.Millisecond)
	}
}

// The gate's tests for qdiscs that hosts often lack. Where a host has them, they
// run there as well.
func TestIntegrationLabGateKeepsEveryKindOfQdisc(t *testing.T) {
	runTestsInLab(t, "^TestIntegrationGateKeepsEveryKindOfQdisc$")
}
