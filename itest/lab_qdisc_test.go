package itest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const onePerClass = "num_tc 4 map 0 1 2 3 3 3 3 3 3 3 3 3 3 3 3 3 queues 1@0 1@1 1@2 1@3"

// allLeft waits until the qdiscs are empty and checks that every frame left, in
// the queue of its priority.
func allLeft(t testing.TB, c *card, seen func() []departure, want int) []departure {
	t.Helper()
	until(t, "all frames out", 10*time.Second, func() bool { return waiting(t, c.port) == 0 })
	all := seen()
	_, astray, _ := outside(all)
	if len(all) != want || astray > 0 {
		t.Errorf("%d of %d frames left the qdisc, %d in another queue", len(all), want, astray)
	}
	c.judge(t)
	return all
}

func TestIntegrationLabPriorityChoosesTheQueueUnderMqprioAndTaprioAboveTheGate(t *testing.T) {
	if !inLab(t) {
		return
	}
	for kind, line := range map[string]string{
		"mqprio":      "mqprio " + onePerClass + " hw 0",
		"open taprio": "stab overhead 24 taprio " + onePerClass + " base-time 0 sched-entry S 0xf 10000000 flags 0x0 clockid CLOCK_TAI",
	} {
		t.Run(kind, func(t *testing.T) {
			c := gatedCard(t, "qdisc replace dev {dev} root handle 100: "+line)
			seen := c.watch()
			c.start(t)
			const frames = 1500
			floodPriorities(t, c.port, frames, 0, 1, 2, 3)
			all := allLeft(t, c, seen, 4*frames)
			// The queues share the link's 1 Gbit/s evenly; nothing else holds anybody up.
			took := all[len(all)-1].at - all[0].at
			if wire := 4 * frames * 12304 * time.Nanosecond; took < wire*98/100 || took > wire*102/100 {
				t.Errorf("%d frames took %v, on the wire %v", len(all), took, wire)
			}
		})
	}
}

func TestIntegrationLabFlowsSpreadUnderMqAboveTheGate(t *testing.T) {
	if !inLab(t) {
		return
	}
	c := gatedCard(t, "qdisc replace dev {dev} root handle 100: mq")
	c.start(t)
	for range 40 { // each with a port of its own
		flood(t, c.port, 1000, 20)
	}
	until(t, "all frames out", 10*time.Second, func() bool { return waiting(t, c.port) == 0 })
	total, used := uint64(0), 0
	for q := range 4 {
		_, n := c.books.Passed(q)
		total += n
		if n > 0 {
			used++
		}
	}
	if used != 4 || total < 800 {
		t.Errorf("%d frames in %d queues", total, used)
	}
	c.judge(t)
}

// etf hands a frame over delta before its launch time.
func TestIntegrationLabEtfReleasesFramesAtTheirTimesAboveTheGate(t *testing.T) {
	if !inLab(t) {
		return
	}
	const delta = 500 * time.Microsecond
	for kind, lines := range map[string][]string{
		"under mqprio": {
			"qdisc replace dev {dev} root handle 100: mqprio " + onePerClass + " hw 0",
			"qdisc replace dev {dev} parent 100:1 etf clockid CLOCK_TAI delta 500000",
		},
		"under taprio": {
			"qdisc replace dev {dev} root handle 100: stab overhead 24 taprio " + onePerClass + " base-time 0 sched-entry S 0xf 10000000 flags 0x0 clockid CLOCK_TAI",
			"qdisc replace dev {dev} parent 100:1 etf clockid CLOCK_TAI delta 500000",
		},
	} {
		t.Run(kind, func(t *testing.T) {
			c := gatedCard(t, lines...)
			seen := c.watch()
			c.start(t)
			s := newTalker(t, c.port, 0)
			s.launches(t)
			// Before its first cycle, taprio takes no launch time for a valid one.
			begin := clock(unix.CLOCK_TAI) + 2*cycle
			until(t, "the schedule to begin", time.Second, func() bool { return clock(unix.CLOCK_TAI) > begin })
			const frames, period = 400, 250 * time.Microsecond
			first := clock(unix.CLOCK_TAI) + 5*time.Millisecond
			for i := range frames {
				launch := first + time.Duration(i)*period
				if err := s.send(1000, launch); err != nil {
					t.Fatal(err)
				}
				if i%8 == 7 { // a few launch times ahead
					until(t, "the first of these to leave", time.Second, func() bool { return len(seen()) > i-8 })
				}
			}
			floodPriorities(t, c.port, 500, 3) // best effort beside it, at the end
			until(t, "the last launch", time.Second, func() bool { return len(seen()) == frames+500 })
			for i, d := range allLeft(t, c, seen, frames+500) {
				if late := d.at - (d.launch - delta); d.priority == 0 && (late < 0 || late > 20*time.Microsecond) {
					t.Errorf("frame %d left %v after launch time - delta", i, late)
				}
			}
		})
	}
}

// cbs in software: what leaves a queue is its idle slope.
func TestIntegrationLabCbsHoldsItsRateAboveTheGate(t *testing.T) {
	if !inLab(t) {
		return
	}
	const idle = 20000 // kbit/s
	c := gatedCard(t,
		"qdisc replace dev {dev} root handle 100: mqprio "+onePerClass+" hw 0",
		fmt.Sprintf("qdisc replace dev {dev} parent 100:1 cbs idleslope %d sendslope %d hicredit 153 locredit -1500", idle, idle-1000000))
	seen := c.watch()
	c.start(t)
	const frames = 300
	floodPriorities(t, c.port, frames, 0, 3)
	all := allLeft(t, c, seen, 2*frames)
	first, last := within(all, 0)
	rate := float64(frames-1) * 1514 * 8 / (last - first).Seconds() / 1e3
	if rate < 0.98*idle || rate > 1.02*idle {
		t.Errorf("queue 0 left at %.0f kbit/s, idle slope %d", rate, idle)
	}
	if _, other := within(all, 3); other > last {
		t.Errorf("the queue without cbs took longer than the one with: %v, %v", other, last)
	}
}

// As people use tc: what they type holds, the gate is under it again at once, and
// traffic flows on.
func TestIntegrationLabTcAsUsual(t *testing.T) {
	if !inLab(t) {
		return
	}
	c := gatedCard(t)
	seen := c.watch()
	c.start(t)
	for _, s := range []struct{ line, want string }{
		{"qdisc replace dev {dev} root fq_codel target 2ms", "fq_codel .* target 2ms"},
		{"qdisc replace dev {dev} root handle 100: " + threeWindows, "taprio .* gatemask 0xc interval 4000000"},
		{"qdisc replace dev {dev} parent 100:2 etf clockid CLOCK_TAI delta 300000 skip_sock_check", "etf .* delta 300000"},
		{"qdisc del dev {dev} root", "pfifo_fast|fq_codel|pfifo"},
	} {
		typed := clock(unix.CLOCK_MONOTONIC)
		tcLine(t, c.port, s.line)
		until(t, "the gate beneath tc "+s.line, 50*time.Millisecond, func() bool { return gateIsWhole(t, c, s.line) })
		took := clock(unix.CLOCK_MONOTONIC) - typed
		shown := strings.Join(strings.Fields(string(mustRun(t, c.port.NS(), "tc", "-s", "qdisc", "show", "dev", "nic0"))), " ")
		if !regexp.MustCompile(s.want).MatchString(shown) {
			t.Errorf("after tc %s: no %s in\n%s", s.line, s.want, shown)
		}
		before := len(seen())
		floodPriorities(t, c.port, 400, 0, 2, 3)
		until(t, "traffic after tc "+s.line, time.Second, func() bool { return len(seen()) == before+1200 && waiting(t, c.port) == 0 })
		if strings.Contains(shown, "taprio") {
			if early, _, worst := outside(settled(seen()[before:])); early > 0 {
				t.Errorf("after tc %s: %d frames outside their windows (%s)", s.line, early, worst)
			}
		}
		t.Logf("%v: tc %s", took, s.line)
	}
	c.judge(t)
}

// settled leaves out the first cycle: until it begins, taprio has all gates open.
func settled(seen []departure) []departure {
	for i, d := range seen {
		if d.at/cycle > seen[0].at/cycle {
			return seen[i:]
		}
	}
	return nil
}

// gateIsWhole says whether each class of a multi-queue root, or the root, has the
// gate beneath.
func gateIsWhole(t testing.TB, c *card, line string) bool {
	t.Helper()
	all := string(mustRun(t, c.port.NS(), "tc", "qdisc", "show", "dev", c.port.Name()))
	lanes := 1
	if strings.Contains(all, "qdisc taprio") || strings.Contains(all, "qdisc mq") {
		lanes = 4
	}
	return strings.Count(all, "qdisc prio 7e0") == lanes && strings.Count(all, "qdisc hfsc 7e1")+strings.Count(all, "qdisc tbf 7e1") == lanes && strings.Count(all, " parent 7e1") == lanes
}
