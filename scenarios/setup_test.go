package scenarios

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"nicemu/scenarios/format"
)

// simulated is a built-in scenario on models, with assignments.
func simulated(t *testing.T, name string, set ...string) *Result {
	t.Helper()
	s, err := Load(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(set...); err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheSetupIsWhatTheCaseRan(t *testing.T) {
	r := simulated(t, "bql-latency", "duration=1s", "nic.ring.tx=4096", "link.rate=5gbit", "link.loss=1%")
	for i, bql := range []string{"off", "on"} {
		u := r.Cases[i].Setup
		nic := u.NICs["client/eth0"]
		if nic.Device != "generic" || nic.Set["ring.tx"] != "4096" || nic.Set["bql"] != bql || nic.RateBPS != 5e9 || nic.MTU != 1500 || len(nic.TC) != 1 {
			t.Errorf("%+v", nic)
		}
		l := u.Links[0]
		if l.RateBPS != 5e9 || l.DelayNs != 10_000 || l.Loss != 0.01 || !reflect.DeepEqual(l.Ends, []string{"client/eth0", "server/eth0"}) {
			t.Errorf("%+v", l)
		}
		if u.DurationNs != 1e9 || !strings.HasPrefix(u.Workloads["bulk"], "iperf3:from=client,to=server,duration=1s,") || !strings.Contains(u.Workloads["bulk"], "flows=4") {
			t.Errorf("%v %v", u.DurationNs, u.Workloads)
		}
		if u.TCP == nil || u.TCP.PacingNs != 2_300_000 || !strings.Contains(u.TCP.Source, "mana-bql") {
			t.Errorf("%+v", u.TCP)
		}
	}
}

// The lab hands its result over as JSON.
func TestASetupReadsBackAsItWasWritten(t *testing.T) {
	u := simulated(t, "bql-latency", "duration=1s").Cases[0].Setup
	first, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	back := &Setup{}
	if err := json.Unmarshal(first, back); err != nil {
		t.Fatal(err)
	}
	if second, _ := json.Marshal(back); !bytes.Equal(first, second) || back.CardSetup != nil {
		t.Errorf("%s\n%s", first, second)
	}
}

func TestTheTableNamesTheOverrides(t *testing.T) {
	r := simulated(t, "bql-latency", "duration=1s")
	table := func() string {
		var b bytes.Buffer
		if err := r.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if strings.Contains(table(), "\nwith ") {
		t.Error("overrides, though there are none")
	}
	r.Overrides = []string{"nic.ring.tx=4096", "link.rate=5gbit"}
	if text := table(); !strings.Contains(text, "\nwith link.rate=5gbit, nic.ring.tx=4096\n") {
		t.Error(text)
	}
}

func TestSentPacketsAreThoseOfTheWire(t *testing.T) {
	r := simulated(t, "bql-latency", "duration=1s")
	n := r.Cases[0].NICs["client/eth0"]
	if n.SentPackets < n.SentBytes/1514 || n.SentPackets < 4*n.Sent {
		t.Errorf("%d packets, %d frames with GSO, %d bytes", n.SentPackets, n.Sent, n.SentBytes)
	}
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, "packets sent") || strings.Contains(text, "frames sent") {
		t.Error(text)
	}
}

// What a note says is no reason for a verdict.
func TestNotesStandBeforeTheVerdict(t *testing.T) {
	r := simulated(t, "bql-latency", "duration=1s", "link.loss=20%")
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	note := strings.Index(b.String(), "note: workload bulk: --congestion is without effect")
	if verdict := strings.Index(b.String(), "verdict: "); note < 0 || note > verdict {
		t.Errorf("%s", b.String())
	}
	for _, reason := range r.Reasons {
		if strings.Contains(reason, "without effect") {
			t.Error(reason)
		}
	}
}

func TestLatencyBesideTCPOverATAPWithoutBQLIsCalledAnUpperBound(t *testing.T) {
	s, err := Load("bql-latency", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Cases() {
		notes := orphanNotes(p.Scenario)
		if without := p.Params[0].Value == false; (len(notes) == 1) != without {
			t.Errorf("%s: %q", p.String(), notes)
		}
	}
	if err := s.Set("workload.bulk.proto=udp", "workload.bulk.rate=1gbit", "workload.bulk.args=[]", "nic.bql=false"); err != nil {
		t.Fatal(err)
	}
	if notes := orphanNotes(s.Cases()[0].Scenario); notes != nil {
		t.Errorf("UDP: %q", notes)
	}
}

func TestBuiltInScenariosHoldOnModels(t *testing.T) {
	if testing.Short() {
		t.Skip("ten seconds of processor time")
	}
	for _, name := range []string{"bql-latency", "fq-codel-latency"} {
		for _, seed := range []string{"seed=1", "seed=4"} {
			if r := simulated(t, name, seed); r.Verdict != VerdictOK || len(r.Cases[1].Expectations) < 3 {
				t.Errorf("%s, %s: %s %q", name, seed, r.Verdict, r.Reasons)
			}
		}
	}
	for _, seed := range []string{"seed=1", "seed=2", "seed=3", "seed=16"} { // 2 and 3, 4 and 16 are the extremes of twenty
		r := simulated(t, "mana-bql", seed)
		if r.Verdict != VerdictOK {
			t.Errorf("mana-bql, %s: %q", seed, r.Reasons)
		}
		for _, c := range r.Cases {
			for _, x := range c.Expectations {
				fitted := x.Name == "median without BQL" || strings.HasSuffix(x.Name, "with BQL")
				if x.Fitted != fitted {
					t.Errorf("%s: fitted %v", x.Name, x.Fitted)
				}
			}
		}
	}
}

func TestAQdiscWithoutAModelIsNamedWithThoseThatHaveOne(t *testing.T) {
	s, err := Load("igb-qav", nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "there is no model of the qdisc taprio; expected one of mq, pfifo_fast"
	if _, err := Simulate(t.Context(), s, Options{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--kernel host or lab") {
		t.Errorf("%v", err)
	}
	for line, want := range map[string]string{
		"qdisc replace dev {dev} parent 100:1 etf clockid CLOCK_TAI": "no model of the qdisc etf",
		"qdisc add dev {dev} root handle 1: htb default 1":           "no model of the qdisc htb",
		"qdisc add dev {dev} parent 1:1 fq_codel":                    "parent 1:1 is no class of mq",
		"class add dev {dev} parent 1: classid 1:1 htb rate 1mbit":   "no model of tc class",
	} {
		text := strings.Replace(twoCases, `device = "generic"`, `device = "generic"`+"\ntc = [\""+line+"\"]", 1)
		s, err := format.Parse("two.toml", []byte(text), FormatOptions())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Simulate(t.Context(), s, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
