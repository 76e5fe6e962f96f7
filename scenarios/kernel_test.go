package scenarios

import (
	"strings"
	"testing"
)

func TestQdiscKindIsTheWordThatTcReadsAsOne(t *testing.T) {
	for line, want := range map[string]string{
		"qdisc replace dev eth0 root fq_codel":                                               "fq_codel",
		"qdisc add root dev eth0 handle 1: prio bands 2":                                     "prio",
		"qdisc add dev eth0 parent 100:2 etf clockid CLOCK_TAI delta 100000":                 "etf",
		"qdisc replace dev eth0 root handle 100: stab overhead 24 linklayer ethernet taprio": "taprio",
		"qdisc change dev eth0 handle 5: root estimator 1s 4s tbf rate 1gbit":                "tbf",
		"qdisc add dev eth0 clsact":                                                          "clsact",
		"qdisc del dev eth0 root":                                                            "",
		"class add dev eth0 parent 1: classid 1:1 htb rate 1gbit":                            "",
		"qdisc add dev": "",
		"qdisc":         "",
	} {
		if got := qdiscKind(strings.Fields(line)); got != want {
			t.Errorf("tc %s: %q, want %q", line, got, want)
		}
	}
}
