package workload

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicemu/devices/units"
	"nicemu/replay/report"
	"nicemu/scenarios/format"
)

func ping1(d time.Duration) *format.Workload {
	return &format.Workload{Name: "w", Kind: format.KindRR, Duration: units.Duration(d), Request: 1, Response: 1}
}

func TestRequestsAreAnsweredAndTheirDelaysOrdered(t *testing.T) {
	for _, target := range []string{"127.0.0.1", "::1"} {
		for _, size := range []units.Size{1, 100_000} {
			t.Run(target+" "+size.String(), func(t *testing.T) {
				addr := netip.MustParseAddr(target)
				if l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String()); err != nil {
					t.Skip(err)
				} else {
					l.Close()
				}
				leavesNothing(t)
				w := ping1(200 * time.Millisecond)
				w.Request, w.Response = size, 2*size
				r, err := here.Run(t.Context(), w, addr)
				if err != nil {
					t.Fatal(err)
				}
				l := r.LatencyNS
				if l.Count < 10 || l.P50 < 1000 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max || l.Max > int64(time.Second) {
					t.Errorf("%+v", l)
				}
			})
		}
	}
}

func TestThePacedClientSendsAtMostOncePerInterval(t *testing.T) {
	w := ping1(300 * time.Millisecond)
	w.Interval = 20 * units.Millisecond
	r, err := here.Run(t.Context(), w, loopback)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.LatencyNS.Count; n < 2 || n > 16 {
		t.Errorf("%d requests in 300 ms, one per 20 ms", n)
	}
}

func TestTheWarmUpIsNotMeasured(t *testing.T) {
	w := ping1(300 * time.Millisecond)
	w.Interval, w.Warmup = 20*units.Millisecond, 200*units.Millisecond
	r, err := here.Run(t.Context(), w, loopback)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.LatencyNS.Count; n < 1 || n > 6 {
		t.Errorf("%d requests in the last 100 ms of 300, one per 20 ms", n)
	}
}

func TestNothingMeasuredIsAnError(t *testing.T) {
	w := ping1(100 * time.Millisecond)
	w.Warmup = 10 * units.Second
	r, err := here.Run(t.Context(), w, loopback)
	if err == nil || err.Error() != "workload w: no response within the duration" || r.LatencyNS.Count != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestATakenPortIsAnError(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	leavesNothing(t)
	w := ping1(time.Second)
	w.Port = l.Addr().(*net.TCPAddr).Port
	if _, err := here.Run(t.Context(), w, loopback); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("%v", err)
	}
}

func TestAnAddressThatIsNotHereIsAnError(t *testing.T) {
	leavesNothing(t)
	if _, err := here.Run(t.Context(), ping1(time.Second), netip.MustParseAddr("192.0.2.77")); err == nil || !strings.Contains(err.Error(), "bind to 192.0.2.77:0") {
		t.Errorf("%v", err)
	}
}

// A listener that accepts nobody leaves later connections in SYN_SENT.
func TestAConnectionUnderWayCanBeEnded(t *testing.T) {
	leavesNothing(t)
	listener, err := newSocket(unix.AF_INET, socketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.close()
	at, err := listener.listen(netip.AddrPortFrom(loopback, 0))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // more than the backlog of 1
		c, err := newSocket(unix.AF_INET, socketOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		done := make(chan error, 1)
		go func() { done <- c.connect(at) }()
		timer := time.AfterFunc(50*time.Millisecond, c.end)
		err = <-done
		timer.Stop()
		if err != nil {
			return
		}
	}
	t.Error("every connection was accepted")
}

func TestAnEndBeforeTheConnectionIsSeen(t *testing.T) {
	listener, err := newSocket(unix.AF_INET, socketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.close()
	c, err := newSocket(unix.AF_INET, socketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.end()
	if err := c.connect(netip.MustParseAddrPort("127.0.0.1:1")); err == nil {
		t.Error("connected")
	}
}

func TestMarksReachTheSocket(t *testing.T) {
	for _, c := range []struct {
		family, level, option int
		o                     socketOptions
		priority              int
	}{
		{unix.AF_INET, unix.IPPROTO_IP, unix.IP_TOS, socketOptions{tos: 0x10}, 6},              // the kernel's choice for lowdelay
		{unix.AF_INET, unix.IPPROTO_IP, unix.IP_TOS, socketOptions{tos: 0x10, priority: 2}, 2}, // ours wins
		{unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, socketOptions{tos: 0xb8, priority: 5}, 5},
		{unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, socketOptions{tos: 0x10}, 0}, // none for IPv6
	} {
		s, err := newSocket(c.family, c.o)
		if err == unix.EAFNOSUPPORT {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		tos, err := unix.GetsockoptInt(s.fd, c.level, c.option)
		if err != nil || tos != c.o.tos {
			t.Errorf("type of service %#x, want %#x: %v", tos, c.o.tos, err)
		}
		priority, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_PRIORITY)
		if err != nil || priority != c.priority {
			t.Errorf("priority %d, want %d: %v", priority, c.priority, err)
		}
	}
}

func TestDelaysBeyondTheHistogramCountAsItsLongest(t *testing.T) {
	h := newHistogram()
	for _, d := range []time.Duration{-1, 0, time.Microsecond, time.Hour} {
		record(h, d)
	}
	if l := report.LatencyOf(h, ""); l.Count != 4 || l.P50 != 1 || l.Max < int64(maxLatency)*999/1000 {
		t.Errorf("%+v", l)
	}
}

// BenchmarkRR is a request and its response over loopback.
func BenchmarkRR(b *testing.B) {
	var t transaction
	t.request, t.response, t.histogram = 1, 1, newHistogram()
	listener, err := newSocket(unix.AF_INET, t.options)
	if err != nil {
		b.Fatal(err)
	}
	defer listener.close()
	at, err := listener.listen(netip.AddrPortFrom(loopback, 0))
	if err != nil {
		b.Fatal(err)
	}
	go t.serve(listener)
	c, err := newSocket(unix.AF_INET, t.options)
	if err != nil {
		b.Fatal(err)
	}
	defer c.close()
	if err := c.connect(at); err != nil {
		b.Fatal(err)
	}
	p := []byte{0}
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := c.write(p); err != nil {
			b.Fatal(err)
		}
		if err := c.read(p); err != nil {
			b.Fatal(err)
		}
		record(t.histogram, time.Since(start))
	}
	b.ReportMetric(float64(t.histogram.ValueAtPercentile(50)), "p50-ns")
	c.end()
}
