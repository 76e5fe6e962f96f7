package reproduce

import (
	"fmt"

	"nicemu/devices/engine"
	"nicemu/replay/source"
)

// ixgbeRing: pktgen on one core fills the ring until fewer than 21 descriptors
// are free, so N-21 packets go out between two interrupts; the driver of 2014
// settles at one interrupt each 124.928 µs. Below N = 691 the ring limits, above
// it the core does.
var ixgbeRing = Experiment{
	Name:    "ixgbe-ring",
	Device:  "ixgbe",
	Varied:  []string{"ring.tx"},
	Summary: "pktgen on one core against the size of the transmit ring",
	Fitted: []Parameter{{
		Name: "ixgbe cpu.xmit + cpu.clean", Value: "186.48ns",
		Meaning:  "core time of one packet: transmission, cleaning and its share of the interrupt; only the sum matters",
		FittedTo: "ixgbe-ring | TXSZ=1024 | pktgen_rate",
	}},
	Run: runIxgbe,
}

// One frame of pktgen's 64 bytes, FCS included.
const pktgenFrame = 60

func runIxgbe(overrides []KV, _ uint64) ([]Row, error) {
	rings := []int{512, 768, 1024, 1536, 2048, 4096, 640, 256}
	rows := make([]Row, len(rings))
	err := parallel(len(rings), func(i int) error {
		return onCore(func() error {
			pps, err := pktgenRate(rings[i], overrides)
			condition := fmt.Sprintf("TXSZ=%d", rings[i])
			switch rings[i] {
			case 512:
				rows[i] = compare("ixgbe-ring", condition, "pktgen_rate", pps, 0.001).
					because("no fitted value in it: 491 packets each 124.928 us")
			case 768:
				rows[i] = compare("ixgbe-ring", condition, "pktgen_rate", pps, 0.01).
					because("the ring would do 5.98 Mpps, so the core limits; interrupts that come late by more than 11 us would explain the last percent")
			case 1024:
				rows[i] = compare("ixgbe-ring", condition, "pktgen_rate", pps, 0.01).fit()
			case 640, 256:
				rows[i] = predict("ixgbe-ring", condition, "pktgen_rate", "pps", pps, "not published")
			default:
				rows[i] = compare("ixgbe-ring", condition, "pktgen_rate", pps, 0.01)
			}
			return err
		})
	})
	return rows, err
}

// pktgenRate is the packets a second that leave the card in its steady state.
func pktgenRate(ring int, overrides []KV) (float64, error) {
	e := engine.New(1)
	s, err := build(e, pfifo, "ixgbe", []KV{
		{"ring.tx", fmt.Sprint(ring)},
		{"coalesce.mode", "adaptive-2014"},
		{"cpu.xmit", "146ns"}, {"cpu.clean", "40ns"}, {"cpu.interrupt", "325ns"},
	}, overrides)
	if err != nil {
		return 0, err
	}
	(&source.Pktgen{Bytes: pktgenFrame}).Start(s)
	const warm, measured = 20 * engine.Millisecond, 200 * engine.Millisecond
	e.AdvanceTo(warm)
	before := s.NIC.Stats().Sent.Frames
	e.AdvanceTo(warm + measured)
	sent := s.NIC.Stats().Sent.Frames - before
	return float64(sent) * float64(engine.Second) / float64(measured), s.Audit()
}
