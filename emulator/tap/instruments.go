package tap

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Counters are the kernel's books of what passed through a Port's transmit queues, in memory shared with the kernel.
// Reading them takes no system call.
type Counters struct {
	books *[MaxQueues]book
}

// book is one queue's value in the shared map; one cache line, so that queues do not disturb each other. The programs
// know these offsets.
type book struct {
	bytes   uint64
	packets uint64
	wire    uint64
	largest uint64
	_       [4]uint64
}

// Passed is what left the qdisc of queue q for the ring since the Port was instrumented: bytes as the reader gets them
// (Ethernet header included; header, FCS and preamble not) and packets. A frame that found the ring full is counted, too.
func (c *Counters) Passed(q int) (bytes, packets uint64) {
	b := &c.books[q]
	return atomic.LoadUint64(&b.bytes), atomic.LoadUint64(&b.packets)
}

// Wire is an upper bound of the bytes that Passed's packets put on the wire: every segment but a packet's first is taken to
// have the longest headers there are.
func (c *Counters) Wire(q int) uint64 { return atomic.LoadUint64(&c.books[q].wire) }

// Largest is the largest packet that entered the qdisc for queue q since the last ResetLargest, as the qdisc counts it
// (qdisc_pkt_len): the bytes of all segments with their headers. With several queues the headers are taken as
// steeredHeaders bytes, since the steering program cannot see them. It is 0 if none entered.
func (c *Counters) Largest(q int) uint64 { return atomic.LoadUint64(&c.books[q].largest) }

// ResetLargest starts a new look at queue q.
func (c *Counters) ResetLargest(q int) { atomic.StoreUint64(&c.books[q].largest, 0) }

// QueueRange is the queues a priority may use: Count queues from First on, chosen among by flow.
type QueueRange struct{ First, Count int }

// instruments are the eBPF programs of a Port and their maps.
type instruments struct {
	counters Counters
	mem      []byte
	steering *ebpf.Map
	undo     []func() error
}

// Instrument loads the eBPF programs: the books always, the steering program if there are several queues, and a program at
// the egress hook that notes the largest packet if there is one (tun asks the steering program only if there is a
// choice). Until Steer is called every priority may use every queue. A second call returns the same Counters.
func (p *Port) Instrument() (*Counters, error) {
	if p.books != nil {
		return &p.books.counters, nil
	}
	in := &instruments{}
	err := in.load(p)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("eBPF for %s: %w", p.cfg.Name, err), in.close())
	}
	p.books = in
	return &in.counters, nil
}

// Steer sets which queues the packets of a socket priority (its low 4 bits) may use, as prio_tc_map and the queue
// ranges of mqprio and taprio do. It changes nothing if the Port has one queue. The Port must be instrumented.
func (p *Port) Steer(byPriority [16]QueueRange) error {
	if p.books == nil {
		return fmt.Errorf("steer %s: not instrumented", p.cfg.Name)
	}
	for prio, r := range byPriority {
		if r.First < 0 || r.Count < 1 || r.First+r.Count > len(p.fds) {
			return fmt.Errorf("steer %s: priority %d to %d queues from %d on, but there are %d", p.cfg.Name, prio, r.Count, r.First, len(p.fds))
		}
	}
	if p.books.steering == nil {
		return nil
	}
	for prio, r := range byPriority {
		if err := p.books.steering.Put(uint32(prio), uint64(r.Count)<<32|uint64(r.First)); err != nil {
			return fmt.Errorf("steer %s: %w", p.cfg.Name, err)
		}
	}
	return nil
}

func (in *instruments) load(p *Port) error {
	books, err := newBooks()
	if err != nil {
		return err
	}
	in.later(books.Close)
	size := int(unsafe.Sizeof([MaxQueues]book{}))
	if in.mem, err = unix.Mmap(books.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map the books: %w", err)
	}
	in.later(func() error { return unix.Munmap(in.mem) })
	in.counters.books = (*[MaxQueues]book)(unsafe.Pointer(&in.mem[0]))

	count, err := in.program(ebpf.SocketFilter, "nicemu_count", countProgram(books))
	if err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(p.fds[0], unix.TUNSETFILTEREBPF, count.FD()); err != nil {
		return fmt.Errorf("TUNSETFILTEREBPF: %w", err)
	}
	if len(p.fds) == 1 {
		note, err := in.program(ebpf.SchedCLS, "nicemu_note", noteProgram(books))
		if err != nil {
			return err
		}
		return in.attachEgress(p, note)
	}
	return in.steer(p, books)
}

func newBooks() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "nicemu_books", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(book{})), MaxEntries: MaxQueues,
		Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	return m, nil
}

// steer loads and sets the steering program.
func (in *instruments) steer(p *Port, books *ebpf.Map) (err error) {
	in.steering, err = ebpf.NewMap(&ebpf.MapSpec{Name: "nicemu_steering", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 16})
	if err != nil {
		return fmt.Errorf("map: %w", err)
	}
	in.later(in.steering.Close)
	for prio := range uint32(16) {
		if err := in.steering.Put(prio, uint64(len(p.fds))<<32); err != nil {
			return fmt.Errorf("map: %w", err)
		}
	}
	prog, err := in.program(ebpf.SocketFilter, "nicemu_steer", steerProgram(in.steering, books))
	if err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(p.fds[0], unix.TUNSETSTEERINGEBPF, prog.FD()); err != nil {
		return fmt.Errorf("TUNSETSTEERINGEBPF: %w", err)
	}
	return nil
}

// attachEgress attaches the program where packets leave for the qdisc: as a tcx link (Linux 6.6), which `tc qdisc` does
// not show, else as a filter under clsact.
func (in *instruments) attachEgress(p *Port, prog *ebpf.Program) error {
	err := p.ns.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: p.ifindex, Program: prog, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			in.later(l.Close)
		}
		return err
	})
	if err == nil || !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return attachClsact(p, prog)
}

func attachClsact(p *Port, prog *ebpf.Program) error {
	h, err := netlink.NewHandleAt(vns.NsHandle(p.ns.FD()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	err = h.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: p.ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("clsact: %w", err)
	}
	err = h.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: p.ifindex, Parent: netlink.HANDLE_MIN_EGRESS, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          prog.FD(), Name: "nicemu_note", DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("clsact filter: %w", err)
	}
	return nil
}

func (in *instruments) later(close func() error) { in.undo = append(in.undo, close) }

// close undoes everything in reverse order. The programs that the device holds go with the device.
func (in *instruments) close() error {
	var errs []error
	for i := len(in.undo) - 1; i >= 0; i-- {
		errs = append(errs, in.undo[i]())
	}
	in.undo = nil
	return errors.Join(errs...)
}
