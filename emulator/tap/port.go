package tap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nicemu/emulator/netns"
)

const (
	// MaxQueues is the largest number of queues of a Port.
	MaxQueues = 16
	// BufferLen is enough for any frame the kernel hands over, with its header: GSO frames are up to 64 KiB.
	BufferLen = HeaderLen + 1<<16 + 256
)

// Config describes a Port.
type Config struct {
	// Name of the interface inside the namespace, 1 to 15 bytes.
	Name string
	// Queues is the number of transmit and receive queues, 1 to MaxQueues; 0 means 1.
	Queues int
	// MTU in bytes, without the Ethernet header; 0 keeps the kernel's 1500.
	MTU int
	// Csum, TSO and USO are offloads the card has: unfinished checksums, and TCP or UDP packets to be cut into segments.
	// TSO and USO need Csum. USO needs Linux 6.2.
	Csum, TSO, USO bool
	// Backpressure asks for IFF_BACKPRESSURE (Linux 7.3): a full ring stops the queue instead of dropping.
	Backpressure bool
	// TxQueueLen is the length of each queue's ring in frames; 0 keeps the kernel's 1000.
	TxQueueLen int
	// Speed is what the kernel is told of the link, in Mbit/s: taprio's guard bands and cbs go by it. 0 keeps the
	// kernel's: 10000, or 10 before Linux 6.2.
	Speed int
	// Addrs are the addresses of the interface. IPv6 addresses are usable at once: duplicate detection is off.
	Addrs []netip.Prefix
	// MAC is the hardware address; nil derives one from the names of namespace and interface.
	MAC net.HardwareAddr
}

// Port is a TAP device that is up. Read and Write of one queue may be used by one goroutine at a time.
type Port struct {
	ns      *netns.NS
	cfg     Config
	ifindex int
	fds     []int
	handle  *netlink.Handle
	books   *instruments
}

// Name is the interface's name inside its namespace.
func (p *Port) Name() string { return p.cfg.Name }

// Config is what the Port was opened with, completed.
func (p *Port) Config() Config { return p.cfg }

// NS is the namespace the interface lives in.
func (p *Port) NS() *netns.NS { return p.ns }

// Ifindex is the interface's number inside its namespace.
func (p *Port) Ifindex() int { return p.ifindex }

// MAC is the interface's hardware address.
func (p *Port) MAC() net.HardwareAddr { return p.cfg.MAC }

// Queues is the number of queues.
func (p *Port) Queues() int { return len(p.fds) }

// FD is the non-blocking descriptor of queue q, for poll. The Port owns it.
func (p *Port) FD(q int) int { return p.fds[q] }

// Read takes the next frame the kernel transmitted on queue q: HeaderLen bytes of header, then the Ethernet frame
// without FCS. It returns 0 and no error if there is none. A buffer shorter than BufferLen may cut the frame.
//
// It is a bare system call: it never sleeps, and the scheduler need not hear of it.
func (p *Port) Read(q int, buf []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(p.fds[q]), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR:
		default:
			return 0, fmt.Errorf("read %s queue %d: %w", p.cfg.Name, q, errno)
		}
	}
}

// Write gives the kernel a frame the card received on queue q, laid out as Read returns it. The kernel takes GSO frames and
// unfinished checksums whatever offloads the Port has, so a header read from one Port may be written to another as it is.
// The kernel refuses frames with unix.EIO while the interface is down and with unix.EINVAL if the header does not fit.
//
// The kernel's receive path runs inside the call.
func (p *Port) Write(q int, buf []byte) error {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(p.fds[q]), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("write %s queue %d: %w", p.cfg.Name, q, errno)
		}
	}
}

// Stats are the counters `ip -s link` shows. TxDropped counts frames lost below the qdisc because a ring was full;
// TxPackets counts frames that were read.
func (p *Port) Stats() (netlink.LinkStatistics, error) {
	link, err := p.handle.LinkByIndex(p.ifindex)
	if err != nil {
		return netlink.LinkStatistics{}, fmt.Errorf("statistics of %s: %w", p.cfg.Name, err)
	}
	return *link.Attrs().Statistics, nil
}

// Close removes the interface. It may be called twice.
func (p *Port) Close() error {
	var errs []error
	if p.books != nil {
		errs = append(errs, p.books.close())
		p.books = nil
	}
	for _, fd := range p.fds {
		errs = append(errs, unix.Close(fd))
	}
	p.fds = nil
	if p.handle != nil {
		p.handle.Close()
		p.handle = nil
	}
	return errors.Join(errs...)
}
