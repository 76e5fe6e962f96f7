package itest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nicemu/emulator/gate"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
)

func TestIntegrationCardHoldsNoMoreThanItsLimitAndOnePacket(t *testing.T) {
	for _, queues := range []int{1, 4} {
		for _, limit := range []int64{30000, 130000} {
			for _, load := range []string{"udp-100", "udp-1448", "udp-1448-each", "tcp-tso", "tcp"} {
				t.Run(fmt.Sprintf("queues=%d/limit=%d/%s", queues, limit, load), func(t *testing.T) {
					tso := load == "tcp-tso"
					a, b := gatedPair(t, tap.Config{Queues: queues, Csum: tso, TSO: tso})
					c := &card{port: a, peer: b, limit: limit, slots: 1024, bps: 1e9, coalesce: 64000}
					if strings.HasSuffix(load, "-each") { // every frame completes by itself, and slowly enough for that
						c.coalesce, c.bps = 0, 2e8
					}
					c.start(t)
					seen := false
					var stop atomic.Bool
					watched := make(chan bool)
					go func() {
						defer close(watched)
						for !stop.Load() && !seen {
							for q := range queues {
								d, ok := userQdisc(t, a, q)
								seen = seen || ok && d.Backlog > 0
							}
						}
					}()
					switch load {
					case "udp-100":
						flood(t, a, 100, 100000)
					case "udp-1448":
						flood(t, a, 1448, 40000)
					case "udp-1448-each":
						flood(t, a, 1448, 10000)
					default:
						transfer(t, a.NS(), listen(t, b.NS(), "10.9.0.2:5000"), make([]byte, 40<<20))
					}
					stop.Store(true)
					<-watched
					if !seen {
						t.Error("never a backlog in the qdisc")
					}
					c.judge(t)
				})
			}
		}
	}
}

// tcLine runs tc as a person would.
func tcLine(t testing.TB, p *tap.Port, line string) {
	t.Helper()
	mustRun(t, p.NS(), append([]string{"tc"}, strings.Fields(strings.ReplaceAll(line, "{dev}", p.Name()))...)...)
}

// idleCard starts a gated card without a limit worth mentioning.
func idleCard(t testing.TB, queues int, lines ...string) *card {
	t.Helper()
	a, b := gatedPair(t, tap.Config{Queues: queues, Csum: true, TSO: true})
	for _, line := range lines {
		tcLine(t, a, line)
	}
	c := &card{port: a, peer: b, limit: 130000, slots: 1024, bps: 1e9, coalesce: 50000}
	c.start(t)
	return c
}

func TestIntegrationGateKeepsTheOptionsOfTheQdiscsItFinds(t *testing.T) {
	for _, c := range []struct {
		queues int
		lines  []string
		kinds  []string
		limits []any
	}{
		{1, nil, []string{"pfifo_fast"}, []any{nil}},
		{4, nil, []string{"pfifo_fast", "pfifo_fast", "pfifo_fast", "pfifo_fast"}, []any{nil, nil, nil, nil}},
		{1, []string{"qdisc add dev {dev} root pfifo limit 77"}, []string{"pfifo"}, []any{77.0}},
		{1, []string{"qdisc add dev {dev} root handle 1: bfifo limit 123456"}, []string{"bfifo"}, []any{123456.0}},
		{1, []string{"qdisc add dev {dev} root pfifo"}, []string{"pfifo"}, []any{1000.0}},
		{4, []string{"qdisc add dev {dev} root pfifo limit 9"}, []string{"pfifo"}, []any{9.0}},
		{2, []string{"qdisc add dev {dev} root handle 1: mq", "qdisc add dev {dev} parent 1:2 handle 20: bfifo limit 5555"},
			[]string{"pfifo_fast", "bfifo"}, []any{nil, 5555.0}},
	} {
		t.Run(fmt.Sprint(c.queues, c.lines), func(t *testing.T) {
			card := idleCard(t, c.queues, c.lines...)
			flood(t, card.port, 100, 100) // grants must not change the limit
			if card.gate.Lanes() != len(c.kinds) {
				t.Fatalf("%d lanes, want %d", card.gate.Lanes(), len(c.kinds))
			}
			for q, kind := range c.kinds {
				d, ok := userQdisc(t, card.port, q)
				if !ok || d.Kind != kind || c.limits[q] != nil && d.Options["limit"] != c.limits[q] {
					t.Errorf("queue %d: %+v, want %s limit %v", q, d, kind, c.limits[q])
				}
			}
		})
	}
}

func TestIntegrationGateFollowsTheUser(t *testing.T) {
	type step struct {
		line  string
		lanes int
		queue int
		kind  string
		limit any
	}
	for queues, steps := range map[int][]step{
		1: {
			{"qdisc replace dev {dev} root pfifo limit 123", 1, 0, "pfifo", 123.0},
			{"qdisc replace dev {dev} root handle 5: bfifo limit 45678", 1, 0, "bfifo", 45678.0},
			{"qdisc replace dev {dev} root handle 5: bfifo limit 56789", 1, 0, "bfifo", 56789.0},
			{"qdisc replace dev {dev} root pfifo", 1, 0, "pfifo", 1000.0},
			{"qdisc replace dev {dev} root pfifo_fast", 1, 0, "pfifo_fast", nil},
			{"qdisc replace dev {dev} root tbf rate 1gbit burst 200k limit 300000", 1, 0, "tbf", nil},
			{"qdisc del dev {dev} root", 1, 0, "pfifo_fast", nil},
		},
		4: {
			{"qdisc replace dev {dev} root handle 1: mq", 4, 3, "pfifo_fast", nil},
			{"qdisc replace dev {dev} parent 1:3 handle 30: pfifo limit 31", 4, 2, "pfifo", 31.0},
			{"qdisc replace dev {dev} parent 1:3 handle 30: pfifo limit 32", 4, 2, "pfifo", 32.0},
			{"qdisc replace dev {dev} root bfifo limit 99999", 1, 0, "bfifo", 99999.0},
			{"qdisc replace dev {dev} root handle 2: mq", 4, 0, "pfifo_fast", nil},
		},
	} {
		t.Run(fmt.Sprintf("queues=%d", queues), func(t *testing.T) {
			c := idleCard(t, queues)
			for _, s := range steps {
				typed := monotonic()
				tcLine(t, c.port, s.line)
				until(t, fmt.Sprintf("%s limit %v beneath the gate after tc %s", s.kind, s.limit, s.line), 2*time.Second, func() bool {
					d, ok := userQdisc(t, c.port, s.queue)
					return ok && d.Kind == s.kind && (s.limit == nil || d.Options["limit"] == s.limit)
				})
				took := time.Duration(monotonic() - typed)
				t.Logf("%v after typing, the last time it took %v: tc %s", took, time.Duration(c.followTime.Load()), s.line)
				before := passedPackets(c)
				flood(t, c.port, 1000, 200)
				until(t, "traffic after tc "+s.line, time.Second, func() bool { return passedPackets(c) > before })
			}
			if work := time.Duration(c.slowestFollow.Load()); work > 50*time.Millisecond {
				t.Errorf("the gate was put back in %v", work)
			}
		})
	}
}

func passedPackets(c *card) (n uint64) {
	for q := range c.port.Queues() {
		_, p := c.books.Passed(q)
		n += p
	}
	return n
}

func TestIntegrationGateCarriesAWholeHierarchyAlong(t *testing.T) {
	a, b := gatedPair(t, tap.Config{Csum: true, TSO: true})
	for _, line := range []string{
		"qdisc replace dev {dev} root handle 1: htb default 20",
		"class add dev {dev} parent 1: classid 1:1 htb rate 800mbit",
		"class add dev {dev} parent 1:1 classid 1:10 htb rate 300mbit ceil 800mbit prio 1",
		"class add dev {dev} parent 1:1 classid 1:20 htb rate 500mbit ceil 800mbit prio 2",
		"qdisc add dev {dev} parent 1:10 handle 10: pfifo limit 50",
		"qdisc add dev {dev} parent 1:20 handle 20: bfifo limit 500000",
		"filter add dev {dev} parent 1: protocol ip prio 3 u32 match ip dport 5001 0xffff flowid 1:10",
	} {
		tcLine(t, a, line)
	}
	state := func() string {
		var classes []string
		for _, line := range strings.Split(string(mustRun(t, a.NS(), "tc", "class", "show", "dev", "nic0")), "\n") {
			if strings.HasPrefix(line, "class htb 1:") { // in whatever order
				classes = append(classes, line)
			}
		}
		slices.Sort(classes)
		return strings.Join(classes, "\n") + "\n" + string(mustRun(t, a.NS(), "tc", "filter", "show", "dev", "nic0", "parent", "1:"))
	}
	before := state()
	if !strings.Contains(before, "1:10") || !strings.Contains(before, "1389") {
		t.Fatalf("not there before:\n%s", before)
	}
	c := &card{port: a, peer: b, limit: 130000, slots: 1024, bps: 1e9, coalesce: 50000}
	c.start(t)
	if after := state(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	transfer(t, a.NS(), listen(t, b.NS(), "10.9.0.2:5001"), make([]byte, 3<<20))
	for _, want := range []qdisc{{Handle: "1:", Parent: "7e10:1", Kind: "htb"}, {Handle: "10:", Parent: "1:10", Kind: "pfifo"}, {Handle: "20:", Parent: "1:20", Kind: "bfifo"}} {
		all := qdiscs(t, a)
		i := slices.IndexFunc(all, func(d qdisc) bool { return d.Handle == want.Handle && d.Parent == want.Parent && d.Kind == want.Kind })
		if i < 0 {
			t.Errorf("no %+v in %+v", want, all)
		} else if want.Handle == "10:" && all[i].Packets < 20 {
			t.Errorf("the filter sent %d packets to %+v", all[i].Packets, want)
		}
	}
	// The user goes on where they are used to.
	tcLine(t, a, "class add dev {dev} parent 1:1 classid 1:30 htb rate 100mbit")
	tcLine(t, a, "qdisc add dev {dev} parent 1:30 handle 300: pfifo limit 3")
}

func TestIntegrationGateRepairsWhatIsTakenOutOfIt(t *testing.T) {
	for line, kind := range map[string]string{
		"qdisc del dev {dev} parent 7e00:1":                      "pfifo_fast",
		"qdisc del dev {dev} parent 7e00:2":                      "pfifo_fast",
		"qdisc del dev {dev} parent 7e10:1":                      "pfifo_fast",
		"qdisc replace dev {dev} parent 7e00:2 bfifo limit 500k": "bfifo",
	} {
		t.Run(line, func(t *testing.T) {
			c := idleCard(t, 1)
			tcLine(t, c.port, line)
			until(t, "gate whole again", 2*time.Second, func() bool {
				var places []string
				for _, d := range qdiscs(t, c.port) {
					places = append(places, d.Parent+" "+d.Kind)
				}
				return slices.Contains(places, "7e00:1 pfifo") && (slices.Contains(places, "7e00:2 tbf") || slices.Contains(places, "7e00:2 hfsc")) && slices.Contains(places, "7e10:1 "+kind)
			})
			transfer(t, c.port.NS(), listen(t, c.peer.NS(), "10.9.0.2:5001"), make([]byte, 1<<20))
		})
	}
}

func TestIntegrationGatesOfSeveralQueuesAreIndependent(t *testing.T) {
	a, b := gatedPair(t, tap.Config{Queues: 4})
	books, err := a.Instrument()
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	if err := g.Install(); err != nil {
		t.Fatal(err)
	}
	_ = b
	var ranges [16]tap.QueueRange
	for prio := range ranges {
		ranges[prio] = tap.QueueRange{First: prio % 4, Count: 1}
	}
	if err := a.Steer(ranges); err != nil {
		t.Fatal(err)
	}
	send := rawSender(t, a)
	var before [4]uint64
	for q := range 4 {
		for range 12 { // more would wait for room in the socket's send buffer
			send(q, 1000)
		}
	}
	for q := range 4 { // each gate began with credit for one packet, which anything may have used
		_, before[q] = books.Passed(q)
		if before[q] > 3 {
			t.Fatalf("queue %d: %d packets passed without credit", q, before[q])
		}
		g.Offer(q, gate.Room{Bytes: -1})
	}
	g.Offer(2, gate.Room{Bytes: 100000, Packets: 7})
	if err := g.Flush(); err != nil {
		t.Fatal(err)
	}
	for q := range 4 {
		_, n := books.Passed(q)
		n -= before[q]
		if q != 2 && n != 0 || q == 2 && (n == 0 || n > 7) {
			t.Errorf("queue %d: %d packets passed, room was for 7 in queue 2", q, n)
		}
	}
}

func TestIntegrationPingAlwaysPassesAnOpenGate(t *testing.T) {
	for _, limit := range []int64{0, 1, 100, 3000} {
		t.Run(fmt.Sprintf("limit=%d", limit), func(t *testing.T) {
			a, b := gatedPair(t, tap.Config{Csum: true, TSO: true})
			c := &card{port: a, peer: b, limit: limit, slots: 1024, bps: 1e9}
			c.start(t)
			l := listen(t, b.NS(), "10.9.0.2:5000")
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				b := make([]byte, 64)
				for {
					if _, err := conn.Read(b); err != nil {
						return
					}
					conn.Write(b[:1])
				}
			}()
			var slowest time.Duration
			err := a.NS().Do(func() error {
				conn, err := net.Dial("tcp", "10.9.0.2:5000")
				if err != nil {
					return err
				}
				defer conn.Close()
				b := make([]byte, 1)
				for range 3000 {
					begin := time.Now()
					if _, err := conn.Write(b); err != nil {
						return err
					}
					if _, err := conn.Read(b); err != nil {
						return err
					}
					slowest = max(slowest, time.Since(begin))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if slowest > 150*time.Millisecond { // a retransmission comes after 200 ms
				t.Errorf("slowest round trip %v", slowest)
			}
			c.judge(t)
		})
	}
}

func TestIntegrationFlushAllocatesNothing(t *testing.T) {
	a, _ := gatedPair(t, tap.Config{Queues: 4})
	g, err := gate.New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	if err := g.Install(); err != nil {
		t.Fatal(err)
	}
	room := int64(1)
	before := g.Stats().Grants
	allocs := testing.AllocsPerRun(1000, func() {
		room = room*7%1000000 + 200000*(room%2)
		for q := range 4 {
			g.Offer(q, gate.Room{Bytes: room, Packets: 10000})
		}
		if err := g.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	if n := g.Stats().Grants - before; allocs != 0 || n < 1000 {
		t.Fatalf("%v allocations, %d grants", allocs, n)
	}
}

func BenchmarkIntegrationGrantAndKick(b *testing.B) {
	for _, queues := range []int{1, 4} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			p, _ := gatedPair(b, tap.Config{Queues: queues})
			g, err := gate.New(p)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { g.Close() })
			if err := g.Install(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			wide := false
			before := g.Stats().Grants
			for b.Loop() {
				wide = !wide
				room := gate.Room{Bytes: 100000, Packets: 10000}
				if wide {
					room.Bytes = 1000000
				}
				for q := range queues {
					g.Offer(q, room)
				}
				if err := g.Flush(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(g.Stats().Grants-before)/float64(b.N), "grants/op")
		})
	}
}

func TestIntegrationProbeFindsWhatThisKernelHas(t *testing.T) {
	if err := netns.CheckPrivilege(); err != nil {
		t.Skip(err)
	}
	has, err := gate.ProbeQdiscs([]string{"tbf", "pfifo", "mq", "no_such_qdisc"})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"tbf", "pfifo", "mq"} {
		if has[kind] != nil {
			t.Errorf("%s: %v", kind, has[kind])
		}
	}
	var lacks *tap.Unsupported
	if !errors.As(has["no_such_qdisc"], &lacks) {
		t.Errorf("no_such_qdisc: %v", has["no_such_qdisc"])
	}
}

func TestIntegrationQdiscThatHoldsOnPurposeIsNoRescue(t *testing.T) {
	a, _ := gatedPair(t, tap.Config{})
	tcLine(t, a, "qdisc add dev {dev} root tbf rate 8kbit burst 2000 limit 100000")
	g, err := gate.New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	if err := g.Install(); err != nil {
		t.Fatal(err)
	}
	send := rawSender(t, a)
	for range 20 {
		send(0, 1500)
	}
	g.Offer(0, gate.Room{Bytes: 100000, Packets: 100})
	if err := g.Flush(); err != nil {
		t.Fatal(err)
	}
	rescued, err := g.Rescue(0)
	if err != nil || rescued || g.Stats().Rescues != 0 {
		t.Fatalf("rescued %t, %+v, %v", rescued, g.Stats(), err)
	}
}

func TestIntegrationTrafficGoesOnAfterTheInterfaceWasDown(t *testing.T) {
	c := idleCard(t, 1)
	mustRun(t, c.port.NS(), "ip", "link", "set", "nic0", "down")
	mustRun(t, c.port.NS(), "ip", "link", "set", "nic0", "up")
	transfer(t, c.port.NS(), listen(t, c.peer.NS(), "10.9.0.2:5001"), make([]byte, 5<<20))
	c.judge(t)
}
