// Package generic is a card that nobody built: the shared skeleton with every
// knob open, for questions of the kind "what if a card did …".
//
// Its defaults follow common practice of Linux drivers rather than one of them:
// a 1 Gbit/s link, 256 descriptors, the stop and wake thresholds of Intel's
// drivers, BQL, interrupts at most every 50 µs. It leaves out what is some
// card's own: credits, guards ahead of launch times, adaptive moderation.
package generic

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
)

// New returns the profile with its defaults.
func New() *nic.Device {
	d := &nic.Device{
		Name:    "generic",
		Summary: "no particular card: every knob open",
		TSO:     true,
		CSUM:    true,
		MaxMTU:  9710, // jumbo frames
		Config: nic.Config{
			Queues:      1,
			Link:        nic.Link{Rate: 1_000_000_000, Preamble: 8, FCS: 4, Gap: 12, MinFrame: 60},
			Ring:        nic.Ring{TX: 256, RX: 256, Spare: 1, Gap: 3, StopAt: 21, WakeAt: 42, RXRefill: 1},
			BQL:         nic.BQL{On: true, Hold: units.Duration(1e9)},
			Fetch:       nic.Fetch{Payload: 128, Header: 20, Outstanding: 1, Arbitration: "rr"},
			Arbitration: "rr",
			Quantum:     1514,
			WriteBack:   nic.WriteBack{Threshold: 1, RSStride: 1},
			Coalesce:    nic.Coalesce{Mode: "throttle", Usecs: units.Duration(50e3)},
			NAPI:        nic.NAPI{TXWork: 256, TXAgain: 256, RXWork: 64},
			Watchdog:    units.Duration(5e9),
			HZ:          250,
		},
	}
	for _, key := range nic.StandardKeys() {
		d.Knob(key, "common practice")
	}
	var txtime bool
	d.Own("txtime", &txtime, "", "a frame with a launch time (SO_TXTIME) leaves the MAC at that time", "common practice")
	d.Rules.LaunchTime = func(_ *nic.NIC, f *nic.Frame) engine.Time {
		if txtime {
			return f.Launch
		}
		return 0
	}
	d.Rules.Shapers = func(*nic.NIC, int) []nic.Shaper {
		if txtime {
			return []nic.Shaper{nic.LaunchTime{}}
		}
		return nil
	}
	return d
}
