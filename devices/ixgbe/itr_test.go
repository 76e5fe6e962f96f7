package ixgbe

import (
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// The values are worked out by hand from ixgbe_update_itr of Linux 6.12 at
// 10 Gbit/s: what a direction last asked for matters only by its latency flag.
func TestAdaptiveStepsStartFromTheVectorsValue(t *testing.T) {
	const flag = adaptiveLatency
	type values struct{ us, tx, rx int }
	for _, c := range []struct {
		name       string
		from       values
		work       nic.Work
		idleFor    engine.Time
		want       values
		intervalNs engine.Time // of want.us: 4 a µs, of which bits 11:3 count 2048 ns
	}{
		{name: "up by 2, though the direction asked for more", from: values{20, 118, 20},
			work: nic.Work{TXPackets: 10, TXBytes: 15140, RXFrames: 60, RXBytes: 3600}, want: values{20, 22, 20}, intervalNs: 20_480},
		{name: "both up by 2", from: values{20, 118, 60},
			work: nic.Work{TXPackets: 47, TXBytes: 71158, RXFrames: 4, RXBytes: 240}, want: values{22, 22, 22}, intervalNs: 22_528},
		{name: "an idle direction too, with its flag", from: values{20, 20, 100 | flag},
			work: nic.Work{TXPackets: 30, TXBytes: 1800}, want: values{22, 22, 22 | flag}, intervalNs: 22_528},
		{name: "an idle direction without flag", from: values{20, 20, 100},
			work: nic.Work{TXPackets: 300, TXBytes: 300 * 1514}, want: values{22, 118, 22}, intervalNs: 22_528},
		{name: "kept", from: values{30, 118, 126 | flag},
			work: nic.Work{TXPackets: 48, TXBytes: 72672, RXFrames: 95, RXBytes: 5700}, want: values{30, 30, 30}, intervalNs: 30_720},
		{name: "halved", from: values{30, 118, 126},
			work: nic.Work{TXPackets: 96, TXBytes: 145344, RXFrames: 255, RXBytes: 15300}, want: values{15, 15, 15}, intervalNs: 14_336},
		{name: "not below 10", from: values{14, 14, 14},
			work: nic.Work{TXPackets: 100, TXBytes: 6000, RXFrames: 60, RXBytes: 3600}, want: values{10, 10, 14}, intervalNs: 10_240},
		{name: "not above 126", from: values{126, 126, 10 | flag},
			work: nic.Work{TXPackets: 10, TXBytes: 15140}, want: values{126, 126, 126 | flag}, intervalNs: 129_024},
		{name: "few packets ask by their size, flagged", from: values{50, 126 | flag, 126 | flag},
			work: nic.Work{TXPackets: 2, TXBytes: 120, RXFrames: 1, RXBytes: 1514}, want: values{10, 10 | flag, 60 | flag}, intervalNs: 10_240},
		{name: "many packets ask by their size", from: values{50, 126 | flag, 126 | flag},
			work: nic.Work{TXPackets: 300, TXBytes: 300 * 1514, RXFrames: 256, RXBytes: 256 * 60}, want: values{20, 118, 20}, intervalNs: 20_480},
		{name: "a jiffy later is no pause", from: values{20, 20, 20}, idleFor: 4 * engine.Millisecond,
			work: nic.Work{TXPackets: 60, TXBytes: 3600, RXFrames: 60, RXBytes: 3600}, want: values{20, 20, 20}, intervalNs: 20_480},
		{name: "two jiffies later is", from: values{20, 20, 20}, idleFor: 8 * engine.Millisecond,
			work: nic.Work{TXPackets: 60, TXBytes: 3600, RXFrames: 60, RXBytes: 3600}, want: values{10, 10 | flag, 10 | flag}, intervalNs: 10_240},
	} {
		m := &adaptive{hz: 250, fast: true, us: c.from.us, tx: c.from.tx, rx: c.from.rx}
		m.Polled(c.idleFor, c.work)
		if got := (values{m.us, m.tx, m.rx}); got != c.want || m.Interval != c.intervalNs {
			t.Errorf("%s: %+v, interval %d ns; want %+v, %d ns", c.name, got, m.Interval, c.want, c.intervalNs)
		}
	}
}
