package reproduce

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/source"
	"nicemu/replay/stack"
)

// i40eTXD: one TCP stream of 64 KB sends, whose packets took up to ten
// descriptors at 8 KB each and take eight at 12 KB. Neither the wire nor all
// cores together limit it; the model has one serial stage that takes time for
// bytes and for descriptors.
var i40eTXD = Experiment{
	Name:    "i40e-txd",
	Device:  "i40e",
	Varied:  []string{"max_data"},
	Summary: "throughput of TSO against the data in one descriptor",
	Fitted: []Parameter{
		{"i40e fetch.bus_rate", i40eBusRate, "speed of the serial stage between TCP and wire, without the cost of descriptors",
			"i40e-txd | before | throughput"},
		{"i40e fetch.per_descriptor", i40ePerDescriptor, "time of one descriptor in the serial stage: core, bus and card",
			"i40e-txd | after | throughput"},
	},
	Run: runI40e,
}

const (
	i40eBusRate       = "38160mbit"
	i40ePerDescriptor = "119ns"
	i40eSend          = 65536
	i40eUnaligned     = 1000 // into a block of 32 KB
)

func runI40e(overrides []KV, _ uint64) ([]Row, error) {
	limits := []string{"8kb", "12kb"}
	type run struct {
		aligned, segments float64 // Mbit/s of payload, for sends of 65536 bytes and of 45 segments
		mean              float64 // descriptors of the latter
		stack             *stack.Stack
	}
	runs := make([]run, len(limits))
	err := parallel(len(limits), func(i int) error {
		return onCore(func() (err error) {
			r := &runs[i]
			if r.stack, err = i40eStack(limits[i], overrides); err != nil {
				return err
			}
			if r.aligned, _, err = i40eStream(limits[i], i40eSend, overrides); err != nil {
				return err
			}
			r.segments, r.mean, err = i40eStream(limits[i], 45*source.MSS, overrides)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	old, now := &runs[0], &runs[1]
	count := func(r *run, payload, offset int) float64 {
		var frags nic.PageFrags
		frags.At(offset)
		f := &nic.Frame{}
		f.GSO(source.TCPHeader+payload, source.TCPHeader, source.MSS)
		frags.LayOut(f)
		return float64(r.stack.NIC.Descriptors(f))
	}
	const beside = 2 // one context and one header descriptor
	row := func(condition, metric string, model, tolerance float64) Row {
		return compare("i40e-txd", condition, metric, model, tolerance)
	}
	gain := func(before, after float64) float64 { return 100 * (after/before - 1) }
	published := gain(*row("before", "throughput", 0, 0).Published, *row("after", "throughput", 0, 0).Published)
	const (
		ratio   = "one published ratio and one cost a descriptor: consistent, but nothing is predicted"
		running = "sends of 45 segments in page fragments that run through 32 KB blocks, as TCP of Linux 6.12 builds them, at the cost fitted to 65536-byte sends"
	)
	return []Row{
		row("before", "throughput", old.aligned, 0.001).fit().because(ratio),
		row("after", "throughput", now.aligned, 0.001).fit().because(ratio),
		derive("i40e-txd", "after vs before", "throughput_gain", "%", published, gain(old.aligned, now.aligned), 0.1/published).fit().
			because("from the two rates published"),
		row("before", "descriptors_per_send_max", count(old, i40eSend, 0), 0).because("64 KB from the start of a 32 KB block; 11 from elsewhere, the nine published ones with header and context"),
		row("before", "descriptors_payload_non_8k_aligned", count(old, i40eSend, i40eUnaligned)-beside, 0),
		row("after vs before", "descriptors_saved_per_32k_aligned_block", count(old, 32768, 0)-count(now, 32768, 0), 0),
		predict("i40e-txd", "after", "descriptors_per_send", "count", count(now, i40eSend, 0), "64 KB from the start of a 32 KB block"),
		predict("i40e-txd", "after", "descriptors_payload_non_8k_aligned", "count", count(now, i40eSend, i40eUnaligned)-beside, ""),
		predict("i40e-txd", "before/65160 bytes a send", "descriptors_per_send_mean", "count", old.mean, running),
		predict("i40e-txd", "after/65160 bytes a send", "descriptors_per_send_mean", "count", now.mean, running),
		predict("i40e-txd", "after vs before/65160 bytes a send", "throughput_gain", "%", gain(old.segments, now.segments), running),
	}, nil
}

func i40eStack(maxData string, overrides []KV) (*stack.Stack, error) {
	return build(engine.New(1), fqCodel, "i40e", []KV{
		{"max_data", maxData},
		{"fetch.bus_rate", i40eBusRate}, {"fetch.per_descriptor", i40ePerDescriptor},
	}, overrides)
}

// i40eStream is the payload rate in Mbit/s of one stream, and the mean
// descriptors of its packets.
func i40eStream(maxData string, send int, overrides []KV) (mbits, descriptors float64, err error) {
	s, err := i40eStack(maxData, overrides)
	if err != nil {
		return 0, 0, err
	}
	b := &source.Bulk{Payload: send}
	var frames, sum int
	s.OnWire(func(f *nic.Frame, _ engine.Time) {
		frames++
		sum += s.NIC.Descriptors(f)
	})
	b.Start(s)
	const warm, measured = 100 * engine.Millisecond, engine.Second
	s.Eng.AdvanceTo(warm)
	before := b.Done()
	s.Eng.AdvanceTo(warm + measured)
	mbits = float64(b.Done()-before) * 8 / float64(measured) * 1000
	return mbits, float64(sum) / float64(frames), s.Audit()
}
