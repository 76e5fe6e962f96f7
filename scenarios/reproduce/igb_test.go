package reproduce

import (
	"math"
	"strings"
	"testing"
)

// All sixteen throughputs of the patch, and the one of legacy mode, are modelled
// with one fitted constant and come out within 3 %.
func TestIgbGivesEveryPublishedThroughput(t *testing.T) {
	rows, err := igbQav.Run(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	byCondition := map[string]Row{}
	for _, r := range rows {
		if r.Metric == "throughput" {
			byCondition[r.Condition] = r
		}
	}
	n := 0
	for _, f := range Figures() {
		if f.Experiment != "igb-qav" || f.Metric != "throughput" || strings.Contains(f.Condition, "summary") {
			continue
		}
		n++
		if r, ok := byCondition[f.Condition]; !ok || math.Abs(*r.ModelError) > 0.03 {
			t.Errorf("%s: published %v, model %v", f.Condition, f.Value, r.Model)
		}
	}
	if n != 17 || len(igbQav.Fitted) != 1 {
		t.Errorf("%d published throughputs, %d fitted parameters", n, len(igbQav.Fitted))
	}
}

// By hand, with frames of 12,304 ns and cycles of 125 µs, of which the guard
// closes one DTXMXPKTSZ: 4 KB and L = 860 ns give a period of 20,052 ns, so
// 1 + floor(80,440 / 20,052) = 5 frames; L = 940 ns makes that 4. A DTXMXPKTSZ
// of 1536 gives 1 + floor(100,408 / 12,304) = 9.
func TestFramesACycleAreThoseOfTheArithmetic(t *testing.T) {
	tsn := []KV{{"qav", "on"}, {"queue0.txtime", "on"}, {"txpbsize", "8kb,8kb,4kb,4kb"}}
	for _, c := range []struct {
		name   string
		extra  []KV
		frames float64
	}{
		{"as before the patch", nil, 5},
		{"a slower fetch", []KV{{"fetch.latency", "940ns"}}, 4},
		{"a shorter longest frame", []KV{{"dtxmxpktsz", "1536"}, {"bql", "off"}}, 9},
		{"no guard, 4 KB", []KV{{"sp_wait_sr", "off"}}, 6},
	} {
		run := qavCase{name: c.name, settings: tsn, tsn: true}
		m, err := run.run(c.extra)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.goodput * 125 / 8 / 1448; math.Abs(got-c.frames) > 0.01 {
			t.Errorf("%s: %.3f frames a cycle, want %v", c.name, got, c.frames)
		}
	}
}
