package itest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"nicemu/emulator/gate"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
)

// typed are lines of people who use qdiscs that not every kernel has. The last one of a line is the one to look at.
var typed = []struct {
	kinds  []string
	queues int
	lines  []string
}{
	{[]string{"fq_codel"}, 1, []string{"qdisc add dev {dev} root fq_codel target 7ms interval 80ms limit 777 quantum 300 noecn"}},
	{[]string{"fq"}, 1, []string{"qdisc add dev {dev} root fq limit 500 flow_limit 50 maxrate 300mbit"}},
	{[]string{"codel"}, 1, []string{"qdisc add dev {dev} root handle 3: codel limit 99 target 3ms"}},
	{[]string{"sfq"}, 1, []string{"qdisc add dev {dev} root sfq perturb 10 quantum 3000"}},
	{[]string{"pie"}, 1, []string{"qdisc add dev {dev} root pie limit 200 target 20ms ecn"}},
	{[]string{"cake"}, 1, []string{"qdisc add dev {dev} root cake bandwidth 500mbit diffserv4 rtt 50ms overhead 18"}},
	{[]string{"netem"}, 1, []string{"qdisc add dev {dev} root netem delay 5ms 1ms loss 1% limit 4000"}},
	{[]string{"netem"}, 1, []string{"qdisc add dev {dev} root handle 1: netem delay 5ms", "qdisc add dev {dev} parent 1:1 handle 10: pfifo limit 22"}},
	{[]string{"prio"}, 1, []string{"qdisc add dev {dev} root handle 1: prio bands 4 priomap 3 3 2 2 1 1 0 0 1 1 1 1 1 1 1 1", "qdisc add dev {dev} parent 1:2 handle 12: pfifo limit 44"}},
	{[]string{"ets"}, 1, []string{"qdisc add dev {dev} root handle 1: ets bands 4 strict 2 quanta 3000 1500"}},
	{[]string{"hfsc"}, 1, []string{"qdisc add dev {dev} root handle 1: hfsc default 1", "class add dev {dev} parent 1: classid 1:1 hfsc sc rate 300mbit ul rate 500mbit", "qdisc add dev {dev} parent 1:1 handle 11: pfifo limit 45"}},
	{[]string{"mqprio", "fq_codel"}, 4, []string{
		"qdisc add dev {dev} root handle 100: mqprio num_tc 2 map 0 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 3@1 hw 0",
		"qdisc add dev {dev} parent 100:2 handle 20: fq_codel limit 55",
	}},
	{[]string{"taprio"}, 4, []string{
		"qdisc add dev {dev} root handle 100: stab overhead 24 taprio num_tc 4 map 3 3 3 2 3 0 0 3 3 3 3 3 3 3 3 3 queues 1@0 1@1 1@2 1@3 base-time 1000 sched-entry S 0x5 300000 sched-entry S 0xa 200000 clockid CLOCK_TAI",
	}},
	{[]string{"taprio", "etf", "fq_codel"}, 2, []string{
		"qdisc add dev {dev} root handle 100: taprio num_tc 2 map 1 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 queues 1@0 1@1 base-time 0 sched-entry S 0x1 300000 sched-entry S 0x2 200000 clockid CLOCK_TAI",
		"qdisc replace dev {dev} parent 100:2 fq_codel limit 66",
		"qdisc replace dev {dev} parent 100:1 etf clockid CLOCK_TAI delta 200000",
	}},
	{[]string{"mqprio", "cbs"}, 2, []string{
		"qdisc add dev {dev} root handle 100: mqprio num_tc 2 map 0 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0",
		"qdisc replace dev {dev} parent 100:1 handle 7: cbs idleslope 98688 sendslope -901312 hicredit 153 locredit -1389",
	}},
}

func TestIntegrationGateKeepsEveryKindOfQdisc(t *testing.T) {
	if err := netns.CheckPrivilege(); err != nil {
		t.Skip(err)
	}
	var kinds []string
	for _, c := range typed {
		kinds = append(kinds, c.kinds...)
	}
	has, err := gate.ProbeQdiscs(kinds)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range typed {
		t.Run(c.lines[len(c.lines)-1], func(t *testing.T) {
			for _, kind := range c.kinds {
				if has[kind] != nil {
					t.Skip(has[kind])
				}
			}
			a, b := gatedPair(t, tap.Config{Queues: c.queues, Csum: true, TSO: true})
			for _, line := range c.lines {
				tcLine(t, a, line)
			}
			before := userOptions(t, a)
			d := &card{port: a, peer: b, limit: 130000, slots: 1024, bps: 1e9, coalesce: 50000}
			d.start(t)
			if after := userOptions(t, a); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			if got := transfer(t, a.NS(), listen(t, b.NS(), "10.9.0.2:5001"), make([]byte, 2<<20)); len(got) != 2<<20 {
				t.Errorf("%d bytes arrived", len(got))
			}
		})
	}
}

// schedule is a taprio's, on a line with others: while one waits for its first cycle, tc shows both, or an empty one.
var schedule = regexp.MustCompile(`\s*(base-time \d+ cycle-time \d+ cycle-time-extension \d+)`)

// userOptions lists kind and options of the qdiscs that are not the gate's, in order and each once, without the handles,
// which the kernel may choose. (The JSON of hfsc and taprio is none.)
func userOptions(t testing.TB, p *tap.Port) string {
	t.Helper()
	var lines []string
	shown := schedule.ReplaceAllString(string(mustRun(t, p.NS(), "tc", "qdisc", "show", "dev", p.Name())), "\n$1")
	for _, line := range strings.Split(shown, "\n") {
		line = strings.TrimSpace(line)
		if strings.Contains(line, " cycle-time 0 ") {
			continue
		}
		if strings.Contains(line, " 7e") && !strings.Contains(line, "parent 7e1") || strings.HasPrefix(line, "qdisc clsact") {
			continue
		}
		line = place.ReplaceAllString(line, "$1")
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var place = regexp.MustCompile(`^(qdisc \S+) \S+: (root refcnt \d+|parent \S+)`)
