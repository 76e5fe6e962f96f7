package reproduce

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/source"
	"nicemu/replay/stack"
)

// tsnepIRQ: iperf's server on one Cortex-A53 core receives TCP at line rate.
// Without a delay the softirq never leaves the core, so that the reader gets it
// only while the sender waits for the window; with a delay the core is idle for
// most of the time.
var tsnepIRQ = Experiment{
	Name:    "tsnep-irq",
	Device:  "tsnep",
	Varied:  []string{"coalesce.rx_usecs", "coalesce.mode", "napi.repoll"},
	Summary: "receiving TCP on a slow core, with and without interrupt delay",
	Fitted: []Parameter{
		{
			Name: "tsnep cpu.interrupt + cpu.flush", Value: "2us + 16.8us",
			Meaning:  "core time of one interrupt with its softirq, TCP input, acknowledgement and wake-up: 22,600 cycles; only the sum matters while the second is longer than a frame",
			FittedTo: "tsnep-irq | before | interrupt_interval",
		}, {
			Name: "tsnep cpu.receive + cpu.copy", Value: "200ns + 610ns",
			Meaning:  "core time of one packet, in the poll and in the reader; the reader's share must be 570 ns or more for less than 900 Mbit/s",
			FittedTo: "tsnep-irq | after | cpu_load",
		}, {
			Name: "tsnep coalesce.mode", Value: "hold-off",
			Meaning:  "how the card counts its interrupt delay, of which no description is public",
			FittedTo: "tsnep-irq | after | interrupt_interval",
		},
	},
	Run: runTsnep,
}

func runTsnep(overrides []KV, _ uint64) ([]Row, error) {
	cases := []struct {
		condition string
		settings  []KV
		rows      func(m reception) []Row
	}{
		{"before", []KV{{"coalesce.rx_usecs", "0"}}, func(m reception) []Row {
			return []Row{
				compare("tsnep-irq", "before", "interrupt_interval", m.interval, 0.05).fit(),
				compare("tsnep-irq", "before", "cpu_load", m.load, 0.001),
				compare("tsnep-irq", "before", "throughput", m.goodput, 0).
					because("a bound: the reader takes 5 % of the core, which the softirq does not leave it while frames come"),
			}
		}},
		{"after", []KV{{"coalesce.rx_usecs", "64"}}, func(m reception) []Row {
			return []Row{
				compare("tsnep-irq", "after", "interrupt_interval", m.interval, 0.05).fit().
					because("11 frame times, as the delay runs twice; published as about 140 us"),
				compare("tsnep-irq", "after", "cpu_load", m.load, 0.05).fit(),
				compare("tsnep-irq", "after", "throughput", m.goodput, 0.001),
			}
		}},
		{"after, delay counted from the first frame", []KV{{"coalesce.rx_usecs", "64"}, {"coalesce.mode", "delay"}}, nil},
		{"after, the same, and the poll looks for pending frames", []KV{{"coalesce.rx_usecs", "64"}, {"coalesce.mode", "delay"}, {"napi.repoll", "on"}}, nil},
		{"after, interrupts at once but a delay apart", []KV{{"coalesce.rx_usecs", "64"}, {"coalesce.mode", "throttle"}}, nil},
		{"before, the poll looks for pending frames", []KV{{"coalesce.rx_usecs", "0"}, {"napi.repoll", "on"}}, nil},
	}
	rows := make([][]Row, len(cases))
	err := parallel(len(cases), func(i int) error {
		return onCore(func() error {
			c := &cases[i]
			m, err := receive(c.settings, overrides)
			if err != nil {
				return err
			}
			if c.rows != nil {
				rows[i] = c.rows(m)
				return nil
			}
			const why = "not published: what other rules of the delay, and the fix of rotten packets, would give"
			rows[i] = []Row{
				predict("tsnep-irq", c.condition, "interrupt_interval", "us", m.interval, why),
				predict("tsnep-irq", c.condition, "cpu_load", "%", m.load, why),
				predict("tsnep-irq", c.condition, "throughput", "Mbit/s", m.goodput, why),
			}
			return nil
		})
	})
	var all []Row
	for _, r := range rows {
		all = append(all, r...)
	}
	return all, err
}

// reception is what a receiver in its steady state does.
type reception struct {
	interval float64 // us from interrupt to interrupt
	load     float64 // % of the core
	goodput  float64 // Mbit/s of payload that the reader got
}

func receive(settings, overrides []KV) (reception, error) {
	own := append([]KV{
		{"napi.repoll", "off"}, // the look for pending work came with the same series
		{"cpu.interrupt", "2us"}, {"cpu.flush", "16800ns"}, {"cpu.receive", "200ns"}, {"cpu.copy", "610ns"},
	}, settings...)
	e := engine.New(1)
	s, err := build(e, pfifo, "tsnep", own, overrides)
	if err != nil {
		return reception{}, err
	}
	r := &receiver{s: s}
	r.start()
	const warm, measured = 100 * engine.Millisecond, engine.Second
	e.AdvanceTo(warm)
	read, busy, interrupts := r.read, s.CPU.Busy(), s.NIC.Stats().Interrupts
	e.AdvanceTo(warm + measured)
	return reception{
		interval: float64(measured) / float64(engine.Microsecond) / float64(s.NIC.Stats().Interrupts-interrupts),
		load:     100 * float64(s.CPU.Busy()-busy) / float64(measured),
		goodput:  float64(r.read-read) * source.MSS * 8 / 1e6 / (float64(measured) / float64(engine.Second)),
	}, s.Audit()
}

// A receive window of tcp_rmem's largest buffer, 6 MB, of which half is window
// (tcp_adv_win_scale 1), in full segments. Once shut it opens again when a
// sixteenth is free (__tcp_select_window).
const (
	window     = 6 << 20 / 2 / source.MSS
	windowStep = window / 16
)

// receiver is a sender at line rate, the wire, and the program that reads: one
// TCP stream of full segments that nothing but the receive window stops.
type receiver struct {
	s       *stack.Stack
	frame   engine.Timer // the end of the next frame
	unread  int          // segments sent and not yet read
	shut    bool         // the window
	read    uint64       // segments
	reading func()
}

func (r *receiver) start() {
	r.reading = r.copied
	r.s.Eng.Init(&r.frame, r.arrive)
	r.s.OnDeliver(func(*nic.Frame) {
		r.s.CPU.App(engine.Time(r.s.NIC.Config().CPU.Copy), r.reading)
	})
	r.s.Eng.After(&r.frame, r.frameTime())
}

func (r *receiver) frameTime() engine.Time {
	l := &r.s.NIC.Config().Link
	bits := int64(l.Preamble+tcpFrame+l.FCS+l.Gap) * 8
	return engine.Time(bits * int64(engine.Second) / int64(l.Rate))
}

func (r *receiver) arrive() {
	f := r.s.Pool.Get(0)
	f.Single(tcpFrame)
	if r.s.NIC.Receive(f) {
		r.unread++
	} else {
		r.s.Pool.Put(f) // lost: sent again
	}
	if r.unread < window {
		r.s.Eng.After(&r.frame, r.frameTime())
	} else {
		r.shut = true
	}
}

func (r *receiver) copied() {
	r.read++
	r.unread--
	if r.shut && r.unread <= window-windowStep {
		r.shut = false
		r.s.Eng.After(&r.frame, r.frameTime())
	}
}

// tcpFrame is a full TCP segment with timestamps in its Ethernet frame, no FCS.
const tcpFrame = 14 + 1500
