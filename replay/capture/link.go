package capture

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket/layers"
)

// LinkType is a LINKTYPE_ value (https://www.tcpdump.org/linktypes.html).
type LinkType uint16

const (
	linkNull     LinkType = 0
	linkEthernet LinkType = 1
	linkRaw12    LinkType = 12 // DLT_RAW as some systems write it
	linkRaw14    LinkType = 14 // the same on OpenBSD
	linkRaw      LinkType = 101
	linkLoop     LinkType = 108
	linkSLL      LinkType = 113
	linkRadiotap LinkType = 127
	linkIPv4     LinkType = 228
	linkIPv6     LinkType = 229
	linkSLL2     LinkType = 276
)

const supportedLinkTypes = "Ethernet (1), raw IP (101, 12, 14, 228, 229), Linux cooked (113, 276), BSD loopback (0, 108) or 802.11 radiotap (127)"

// linkNames are those converted, and those a user is likely to meet besides.
var linkNames = map[LinkType]string{
	linkNull: "NULL", linkEthernet: "ETHERNET", linkRaw12: "RAW", linkRaw14: "RAW", linkRaw: "RAW", linkLoop: "LOOP", linkSLL: "LINUX_SLL",
	linkRadiotap: "IEEE802_11_RADIOTAP", linkIPv4: "IPV4", linkIPv6: "IPV6", linkSLL2: "LINUX_SLL2",
	3: "AX25", 6: "IEEE802_5", 7: "ARCNET_BSD", 8: "SLIP", 9: "PPP", 10: "FDDI", 50: "PPP_HDLC", 51: "PPP_ETHER", 100: "ATM_RFC1483", 104: "C_HDLC",
	105: "IEEE802_11", 107: "FRELAY", 117: "PFLOG", 119: "IEEE802_11_PRISM", 143: "DOCSIS", 147: "USER0", 163: "IEEE802_11_AVS",
	187: "BLUETOOTH_HCI_H4", 189: "USB_LINUX", 192: "PPI", 195: "IEEE802_15_4_WITHFCS", 201: "BLUETOOTH_HCI_H4_WITH_PHDR", 220: "USB_LINUX_MMAPPED",
	224: "FC_2", 227: "CAN_SOCKETCAN", 239: "NFLOG", 240: "NETANALYZER", 242: "IPOIB", 247: "INFINIBAND", 249: "USBPCAP", 253: "NETLINK",
	271: "VSOCK", 274: "ETHERNET_MPACKET", 285: "NETANALYZER_NG",
}

// Name is the name on the list of link types without LINKTYPE_, or "unknown".
func (t LinkType) Name() string {
	if n, ok := linkNames[t]; ok {
		return n
	}
	return "unknown"
}

func (t LinkType) String() string { return fmt.Sprintf("%d (%s)", uint16(t), t.Name()) }

func (t LinkType) supported() bool {
	switch t {
	case linkNull, linkEthernet, linkRaw12, linkRaw14, linkRaw, linkLoop, linkSLL, linkRadiotap, linkIPv4, linkIPv6, linkSLL2:
		return true
	}
	return false
}

const (
	etherLen   = 14
	macLen     = 6
	minType    = 0x0600 // smallest EtherType; below is a length
	maxLLC     = 1500   // largest length
	sllLen     = 16
	sll2Len    = 20
	bsdLen     = 4
	sllNovell  = 0x0001 // 802.3 without LLC
	sllLLC     = 0x0004
	typeIPv4   = uint16(layers.EthernetTypeIPv4)
	typeIPv6   = uint16(layers.EthernetTypeIPv6)
	pktBcast   = 1 // PACKET_BROADCAST
	pktMcast   = 2 // PACKET_MULTICAST
	arpNetlink = 824
)

// Addresses of frames whose capture has none, locally administered.
var (
	ourMAC   = [macLen]byte{0x02, 0, 0, 0, 0, 0x01} // source
	theirMAC = [macLen]byte{0x02, 0, 0, 0, 0, 0x02} // destination
	bcastMAC = [macLen]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	nodesMAC = [macLen]byte{0x33, 0x33, 0, 0, 0, 0x01} // a group address: cooked captures do not say which
)

// linkConverter puts an Ethernet header where another link header was.
type linkConverter struct {
	buf      []byte // the frame made
	dst, src [macLen]byte
}

// convert returns the Ethernet frame for data, of which the wire had wire bytes, and its length on an Ethernet wire.
func (c *linkConverter) convert(t LinkType, data []byte, wire int) ([]byte, int, refusal) {
	c.dst, c.src = theirMAC, ourMAC
	switch t {
	case linkIPv4:
		return c.frame(0, typeIPv4, data, wire)
	case linkIPv6:
		return c.frame(0, typeIPv6, data, wire)
	case linkRaw, linkRaw12, linkRaw14:
		return c.raw(data, wire)
	case linkNull, linkLoop:
		return c.bsd(t, data, wire)
	case linkSLL:
		return c.cooked(data, wire)
	case linkSLL2:
		return c.cooked2(data, wire)
	case linkRadiotap:
		return c.radiotap(data, wire)
	}
	return nil, 0, refusedLinkType
}

// frame puts a header with the given EtherType in place of the first cut bytes.
func (c *linkConverter) frame(cut int, typ uint16, data []byte, wire int) ([]byte, int, refusal) {
	if wire < cut || wire == 0 {
		return nil, 0, refusedRunt
	}
	payload := data[min(cut, len(data)):]
	if need := etherLen + len(payload); cap(c.buf) < need {
		c.buf = make([]byte, 0, max(need, 2048))
	}
	b := append(c.buf[:0], c.dst[:]...)
	b = append(b, c.src[:]...)
	b = binary.BigEndian.AppendUint16(b, typ)
	c.buf = append(b, payload...)
	return c.buf, etherLen + wire - cut, accepted
}

// llc frames what has no EtherType with its length, as 802.3 does.
func (c *linkConverter) llc(cut int, data []byte, wire int) ([]byte, int, refusal) {
	if wire-cut > maxLLC {
		return nil, 0, refusedProtocol
	}
	return c.frame(cut, uint16(max(0, wire-cut)), data, wire)
}

func (c *linkConverter) raw(data []byte, wire int) ([]byte, int, refusal) {
	if len(data) == 0 {
		return nil, 0, missing(wire, 1)
	}
	switch data[0] >> 4 {
	case 4:
		return c.frame(0, typeIPv4, data, wire)
	case 6:
		return c.frame(0, typeIPv6, data, wire)
	}
	return nil, 0, refusedProtocol
}

// missing tells a packet that was too short from one whose capture is.
func missing(wire, header int) refusal {
	if wire < header {
		return refusedRunt
	}
	return refusedCut
}

// bsd: a 4-byte address family, in the byte order of the capturing host (NULL) or of the network (LOOP).
func (c *linkConverter) bsd(t LinkType, data []byte, wire int) ([]byte, int, refusal) {
	if len(data) < bsdLen {
		return nil, 0, missing(wire, bsdLen)
	}
	family := binary.BigEndian.Uint32(data)
	if t == linkNull && family > 0xffff { // families are small numbers: the host was little-endian
		family = binary.LittleEndian.Uint32(data)
	}
	switch family {
	case 2: // AF_INET everywhere
		return c.frame(bsdLen, typeIPv4, data, wire)
	case 24, 28, 30, 10: // AF_INET6 of NetBSD, OpenBSD and Npcap, of FreeBSD, macOS and Linux
		return c.frame(bsdLen, typeIPv6, data, wire)
	}
	return nil, 0, refusedProtocol
}

// cooked: Linux cooked capture v1. It keeps the sender's address only.
func (c *linkConverter) cooked(data []byte, wire int) ([]byte, int, refusal) {
	if len(data) < sllLen {
		return nil, 0, missing(wire, sllLen)
	}
	be := binary.BigEndian
	c.cookedAddresses(be.Uint16(data), be.Uint16(data[4:]), data[6:])
	return c.cookedProtocol(be.Uint16(data[2:]), be.Uint16(data[14:]), sllLen, data, wire)
}

// cooked2: Linux cooked capture v2, with the fields in another order and the interface index besides.
func (c *linkConverter) cooked2(data []byte, wire int) ([]byte, int, refusal) {
	if len(data) < sll2Len {
		return nil, 0, missing(wire, sll2Len)
	}
	be := binary.BigEndian
	c.cookedAddresses(uint16(data[10]), uint16(data[11]), data[12:])
	return c.cookedProtocol(be.Uint16(data[8:]), be.Uint16(data), sll2Len, data, wire)
}

func (c *linkConverter) cookedAddresses(pktType, addrLen uint16, addr []byte) {
	switch pktType {
	case pktBcast:
		c.dst = bcastMAC
	case pktMcast:
		c.dst = nodesMAC
	}
	if addrLen == macLen {
		copy(c.src[:], addr)
	}
}

func (c *linkConverter) cookedProtocol(hardware, protocol uint16, cut int, data []byte, wire int) ([]byte, int, refusal) {
	switch hardware { // their protocol field is no EtherType
	case 770, 801, 802, 803, arpNetlink: // ARPHRD_FRAD, _IEEE80211, _IEEE80211_PRISM, _IEEE80211_RADIOTAP
		return nil, 0, refusedProtocol
	}
	switch {
	case protocol >= minType:
		return c.frame(cut, protocol, data, wire)
	case protocol == sllLLC, protocol == sllNovell:
		return c.llc(cut, data, wire)
	}
	return nil, 0, refusedProtocol
}
