package scenarios

import (
	"math"
	"os"
	"testing"
	"time"
)

func TestOthersAreWhatIsBusyAndNotOurs(t *testing.T) {
	then := processors{all: 10 * time.Second, busy: 4 * time.Second, own: time.Second}
	for _, x := range []struct {
		all, busy, own time.Duration
		want           float64
	}{
		{10, 8, 1, 0.7}, {10, 3, 3, 0}, {10, 2, 3, 0}, {0, 0, 0, 0},
	} {
		now := processors{then.all + x.all*time.Second, then.busy + x.busy*time.Second, then.own + x.own*time.Second}
		if got := now.othersSince(then); math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%+v: %v", x, got)
		}
	}
}

func TestInterruptsAreNobodys(t *testing.T) {
	all, busy, err := parseStat([]byte("cpu  100 20 30 400 50 6 700 8 9 10\ncpu0 1 2 3\n"))
	if err != nil || busy != 1500*time.Millisecond || all != 13140*time.Millisecond {
		t.Errorf("%v busy of %v, %v", busy, all, err)
	}
	if _, _, err := parseStat([]byte("cpu  1 2\n")); err == nil {
		t.Error("a short line was taken")
	}
	if p, err := readProcessors(); err != nil || p.all < p.busy || p.busy == 0 || p.own == 0 {
		t.Errorf("%+v, %v (pid %d)", p, err, os.Getpid())
	}
}

func TestAFailureBesideBusyProgramsSaysSo(t *testing.T) {
	const failed = "failed; other programs used 63 % of the processors meanwhile"
	for _, x := range []struct {
		with   uint64
		others float64
		want   string
	}{
		{100, 0.63, "ok"}, {900, 0.2, "failed"}, {900, 0.63, failed},
	} {
		r := judged(t, 1000, x.with)
		if got := r.verdict(); got != r.Verdict {
			t.Errorf("nobody measured: %q", got)
		}
		r.Cases[0].OthersCPU = &x.others
		if got := r.verdict(); got != x.want {
			t.Errorf("%+v: %q", x, got)
		}
		if holds := r.Holds(); holds != (x.want == "ok") {
			t.Errorf("%+v holds: %v", x, holds)
		}
	}
}
