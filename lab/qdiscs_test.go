package lab

import "testing"

func TestTheLabHasTheQdiscsOfItsConfigurationAndThoseWithoutASwitch(t *testing.T) {
	for kind, want := range map[string]bool{
		"fq_codel": true, "taprio": true, "pfifo_fast": true, "mq": true, "clsact": true, "hfsc": true,
		"pfifo_fats": false, "": false, "sched": false, "FQ": false,
	} {
		if got := HasQdisc(kind); got != want {
			t.Errorf("HasQdisc(%q) = %v", kind, got)
		}
	}
}
