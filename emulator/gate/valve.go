package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// addValve puts queue q's valve in its place: hfsc where the kernel has it, else tbf.
func (g *Gate) addValve(q int) error {
	if g.valve != "tbf" {
		err := g.addClass(q)
		if err == nil || !errors.Is(err, unix.ENOENT) || g.valve == "hfsc" {
			g.valve = "hfsc"
			return err
		}
		g.valve = "tbf"
	}
	o := object{handle: valveHandle(q), parent: trafficClass(q), kind: "tbf", options: tbfOptions(MaxPacket, endless)}
	err := g.tc.send(unix.RTM_NEWQDISC, replace, o)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("the gate needs hfsc and matchall, or tbf (CONFIG_NET_SCH_HFSC, CONFIG_NET_CLS_MATCHALL, CONFIG_NET_SCH_TBF): %w", err)
	}
	return err
}

// addClass makes an hfsc with one class. A filter leads to it, not the default class: that tc shows as something that is
// no JSON.
func (g *Gate) addClass(q int) error {
	const first, allProtocols = 1 << 16, 0x0300 // ETH_P_ALL as it is on the wire
	hfsc := object{handle: valveHandle(q), parent: trafficClass(q), kind: "hfsc", options: &attr{nl.TCA_OPTIONS, (&nl.TcHfscOpt{}).Serialize()}}
	class := object{handle: valveClass(q), parent: valveHandle(q), kind: "hfsc", options: nest(&attr{nl.TCA_HFSC_FSC, serviceCurve(0, 0, 1<<30)}, upperLimit(0))}
	all := object{parent: valveHandle(q), info: first | allProtocols, kind: "matchall",
		options: nest(&attr{nl.TCA_MATCHALL_CLASSID, binary.NativeEndian.AppendUint32(nil, valveClass(q))})}
	if err := g.tc.send(unix.RTM_NEWQDISC, replace, hfsc); err != nil {
		return err
	}
	err := g.tc.send(unix.RTM_NEWTCLASS, create, class)
	if err == nil {
		err = g.tc.send(unix.RTM_NEWTFILTER, create|unix.NLM_F_EXCL, all)
	}
	if errors.Is(err, unix.ENOENT) { // no matchall: make room for a tbf
		hfsc.options = nil
		err = errors.Join(err, g.tc.send(unix.RTM_DELQDISC, noFlags, hfsc))
	}
	return err
}

// hfsc counts time in ticks of 64 ns, 125 of which are 8 µs.
const (
	curveStep = 8      // µs
	stepBytes = 32_000 // in each, 32 Gbit/s: hfsc's rates are 32 bits of bytes a second
	tickBytes = stepBytes / 125
)

// curve is the first part of a service curve of hfsc, a rate in bytes a second and how many µs it lasts: it lets bytes
// pass at once, nearly. After it comes a byte a second.
func curve(bytes uint32) (rate, us uint32) {
	steps := uint64(bytes)/stepBytes + 1
	return uint32(uint64(bytes) * 1_000_000 / (steps * curveStep)), uint32(steps * curveStep)
}

// upperLimit is the option of the class that counts the credit: so many bytes from now on.
func upperLimit(bytes uint32) *attr {
	rate, us := curve(bytes)
	return &attr{nl.TCA_HFSC_USC, serviceCurve(rate, us, 1)}
}

// serviceCurve is struct tc_service_curve.
func serviceCurve(m1, d, m2 uint32) []byte {
	b := binary.NativeEndian.AppendUint32(nil, m1)
	b = binary.NativeEndian.AppendUint32(b, d)
	return binary.NativeEndian.AppendUint32(b, m2)
}

// credit keeps the books of one valve; see Credit.
type credit interface {
	Decide(room Room, wire, packets, largest uint64) (burst uint32, grant bool)
	Reset()
}

var (
	_ credit = (*Credit)(nil)
	_ credit = (*Exact)(nil)
)

// newCredit fits the valves.
func (g *Gate) newCredit() credit {
	if g.valve == "tbf" {
		return &Credit{}
	}
	c := &Exact{}
	c.Reset()
	return c
}

// Exact keeps the books of an hfsc class, with Credit's laws. The class lets a packet go as long as no more than was
// granted went since, as byte queue limits do, and asks the user's qdisc for none before. New ones begin
// with Reset.
type Exact struct {
	granted       int64
	wire, packets uint64
}

// leastFrame is Ethernet's. A ring that is nearly full may be overrun by frames that are shorter still.
const leastFrame = 60

// Decide implements credit. A closed class passes one packet after any change, so what was granted is taken back only if
// it is more than that.
func (c *Exact) Decide(room Room, wire, packets, largest uint64) (burst uint32, grant bool) {
	// At least so much is left. Each time the queue was empty, hfsc may have rounded it down by a tick.
	left := c.granted - int64(wire-c.wire) - (stab+tickBytes)*int64(packets-c.packets)
	size := int64(largest)
	if size == 0 || size > MaxPacket {
		size = MaxPacket
	}
	if !room.Open() {
		if left <= size {
			return 0, false
		}
		return c.set(0, wire, packets), true
	}
	due := min(room.Bytes, (min(room.Packets, 1<<24)-1)*leastFrame, 1<<31)
	if left >= 0 && left >= due/2 && left <= due+size {
		return 0, false
	}
	return c.set(due, wire, packets), true
}

// Reset implements credit.
func (c *Exact) Reset() { c.granted = -math.MaxInt32 }

func (c *Exact) set(bytes int64, wire, packets uint64) uint32 {
	c.granted, c.wire, c.packets = bytes, wire, packets
	return uint32(bytes)
}
