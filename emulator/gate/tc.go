package gate

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"nicemu/emulator/netns"
)

// tc speaks rtnetlink's traffic control messages for one interface.
type tc struct {
	ifindex int
	sockets map[int]*nl.SocketHandle
}

func dialTC(ns *netns.NS, ifindex int) (*tc, error) {
	s, err := nl.GetNetlinkSocketAt(vns.NsHandle(ns.FD()), vns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	if err := s.SetExtAck(true); err != nil {
		s.Close()
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	return &tc{ifindex, map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}}, nil
}

func (t *tc) close() {
	for _, s := range t.sockets {
		s.Close()
	}
}

// attr is one attribute as it goes over netlink. The type may carry NLA_F_NESTED.
type attr struct {
	kind uint16
	data []byte
}

func (a *attr) rta() *nl.RtAttr { return nl.NewRtAttr(int(a.kind), a.data) }

// object is a qdisc, a class or a filter as tc messages describe them.
type object struct {
	handle, parent, info uint32
	kind                 string
	options              *attr // nil if it has none
	chain                *attr // of a filter
}

const noFlags, create, replace = 0, unix.NLM_F_CREATE, unix.NLM_F_CREATE | unix.NLM_F_REPLACE

func (t *tc) request(message, flags int, o object) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(message, flags)
	req.Sockets = t.sockets
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(t.ifindex), Handle: o.handle, Parent: o.parent, Info: o.info})
	if o.kind != "" {
		req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(o.kind)))
	}
	for _, a := range []*attr{o.options, o.chain} {
		if a != nil {
			req.AddData(a.rta())
		}
	}
	return req
}

// send makes, changes or deletes an object. An error carries the kernel's own words where it has some.
func (t *tc) send(message, flags int, o object) error {
	_, err := t.request(message, flags|unix.NLM_F_ACK, o).Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return fmt.Errorf("%s %s at %s: %w", o.kind, handleName(o.handle), handleName(o.parent), err)
	}
	return nil
}

// list returns the interface's objects; parent narrows it down to a qdisc's or class's filters.
func (t *tc) list(message int, answer uint16, parent uint32) ([]object, error) {
	for {
		msgs, err := t.request(message, unix.NLM_F_DUMP, object{parent: parent}).Execute(unix.NETLINK_ROUTE, answer)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var all []object
		for _, m := range msgs {
			if len(m) < nl.SizeofTcMsg || int(nl.DeserializeTcMsg(m).Ifindex) != t.ifindex {
				continue
			}
			o, err := parseObject(m)
			if err != nil {
				return nil, err
			}
			all = append(all, o)
		}
		return all, nil
	}
}

func parseObject(m []byte) (object, error) {
	msg := nl.DeserializeTcMsg(m)
	o := object{handle: msg.Handle, parent: msg.Parent, info: msg.Info}
	attrs, err := nl.ParseRouteAttr(m[nl.SizeofTcMsg:])
	if err != nil {
		return o, err
	}
	for _, a := range attrs {
		switch a.Attr.Type & typeMask {
		case nl.TCA_KIND:
			o.kind = nl.BytesToString(a.Value)
		case nl.TCA_OPTIONS:
			o.options = copyAttr(a)
		case tcaChain:
			o.chain = copyAttr(a)
		}
	}
	return o, nil
}

const (
	tcaChain = 11 // TCA_CHAIN, include/uapi/linux/rtnetlink.h
	typeMask = nl.NLA_TYPE_MASK & 0xffff
)

func copyAttr(a syscall.NetlinkRouteAttr) *attr {
	return &attr{a.Attr.Type, append([]byte(nil), a.Value...)}
}

func major(handle uint32) uint16 { return uint16(handle >> 16) }

// handleName writes a handle as tc does.
func handleName(handle uint32) string {
	if handle == netlink.HANDLE_ROOT {
		return "root"
	}
	return netlink.HandleStr(handle)
}
