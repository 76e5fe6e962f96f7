package scenarios

import (
	"fmt"
	"slices"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/report"
	"nicemu/replay/source"
	"nicemu/replay/stack"
	"nicemu/scenarios/format"
	"nicemu/scenarios/reproduce"
	"nicemu/scenarios/workload"
)

// load is the model of one workload.
type load interface {
	start()
	stop()
	result() *workload.Result
}

const (
	tcpSpread = 0.15 // so that flows do not keep step

	// turnaround is the mean time in which the program at the other end of rr
	// answers: the exponential part of the round trip in package reproduce.
	// Kernels answer pings themselves.
	turnaround = 10 * engine.Microsecond

	ipv4, ipv6     = 20, 40 // header bytes
	etherHdr       = 14
	tcpHdr, udpHdr = 20 + 12, 8 // TCP with timestamps
	icmpHdr        = 8
	pingPayload    = 56 // bytes, ping's default
)

// way is the cards at both ends of a workload and the transmit queues that its
// flow hashes choose.
type way struct {
	w        *format.Workload
	path     string // of the workload in the file
	from, to *modelCard
	ip       int // bytes of the IP header
	priority uint32
}

// addLoad makes the model of workload i.
func (m *model) addLoad(i int) error {
	w := &m.s.Workloads[i]
	v := &way{w: w, path: fmt.Sprintf("workload[%d]", i), ip: ipv4, priority: priorityOf(w)}
	if w.IPv6 {
		v.ip = ipv6
	}
	if w.Kind == format.KindExec {
		return m.s.Fault(v.path+".kind", fmt.Sprintf("workload %s is of kind exec: a program needs a kernel", w.Name), "iperf3, rr or ping, or --kernel host or lab")
	}
	if err := m.route(v); err != nil {
		return err
	}
	if err := m.checkArgs(v); err != nil {
		return err
	}
	switch {
	case w.Kind == format.KindRR:
		m.loads = append(m.loads, m.newRR(v))
	case w.Kind == format.KindPing:
		return m.addPing(v)
	case w.Proto == format.UDP:
		return m.addUDP(v)
	default:
		m.loads = append(m.loads, m.newTCP(v))
	}
	return nil
}

// route finds the cards at both ends: those of one link.
func (m *model) route(v *way) error {
	target := m.s.Target(v.w)
	for _, c := range m.cards {
		for _, p := range c.spec.Addr {
			if c.spec.Netns == v.w.TargetNetns() && p.Addr() == target && c.peer != nil && c.peer.spec.Netns == v.w.From {
				v.from, v.to = c.peer, c
				return nil
			}
		}
	}
	return m.s.Fault(v.path+".to", fmt.Sprintf("workload %s: no link joins %s and %s", v.w.Name, v.w.From, v.w.To), "a link between them, since the models do not route, or --kernel host or lab")
}

// harmless are the arguments of iperf3 that change nothing in a model, and how
// many values each has.
var harmless = map[string]int{"--congestion": 1, "-C": 1, "--no-delay": 0, "-N": 0}

// checkArgs refuses arguments for a program that is not there.
func (m *model) checkArgs(v *way) error {
	args := v.w.Args
	for i := 0; i < len(args); i++ {
		n, ok := harmless[args[i]]
		if !ok || v.w.Kind != format.KindIperf3 {
			return m.s.Fault(fmt.Sprintf("%s.args[%d]", v.path, i), fmt.Sprintf("workload %s: the model of %s has no argument %s", v.w.Name, v.w.Kind, args[i]), "none, or --kernel host or lab")
		}
		m.note(fmt.Sprintf("workload %s: %s is without effect on the model of TCP", v.w.Name, args[i]))
		i += n
	}
	return nil
}

func (m *model) note(text string) {
	if !slices.Contains(m.notes, text) {
		m.notes = append(m.notes, text)
	}
}

// priorityOf is what skb->priority becomes: SO_PRIORITY, else what IPv4 makes of
// the TOS (include/net/route.h rt_tos2priority).
func priorityOf(w *format.Workload) uint32 {
	if w.Priority > 0 || w.IPv6 {
		return uint32(w.Priority)
	}
	return tos2prio[w.TOS&0x1e>>1]
}

// tos2prio is ip_tos2prio of net/ipv4/route.c.
var tos2prio = [16]uint32{0, 1, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4}

// hash chooses a transmit queue as skb_tx_hash does, by a flow's hash.
func (m *model) hash(c *modelCard) int { return m.eng.Rand().IntN(c.spec.Queues) }

func (v *way) mss() int { return v.mtu() - v.ip - tcpHdr }

// mtu is what both ends can take.
func (v *way) mtu() int { return min(v.from.spec.MTU, v.to.spec.MTU) }

// onLost has see told of every frame that the link or a receiving ring has lost
// of what either end has sent.
func (v *way) onLost(see func(*stack.Stack, *nic.Frame)) {
	for _, c := range [2]*modelCard{v.from, v.to} {
		c.onLost = append(c.onLost, func(f *nic.Frame) { see(c.stack, f) })
	}
}

// onLoss has see told of every frame that c has sent in vain.
func (c *modelCard) onLoss(see func(*nic.Frame)) {
	c.onLost = append(c.onLost, see)
	c.stack.OnDrop(func(f *nic.Frame, _ string) { see(f) })
	c.stack.OnComplete(func(f *nic.Frame) {
		if f.WireEnd == 0 {
			see(f)
		}
	})
}

// tcpLoad is iperf3 over TCP.
type tcpLoad struct {
	*way
	model *model
	meter meter
	src   source.TCP
	on    bool
}

func (m *model) newTCP(v *way) *tcpLoad {
	l := &tcpLoad{way: v, model: m, src: source.TCP{
		Pacing: reproduce.TCPPacingTime, Spread: tcpSpread, MSS: v.mss(), Headers: etherHdr + v.ip + tcpHdr, Priority: v.priority,
		Segmented: v.from.segmented(), Limit: v.w.Rate, Write: int(v.w.Length),
	}}
	for range v.w.Flows {
		l.src.Queues = append(l.src.Queues, m.hash(v.from))
	}
	l.src.Rates = make([]float64, v.w.Flows) // see share
	return l
}

func (l *tcpLoad) start() {
	l.on = true
	l.model.share()
	l.meter.watch(l.way, l.w.Flows, l.src.Headers)
	l.src.Start(l.from.stack)
}

func (l *tcpLoad) stop() {
	l.src.Stop()
	l.on = false
}

func (l *tcpLoad) result() *workload.Result {
	r := l.meter.result(format.KindIperf3)
	r.Retransmits = &l.meter.lost
	if l.meter.lost > 0 {
		l.model.note(fmt.Sprintf("workload %s: segments were lost, and the model of TCP does not slow down for it as TCP does", l.w.Name))
	}
	return r
}

// share gives every TCP flow its share of its card: what UDP leaves, the same
// for every queue that has flows, and for every flow of a queue.
func (m *model) share() {
	for _, c := range m.cards {
		if c.out != nil && c.out.rate > 0 {
			m.shareCard(c)
		}
	}
}

func (m *model) shareCard(c *modelCard) {
	left := float64(c.out.rate) / 8 // bytes a second
	flows := make([]int, c.spec.Queues)
	busy := 0
	for _, l := range m.loads {
		switch l := l.(type) {
		case *udpLoad:
			if l.on && l.from == c {
				left -= l.wireRate()
			}
		case *tcpLoad:
			if !l.on || l.from != c {
				continue
			}
			for _, q := range l.src.Queues {
				if flows[q]++; flows[q] == 1 {
					busy++
				}
			}
		}
	}
	left = max(left, float64(c.out.rate)/8/100) // UDP never takes all of it
	link := &c.stack.NIC.Config().Link
	for _, l := range m.loads {
		l, ok := l.(*tcpLoad)
		if !ok || !l.on || l.from != c {
			continue
		}
		mss := float64(l.src.MSS)
		payload := mss / (mss + float64(l.src.Headers+link.Preamble+link.FCS+link.Gap))
		for i, q := range l.src.Queues {
			rate := left * payload / float64(busy) / float64(flows[q])
			if l.src.Limit > 0 {
				rate = min(rate, float64(l.src.Limit)/8)
			}
			l.src.Share(i, rate)
		}
	}
}

// udpLoad is iperf3 over UDP: its flows send at a constant rate, each from a
// socket of its own that has the kernel's default send buffer.
type udpLoad struct {
	*way
	meter meter
	flows []source.UDP
	on    bool
}

func (m *model) addUDP(v *way) error {
	headers := etherHdr + v.ip + udpHdr
	payload := int(v.w.Length)
	most := v.mtu() - v.ip - udpHdr
	if payload == 0 {
		payload = v.mss() // iperf3 takes the MSS of its control connection
	}
	if payload > most {
		return m.s.Fault(v.path+".length", fmt.Sprintf("workload %s: datagrams of %d bytes would be fragmented", v.w.Name, payload), fmt.Sprintf("at most %db, or --kernel host or lab", most))
	}
	l := &udpLoad{way: v, flows: make([]source.UDP, v.w.Flows)}
	for i := range l.flows {
		l.flows[i] = source.UDP{
			Queue: m.hash(v.from), Payload: payload, Headers: headers, Rate: v.w.Rate, Priority: v.priority, SendBuffer: source.SendBuffer,
		}
	}
	m.loads = append(m.loads, l)
	return nil
}

// wireRate is what all flows take of the link, bytes a second.
func (l *udpLoad) wireRate() float64 {
	link, f := &l.from.stack.NIC.Config().Link, &l.flows[0]
	wire := max(f.Payload+f.Headers, link.MinFrame) + link.Preamble + link.FCS + link.Gap
	return float64(len(l.flows)) * float64(f.Rate) / 8 * float64(wire) / float64(f.Payload)
}

func (l *udpLoad) start() {
	l.meter.watch(l.way, len(l.flows), l.flows[0].Headers)
	for i := range l.flows {
		l.flows[i].Start(l.from.stack)
	}
	l.on = true
}

func (l *udpLoad) stop() {
	for i := range l.flows {
		l.flows[i].Stop()
	}
	l.on = false
}

func (l *udpLoad) result() *workload.Result {
	r := l.meter.result(format.KindIperf3)
	r.Lost = &l.meter.lost
	return r
}

// exchange is what rr and ping have in common.
func (m *model) exchange(v *way, headers, mss int) source.Exchange {
	w := v.w
	return source.Exchange{
		Client: source.End{Stack: v.from.stack, Queue: m.hash(v.from)}, Server: source.End{Stack: v.to.stack, Queue: m.hash(v.to)},
		Headers: headers, MSS: mss, Segmented: v.from.segmented() || v.to.segmented(), Priority: v.priority,
		Interval: engine.Time(w.Interval), Warmup: engine.Time(w.Warmup), Turnaround: turnaround,
	}
}

// rrLoad is request and response over TCP.
type rrLoad struct {
	*way
	src source.Transactions
}

func (m *model) newRR(v *way) *rrLoad {
	l := &rrLoad{way: v, src: source.Transactions{Exchange: m.exchange(v, etherHdr+v.ip+tcpHdr, v.mss())}}
	l.src.Request, l.src.Response = int(v.w.Request), int(v.w.Response)
	return l
}

func (l *rrLoad) start() {
	l.onLost(l.src.Lost)
	l.src.Start()
}

func (l *rrLoad) stop() { l.src.Stop() }

func (l *rrLoad) result() *workload.Result {
	return exchangeResult(format.KindRR, &l.src.Exchange, "client: request handed to the qdisc to last byte of the response received")
}

func exchangeResult(kind format.Kind, x *source.Exchange, between string) *workload.Result {
	return &workload.Result{Kind: kind, LatencyNS: report.LatencyOf(x.Latency, between)}
}

// pingLoad is ping.
type pingLoad struct {
	*way
	src source.Echoes
}

func (m *model) addPing(v *way) error {
	payload := int(v.w.Length)
	if payload == 0 {
		payload = pingPayload
	}
	if most := v.mtu() - v.ip - icmpHdr; payload > most {
		return m.s.Fault(v.path+".length", fmt.Sprintf("workload %s: echo requests of %d bytes would be fragmented", v.w.Name, payload), fmt.Sprintf("at most %db, or --kernel host or lab", most))
	}
	l := &pingLoad{way: v, src: source.Echoes{Exchange: m.exchange(v, etherHdr+v.ip+icmpHdr, v.mtu()-v.ip-icmpHdr)}}
	l.src.Request = payload
	m.loads = append(m.loads, l)
	return nil
}

func (l *pingLoad) start() {
	l.onLost(l.src.Lost)
	l.src.Start()
}

func (l *pingLoad) stop() { l.src.Stop() }

func (l *pingLoad) result() *workload.Result {
	r := exchangeResult(format.KindPing, &l.src.Exchange, "ping: echo request handed to the qdisc to echo reply received")
	lost := int64(l.src.Unanswered())
	r.Lost = &lost
	return r
}
