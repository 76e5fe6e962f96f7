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
	for seed := uint64(1); ; seed++ {
		g := guest(t, self, "-test.v", "-test.run="+pattern)
		g.Env = append(lab.DefaultEnv(), inLabEnv+"=1", "GOMAXPROCS=2")
		g.Seed, g.Clock = seed, time.Unix(1_900_000_000, 0)
		g.WallLimit = 5 * time.Minute
		var out bytes.Buffer
		g.Stdout, g.Stderr = &out, &out
		r, err := lab.Run(t.Context(), g)
		said := strings.TrimSpace(out.String())
		switch {
		case err != nil || r.Status != 0 && seed == boots:
			t.Fatalf("in the lab: status %d, %v\n%s", r.Status, err, said)
		case r.Status != 0:
			t.Logf("in the lab, boot %d of at most %d: status %d\n%s", seed, boots, r.Status, said)
		case strings.Contains(said, "--- SKIP"), !strings.Contains(said, "--- PASS"):
			t.Fatalf("in the lab, which has everything, not all was tested:\n%s", said)
		default:
			t.Logf("in the lab, %v of guest time in %v:\n%s", r.Elapsed.Round(time.Millisecond), r.Wall.Round(time.Millisecond), said)
			return
		}
	}
}

// boots is how often the tests are tried at most. User Mode Linux now and then
// loses a timer until the next tick, 4 ms later, and what is to be exact to
// microseconds then is not.
const boots = 3

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
