package reproduce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"nicemu/devices"
)

func TestModelsGiveThePublishedFigures(t *testing.T) {
	list := All()
	if testing.Short() {
		list = slices.DeleteFunc(list, func(x Experiment) bool { return x.Name == "mana-bql" })
	}
	rows, err := Run(list, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !r.OK {
			t.Errorf("%s | %s | %s: published %v, model %v", r.Experiment, r.Condition, r.Metric, r.published(), r.Model)
		}
	}
	if _, err := json.Marshal(rows); err != nil {
		t.Error(err)
	}
	if testing.Verbose() {
		WriteTable(os.Stderr, rows)
		WriteFitted(os.Stderr, Fitted(All()))
	}
}

// A row is the same whatever the number of cores, and from run to run.
func TestRowsAreByteIdentical(t *testing.T) {
	few := All()
	if testing.Short() {
		few = few[1:]
	}
	for i := range few {
		if few[i].Name == "mana-bql" {
			few[i].Run = func(overrides []KV, seed uint64) ([]Row, error) {
				c := &manaCondition{queues: 4, flows: 9, bql: "v1", hashes: 4, measure: manaShort}
				if err := c.run(overrides, seed); err != nil {
					return nil, err
				}
				return []Row{predict("mana-bql", "", "", "us", c.median(func(r *manaRun) float64 { return r.p99 + r.goodput }), "")}, nil
			}
		}
	}
	print := func() []byte {
		rows, err := Run(few, nil, 7)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		WriteTable(&b, rows)
		if err := json.NewEncoder(&b).Encode(rows); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	many := print()
	all := cores
	defer func() { cores = all }()
	cores = make(chan struct{}, 1)
	if one := print(); !bytes.Equal(many, one) {
		t.Errorf("on many cores\n%s\non one\n%s", many, one)
	}
}

func TestAtMostTenParametersAreFitted(t *testing.T) {
	if n := len(Fitted(All())); n > 10 {
		t.Errorf("%d fitted parameters", n)
	}
	for _, p := range Fitted(All()) {
		parts := strings.Split(p.FittedTo, " | ")
		if len(parts) != 3 || p.Meaning == "" || p.Value == "" {
			t.Errorf("%+v", p)
			continue
		}
		metric, _, _ := strings.Cut(parts[2], " (")
		if _, ok := Published(parts[0], parts[1], metric); !ok {
			t.Errorf("%s is fitted to %s, which nobody has published", p.Name, p.FittedTo)
		}
	}
}

func TestEveryPublishedFigureHasASourceAndAName(t *testing.T) {
	if n, m := len(Figures()), len(figureIndex()); n != m || n == 0 {
		t.Errorf("%d figures, %d names", n, m)
	}
	for _, f := range Figures() {
		if f.Source == "" || f.Unit == "" || !strings.Contains("= ~ < <=", f.Relation) {
			t.Errorf("%+v", f)
		}
	}
}

func TestBoundsAreJudgedAsBounds(t *testing.T) {
	for _, c := range []struct {
		relation  string
		published float64
		model     float64
		ok        bool
	}{
		{"<", 900, 899, true}, {"<", 900, 900, false}, {"<=", 29, 29, true}, {"<=", 29, 30, false},
		{"=", 100, 109, true}, {"=", 100, 111, false}, {"~", 100, 91, true}, {"=", 0, 0, true}, {"=", 0, 1, false},
	} {
		r := row(Figure{Relation: c.relation, Value: c.published}, c.model, 0.1)
		if r.OK != c.ok {
			t.Errorf("%v against %s%v: %v", c.model, c.relation, c.published, r.OK)
		}
		if live := r.WithLive(c.model, 0.1); live.OK != c.ok || *live.Live != c.model {
			t.Errorf("live %v against %s%v: %v", c.model, c.relation, c.published, live.OK)
		}
	}
}

func TestOverridesReachTheCard(t *testing.T) {
	rows, err := Run([]Experiment{ixgbeRing}, []KV{{"cpu.xmit", "500ns"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Model > 2e6 { // whatever the ring
			t.Errorf("%s: %v pps on a core that takes 500 ns for each", r.Condition, r.Model)
		}
	}
	if _, err := Run(All()[:1], []KV{{"ring.nonsense", "1"}}, 1); err == nil {
		t.Error("an unknown knob was taken")
	}
}

func TestWhatAnExperimentVariesCannotBeSet(t *testing.T) {
	for _, x := range All() {
		d, err := devices.New(x.Device)
		if err != nil {
			t.Fatal(err)
		}
		if len(x.Varied) == 0 {
			t.Errorf("%s varies nothing", x.Name)
		}
		for _, key := range x.Varied {
			if !slices.Contains(d.Keys(), key) {
				t.Errorf("%s has no knob %s", x.Device, key)
			}
			if _, err := Run([]Experiment{x}, []KV{{key, "640"}}, 1); err == nil || !strings.Contains(err.Error(), "varies "+key+" itself") {
				t.Errorf("%s, %s: %v", x.Name, key, err)
			}
		}
	}
}

func TestTablesFitAScreen(t *testing.T) {
	rows, err := Run(slices.DeleteFunc(All(), func(x Experiment) bool { return x.Name == "mana-bql" }), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	WriteTable(&b, rows)
	if strings.Contains(b.String(), "LIVE") {
		t.Error("a column without a value")
	}
	WriteFitted(&b, Fitted(All()))
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestExperimentsAreFoundByTheirNamesAndCards(t *testing.T) {
	for _, name := range []string{"mana", "mana-bql", "ixgbe", "i40e-txd"} {
		if x, err := Find(name); err != nil || len(x) != 1 {
			t.Errorf("%s: %d, %v", name, len(x), err)
		}
	}
	if x, _ := Find("all"); len(x) != len(All()) {
		t.Errorf("all: %d", len(x))
	}
	if _, err := Find("e1000"); err == nil || !strings.Contains(err.Error(), "mana") {
		t.Errorf("%v", err)
	}
}

func ExampleWriteTable() {
	rows := []Row{
		compare("ixgbe-ring", "TXSZ=512", "pktgen_rate", 3930236, 0.001),
		compare("tsnep-irq", "before", "throughput", 910, 0),
		predict("tsnep-irq", "after, delay counted from the first frame", "throughput", "Mbit/s", 941.5, "not published"),
	}
	print := func() {
		var b bytes.Buffer
		WriteTable(&b, rows)
		for line := range strings.Lines(b.String()) {
			fmt.Println(strings.TrimRight(line, " \n"))
		}
	}
	print()
	rows[0] = rows[0].WithLive(3.9e6, 0.02)
	print()
	// Output:
	// EXPERIMENT  CONDITION                  METRIC       PUBLISHED  MODEL    ERROR   UNIT
	// ixgbe-ring  TXSZ=512                   pktgen_rate  3930065    3930236  +0.00%  pps     ok
	// tsnep-irq   before                     throughput   <900       910      +1.11%  Mbit/s  OFF
	// tsnep-irq   after, delay counted from  throughput   -          941.5    -       Mbit/s  prediction  [1]
	//             the first frame
	// [1] not published
	// EXPERIMENT  CONDITION                  METRIC       PUBLISHED  MODEL    ERROR   LIVE     ERROR   UNIT
	// ixgbe-ring  TXSZ=512                   pktgen_rate  3930065    3930236  +0.00%  3900000  -0.77%  pps     ok
	// tsnep-irq   before                     throughput   <900       910      +1.11%  -        -       Mbit/s  OFF
	// tsnep-irq   after, delay counted from  throughput   -          941.5    -       -        -       Mbit/s  prediction  [1]
	//             the first frame
	// [1] not published
}
