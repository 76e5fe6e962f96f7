package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nicemu/emulator/tap"
)

// watch is a socket that hears of changes of the port's qdiscs, classes and filters, grants excepted.
type watch struct {
	fd     int
	opened bool
	buf    []byte
}

func (w *watch) open(port *tap.Port) error {
	w.fd, w.opened = -1, true
	w.buf = make([]byte, 1<<16)
	return port.NS().Do(func() (err error) {
		kind := unix.SOCK_RAW | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
		if w.fd, err = unix.Socket(unix.AF_NETLINK, kind, unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("netlink socket: %w", err)
		}
		code := interesting(port.Ifindex())
		prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
		if err := unix.SetsockoptSockFprog(w.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
			return fmt.Errorf("filter of the netlink socket: %w", err)
		}
		groups := uint32(1 << (unix.RTNLGRP_TC - 1))
		if err := unix.Bind(w.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
			return fmt.Errorf("netlink socket: %w", err)
		}
		return nil
	})
}

// interesting is a filter of tc messages: those of the interface, but for the one that the kernel sends for every grant,
// of a valve or its class.
func interesting(ifindex int) []unix.SockFilter {
	const nlmsgType, tcmIfindex, tcmHandle = 4, unix.SizeofNlMsghdr + 4, unix.SizeofNlMsghdr + 8 // struct nlmsghdr, tcmsg
	const load, half = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
	const and, equal, ret = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	// A classic filter loads big-endian.
	swap := func(v uint32) uint32 { return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, v)) }
	swap16 := func(v uint16) uint32 {
		return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, v)))
	}
	return []unix.SockFilter{
		{Code: load, K: tcmIfindex},
		{Code: equal, Jf: 6, K: swap(uint32(ifindex))},
		{Code: half, K: nlmsgType},
		{Code: equal, Jt: 1, K: swap16(unix.RTM_NEWQDISC)},
		{Code: equal, Jf: 4, K: swap16(unix.RTM_NEWTCLASS)},
		{Code: load, K: tcmHandle},
		{Code: and, K: swap(0xfff0fffe)},
		{Code: equal, Jf: 1, K: swap(valveMajor << 16)},
		{Code: ret, K: 0},
		{Code: ret, K: 1<<32 - 1},
	}
}

// heard empties the socket and says whether there was anything in it.
func (w *watch) heard() (bool, error) {
	any := false
	for {
		_, err := unix.Read(w.fd, w.buf)
		switch err {
		case nil, unix.ENOBUFS: // lost messages are news as well
			any = true
		case unix.EAGAIN:
			return any, nil
		case unix.EINTR:
		default:
			return any, err
		}
	}
}

func (w *watch) close() error {
	if !w.opened || w.fd < 0 {
		return nil
	}
	w.opened = false
	return unix.Close(w.fd)
}

// NotifyFD is readable when Follow has something to do.
func (g *Gate) NotifyFD() int { return g.watch.fd }

// Follow looks whether somebody changed the port's qdiscs, and puts the gate back where it was displaced, with the new
// qdisc and its options in it. What was queued in that qdisc is lost. It reports whether the gate was displaced.
func (g *Gate) Follow() (changed bool, err error) {
	heard, err := g.watch.heard()
	if err == nil && heard && len(g.lanes) > 0 {
		changed, err = g.ensure()
	}
	if err != nil {
		return changed, fmt.Errorf("follow the qdiscs of %s: %w", g.port.Name(), err)
	}
	return changed, nil
}

// multiQueue are the root qdiscs with one class for each TX queue.
var multiQueue = []string{"mq", "mqprio", "taprio"}

// ensure looks at the qdiscs and builds what is missing of the gate.
func (g *Gate) ensure() (changed bool, err error) {
	qdiscs, err := g.tc.list(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, 0)
	if err != nil {
		return false, err
	}
	root := at(qdiscs, netlink.HANDLE_ROOT)
	if root != nil && root.handle == 0 {
		root = nil // the kernel's own: no handle, so nothing can be attached to it
	}
	if root == nil && g.port.Queues() > 1 {
		root = &object{handle: netlink.MakeHandle(mqMajor, 0), parent: netlink.HANDLE_ROOT, kind: "mq"}
		if err := g.tc.send(unix.RTM_NEWQDISC, replace, *root); err != nil {
			return true, err
		}
	}
	shared := root == nil || !slices.Contains(multiQueue, root.kind)
	places := []uint32{netlink.HANDLE_ROOT}
	if !shared {
		places = places[:0]
		for q := range g.port.Queues() {
			places = append(places, root.handle|uint32(q+1))
		}
	}
	changed = shared != g.shared || len(places) != len(g.lanes)
	for q, place := range places {
		built, err := g.ensureLane(qdiscs, q, place, root != nil)
		changed = changed || built
		if err != nil {
			return changed, err
		}
	}
	if !changed {
		return false, g.adopt(len(places))
	}
	g.shared, g.lanes = shared, make([]lane, len(places))
	for i := range g.lanes {
		g.lanes[i].credit = g.newCredit()
	}
	if err := g.settle(root); err != nil {
		return true, err
	}
	return true, g.adopt(len(places))
}

// ensureLane builds what is missing of queue q's gate at a place. configured is false if what is there is the kernel's own.
func (g *Gate) ensureLane(qdiscs []object, q int, place uint32, configured bool) (built bool, err error) {
	what, inside := g.missing(qdiscs, q, place)
	if what == nothing {
		return false, nil
	}
	var in tree
	if what >= valve && configured && inside != nil {
		if in, err = g.capture(qdiscs, *inside); err != nil {
			return false, err
		}
	}
	return true, g.build(q, place, what, in)
}

// missing finds what is missing of queue q's gate, and the user's qdisc.
func (g *Gate) missing(qdiscs []object, q int, place uint32) (what missing, inside *object) {
	is := func(place, handle uint32) bool {
		there := at(qdiscs, place)
		return there != nil && there.handle == handle
	}
	inside = at(qdiscs, valveClass(q))
	switch {
	case !is(place, selectorHandle(q)):
		return everything, at(qdiscs, place)
	case !is(trafficClass(q), valveHandle(q)):
		return valve, at(qdiscs, trafficClass(q))
	case inside == nil:
		return user, nil
	case !is(kickClass(q), sinkHandle(q)):
		return sink, inside
	}
	return nothing, inside
}

// adopt makes the grants fit the fifos beneath the tbfs.
func (g *Gate) adopt(lanes int) error {
	qdiscs, err := g.tc.list(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, 0)
	if err != nil {
		return err
	}
	limits := make([]uint32, lanes)
	for q := range limits {
		user := at(qdiscs, valveClass(q))
		if user == nil {
			return errors.New("the qdiscs changed while the gate was put back")
		}
		var fifo bool
		if limits[q], fifo = fifoLimit(*user); !fifo {
			limits[q] = endless
		}
	}
	g.wire.prepare(g.tc, g.valve, limits)
	return nil
}
