package reproduce

import (
	"fmt"
	"strings"

	"nicemu/devices/engine"
	"nicemu/replay/source"
)

// igbQav: best effort on queue 3 against the size of its packet buffer, with and
// without a launch-time frame each 125 µs on queue 0. 4 KB hold one frame at a
// time, since a fetch needs 4032 bytes free; 6 KB let the next one come while
// the first is on the wire. With launch times SP_WAIT_SR closes the last
// 32.256 µs of each cycle to best effort.
var igbQav = Experiment{
	Name:    "igb-qav",
	Device:  "igb",
	Varied:  []string{"qav", "queue0.txtime", "txpbsize", "dtxmxpktsz", "bql"},
	Summary: "best effort beside launch-time frames against the split of the packet buffer",
	Fitted: []Parameter{{
		Name: "igb fetch.latency", Value: "860ns",
		Meaning:  "from the start of a data fetch over PCIe to its first byte",
		FittedTo: "igb-qav | before/tcp/default/no_tsn | throughput",
	}},
	Run: runIgb,
}

// iperf3 sends 1448 bytes of payload in a wire packet of either kind: 586 Mbit/s
// are 1,011,407 datagrams in 20 s.
const udpHeaders = 14 + 20 + 8

// qavCase is one run of the published table, or a question beside it.
type qavCase struct {
	name     string
	settings []KV
	udp, tsn bool
	whatIf   string // not published: why it comes out so
}

func (c *qavCase) traffic() string {
	if c.udp {
		return "udp"
	}
	return "tcp"
}

func (c *qavCase) load() string {
	if c.tsn {
		return "with_tsn"
	}
	return "no_tsn"
}

func runIgb(overrides []KV, _ uint64) ([]Row, error) {
	qav := func(more ...KV) []KV { return append([]KV{{"qav", "on"}, {"queue0.txtime", "on"}}, more...) }
	before := KV{"txpbsize", "8kb,8kb,4kb,4kb"}
	after := KV{"txpbsize", "6kb,6kb,6kb,6kb"}
	short := KV{"dtxmxpktsz", "1536"}
	cases := []qavCase{
		{name: "not_qav"},
		{name: "before", settings: qav(before)},
		{name: "before", settings: qav(before), tsn: true},
		{name: "before", settings: qav(before), udp: true},
		{name: "before", settings: qav(before), udp: true, tsn: true},
		{name: "after", settings: qav(after)},
		{name: "after", settings: qav(after), tsn: true},
		{name: "after", settings: qav(after), udp: true},
		{name: "after", settings: qav(after), udp: true, tsn: true},
		{name: "before, dtxmxpktsz=1536", settings: qav(before, short), whatIf: "line rate with the old split: a fetch needs less room"},
		{name: "before, dtxmxpktsz=1536, bql=off", settings: qav(before, short, KV{"bql", "off"}), tsn: true,
			whatIf: "the guard is 12.288 us, so 9 frames fit a cycle with 2 us to spare"},
		{name: "before, dtxmxpktsz=1536", settings: qav(before, short), tsn: true,
			whatIf: "BQL lets launch-time frames to the card in mid-cycle, where their fetches delay best effort by 3 us: one frame in three cycles misses"},
	}
	rows := make([][]Row, len(cases))
	err := parallel(len(cases), func(i int) error {
		return onCore(func() error {
			c := &cases[i]
			m, err := c.run(overrides)
			rows[i] = c.rows(m)
			return err
		})
	})
	var all []Row
	for _, r := range rows {
		all = append(all, r...)
	}
	return all, err
}

// rows are the figures of one case; the published ones differ by the size of
// iperf3's writes, which makes no difference to the card.
func (c *qavCase) rows(m qavFigures) []Row {
	row := func(kind string) Row {
		condition := strings.Join([]string{c.name, c.traffic(), kind, c.load()}, "/")
		return compare("igb-qav", condition, "throughput", m.goodput, 0.03)
	}
	switch {
	case c.whatIf != "":
		return []Row{predict("igb-qav", c.name+"/tcp/"+c.load(), "throughput", "Mbit/s", m.goodput, "not published: "+c.whatIf)}
	case c.settings == nil:
		return []Row{compare("igb-qav", "not_qav/tcp/no_tsn", "throughput", m.goodput, 0.03).because(hostLoss)}
	case c.udp:
		r := row("1000M")
		if c.name == "before" && c.tsn {
			r = r.because("4.87 frames a cycle were measured where 5 fit: one cycle in seven lost one")
		}
		d := compare("igb-qav", r.Condition, "total_datagrams", m.datagrams, 0.03)
		d.Why = r.Why
		return []Row{r, d}
	}
	list := []Row{row("default"), row("4K"), row("192B")}
	if c.name == "before" && !c.tsn {
		list[0] = list[0].fit()
	}
	for i := range list {
		switch {
		case i > 0:
			list[i] = list[i].because("full segments whatever the size of the writes: the same run as default")
		case c.name == "after" && !c.tsn:
			list[i] = list[i].because(hostLoss)
		}
	}
	return list
}

const hostLoss = "line rate; the host lost the rest, as in legacy mode"

// qavFigures are what the sender of best effort got through.
type qavFigures struct {
	goodput   float64 // Mbit/s of payload
	datagrams float64 // sent in the run, what is still queued included
}

// The published runs last 20 s; what BQL and interrupts need to settle is left
// out of the rate.
const (
	iperfRun = 20 * engine.Second
	warmUp   = 100 * engine.Millisecond
)

func (c *qavCase) run(overrides []KV) (qavFigures, error) {
	e := engine.New(1)
	s, err := build(e, pfifo, "igb", c.settings, overrides)
	if err != nil {
		return qavFigures{}, err
	}
	const bestEffort = 3 // queue of traffic class 3
	if bestEffort >= s.NIC.Queues() {
		return qavFigures{}, fmt.Errorf("queues = %d: best effort is on queue %d", s.NIC.Queues(), bestEffort)
	}
	sender := source.Bulk{Queue: bestEffort, Payload: 45 * source.MSS} // TSO
	if c.udp {
		sender = source.Bulk{Queue: bestEffort, Payload: source.MSS, Headers: udpHeaders}
	}
	if c.tsn {
		(&source.Talker{Queue: 0, Bytes: tcpFrame, Cycle: 125 * engine.Microsecond, Ahead: engine.Millisecond}).Start(s)
	}
	sender.Start(s)
	e.AdvanceTo(warmUp)
	before := s.NIC.Queue(bestEffort).Packets
	e.AdvanceTo(iperfRun)
	sent := s.NIC.Queue(bestEffort).Packets - before
	return qavFigures{
		goodput:   float64(sent) * source.MSS * 8 / 1e6 / (float64(iperfRun-warmUp) / float64(engine.Second)),
		datagrams: float64(s.Offered(bestEffort).Frames),
	}, s.Audit()
}
