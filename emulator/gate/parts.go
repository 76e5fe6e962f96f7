package gate

import (
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"nicemu/emulator/tap"
)

// Majors of the gate's own qdiscs; queue q's is the q-th from there. Below 0x8000, where the kernel numbers qdiscs that
// nobody gave a handle, and above what people type.
const (
	selectorMajor = tap.KickMajor        // a frame with this handle as its priority is a kick
	valveMajor    = tap.KickMajor + 0x10 // known to the filter in follow.go
	sinkMajor     = tap.KickMajor + 0x20
	mqMajor       = tap.KickMajor + 0x40
)

// Owns says whether a qdisc's handle is one of the gate's own, which the user did not make.
func Owns(handle uint32) bool {
	return major(handle) >= tap.KickMajor && major(handle) <= mqMajor
}

func selectorHandle(q int) uint32 { return netlink.MakeHandle(selectorMajor+uint16(q), 0) }
func valveHandle(q int) uint32    { return netlink.MakeHandle(valveMajor+uint16(q), 0) }
func sinkHandle(q int) uint32     { return netlink.MakeHandle(sinkMajor+uint16(q), 0) }

// Classes of the selector and of the valve.
func kickClass(q int) uint32    { return selectorHandle(q) | 1 }
func trafficClass(q int) uint32 { return selectorHandle(q) | 2 }
func valveClass(q int) uint32   { return valveHandle(q) | 1 }

// addSelector puts the qdisc that tells kicks from traffic at parent. Both kinds hand a packet whose priority is one of
// their classes to that class, and everything else to the second.
func (g *Gate) addSelector(q int, parent uint32) error {
	for {
		o := object{handle: selectorHandle(q), parent: parent, kind: g.selector, options: selectorOptions(g.selector)}
		err := g.tc.send(unix.RTM_NEWQDISC, replace, o)
		if errors.Is(err, unix.ENOENT) && g.selector == "prio" {
			g.selector = "htb"
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if g.selector == "prio" {
		return nil
	}
	for _, class := range []uint32{kickClass(q), trafficClass(q)} {
		o := object{handle: class, parent: selectorHandle(q), kind: "htb", options: endlessClass()}
		if err := g.tc.send(unix.RTM_NEWTCLASS, replace, o); err != nil {
			return err
		}
	}
	return nil
}

func selectorOptions(kind string) *attr {
	if kind == "prio" {
		o := nl.TcPrioMap{Bands: 2}
		for prio := range o.Priomap {
			o.Priomap[prio] = 1
		}
		return &attr{nl.TCA_OPTIONS, o.Serialize()}
	}
	glob := nl.TcHtbGlob{Version: 3, Rate2Quantum: 10, Defcls: 2}
	return nest(&attr{nl.TCA_HTB_INIT, glob.Serialize()})
}

// endlessClass are the options of an htb class that never limits anything: 100 Gbit/s, and minutes of it at once.
func endlessClass() *attr {
	const rate = 100e9 / 8
	var o nl.TcHtbCopt
	o.Rate.Rate, o.Rate.Linklayer = 1<<32-1, nl.LINKLAYER_ETHERNET
	o.Ceil = o.Rate
	o.Buffer, o.Cbuffer = 1<<31, 1<<31
	o.Quantum = 60000
	rate64 := binary.NativeEndian.AppendUint64(nil, rate)
	return nest(&attr{nl.TCA_HTB_PARMS, o.Serialize()}, &attr{nl.TCA_HTB_RATE64, rate64}, &attr{nl.TCA_HTB_CEIL64, rate64})
}

// nest packs attributes into the options.
func nest(attrs ...*attr) *attr {
	var data []byte
	for _, a := range attrs {
		data = append(data, a.rta().Serialize()...)
	}
	return &attr{nl.TCA_OPTIONS, data}
}

// tbfOptions are those of the credit counter. tbf gives its limit to a fifo beneath it with every change, so the limit is
// the fifo's own.
func tbfOptions(burst, limit uint32) *attr {
	var o nl.TcTbfQopt
	o.Rate.Rate = 1
	o.Rate.Linklayer = nl.LINKLAYER_ETHERNET
	o.Rate.Overhead = overhead
	o.Limit = limit
	return nest(&attr{nl.TCA_TBF_PARMS, o.Serialize()}, &attr{nl.TCA_TBF_BURST, binary.NativeEndian.AppendUint32(nil, burst)})
}

const endless = 1 << 30 // limit of a tbf whose qdisc takes none from it

// missing says from where on a gate has to be built. Making again what is there would be a change, which not every qdisc
// supports.
type missing int

const (
	nothing missing = iota
	sink            // the kick sink only
	user            // the user's qdisc, and maybe the sink
	valve           // the valve and all beneath
	everything
)

// build puts queue q's gate, or what is missing of it, at parent, with the user's qdisc in it.
func (g *Gate) build(q int, parent uint32, what missing, in tree) error {
	if what == everything {
		if err := g.addSelector(q, parent); err != nil {
			return err
		}
	}
	o := object{handle: sinkHandle(q), parent: kickClass(q), kind: "pfifo", options: fifoOptions(0)}
	if err := g.tc.send(unix.RTM_NEWQDISC, replace, o); err != nil {
		return err
	}
	if what >= valve {
		if err := g.addValve(q); err != nil {
			return err
		}
	}
	if what < user {
		return nil
	}
	return g.plant(in, valveClass(q))
}

func fifoOptions(limit uint32) *attr {
	return &attr{nl.TCA_OPTIONS, binary.NativeEndian.AppendUint32(nil, limit)}
}
