package reproduce

import (
	"fmt"
	"math"
	"slices"

	"nicemu/devices/engine"
	"nicemu/devices/units"
	"nicemu/replay/source"
)

// manaBQL: bulk TCP flows and a request/response probe share the send queues of
// a card that is capped at 10.6 Gbit/s, with fq_codel in front of each. Without
// BQL the probe waits behind what TCP allows below itself, with BQL behind one
// queue limit in the share that the queue has of the cap.
//
// Not modelled, since only real TCP and real hosts have them: the qdisc drops
// and retransmissions with BQL (windows above fq_codel's target), and the
// packet rate of 16 UDP senders (core time alone).
var manaBQL = Experiment{
	Name:    "mana-bql",
	Device:  "mana",
	Varied:  []string{"queues", "bql"},
	Summary: "latency behind bulk TCP with and without byte queue limits",
	Fitted: []Parameter{
		TCPPacing,
		{"mana napi.stall_rate", manaStallRate + "/s", "how often a queue's poll is held up by host or hypervisor",
			"mana-bql | after/1 queue, 8 flows | tcp_rr_p50"},
		{"mana napi.stall_mean", manaStallMean, "mean length of a hold-up, exponential",
			"mana-bql | after/1 queue, 8 flows | tcp_rr_p99"},
	},
	Run: runMana,
}

// TCPPacingTime is what the model of TCP has below itself, in time at its share
// of the link, here and everywhere else.
const TCPPacingTime = 2300 * engine.Microsecond

// TCPPacing says where it comes from.
var TCPPacing = Parameter{"mana tcp pacing", units.Duration(TCPPacingTime).String(),
	"what TCP lets a flow have below itself, in time at its share of the link (pacing rate >> 10)",
	"mana-bql | before/1 queue, 8 flows | tcp_rr_p50"}

const (
	tcpSpread     = 0.15 // so that flows do not keep step
	manaStallRate = "5"
	manaStallMean = "160us"

	// The cap is one of TCP payload, as the testers' tools count it; on the wire
	// stand the headers of every segment.
	manaCap     = 10.6e9
	manaCapWire = manaCap * (source.MSS + source.TCPHeader) / source.MSS

	// The probe's round trip without load: a median of 47 µs is given.
	rrBase, rrBaseMean = 40 * engine.Microsecond, 10 * engine.Microsecond

	// Flow hashes tried, as testers with six runs each would. On many queues
	// the probe's latency depends on its hash, so that takes more testers.
	manaRuns                   = 6
	manaHashes, manaManyHashes = 4 * manaRuns, 16 * manaRuns

	manaWarm  = 2 * engine.Second
	manaLong  = 12 * engine.Second // DQL remembers the worst of each second
	manaTime  = 3 * engine.Second
	manaShort = 500 * engine.Millisecond
)

// manaCondition is one line of the patch's table, and what its runs gave.
type manaCondition struct {
	queues, flows int
	bql           string
	hashes        int
	measure       engine.Time
	runs          []manaRun
}

// manaRun is what one flow hash gives.
type manaRun struct {
	p50, p99 float64 // of the probe, µs
	goodput  float64 // of the flows, Gbit/s
	lost     float64 // frames that the qdiscs dropped
}

func runMana(overrides []KV, seed uint64) ([]Row, error) {
	before1 := &manaCondition{queues: 1, flows: 8, bql: "off", hashes: manaHashes, measure: manaTime}
	after1 := &manaCondition{queues: 1, flows: 8, bql: "v1", hashes: manaHashes, measure: manaLong}
	before16 := &manaCondition{queues: 16, flows: 64, bql: "off", hashes: manaManyHashes, measure: manaTime}
	after16 := &manaCondition{queues: 16, flows: 64, bql: "v1", hashes: manaManyHashes, measure: manaTime}
	idle := &manaCondition{queues: 16, bql: "v1", hashes: 1, measure: manaShort}
	one := &manaCondition{queues: 16, flows: 1, bql: "v1", hashes: 1, measure: manaShort}
	eight := &manaCondition{queues: 16, flows: 8, bql: "v1", hashes: 1, measure: manaShort}
	conditions := []*manaCondition{before1, after1, before16, after16, idle, one, eight}
	err := parallel(len(conditions), func(i int) error { return conditions[i].run(overrides, seed) })
	if err != nil {
		return nil, err
	}
	p50 := func(r *manaRun) float64 { return r.p50 }
	p99 := func(r *manaRun) float64 { return r.p99 }
	goodput := func(r *manaRun) float64 { return r.goodput }
	row := func(condition, metric string, model, tolerance float64) Row {
		return compare("mana-bql", condition, metric, model, tolerance)
	}
	const (
		given  = "given: the cap, and the round trip without load"
		spread = "real windows vary during a run, the model's flows only from flow to flow"
		hash   = "a matter of flow hash: behind up to four flows the probe waits for three rounds of 16 packets, 2.2 to 2.4 ms, behind more of them (smaller packets) for two, 1.6 ms; medians of six runs fall on 1.9 to 2.3 ms"
	)
	b1, a1, b16, a16 := "before/1 queue, 8 flows", "after/1 queue, 8 flows", "before/16 queues, 64 flows", "after/16 queues, 64 flows"
	return []Row{
		row("both/idle", "tcp_rr_p50", idle.median(p50), 0.02).because(given),
		row("both/1 tcp flow", "throughput", one.median(goodput), 0.01).because(given),
		row("both/8 tcp flows", "throughput", eight.median(goodput), 0.01).because(given),
		row("both/64 tcp flows", "throughput", after16.median(goodput), 0.01).because(given),
		row(b1, "tcp_rr_p50", before1.median(p50), 0.1).fit(),
		row(b1, "tcp_rr_p99", before1.median(p99), 0.25).because(spread),
		row(a1, "tcp_rr_p50", after1.median(p50), 0.1).fit(),
		row(a1, "tcp_rr_p99", after1.median(p99), 0.25).fit(),
		row(b16, "tcp_rr_p50", before16.median(p50), 0.1),
		row(b16, "tcp_rr_p99", before16.median(p99), 0.25).because(spread),
		row(a16, "tcp_rr_p50", after16.median(p50), 0.15).because(hash),
		row(a16, "tcp_rr_p99", after16.median(p99), 0.25),
		row("after vs before", "goodput_change", 100*math.Abs(after16.median(goodput)/before16.median(goodput)-1), 0),
		row("after", "tcp_rr_lost_packets", after16.median(func(r *manaRun) float64 { return r.lost }), 0),
	}, nil
}

// run tries all hashes.
func (c *manaCondition) run(overrides []KV, seed uint64) error {
	c.runs = make([]manaRun, c.hashes)
	return parallel(c.hashes, func(i int) error {
		return onCore(func() (err error) {
			c.runs[i], err = c.once(overrides, seed+uint64(i))
			return err
		})
	})
}

// median is what is published, the median of six runs, for the testers whose
// luck with flow hashes was neither good nor bad.
func (c *manaCondition) median(of func(*manaRun) float64) float64 {
	var medians []float64
	for testers := range slices.Chunk(c.runs, manaRuns) {
		var v []float64
		for i := range testers {
			v = append(v, of(&testers[i]))
		}
		medians = append(medians, median(v))
	}
	return median(medians)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// once runs one hash.
func (c *manaCondition) once(overrides []KV, seed uint64) (run manaRun, err error) {
	e := engine.New(seed)
	s, err := build(e, fqCodel, "mana", []KV{
		{"queues", fmt.Sprint(c.queues)},
		{"link.rate", fmt.Sprintf("%.0fbit", manaCapWire)},
		{"bql", c.bql},
		{"napi.stall_rate", manaStallRate}, {"napi.stall_mean", manaStallMean},
	}, overrides)
	if err != nil {
		return run, err
	}
	tcp := bulkTCP(e, s.NIC.Queues(), c.flows)
	tcp.Start(s)
	rr := &source.Requests{Queue: e.Rand().IntN(s.NIC.Queues()), Base: rrBase, BaseMean: rrBaseMean}
	rr.Start(s)
	e.AdvanceTo(manaWarm)
	rr.Latency.Reset()
	before := tcp.Total()
	e.AdvanceTo(manaWarm + c.measure)
	run.p50 = float64(rr.Latency.ValueAtQuantile(50)) / 1e3
	run.p99 = float64(rr.Latency.ValueAtQuantile(99)) / 1e3
	run.goodput = float64(tcp.Total()-before) * 8 / float64(c.measure)
	for _, dropped := range s.Dropped() {
		run.lost += float64(dropped.Frames)
	}
	return run, s.Audit()
}

// bulkTCP hashes flows to queues. The card serves busy queues alike, and a
// queue its flows.
func bulkTCP(e *engine.Engine, queues, flows int) *source.TCP {
	t := &source.TCP{Pacing: TCPPacingTime, Spread: tcpSpread}
	count := make([]int, queues)
	for range flows {
		q := e.Rand().IntN(queues)
		t.Queues = append(t.Queues, q)
		count[q]++
	}
	busy := queues
	for _, n := range count {
		if n == 0 {
			busy--
		}
	}
	for _, q := range t.Queues {
		t.Rates = append(t.Rates, manaCap/8/float64(busy)/float64(count[q]))
	}
	return t
}
