package liveplay

import (
	"fmt"
	"math/bits"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"nicemu/devices/nic"
	"nicemu/emulator/netns"
)

// burst is how many frames one sendmmsg gives to the kernel.
const burst = 64

// socket is a packet socket bound to a card's interface. Frames go through the
// qdisc (PACKET_QDISC_BYPASS is off). One goroutine uses it.
type socket struct {
	fd       int
	priority int
	buffer   int // SO_SNDBUF as the kernel counts it

	messages [burst]message
	vectors  [burst]unix.Iovec

	accepted, refused nic.Count // by the qdisc
}

// message is struct mmsghdr.
type message struct {
	header unix.Msghdr
	sent   uint32
}

// endlessBuffer is more bytes than any qdisc holds.
const endlessBuffer = 1 << 29

// openSocket opens a socket in ns. What is on its way is bounded by the kernel's
// default buffer, as for any program, or by the qdisc alone.
func openSocket(ns *netns.NS, ifindex int, vnet, endless bool) (s *socket, err error) {
	s = &socket{fd: -1}
	err = ns.Do(func() (err error) {
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		return unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: ifindex})
	})
	if err == nil && vnet {
		err = unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	}
	if err == nil && endless {
		err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, endlessBuffer)
	}
	if err == nil {
		s.buffer, err = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	}
	if err != nil {
		if s.fd >= 0 {
			unix.Close(s.fd)
		}
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	for i := range s.messages {
		s.messages[i].header.Iov = &s.vectors[i]
		s.messages[i].header.SetIovlen(1)
	}
	return s, nil
}

func (s *socket) close() error { return unix.Close(s.fd) }

// take is how many of the packets, the first ones, go into one call: those of
// the priority of the first.
func take(ps []packet) int {
	n := 1
	for n < min(len(ps), burst) && ps[n].queue == ps[0].queue {
		n++
	}
	return n
}

// send gives packets of one priority, at most burst, to the kernel. It does not
// wait.
func (s *socket) send(slab []byte, ps []packet) error {
	if p := ps[0].queue; p != s.priority {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_PRIORITY, p); err != nil {
			return os.NewSyscallError("SO_PRIORITY", err)
		}
		s.priority = p
	}
	for i := range ps {
		s.vectors[i].Base = &slab[ps[i].from]
		s.vectors[i].SetLen(ps[i].to - ps[i].from)
	}
	for at := 0; at < len(ps); {
		// It sleeps nowhere, so the scheduler need not hear of it.
		r, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.messages[at])), uintptr(len(ps)-at), 0, 0, 0)
		switch errno {
		case 0:
			for end := at + int(r); at < end; at++ {
				s.accepted = s.accepted.Plus(one(&ps[at]))
			}
			if at == len(ps) {
				return nil
			}
			// It ended before the first failure, of which it says nothing.
			// Another try would send that frame a second time; a cause that
			// stays shows with the next one.
			fallthrough
		case unix.ENOBUFS, unix.EAGAIN:
			s.refused = s.refused.Plus(one(&ps[at]))
			at++
		case unix.EINTR:
		default:
			return os.NewSyscallError("sendmmsg", errno)
		}
	}
	return nil
}

func one(p *packet) nic.Count { return nic.Count{Frames: 1, Bytes: uint64(p.wire)} }

// fitting is how many of the packets go into the socket's buffer: the kernel
// takes one as long as those before do not fill it. It is 0 until the buffer is
// half empty.
func (s *socket) fitting(ps []packet) (int, error) {
	used, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQ)
	if err != nil {
		return 0, os.NewSyscallError("SIOCOUTQ", err)
	}
	if 2*used >= s.buffer {
		return 0, nil
	}
	n := 0
	for n < len(ps) && used < s.buffer {
		used += truesize(ps[n].to - ps[n].from)
		n++
	}
	return n, nil
}

// truesize is at most what a frame of n bytes takes of a socket's buffer:
// sk_buff and skb_shared_info, headroom, and slabs of a power of two or pages
// (sock_alloc_send_pskb of net/core/sock.c).
func truesize(n int) int {
	const buff, shared, headroom, page = 256, 320, 96, 4096
	linear := n + headroom + shared
	if n+headroom >= page {
		return buff + page + (n+page-1)/page*page
	}
	return buff + 1<<bits.Len(uint(linear-1))
}
