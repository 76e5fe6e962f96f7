package capture

import (
	"encoding/binary"

	"github.com/google/gopacket/layers"
)

const (
	protoTCP      = uint8(layers.IPProtocolTCP)
	protoUDP      = uint8(layers.IPProtocolUDP)
	protoSCTP     = uint8(layers.IPProtocolSCTP)
	protoHopByHop = uint8(layers.IPProtocolIPv6HopByHop)
	protoRouting  = uint8(layers.IPProtocolIPv6Routing)
	protoFragment = uint8(layers.IPProtocolIPv6Fragment)
	protoAH       = uint8(layers.IPProtocolAH)
	protoDestOpts = uint8(layers.IPProtocolIPv6Destination)
	protoNone     = uint8(layers.IPProtocolNoNextHeader)

	vlanLen   = 4
	maxVLANs  = 4
	ipv4Min   = 20
	ipv6Len   = 40
	tcpMin    = 20
	udpLen    = 8
	sctpLen   = 12
	maxExtend = 8 // IPv6 extension headers followed
)

// Fields are the header fields that decide about queue, class and segmentation of a frame. What the frame does not have,
// or the capture has cut off, is 0.
type Fields struct {
	EtherType uint16 // behind all VLAN tags
	VLANs     uint8  // number of tags
	PCP       uint8  // priority code point of the outer tag
	VID       uint16 // VLAN of the outer tag
	IPVersion uint8  // 4, 6, or 0: not IP, or its header is cut off
	DSCP      uint8
	ECN       uint8
	Proto     uint8  // behind IPv6 extension headers, with IPVersion
	Fragment  bool   // a fragment of an IP packet; ports are then 0 even in the first
	SrcPort   uint16 // TCP, UDP, SCTP
	DstPort   uint16
	L3        int // offset of the network header
	L4        int // offset of the transport header; 0 without IP
	HeaderLen int // offset of the transport payload when it is TCP, UDP or SCTP and whole; of what is unknown otherwise
	IPLen     int // bytes from L3 on that the IP header claims; 0 is the mark of a GSO packet captured above the card
}

// ParseFields reads the headers of an Ethernet frame, which may be truncated anywhere. It does not allocate.
func ParseFields(frame []byte) Fields {
	var f Fields
	if len(frame) < etherLen {
		return f
	}
	f.EtherType = binary.BigEndian.Uint16(frame[12:])
	f.L3 = etherLen
	for f.VLANs < maxVLANs && isVLAN(f.EtherType) && len(frame) >= f.L3+vlanLen {
		if f.VLANs == 0 {
			tci := binary.BigEndian.Uint16(frame[f.L3:])
			f.PCP, f.VID = uint8(tci>>13), tci&0x0fff
		}
		f.VLANs++
		f.EtherType = binary.BigEndian.Uint16(frame[f.L3+2:])
		f.L3 += vlanLen
	}
	f.HeaderLen = f.L3
	switch f.EtherType {
	case typeIPv4:
		f.ipv4(frame)
	case typeIPv6:
		f.ipv6(frame)
	}
	return f
}

func isVLAN(typ uint16) bool { return typ == 0x8100 || typ == 0x88a8 || typ == 0x9100 }

func (f *Fields) ipv4(frame []byte) {
	h := frame[f.L3:]
	if len(h) < ipv4Min || h[0]>>4 != 4 {
		return
	}
	header := int(h[0]&0x0f) * 4
	if header < ipv4Min {
		return
	}
	f.IPVersion, f.DSCP, f.ECN = 4, h[1]>>2, h[1]&3
	f.IPLen = int(binary.BigEndian.Uint16(h[2:]))
	f.Fragment = binary.BigEndian.Uint16(h[6:])&0x3fff != 0 // more fragments, or an offset
	f.Proto = h[9]
	f.L4 = f.L3 + header
	f.transport(frame)
}

func (f *Fields) ipv6(frame []byte) {
	h := frame[f.L3:]
	if len(h) < ipv6Len || h[0]>>4 != 6 {
		return
	}
	class := binary.BigEndian.Uint16(h) >> 4
	f.IPVersion, f.DSCP, f.ECN = 6, uint8(class)>>2, uint8(class)&3
	if n := int(binary.BigEndian.Uint16(h[4:])); n > 0 {
		f.IPLen = ipv6Len + n
	}
	f.Proto, f.L4 = h[6], f.L3+ipv6Len
	for range maxExtend {
		var n int
		ext := frame[min(f.L4, len(frame)):]
		if len(ext) < 8 {
			break
		}
		switch f.Proto {
		case protoHopByHop, protoRouting, protoDestOpts:
			n = int(ext[1])*8 + 8
		case protoAH:
			n = int(ext[1])*4 + 8
		case protoFragment:
			n = 8
			f.Fragment = f.Fragment || binary.BigEndian.Uint16(ext[2:])&0xfff9 != 0
		default:
			f.transport(frame)
			return
		}
		f.Proto = ext[0]
		f.L4 += n
	}
	f.transport(frame)
}

// transport reads the ports and finds the payload.
func (f *Fields) transport(frame []byte) {
	f.HeaderLen = f.L4
	if f.Fragment || f.L4 > len(frame) {
		return
	}
	h := frame[f.L4:]
	n := 0
	switch f.Proto {
	case protoTCP:
		if len(h) >= tcpMin {
			n = max(tcpMin, int(h[12]>>4)*4)
		}
	case protoUDP:
		n = udpLen
	case protoSCTP:
		n = sctpLen
	default:
		return
	}
	if len(h) >= 4 {
		f.SrcPort, f.DstPort = binary.BigEndian.Uint16(h), binary.BigEndian.Uint16(h[2:])
	}
	if len(h) >= n {
		f.HeaderLen += n
	}
}

// offloaded tells the traces of segmentation offload: a packet larger than the MTU, and an IP length left at 0.
func offloaded(frame []byte, wire, mtu int) (over, zero bool) {
	if len(frame) < etherLen {
		return wire > etherLen+mtu, false
	}
	l3, typ := etherLen, binary.BigEndian.Uint16(frame[12:])
	for n := 0; n < maxVLANs && isVLAN(typ) && len(frame) >= l3+vlanLen; n++ {
		typ = binary.BigEndian.Uint16(frame[l3+2:])
		l3 += vlanLen
	}
	ip := frame[l3:]
	switch {
	case typ == typeIPv4 && len(ip) >= 4:
		zero = binary.BigEndian.Uint16(ip[2:]) == 0
	case typ == typeIPv6 && len(ip) >= 7:
		zero = binary.BigEndian.Uint16(ip[4:]) == 0 && ip[6] != protoNone
	}
	return wire > l3+mtu, zero
}
