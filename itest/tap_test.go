package itest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
)

// openPort makes a Port that lives as long as the test.
func openPort(t testing.TB, ns *netns.NS, cfg tap.Config) *tap.Port {
	t.Helper()
	p, err := tap.Open(ns, cfg)
	var lacks *tap.Unsupported
	if errors.As(err, &lacks) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// addrs are the addresses of one end of a pair.
func addrs(last int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/24", last)),
		netip.MustParsePrefix(fmt.Sprintf("fd09::%d/64", last)),
	}
}

// cable carries frames between two ports until the test ends and lets see look at each of them. Frames read from queue q
// are written to queue q of the other port.
func cable(t testing.TB, a, b *tap.Port, see func(from *tap.Port, q int, buf []byte)) {
	t.Helper()
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- carry(a, b, stop, see) }()
	t.Cleanup(func() {
		unix.Write(stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		if err := <-done; err != nil {
			t.Error(err)
		}
		unix.Close(stop)
	})
}

func carry(a, b *tap.Port, stop int, see func(from *tap.Port, q int, buf []byte)) error {
	fds := []unix.PollFd{{Fd: int32(stop), Events: unix.POLLIN}}
	for _, p := range []*tap.Port{a, b} {
		for q := range p.Queues() {
			fds = append(fds, unix.PollFd{Fd: int32(p.FD(q)), Events: unix.POLLIN})
		}
	}
	buf := make([]byte, tap.BufferLen)
	pass := func(from, to *tap.Port) error {
		for q := range from.Queues() {
			for {
				n, err := from.Read(q, buf)
				if err != nil {
					return err
				}
				if n == 0 {
					break
				}
				if see != nil {
					see(from, q, buf[:n])
				}
				if err := to.Write(q%to.Queues(), buf[:n]); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return err
		}
		if fds[0].Revents != 0 {
			return nil
		}
		if err := errors.Join(pass(a, b), pass(b, a)); err != nil {
			return err
		}
	}
}

// listen opens a TCP listener inside the namespace.
func listen(t testing.TB, ns *netns.NS, addr string) *net.TCPListener {
	t.Helper()
	var l *net.TCPListener
	err := ns.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// transfer sends data over TCP from one namespace to a listener in another and returns what arrived.
func transfer(t testing.TB, from *netns.NS, l *net.TCPListener, data []byte) []byte {
	t.Helper()
	var conn *net.TCPConn
	err := from.Do(func() (err error) {
		conn, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn.Write(data)
		conn.Close()
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestIntegrationTCPCrossesEveryKindOfPortUnbroken(t *testing.T) {
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	for _, queues := range []int{1, 4} {
		for _, tso := range []bool{false, true} {
			for _, mtu := range []int{1500, 9000} {
				for _, addr := range []string{"10.9.0.2:5000", "[fd09::2]:5000"} {
					t.Run(fmt.Sprintf("queues=%d/tso=%t/mtu=%d/%s", queues, tso, mtu, addr), func(t *testing.T) {
						a, b := newNS(t, "a"), newNS(t, "b")
						cfg := tap.Config{Name: "nic0", Queues: queues, MTU: mtu, TxQueueLen: 4096, Csum: tso, TSO: tso}
						cfg.Addrs = addrs(1)
						pa := openPort(t, a, cfg)
						cfg.Addrs, cfg.Csum, cfg.TSO = addrs(2), false, false // the far end has no offloads
						pb := openPort(t, b, cfg)
						largest, segments := 0, 0
						cable(t, pa, pb, func(from *tap.Port, q int, buf []byte) {
							segs, _, _ := tap.ParseHeader(buf).Segments(buf[tap.HeaderLen:])
							segments = max(segments, segs)
							largest = max(largest, len(buf)-tap.HeaderLen)
						})
						if got := transfer(t, a, listen(t, b, addr), data); !bytes.Equal(got, data) {
							t.Fatalf("%d of %d bytes arrived, or others", len(got), len(data))
						}
						if tso != (segments > 1) || !tso && largest > mtu+14 {
							t.Fatalf("largest frame %d bytes in %d segments with TSO %t", largest, segments, tso)
						}
						for _, p := range []*tap.Port{pa, pb} {
							if s, err := p.Stats(); err != nil || s.TxDropped != 0 || s.RxErrors != 0 {
								t.Fatalf("statistics: tx_dropped %d, rx_errors %d, %v", s.TxDropped, s.RxErrors, err)
							}
						}
					})
				}
			}
		}
	}
}

func TestIntegrationUDPSegmentationArrivesAsOneFrame(t *testing.T) {
	a, b := newNS(t, "a"), newNS(t, "b")
	pa := openPort(t, a, tap.Config{Name: "nic0", Csum: true, TSO: true, USO: true, Addrs: addrs(1)})
	pb := openPort(t, b, tap.Config{Name: "nic0", Addrs: addrs(2)})
	seen := make(chan int, 1)
	cable(t, pa, pb, func(from *tap.Port, q int, buf []byte) {
		h := tap.ParseHeader(buf)
		if segs, hdr, wire := h.Segments(buf[tap.HeaderLen:]); segs > 1 {
			if h.GSOType != tap.GSOUDP || hdr != 42 || wire != 10*(42+1400) {
				t.Errorf("header %+v: %d headers, %d bytes on the wire", h, hdr, wire)
			}
			seen <- segs
		}
	})
	err := a.Do(func() error {
		c, err := net.Dial("udp4", "10.9.0.2:9")
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1400) })
		if err != nil {
			return err
		}
		_, err = c.Write(make([]byte, 14000))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := <-seen; n != 10 {
		t.Fatalf("%d segments, want 10", n)
	}
}

func TestIntegrationChecksumLeftToTheCardIsCompletedRight(t *testing.T) {
	a, b := newNS(t, "a"), newNS(t, "b")
	pa := openPort(t, a, tap.Config{Name: "nic0", Csum: true, TSO: true, Addrs: addrs(1)})
	pb := openPort(t, b, tap.Config{Name: "nic0", Addrs: addrs(2)})
	asked := 0
	cable(t, pa, pb, func(from *tap.Port, q int, buf []byte) {
		h := tap.ParseHeader(buf)
		if from != pa || h.Flags&tap.NeedsCsum == 0 || h.GSOType != tap.GSONone {
			return
		}
		asked++
		frame := slices.Clone(buf[tap.HeaderLen:])
		if err := h.CompleteChecksum(frame); err != nil {
			t.Error(err)
		}
		packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		tcp, ok := packet.TransportLayer().(*layers.TCP)
		if !ok {
			return
		}
		want := tcp.Checksum
		tcp.SetNetworkLayerForChecksum(packet.NetworkLayer())
		out := gopacket.NewSerializeBuffer()
		gopacket.SerializeLayers(out, gopacket.SerializeOptions{ComputeChecksums: true}, tcp, gopacket.Payload(tcp.Payload))
		if tcp.Checksum != want {
			t.Errorf("checksum %#04x, gopacket says %#04x", want, tcp.Checksum)
		}
	})
	transfer(t, a, listen(t, b, "10.9.0.2:5000"), make([]byte, 100000))
	if asked == 0 {
		t.Fatal("the kernel left no checksum to the card")
	}
}

func TestIntegrationPriorityChoosesTheQueue(t *testing.T) {
	ns := newNS(t, "a")
	p := openPort(t, ns, tap.Config{Name: "nic0", Queues: 4, Addrs: addrs(1)})
	if _, err := p.Instrument(); err != nil {
		t.Fatal(err)
	}
	var ranges [16]tap.QueueRange
	for prio := range ranges {
		ranges[prio] = tap.QueueRange{First: prio % 4, Count: 1}
	}
	if err := p.Steer(ranges); err != nil {
		t.Fatal(err)
	}
	send := rawSender(t, p)
	buf := make([]byte, tap.BufferLen)
	for _, prio := range []int{0, 1, 2, 3, 6, 15, (tap.KickMajor+2)<<16 | 1} {
		want := prio % 4
		if prio > 15 {
			want = 2
		}
		send(prio, 100)
		for q := range 4 {
			found := 0
			for {
				n, err := p.Read(q, buf)
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					break
				}
				if isTest(buf[:n]) {
					found++
				}
			}
			if (q == want) != (found == 1) {
				t.Errorf("priority %#x: %d frames in queue %d, want the one in queue %d", prio, found, q, want)
			}
		}
	}
}

func TestIntegrationFlowsSpreadOverQueuesAndEachStaysInOne(t *testing.T) {
	a, b := newNS(t, "a"), newNS(t, "b")
	pa := openPort(t, a, tap.Config{Name: "nic0", Queues: 4, Addrs: addrs(1), TxQueueLen: 4096})
	pb := openPort(t, b, tap.Config{Name: "nic0", Queues: 4, Addrs: addrs(2)})
	if _, err := pa.Instrument(); err != nil {
		t.Fatal(err)
	}
	const flows, each = 64, 5
	where := make(map[uint16]map[int]int)
	finished, frames := make(chan bool), 0
	cable(t, pa, pb, func(from *tap.Port, q int, buf []byte) {
		frame := buf[tap.HeaderLen:]
		if from != pa || len(frame) < 42 || frame[12] != 8 || frame[23] != 17 {
			return
		}
		port := uint16(frame[36])<<8 | uint16(frame[37])
		if where[port] == nil {
			where[port] = map[int]int{}
		}
		where[port][q]++
		if frames++; frames == flows*each {
			close(finished)
		}
	})
	err := a.Do(func() error { // unconnected sockets: the kernel has no hash for them
		c, err := net.ListenPacket("udp4", "10.9.0.1:0")
		if err != nil {
			return err
		}
		defer c.Close()
		for i := range flows * each {
			to := &net.UDPAddr{IP: net.IPv4(10, 9, 0, 2), Port: 7000 + i%flows}
			if _, err := c.WriteTo([]byte("x"), to); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-finished
	used := map[int]int{}
	for port, queues := range where {
		if len(queues) != 1 {
			t.Errorf("flow to port %d is in queues %v", port, queues)
		}
		for q := range queues {
			used[q]++
		}
	}
	for q := range 4 {
		if used[q] < flows/16 {
			t.Errorf("queue %d has %d of %d flows: %v", q, used[q], flows, used)
		}
	}
}

// silence keeps the namespace's IPv6 from sending frames of its own.
func silence(t testing.TB, ns *netns.NS) {
	t.Helper()
	err := ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0) })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestIntegrationBooksCountWhatLeftTheQdiscPerQueue(t *testing.T) {
	for _, queues := range []int{1, 4} {
		t.Run(fmt.Sprintf("queues=%d", queues), func(t *testing.T) {
			ns := newNS(t, "a")
			silence(t, ns)
			p := openPort(t, ns, tap.Config{Name: "nic0", Queues: queues})
			books, err := p.Instrument()
			if err != nil {
				t.Fatal(err)
			}
			send := rawSender(t, p)
			var want [4][3]uint64 // bytes, packets, largest
			for i := range 200 {
				q, length := i%queues, 60+i*7
				send((tap.KickMajor+q)<<16|1, length)
				want[q][0] += uint64(length)
				want[q][1]++
				want[q][2] = uint64(length)
			}
			buf := make([]byte, tap.BufferLen)
			for q := range queues {
				bytes, packets := books.Passed(q)
				if bytes != want[q][0] || packets != want[q][1] || books.Wire(q) != bytes {
					t.Errorf("queue %d: %d bytes in %d packets, %d on the wire, want %v", q, bytes, packets, books.Wire(q), want[q])
				}
				read := uint64(0)
				for n := 1; n > 0; {
					if n, err = p.Read(q, buf); err != nil {
						t.Fatal(err)
					}
					read += uint64(max(n-tap.HeaderLen, 0))
				}
				if read != bytes {
					t.Errorf("queue %d: read %d bytes, the books say %d", q, read, bytes)
				}
			}
			// Kicks are no traffic, so the steering program does not note them; the program at the egress hook, where
			// there is one queue, notes everything.
			if got := books.Largest(0); queues == 1 && got != want[0][2] {
				t.Errorf("largest %d, want %d", got, want[0][2])
			}
		})
	}
}

func TestIntegrationLargestPacketIsKnownWithAndWithoutSegmentationOffload(t *testing.T) {
	for _, queues := range []int{1, 4} {
		for _, tso := range []bool{false, true} {
			t.Run(fmt.Sprintf("queues=%d/tso=%t", queues, tso), func(t *testing.T) {
				a, b := newNS(t, "a"), newNS(t, "b")
				pa := openPort(t, a, tap.Config{Name: "nic0", Queues: queues, Csum: tso, TSO: tso, Addrs: addrs(1), TxQueueLen: 4096})
				pb := openPort(t, b, tap.Config{Name: "nic0", Addrs: addrs(2)})
				books, err := pa.Instrument()
				if err != nil {
					t.Fatal(err)
				}
				var onWire, read [4]uint64
				cable(t, pa, pb, func(from *tap.Port, q int, buf []byte) {
					if from == pa && len(buf) > 1000 { // smaller ones may have been sent before Instrument
						_, _, wire := tap.ParseHeader(buf).Segments(buf[tap.HeaderLen:])
						onWire[q] = max(onWire[q], uint64(wire))
						read[q] += uint64(wire)
						if books.Wire(q) < read[q] {
							t.Errorf("queue %d: %d bytes on the wire read, the books say %d", q, read[q], books.Wire(q))
						}
						if noted := books.Largest(q); noted < onWire[q] {
							t.Errorf("queue %d: noted %d before a packet of %d was read", q, noted, wire)
						}
					}
				})
				transfer(t, a, listen(t, b, "10.9.0.2:5000"), make([]byte, 4<<20))
				most := uint64(0)
				for q := range queues {
					most = max(most, books.Largest(q))
				}
				if most < 20000 || most > 72000 {
					t.Errorf("largest packet in the qdisc %d bytes, but TCP sends GSO packets", most)
				}
			})
		}
	}
}

func TestIntegrationExistingInterfaceIsNotTouched(t *testing.T) {
	ns := newNS(t, "a")
	first := openPort(t, ns, tap.Config{Name: "nic0", Addrs: addrs(1)})
	if _, err := tap.Open(ns, tap.Config{Name: "nic0"}); !errors.Is(err, os.ErrExist) {
		t.Fatalf("second Open: %v, want os.ErrExist", err)
	}
	if _, err := tap.Open(ns, tap.Config{Name: "lo"}); err == nil {
		t.Fatal("took lo")
	}
	if _, err := first.Stats(); err != nil {
		t.Fatal(err)
	}
}

func TestIntegrationClosedPortLeavesNothing(t *testing.T) {
	ns := newNS(t, "a")
	open := func() (targets []string) {
		all, _ := os.ReadDir("/proc/self/fd")
		for _, e := range all {
			target, _ := os.Readlink("/proc/self/fd/" + e.Name())
			targets = append(targets, target)
		}
		return targets
	}
	before := open()
	for range 3 {
		p, err := tap.Open(ns, tap.Config{Name: "nic0", Queues: 4, Addrs: addrs(1)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Instrument(); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		err = ns.Do(func() error {
			if _, err := net.InterfaceByName("nic0"); err == nil {
				return errors.New("nic0 is still there")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// What belongs to tests before this one may come and go; a leak stays.
	var after []string
	defer func() {
		if t.Failed() {
			t.Logf("descriptors before: %q\nafter: %q", before, after)
		}
	}()
	until(t, "all descriptors closed", 5*time.Second, func() bool {
		after = open()
		return len(after) <= len(before)
	})
}

func TestIntegrationReadAllocatesNothing(t *testing.T) {
	ns := newNS(t, "a")
	p := openPort(t, ns, tap.Config{Name: "nic0", Addrs: addrs(1), TxQueueLen: 4096})
	buf := make([]byte, tap.BufferLen)
	send := rawSender(t, p)
	for range 1000 {
		send(0, 100)
	}
	got := 0
	perRun := testing.AllocsPerRun(900, func() {
		n, err := p.Read(0, buf)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			got++
			if err := p.Write(0, buf[:n]); err != nil {
				t.Fatal(err)
			}
		}
	})
	if perRun != 0 || got < 900 {
		t.Fatalf("%v allocations per frame, %d frames", perRun, got)
	}
}

// testEtherType marks the frames of rawSender (IEEE local experimental 2).
var testEtherType = [2]byte{0x88, 0xb6}

func isTest(buf []byte) bool {
	return bytes.Equal(buf[tap.HeaderLen+12:tap.HeaderLen+14], testEtherType[:])
}

// rawSender returns a function that sends an Ethernet frame of the given length and socket priority through the
// interface's qdisc.
func rawSender(t testing.TB, p *tap.Port) (send func(priority, length int)) {
	t.Helper()
	fd := -1
	err := p.NS().Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	frame := make([]byte, 1<<16)
	copy(frame[12:], testEtherType[:])
	return func(priority, length int) {
		t.Helper()
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, priority); err != nil {
			t.Fatal(err)
		}
		if err := unix.Sendto(fd, frame[:length], 0, &unix.SockaddrLinklayer{Ifindex: p.Ifindex()}); err != nil {
			t.Fatal(err)
		}
	}
}
