package scenarios

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// processors is time that this machine's processors have spent, since some time
// in the past.
type processors struct {
	all  time.Duration // idle time too
	busy time.Duration // running programs: no interrupts, no softirqs
	own  time.Duration // running this process and its children that have ended
}

// userHZ is the unit of /proc/stat, the same on all architectures of Go.
const userHZ = 100

// readProcessors reads /proc/stat (proc(5)) and getrusage(2).
func readProcessors() (p processors, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p, err
	}
	if p.all, p.busy, err = parseStat(stat); err != nil {
		return p, err
	}
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			return p, fmt.Errorf("getrusage: %w", err)
		}
		p.own += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return p, nil
}

// parseStat reads the line of all processors. The time of guests is part of the
// user's.
func parseStat(stat []byte) (all, busy time.Duration, err error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(string(line), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return 0, 0, fmt.Errorf("/proc/stat: %q: %w", line, err)
	}
	const tick = time.Second / userHZ
	busy = time.Duration(user+nice+system) * tick
	return busy + time.Duration(idle+iowait+irq+softirq+steal)*tick, busy, nil
}

// othersSince is the share of the processors that other programs have used since
// then, 0 to 1.
func (p processors) othersSince(then processors) float64 {
	all, others := p.all-then.all, (p.busy-then.busy)-(p.own-then.own)
	if all <= 0 {
		return 0
	}
	return min(max(0, float64(others)/float64(all)), 1)
}

// othersLimit is the share of the processors from which on what others use may
// be why a claim does not hold.
const othersLimit = 0.25

// verdict is the verdict for people: with what other programs used, if a claim
// does not hold and they used much.
func (r *Result) verdict() string {
	failed, others := false, 0.0
	for _, c := range r.Cases {
		if c.OthersCPU != nil {
			others = max(others, *c.OthersCPU)
		}
		for _, x := range c.Expectations {
			failed = failed || !x.OK
		}
	}
	if !failed || others <= othersLimit {
		return r.Verdict
	}
	return fmt.Sprintf("%s; other programs used %.0f %% of the processors meanwhile", r.Verdict, 100*others)
}
