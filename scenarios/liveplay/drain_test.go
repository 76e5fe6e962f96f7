package liveplay

import (
	"encoding/json"
	"testing"
)

// What the qdiscs hold and dropped is read above the gate's kicks' sink and
// below what may count kicks twice (taprio's qlen), and counted once.
func TestCountsOfQdiscs(t *testing.T) {
	for name, c := range map[string]struct {
		tc               string
		dropped, backlog uint64
	}{
		"no gate": {`[{"kind":"prio","handle":"1:","root":true,"drops":7,"qlen":3},
			{"kind":"pfifo","handle":"2:","parent":"1:1","drops":7,"qlen":3}]`, 7, 3},
		"gate at the root": {`[{"kind":"htb","handle":"7e00:","root":true,"drops":12,"qlen":4},
			{"kind":"pfifo","handle":"7e20:","parent":"7e00:1","drops":5,"qlen":0},
			{"kind":"tbf","handle":"7e10:","parent":"7e00:2","drops":7,"qlen":4},
			{"kind":"pfifo","handle":"8001:","parent":"7e10:1","drops":7,"qlen":4}]`, 12, 4},
		"gates below taprio": {`[{"kind":"taprio","handle":"100:","root":true,"drops":0,"qlen":9},
			{"kind":"prio","handle":"7e00:","parent":"100:1","drops":5,"qlen":1},
			{"kind":"prio","handle":"7e01:","parent":"100:2","drops":2,"qlen":1}]`, 7, 2},
	} {
		var list []map[string]any
		if err := json.Unmarshal([]byte(c.tc), &list); err != nil {
			t.Fatal(err)
		}
		if dropped, backlog := counts(list); dropped != c.dropped || backlog != c.backlog {
			t.Errorf("%s: dropped %d, backlog %d, want %d and %d", name, dropped, backlog, c.dropped, c.backlog)
		}
	}
}
