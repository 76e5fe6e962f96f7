package scenarios

import (
	"io"

	"nicemu/devices/nic"
	"nicemu/replay/report"
	"nicemu/scenarios/workload"
)

// Verdicts of a run.
const (
	VerdictOK       = "ok"
	VerdictDegraded = "degraded" // the host could not keep up with the model
	VerdictFailed   = "failed"   // an expectation or a law does not hold
)

// Result is what one run measured: the document that --json writes. Keys are
// added in later versions, never renamed; numbers are in base units.
type Result struct {
	Schema       int           `json:"schema"`
	Version      string        `json:"version"` // of nicemu
	Scenario     string        `json:"scenario"`
	File         string        `json:"file,omitempty"`      // of the scenario, or "built in"
	Overrides    []string      `json:"overrides,omitempty"` // KEY=VALUE on top of the file, as given
	Seed         int64         `json:"seed"`
	Verdict      string        `json:"verdict"`
	Reasons      []string      `json:"reasons"`
	Notes        []string      `json:"notes"` // what to know when reading the figures; no part of the verdict
	Kernel       report.Kernel `json:"kernel"`
	Clock        string        `json:"clock"`        // real, virtual
	Backpressure string        `json:"backpressure"` // native, gate, lossy, virtio, none
	WallS        float64       `json:"wall_s"`       // 0 on models, whose document is the same from run to run
	Laws         report.Laws   `json:"laws"`
	Cases        []*Case       `json:"cases"`
}

// Case is one point of the sweep.
type Case struct {
	Params       map[string]any              `json:"params"`
	VirtualS     float64                     `json:"virtual_s"` // time on the models' clock
	Workloads    map[string]*workload.Result `json:"workloads"`
	NICs         map[string]*NIC             `json:"nics"`
	Qdiscs       []map[string]any            `json:"qdiscs"`
	LatenessNs   report.Percentiles          `json:"lateness_ns"`
	HostCeiling  *Ceiling                    `json:"host_ceiling,omitempty"`
	OthersCPU    *float64                    `json:"others_cpu,omitempty"` // real clock only: share of all processors that other programs used, 0 to 1
	Expectations []Expectation               `json:"expectations"`
	Setup        *Setup                      `json:"setup,omitempty"`
	Replay       *Replay                     `json:"replay,omitempty"` // live replay only

	title    string // the swept values, for people
	degraded bool   // the host could not keep up
}

// NIC is one card's part of a case. Frames and bytes are those of the wire,
// headers of every segment included.
type NIC struct {
	Device            string              `json:"device"`
	Offered           uint64              `json:"offered"`
	OfferedBytes      uint64              `json:"offered_bytes"`
	Sent              uint64              `json:"sent"`
	SentBytes         uint64              `json:"sent_bytes"`
	Dropped           map[string]uint64   `json:"dropped"`
	DroppedBytes      map[string]uint64   `json:"dropped_bytes"`
	Queued            uint64              `json:"queued"`
	QueuedBytes       uint64              `json:"queued_bytes"`
	Received          uint64              `json:"received"`
	ReceivedBytes     uint64              `json:"received_bytes"`
	GateExcessBytes   *report.Percentiles `json:"gate_excess_bytes,omitempty"` // beyond BQL limit + one largest packet
	GateRescues       uint64              `json:"gate_rescues"`
	BelowQdiscDropped uint64              `json:"below_qdisc_dropped"`
	Interrupts        uint64              `json:"interrupts"`
	SentPackets       uint64              `json:"sent_packets"`             // segments of GSO frames counted one by one
	ThroughputBPS     float64             `json:"throughput_bps,omitempty"` // simulate only: sent after the warm-up
	PPS               float64             `json:"pps,omitempty"`            // simulate only: wire packets after the warm-up
	CPUBusyNs         int64               `json:"cpu_busy_ns,omitempty"`    // simulate only: core time spent
	LegsNs            []report.Leg        `json:"legs_ns,omitempty"`        // models only
	Queues            []report.Queue      `json:"queues"`
	Counters          map[string]uint64   `json:"counters"`
}

// Ceiling is what this host carries through an emulated card without a limit of
// its own, measured in this run; see [emulator.MeasureCeiling].
type Ceiling struct {
	FramesPerS float64 `json:"frames_per_s"`
	BitsPerS   float64 `json:"bits_per_s"`
}

// Expectation is one claim of the scenario and what became of it.
type Expectation struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Expected  float64 `json:"expected"`
	Op        string  `json:"op"`
	Unit      string  `json:"unit"`
	Tolerance float64 `json:"tolerance"`
	Error     float64 `json:"error"` // value / expected - 1
	Source    string  `json:"source"`
	Fitted    bool    `json:"fitted"` // a parameter was chosen so that this figure comes out
	OK        bool    `json:"ok"`
}

// WriteJSON writes the document, indented, with a stable order of keys.
func (r *Result) WriteJSON(w io.Writer) error { return report.JSON(w, r) }

// nicResult reads everything off a card.
func nicResult(device string, n *nic.NIC) *NIC {
	s := n.Stats()
	r := &NIC{
		Device:  device,
		Offered: s.Offered.Frames, OfferedBytes: s.Offered.Bytes,
		Sent: s.Sent.Frames, SentBytes: s.Sent.Bytes, SentPackets: n.Total().Packets,
		Queued: s.Queued.Frames, QueuedBytes: s.Queued.Bytes,
		Received: s.Delivered.Frames, ReceivedBytes: s.Delivered.Bytes,
		Dropped: map[string]uint64{}, DroppedBytes: map[string]uint64{},
		Interrupts: s.Interrupts,
		Counters:   map[string]uint64{},
	}
	for reason, c := range s.Dropped {
		r.drop(reason, c)
	}
	r.drop("rx_no_descriptor", s.RXDropped)
	for q := range n.Queues() {
		s := n.Queue(q)
		r.Queues = append(r.Queues, report.QueueOf(&s))
	}
	for _, c := range n.Counters() {
		r.Counters[c.Name] = c.Value
	}
	return r
}

func (r *NIC) drop(reason string, c nic.Count) {
	if c.Frames > 0 {
		r.Dropped[reason] += c.Frames
		r.DroppedBytes[reason] += c.Bytes
	}
}
