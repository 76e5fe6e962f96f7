package replay

import (
	"io"

	"nicemu/devices/nic"
	"nicemu/replay/qdisc"
	"nicemu/replay/report"
)

// Verdicts of a replay.
const (
	VerdictOK       = "ok"
	VerdictDegraded = "degraded" // not everything was played
	VerdictFailed   = "failed"   // a law does not hold
)

// Result is what a replay found out: the document of --json, with the keys of `nicemu run` and those of its own. It is a function of the captures
// and the options: the time that the computer took stands in Wall, not in the document.
type Result struct {
	Schema       int           `json:"schema"`
	Scenario     string        `json:"scenario"` // "replay"
	Seed         uint64        `json:"seed"`
	Verdict      string        `json:"verdict"`
	Reasons      []string      `json:"reasons"`
	Kernel       report.Kernel `json:"kernel"`
	Clock        string        `json:"clock"`        // "virtual"
	Backpressure string        `json:"backpressure"` // "none": there is no kernel to push back into, the models stop and wake each other
	WallS        *float64      `json:"wall_s"`       // null: the clock is virtual
	Laws         report.Laws   `json:"laws"`
	Cases        []*Case       `json:"cases"` // one

	Wall float64 `json:"-"` // seconds that the run took
}

// Case is the one run.
type Case struct {
	Params       map[string]any       `json:"params"`
	VirtualS     float64              `json:"virtual_s"`
	Workloads    map[string]*Workload `json:"workloads"` // "replay"
	NICs         map[string]*NIC      `json:"nics"`      // by device
	Qdiscs       []QdiscStats         `json:"qdiscs"`
	LatenessNs   report.Percentiles   `json:"lateness_ns"` // of timers: none is ever late
	Expectations []any                `json:"expectations"`
	Replay       Replay               `json:"replay"`
}

// Replay is what was read and how it was played.
type Replay struct {
	Device string            `json:"device"`
	Set    map[string]string `json:"set"` // knobs turned
	Played
	Qdisc     string        `json:"qdisc"`
	LinkTrace bool          `json:"link_trace"`
	Launch    *LaunchResult `json:"launch,omitempty"`
	EpochNs   int64         `json:"epoch_ns"`  // time of the first frame in the capture, since the Unix epoch
	OriginNs  int64         `json:"origin_ns"` // when it was due in the run
	StreamStats
	Captures []FileStats `json:"captures"`
	Policy   string      `json:"policy"`
}

// Policy says what a replay does with packets that are out of the ordinary, beside [capture.Policy].
const Policy = "a packet earlier than one before it in its file: sent with that one; truncated: sent with its original length; " +
	"larger than the MTU or with an IP length of 0: kept or cut as offload says, or sent as it is if nothing can cut it"

// LaunchResult is how the frames with a launch time kept it.
type LaunchResult struct {
	Queues     []int              `json:"queues"`
	DeltaNs    int64              `json:"delta_ns"`
	LateNs     report.Percentiles `json:"late_ns"` // from the launch time to the start on the wire, 0 for early ones
	Early      uint64             `json:"early"`   // frames that started before: cards round down
	EarlyMaxNs int64              `json:"early_max_ns"`
}

// Workload is the replay as a workload.
type Workload struct {
	Kind       string         `json:"kind"`
	GoodputBPS float64        `json:"goodput_bps"` // bytes sent, from the first frame enqueued to the last bit on the wire
	PPS        float64        `json:"pps"`         // packets on the wire in the same time
	Lost       uint64         `json:"lost"`        // frames dropped
	LatencyNs  report.Latency `json:"latency_ns"`
}

// NIC is what the card did. Frames and bytes are those of the wire, headers of every segment included.
type NIC struct {
	Device            string            `json:"device"`
	Offered           uint64            `json:"offered"`
	OfferedBytes      uint64            `json:"offered_bytes"`
	Sent              uint64            `json:"sent"`
	SentBytes         uint64            `json:"sent_bytes"`
	SentPackets       uint64            `json:"sent_packets"` // segments of GSO frames counted one by one
	Dropped           map[string]uint64 `json:"dropped"`
	DroppedBytes      map[string]uint64 `json:"dropped_bytes"`
	Queued            uint64            `json:"queued"`
	QueuedBytes       uint64            `json:"queued_bytes"`
	BelowQdiscDropped uint64            `json:"below_qdisc_dropped"`
	Interrupts        uint64            `json:"interrupts"`
	LegsNs            []Leg             `json:"legs_ns"` // of all queues, with distributions
	Queues            []NICQueue        `json:"queues"`
	Counters          map[string]uint64 `json:"counters"`
}

// NICQueue is one transmit queue's part.
type NICQueue struct {
	report.Queue
	Offered      uint64 `json:"offered"`
	OfferedBytes uint64 `json:"offered_bytes"`
	Sent         uint64 `json:"sent"`
	SentBytes    uint64 `json:"sent_bytes"`
	LegsNs       []Leg  `json:"legs_ns"`
}

// Leg is how long frames took from one point of their way to another.
type Leg struct {
	report.Leg
	Distribution []Quantile `json:"distribution,omitempty"`
}

// Quantile is a step of a distribution: so many frames took at most so long. Steps halve the distance to 100 %.
type Quantile struct {
	Percentile float64 `json:"percentile"`
	Ns         int64   `json:"ns"`
	Count      int64   `json:"count"`
}

// QdiscStats are the counters of one queue's qdisc, in tc's spelling.
type QdiscStats struct {
	Dev   string `json:"dev"`
	Queue int    `json:"queue"`
	Model bool   `json:"model"` // true: not the kernel's
	qdisc.Stats
}

// WriteJSON writes the document, indented, with a stable order of keys.
func (r *Result) WriteJSON(w io.Writer) error { return report.JSON(w, r) }

// card is the one card's part.
func (r *Result) card() *NIC { return r.Cases[0].NICs[r.Cases[0].Replay.Device] }

func (n *NIC) drop(reason string, c nic.Count) {
	n.Dropped[reason] += c.Frames
	n.DroppedBytes[reason] += c.Bytes
}
