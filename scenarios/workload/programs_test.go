package workload

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nicemu/devices/units"
	"nicemu/scenarios/format"
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func recordedReport(t *testing.T, name string) *iperf3Report {
	t.Helper()
	r, err := parseIperf3(recorded(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The figures are those of testdata; see record.sh.
func TestIperf3ReportsAreReadFromWhoeverReceived(t *testing.T) {
	for _, c := range []struct {
		name              string
		proto             format.Proto
		goodput           float64
		retransmits, lost int64 // -1: none
		intervals         []float64
	}{
		{"tcp", format.TCP, 19666202911.013264, 0, -1, []float64{19114095304.139008, 20221196444.834538}},
		{"udp", format.UDP, 39984269.4550754, -1, 0, []float64{39961922.6452258, 40010973.830888}},
		{"udp-lossy", format.UDP, 24134105246.003426, -1, 146615, []float64{24130599366.090752, 24139547733.717808}},
		{"reverse", format.TCP, 19415841491.188957, 4, -1, []float64{22498597901.113361, 16334263297.322697}},
	} {
		var got Result
		recordedReport(t, c.name+"-client.json").fill(&got, recordedReport(t, c.name+"-server.json"), c.proto)
		if got.GoodputBPS == nil || *got.GoodputBPS != c.goodput {
			t.Errorf("%s: goodput %v, want %v", c.name, got.GoodputBPS, c.goodput)
		}
		if n := orMissing(got.Retransmits); n != c.retransmits {
			t.Errorf("%s: %d retransmits, want %d", c.name, n, c.retransmits)
		}
		if n := orMissing(got.Lost); n != c.lost {
			t.Errorf("%s: %d lost, want %d", c.name, n, c.lost)
		}
		if !slices.Equal(got.Intervals, c.intervals) {
			t.Errorf("%s: intervals %v, want %v", c.name, got.Intervals, c.intervals)
		}
	}
}

func orMissing(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

func TestARefusedConnectionIsIperf3sOwnError(t *testing.T) {
	if got := recordedReport(t, "refused-client.json").Error; got != "unable to connect to server: Connection refused" {
		t.Errorf("%q", got)
	}
}

func TestTextThatIsNoReportIsAnError(t *testing.T) {
	for _, text := range []string{"", "iperf3: error", "{", `{"end": 5}`, "[]"} {
		if _, err := parseIperf3([]byte(text)); err == nil {
			t.Errorf("%q is a report", text)
		}
	}
}

func TestIperf3SaysOnItsCommandLineWhatTheScenarioSays(t *testing.T) {
	w := &format.Workload{
		Proto: format.UDP, Flows: 3, Rate: 25 * units.Mbit / 10, Length: 1448, TOS: 0x10, Port: 5300, Cport: 4000,
		Duration: 7 * units.Second, Args: []string{"--dont-fragment"},
	}
	got := strings.Join(iperf3Args(w, netip.MustParseAddr("fd00::2")), " ")
	want := "iperf3 --client fd00::2 --port 5300 --json --connect-timeout 5000 --time 7 --parallel 3 --udp --bitrate 2500000 --length 1448 --tos 16 --cport 4000 --dont-fragment"
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	w = &format.Workload{Proto: format.TCP, Flows: 1, Port: 5201, Duration: units.Second}
	got = strings.Join(iperf3Args(w, loopback), " ")
	if want := "iperf3 --client 127.0.0.1 --port 5201 --json --connect-timeout 5000 --time 1 --parallel 1"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestIperf3RunsOverLoopback(t *testing.T) {
	needs(t, "iperf3")
	for name, w := range map[string]*format.Workload{
		"tcp":  {Proto: format.TCP, Flows: 2, Rate: 50 * units.Mbit},
		"udp":  {Proto: format.UDP, Flows: 2, Rate: 50 * units.Mbit, Length: 1448, TOS: 0x10},
		"ipv6": {Proto: format.TCP, Flows: 1, Rate: 100 * units.Mbit, IPv6: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := loopback
			if w.IPv6 {
				target = netip.IPv6Loopback()
				if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
					t.Skip(err)
				} else {
					l.Close()
				}
			}
			w.Name, w.Kind, w.Duration, w.Port = "w", format.KindIperf3, units.Second, freePort(t)
			r, err := here.Run(t.Context(), w, target)
			if err != nil {
				t.Fatal(err)
			}
			if r.GoodputBPS == nil || *r.GoodputBPS < 50e6 || *r.GoodputBPS > 200e6 {
				t.Errorf("goodput %v of 100 Mbit/s", r.GoodputBPS)
			}
			if len(r.Intervals) == 0 {
				t.Error("no interval in one second")
			}
			if (r.Retransmits != nil) != (w.Proto == format.TCP) || (r.Lost != nil) != (w.Proto == format.UDP) {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestIperf3LeavesNothing(t *testing.T) {
	needs(t, "iperf3")
	leavesNothing(t)
	w := &format.Workload{Name: "w", Kind: format.KindIperf3, Proto: format.TCP, Flows: 1, Rate: units.Mbit, Duration: units.Second, Port: freePort(t)}
	if _, err := here.Run(t.Context(), w, loopback); err != nil {
		t.Error(err)
	}
}

func TestAFailingIperf3ClientLeavesNoServer(t *testing.T) {
	needs(t, "iperf3")
	leavesNothing(t)
	w := &format.Workload{Name: "w", Kind: format.KindIperf3, Proto: format.TCP, Flows: 1, Duration: units.Second, Port: freePort(t), Args: []string{"--congestion", "nonsense"}}
	r, err := here.Run(t.Context(), w, loopback)
	if err == nil || !strings.Contains(err.Error(), "iperf3: unable to set TCP_CONGESTION") || r.Error == "" {
		t.Errorf("%v", err)
	}
	w.Args = []string{"--no-such-option"}
	if _, err := here.Run(t.Context(), w, loopback); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("%v", err)
	}
}

func TestIperf3OnATakenPortIsAnError(t *testing.T) {
	needs(t, "iperf3")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	leavesNothing(t)
	w := &format.Workload{Name: "w", Kind: format.KindIperf3, To: "b", Proto: format.TCP, Flows: 1, Duration: units.Second, Port: l.Addr().(*net.TCPAddr).Port}
	if _, err := here.Run(t.Context(), w, loopback); err == nil || !strings.Contains(err.Error(), "is taken in netns b") {
		t.Errorf("%v", err)
	}
}

func TestListenersAreFoundInTheKernelsTable(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1451 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1452 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   2: 00000000000000000000000000000000:1453 00000000000000000000000000000000:0000 0A 00000000:00000000
`
	for port, want := range map[int]bool{5201: true, 5202: false, 5203: true, 5204: false} {
		if got, err := listensOn(strings.NewReader(table), port); err != nil || got != want {
			t.Errorf("port %d: %v, %v", port, got, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if got, err := here.listening("", port); err != nil || !got {
		t.Errorf("a listener is not found: %v", err)
	}
	l.Close()
	if got, err := here.listening("", port); err != nil || got {
		t.Errorf("a listener that is gone is found: %v", err)
	}
}

func TestPingsRepliesAreCountedAndTimed(t *testing.T) {
	var r Result
	if err := parsePing(recorded(t, "ping.txt"), &r); err != nil {
		t.Fatal(err)
	}
	if *r.Lost != 0 || r.LatencyNS.Count != 5 {
		t.Errorf("%d lost, %+v", *r.Lost, r.LatencyNS)
	}
	if err := parsePing(recorded(t, "ping-lost.txt"), &r); err != nil {
		t.Fatal(err)
	}
	if *r.Lost != 3 || r.LatencyNS.Count != 0 {
		t.Errorf("%d lost, %+v", *r.Lost, r.LatencyNS)
	}
	const mixed = `64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=1003 ms
64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=1004 ms (DUP!)
64 bytes from fd00::1: icmp_seq=2 ttl=64 time=0.250 ms

3 packets transmitted, 2 received, +1 duplicates, 33% packet loss, time 2003ms
`
	if err := parsePing([]byte(mixed), &r); err != nil {
		t.Fatal(err)
	}
	if *r.Lost != 1 || r.LatencyNS.Count != 2 || !near(r.LatencyNS.P50, 250_000) || !near(r.LatencyNS.Max, 1_003_000_000) {
		t.Errorf("%d lost, %+v", *r.Lost, r.LatencyNS)
	}
	for _, bad := range []string{"", "ping: unknown host", "64 bytes: time=x ms\n1 packets transmitted"} {
		if parsePing([]byte(bad), &r) == nil {
			t.Errorf("%q is a ping", bad)
		}
	}
}

// near allows for the histogram's three digits.
func near(got, want int64) bool { return got > want-want/500 && got < want+want/500 }

func TestPingSaysOnItsCommandLineWhatTheScenarioSays(t *testing.T) {
	w := &format.Workload{Duration: 2 * units.Second, Interval: 200 * units.Millisecond, Length: 100, TOS: 0x10, Args: []string{"-M", "do"}}
	got := pingArgs(w, netip.MustParseAddr("fd00::2"))
	want := []string{"ping", "-n", "-c", "10", "-W", "1", "-i", "0.2", "-s", "100", "-Q", "16", "-M", "do", "fd00::2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPingRunsOverLoopback(t *testing.T) {
	needs(t, "ping")
	leavesNothing(t)
	w := &format.Workload{Name: "w", Kind: format.KindPing, Duration: units.Duration(100 * time.Millisecond), Interval: 20 * units.Millisecond}
	r, err := here.Run(t.Context(), w, loopback)
	if err != nil || *r.Lost != 0 || r.LatencyNS.Count != 5 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestABufferKeepsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &buffer{limit: rapid.IntRange(1, 50).Draw(t, "limit")}
		var all []byte
		for _, p := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 120)).Draw(t, "writes") {
			if n, err := b.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			all = append(all, p...)
			kept, whole := b.bytes()
			if !bytes.HasSuffix(all, kept) || len(kept) != min(len(all), b.limit) || whole != (len(all) <= b.limit) {
				t.Fatalf("%d bytes of %d kept, all: %v", len(kept), len(all), whole)
			}
			if len(b.kept) > 2*b.limit+len(p) {
				t.Fatalf("%d bytes held", len(b.kept))
			}
		}
	})
}

func FuzzReports(f *testing.F) {
	for _, name := range []string{"tcp-client.json", "udp-lossy-server.json", "refused-client.json", "ping.txt", "ping-lost.txt"} {
		f.Add(recorded(f, name))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Result
		if report, err := parseIperf3(text); err == nil {
			report.fill(&r, report, format.TCP)
			report.fill(&r, nil, format.UDP)
		}
		if err := parsePing(text, &r); err == nil && (r.LatencyNS == nil || r.Lost == nil) {
			t.Fatal("neither error nor result")
		}
		listensOn(bytes.NewReader(text), 5201)
	})
}
