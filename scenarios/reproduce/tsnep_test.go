package reproduce

import (
	"math"
	"testing"
)

// By hand, with frames each 12.304 µs, 64 µs of delay and a poll of 18.8 µs and
// 0.2 µs for each frame, after which 0.61 µs are copied:
//
//	hold-off   11 frame times: 135.344 µs; (18.8 + 11·0.81) / 135.344 = 20.5 %
//	delay      a frame is always pending at re-arm: 64 + 18.8 + 7·0.2 = 84.2 µs;
//	           (18.8 + 6.84·0.81) / 84.2 = 28.9 %
//	throttle   64 µs; (18.8 + 5.2·0.81) / 64 = 36 %
func TestReceiverUnderEveryDelayRule(t *testing.T) {
	for mode, want := range map[string]reception{
		"hold-off": {135.344, 20.5, 941.5},
		"delay":    {84.2, 28.9, 941.5},
		"throttle": {64, 36, 941.5},
	} {
		m, err := receive([]KV{{"coalesce.rx_usecs", "64"}, {"coalesce.mode", mode}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !near(m.interval, want.interval) || !near(m.load, want.load) || !near(m.goodput, want.goodput) {
			t.Errorf("%s: %+v, want %+v", mode, m, want)
		}
	}
}

func near(got, want float64) bool { return math.Abs(got-want) < 0.005*want }

// Without a delay the softirq has the core while frames come, so a reader that
// takes c of it makes throughput line rate / (1 + c / frame time), whatever the
// window, less what the turns of the window cost.
func TestReaderGetsTheCoreOnlyWhileTheWindowIsShut(t *testing.T) {
	for copying, ns := range map[string]float64{"610ns": 610, "900ns": 900, "2us": 2000} {
		m, err := receive([]KV{{"coalesce.rx_usecs", "0"}, {"cpu.copy", copying}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		most := 941.48 / (1 + ns/12304)
		if m.goodput > most || m.goodput < 0.985*most || m.load < 99.9 {
			t.Errorf("copying for %s: %.1f Mbit/s at %.1f %%, at most %.1f", copying, m.goodput, m.load, most)
		}
	}
}
