package workload

import (
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// socketOptions mark a TCP socket's packets.
type socketOptions struct {
	tos      int // TOS byte or traffic class
	priority int // SO_PRIORITY
}

// socket is a blocking TCP socket. Blocking calls on a thread of one's own wake up some 10 us earlier
// than the runtime's poller does, and keep doing so when other goroutines are busy: measured against a
// C program on a two-core host, the poller's 99th percentile went to milliseconds beside one busy goroutine.
type socket struct {
	fd     int
	family int

	mu     sync.Mutex
	ended  bool
	closed bool
}

// newSocket makes a socket in the namespace of the calling thread.
func newSocket(family int, o socketOptions) (*socket, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{fd: fd, family: family}
	if err := s.mark(o); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// mark sets the options. The order matters: for IPv4 the kernel derives a
// priority from the TOS (net/ipv4/ip_sockglue.c), which SO_PRIORITY then replaces.
func (s *socket) mark(o socketOptions) error {
	if err := unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return os.NewSyscallError("TCP_NODELAY", err)
	}
	if o.tos > 0 {
		level, option := unix.IPPROTO_IP, unix.IP_TOS
		if s.family == unix.AF_INET6 {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
		}
		if err := unix.SetsockoptInt(s.fd, level, option, o.tos); err != nil {
			return fmt.Errorf("type of service %#02x: %w", o.tos, err)
		}
	}
	if o.priority > 0 {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_PRIORITY, o.priority); err != nil {
			return fmt.Errorf("SO_PRIORITY %d: %w", o.priority, err)
		}
	}
	return nil
}

// listen binds to an address, port 0 for any, and returns what it is bound to.
func (s *socket) listen(at netip.AddrPort) (netip.AddrPort, error) {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return at, os.NewSyscallError("SO_REUSEADDR", err)
	}
	if err := unix.Bind(s.fd, sockaddr(at)); err != nil {
		return at, fmt.Errorf("bind to %v: %w", at, err)
	}
	if err := unix.Listen(s.fd, 1); err != nil {
		return at, os.NewSyscallError("listen", err)
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return at, os.NewSyscallError("getsockname", err)
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(at.Addr(), uint16(name.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(at.Addr(), uint16(name.Port)), nil
	}
	return at, fmt.Errorf("socket has an address of type %T", name)
}

// accept waits for a connection.
func (s *socket) accept(o socketOptions) (*socket, error) {
	for {
		fd, _, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("accept", err)
		}
		c := &socket{fd: fd, family: s.family}
		if err := c.mark(o); err != nil {
			c.close()
			return nil, err
		}
		return c, nil
	}
}

// connect waits until connected, or until end is called: a call of end that comes before the
// connection is under way leaves no trace in the kernel, so it is looked for.
func (s *socket) connect(to netip.AddrPort) error {
	const look = 50 // ms
	err := unix.SetNonblock(s.fd, true)
	if err == nil {
		err = unix.Connect(s.fd, sockaddr(to))
	}
	for err == unix.EINPROGRESS || err == unix.EINTR {
		if s.hasEnded() {
			return errEnd
		}
		var n int
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, look)
		if n == 0 && err == nil {
			err = unix.EINPROGRESS
		} else if err == nil {
			err = s.pendingError()
		}
	}
	if err == nil {
		err = unix.SetNonblock(s.fd, false)
	}
	if err != nil {
		return fmt.Errorf("connect to %v: %w", to, err)
	}
	return nil
}

func (s *socket) pendingError() error {
	code, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// write sends all of p.
func (s *socket) write(p []byte) error {
	for len(p) > 0 {
		n, err := unix.SendmsgN(s.fd, p, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("send", err)
		}
		p = p[n:]
	}
	return nil
}

// read fills p; errEnd if the connection ends before.
func (s *socket) read(p []byte) error {
	for len(p) > 0 {
		n, err := unix.Read(s.fd, p)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("read", err)
		}
		if n == 0 {
			return errEnd
		}
		p = p[n:]
	}
	return nil
}

// end wakes every call that blocks on the socket, for good. It may be called
// from any goroutine, also after close.
func (s *socket) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if !s.closed {
		unix.Shutdown(s.fd, unix.SHUT_RDWR)
	}
}

func (s *socket) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// close frees the socket; only the goroutine that uses it may do so.
func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		unix.Close(s.fd)
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
