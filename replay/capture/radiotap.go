package capture

import (
	"bytes"
	"encoding/binary"
)

// Radiotap header (https://www.radiotap.org) and the 802.11 MAC header behind it (IEEE 802.11-2020, 9.2).
const (
	radiotapMin   = 8
	radiotapTSFT  = 1 << 0
	radiotapFlags = 1 << 1
	radiotapMore  = 1 << 31 // another word of presence bits follows

	flagFCS    = 0x10
	flagPad    = 0x20 // the 802.11 header is padded to a multiple of 4
	flagBadFCS = 0x40

	dot11Min      = 24
	dot11Data     = 2
	dot11NoData   = 0x4 // subtype bit
	dot11QoS      = 0x8 // subtype bit
	dot11ToDS     = 0x01
	dot11FromDS   = 0x02
	dot11MoreFrag = 0x04
	dot11Protect  = 0x40
	dot11Order    = 0x80
	qosAMSDU      = 0x80

	snapLen = 8
	fcsLen  = 4
)

// radiotap converts an 802.11 data frame.
func (c *linkConverter) radiotap(data []byte, wire int) ([]byte, int, refusal) {
	if len(data) < radiotapMin {
		return nil, 0, missing(wire, radiotapMin)
	}
	header := int(binary.LittleEndian.Uint16(data[2:]))
	if data[0] != 0 || header < radiotapMin {
		return nil, 0, refusedProtocol
	}
	if len(data) < header {
		return nil, 0, missing(wire, header)
	}
	flags := radiotapFlagsOf(data[:header])
	if flags&flagBadFCS != 0 {
		return nil, 0, refusedFCS
	}
	data, wire = data[header:], wire-header
	if flags&flagFCS != 0 {
		wire = max(0, wire-fcsLen)
		data = data[:min(len(data), wire)]
	}
	return c.dot11(data, wire, flags&flagPad != 0)
}

// radiotapFlagsOf finds the flags field: behind all presence words and the 8-byte time, when that is there.
func radiotapFlagsOf(h []byte) byte {
	present := binary.LittleEndian.Uint32(h[4:])
	if present&radiotapFlags == 0 {
		return 0
	}
	at := 4
	for word := present; ; word = binary.LittleEndian.Uint32(h[at:]) {
		at += 4
		if word&radiotapMore == 0 {
			break
		}
		if at+4 > len(h) {
			return 0
		}
	}
	if present&radiotapTSFT != 0 {
		at = (at+7)&^7 + 8
	}
	if at >= len(h) {
		return 0
	}
	return h[at]
}

// dot11 converts a data frame from its frame control field on.
func (c *linkConverter) dot11(data []byte, wire int, padded bool) ([]byte, int, refusal) {
	if len(data) < 2 {
		return nil, 0, missing(wire, dot11Min)
	}
	subtype, flags := data[0]>>4, data[1]
	if data[0]>>2&3 != dot11Data || subtype&dot11NoData != 0 {
		return nil, 0, refusedNoData
	}
	header := dot11HeaderLen(subtype, flags)
	if len(data) < header {
		return nil, 0, missing(wire, header)
	}
	aggregate := subtype&dot11QoS != 0 && data[qosAt(flags)]&qosAMSDU != 0
	fragment := flags&dot11MoreFrag != 0 || data[22]&0x0f != 0
	switch {
	case flags&dot11Protect != 0:
		return nil, 0, refusedEncrypted
	case aggregate, fragment:
		return nil, 0, refusedAggregate
	}
	c.dot11Addresses(data, flags)
	if padded {
		header = (header + 3) &^ 3
	}
	return c.snap(header, data, wire)
}

// qosAt is where the QoS control field stands: behind the fourth address, when there is one.
func qosAt(flags byte) int {
	if flags&(dot11ToDS|dot11FromDS) == dot11ToDS|dot11FromDS {
		return dot11Min + macLen
	}
	return dot11Min
}

func dot11HeaderLen(subtype, flags byte) int {
	n := qosAt(flags)
	if subtype&dot11QoS != 0 {
		n += 2
		if flags&dot11Order != 0 {
			n += 4 // HT control
		}
	}
	return n
}

// dot11Addresses picks destination and source (table 9-30 of the standard).
func (c *linkConverter) dot11Addresses(h []byte, flags byte) {
	a1, a2, a3 := h[4:], h[10:], h[16:]
	switch flags & (dot11ToDS | dot11FromDS) {
	case 0:
		copy(c.dst[:], a1)
		copy(c.src[:], a2)
	case dot11FromDS:
		copy(c.dst[:], a1)
		copy(c.src[:], a3)
	case dot11ToDS:
		copy(c.dst[:], a3)
		copy(c.src[:], a2)
	default:
		copy(c.dst[:], a3)
		copy(c.src[:], h[24:])
	}
}

// snap takes the EtherType out of an LLC/SNAP header of RFC 1042 or of a bridge tunnel (802.1H); other LLC keeps its length.
func (c *linkConverter) snap(cut int, data []byte, wire int) ([]byte, int, refusal) {
	if len(data) < cut+snapLen {
		if wire >= cut+snapLen || wire <= cut {
			return nil, 0, missing(wire, cut+1)
		}
		return c.llc(cut, data, wire)
	}
	llc := data[cut:]
	if bytes.HasPrefix(llc, []byte("\xaa\xaa\x03\x00\x00\x00")) || bytes.HasPrefix(llc, []byte("\xaa\xaa\x03\x00\x00\xf8")) {
		if typ := binary.BigEndian.Uint16(llc[6:]); typ >= minType {
			return c.frame(cut+snapLen, typ, data, wire)
		}
	}
	return c.llc(cut, data, wire)
}
