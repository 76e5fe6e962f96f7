package gate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"nicemu/emulator/tap"
)

// sender carries out grants and kicks with two system calls and no allocation.
type sender struct {
	netlink, packet int
	opened          bool

	messages [][]byte // one per lane: the change of its valve, but for the grant
	hfsc     bool
	burstAt  int // where that stands
	batch    []byte
	kicks    []int // lanes to be kicked
	priority int   // what the packet socket is set to
	answer   []byte
}

// kickFrame is dropped before anybody sees it. Its type is IEEE 802's first local experimental one.
var kickFrame = [60]byte{12: 0x88, 13: 0xb5}

func (s *sender) open(port *tap.Port) error {
	s.netlink, s.packet, s.opened = -1, -1, true
	s.answer = make([]byte, 4096)
	return port.NS().Do(func() (err error) {
		if s.netlink, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("netlink socket: %w", err)
		}
		if s.packet, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		if err := unix.Bind(s.packet, &unix.SockaddrLinklayer{Ifindex: port.Ifindex()}); err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		return nil
	})
}

func (s *sender) close() error {
	if !s.opened {
		return nil
	}
	s.opened = false
	var errs []error
	for _, fd := range []int{s.netlink, s.packet} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// prepare makes the messages. limits are those of the fifos beneath the tbfs.
func (s *sender) prepare(t *tc, valve string, limits []uint32) {
	s.hfsc = valve == "hfsc"
	const mark = 0xfedcba98
	s.messages = s.messages[:0]
	for q, limit := range limits {
		change, o := unix.RTM_NEWQDISC, object{handle: valveHandle(q), parent: trafficClass(q), kind: "tbf", options: tbfOptions(mark, limit)}
		if s.hfsc {
			upper := nest(&attr{nl.TCA_HFSC_USC, serviceCurve(mark, 0, 1)})
			change, o = unix.RTM_NEWTCLASS, object{handle: valveClass(q), parent: valveHandle(q), kind: "hfsc", options: upper}
		}
		m := t.request(change, noFlags, o).Serialize()
		s.burstAt = bytes.LastIndex(m, binary.NativeEndian.AppendUint32(nil, mark))
		s.messages = append(s.messages, m)
	}
	s.batch, s.kicks = make([]byte, 0, len(limits)*256), make([]int, 0, len(limits))
}

func (s *sender) begin() { s.batch, s.kicks = s.batch[:0], s.kicks[:0] }

func (s *sender) empty() bool { return len(s.batch) == 0 }

func (s *sender) grant(lane int, burst uint32, kick bool) {
	at := len(s.batch) + s.burstAt
	s.batch = append(s.batch, s.messages[lane]...)
	if s.hfsc {
		rate, us := curve(burst)
		binary.NativeEndian.PutUint32(s.batch[at:], rate)
		binary.NativeEndian.PutUint32(s.batch[at+4:], us)
	} else {
		binary.NativeEndian.PutUint32(s.batch[at:], burst)
	}
	if kick {
		s.kicks = append(s.kicks, lane)
	}
}

// send grants, then kicks. refused is the kernel's error if it did not take a grant.
func (s *sender) send(stats *Stats) (refused, err error) {
	stats.Grants += uint64(len(s.batch) / len(s.messages[0]))
	if err := write(s.netlink, s.batch); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	if refused, err = s.errors(); err != nil {
		return refused, fmt.Errorf("grant: %w", err)
	}
	for _, lane := range s.kicks {
		if priority := int(kickClass(lane)); priority != s.priority {
			if err := unix.SetsockoptInt(s.packet, unix.SOL_SOCKET, unix.SO_PRIORITY, priority); err != nil {
				return refused, fmt.Errorf("kick: %w", err)
			}
			s.priority = priority
		}
		stats.Kicks++
		if err := s.kick(); err != nil {
			return refused, fmt.Errorf("kick: %w", err)
		}
	}
	return refused, nil
}

// kick sends the frame. While the interface is down nobody waits for it; the socket also says so once after it was down.
func (s *sender) kick() error {
	err := write(s.packet, kickFrame[:])
	if err == unix.ENETDOWN {
		err = write(s.packet, kickFrame[:])
	}
	if err == unix.ENOBUFS || err == unix.ENETDOWN { // dropped by the sink, as it should, or down
		return nil
	}
	return err
}

// errors reads the answers. There are none unless the kernel refused something.
func (s *sender) errors() (refused, err error) {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(s.netlink), uintptr(unsafe.Pointer(&s.answer[0])),
			uintptr(len(s.answer)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
		case unix.EAGAIN:
			return refused, nil
		case unix.EINTR:
			continue
		default:
			return refused, errno
		}
		const code = unix.SizeofNlMsghdr // struct nlmsgerr follows the header
		if n < code+4 || binary.NativeEndian.Uint16(s.answer[4:]) != unix.NLMSG_ERROR {
			continue
		}
		if e := -int32(binary.NativeEndian.Uint32(s.answer[code:])); e != 0 {
			refused = unix.Errno(e)
		}
	}
}

func write(fd int, b []byte) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// backlog is the number of packets in a qdisc and those beneath it.
func (t *tc) backlog(handle uint32) (packets uint32, err error) {
	// Without NLM_F_ECHO the answer goes to listeners only (rtnetlink_send).
	msgs, err := t.request(unix.RTM_GETQDISC, unix.NLM_F_ECHO, object{handle: handle}).Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	if err != nil {
		return 0, fmt.Errorf("statistics of %s: %w", handleName(handle), err)
	}
	for _, m := range msgs {
		stats := find(m[nl.SizeofTcMsg:], nl.TCA_STATS2)
		if queue := find(stats, nl.TCA_STATS_QUEUE); len(queue) >= 4 { // struct gnet_stats_queue
			return binary.NativeEndian.Uint32(queue), nil
		}
	}
	return 0, fmt.Errorf("statistics of %s: none in the answer", handleName(handle))
}
