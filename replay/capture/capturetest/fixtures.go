package capturetest

import (
	"encoding/binary"
	"net"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// Start is the first second of all fixtures: 2026-01-01 00:00:00 UTC.
const Start = 1767225600

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

// ThreePackets: pcap, microseconds; frames of 64, 128 and 256 bytes with gaps of 1 s and 1 ms.
func ThreePackets() []byte {
	return Pcap(le, Micro, 65535, 1).
		Record(Start, 0, 64, UDP(64)).
		Record(Start+1, 0, 128, UDP(128)).
		Record(Start+1, 1000, 256, UDP(256)).B
}

// TwoInterfaces: pcapng; eth0 is Ethernet, snap length 96, microseconds; tun0 is raw IP, unlimited, nanoseconds. One packet of 300 bytes of
// IP on each (truncated on the first), the second 2500 ns after the first.
func TwoInterfaces() []byte {
	frame := UDP(314)
	return Pcapng(le).
		Interface(1, 96, Option{2, []byte("eth0")}).
		Interface(101, 0, Option{2, []byte("tun0")}, Option{9, []byte{9}}).
		Enhanced(0, Start*1e6, 314, frame[:96]).
		Enhanced(1, Start*1e9+2500, 300, frame[14:]).B
}

// SLL2: pcap, Linux cooked v2; one packet received from 02:00:00:00:00:aa (interface index 7), one sent, one to all.
func SLL2() []byte {
	header := func(pktType byte) []byte {
		return append([]byte{0x08, 0x00, 0, 0, 0, 0, 0, 7, 0, 1, pktType, 6, 2, 0, 0, 0, 0, 0xaa, 0, 0}, UDP(100)[14:]...)
	}
	f := Pcap(le, Micro, 262144, 276)
	for i, pktType := range []byte{0, 4, 1} {
		f.Record(Start, uint32(i), 106, header(pktType))
	}
	return f.B
}

// TSO: pcap; a TCP frame of 14,654 bytes whose IP length is 0, as it looks above a card that segments, then one within the MTU.
func TSO() []byte {
	big := TCP(14654)
	big[16], big[17] = 0, 0
	return Pcap(le, Micro, 262144, 1).Record(Start, 0, len(big), big).Record(Start, 10, 1514, TCP(1514)).B
}

// Large: pcap, snap length 65535 and yet a packet of 92,442 bytes, as BIG TCP makes them, whole.
func Large() []byte {
	return Pcap(le, Micro, 65535, 1).Record(Start, 0, 92442, TCP(92442)).B
}

// SnapZero: pcap with snap length 0, which means unlimited; a whole frame, and one of which nothing was kept.
func SnapZero() []byte {
	return Pcap(le, Micro, 0, 1).Record(Start, 0, 1514, TCP(1514)).Record(Start, 1, 1514, nil).B
}

// Backward: pcap; the second packet is 3 ms earlier than the first, the third 5 ms later than the second.
func Backward() []byte {
	return Pcap(le, Micro, 65535, 1).
		Record(Start, 10000, 64, UDP(64)).
		Record(Start, 7000, 64, UDP(64)).
		Record(Start, 12000, 64, UDP(64)).B
}

// Nanosecond: pcap, nanoseconds, big-endian; two packets 1 ns apart at the end of a second.
func Nanosecond() []byte {
	return Pcap(be, Nano, 65535, 1).
		Record(Start, 999999998, 64, UDP(64)).
		Record(Start, 999999999, 64, UDP(64)).B
}

// FourGigabytes: a pcapng of 80 bytes whose only packet block claims 4,294,967,292 of them.
func FourGigabytes() []byte {
	f := Pcapng(le).Interface(1, 0).Enhanced(0, 0, 0xffffffff, nil)
	le.PutUint32(f.B[52:], 0xfffffffc)
	le.PutUint32(f.B[68:], 0xffffffff)
	return f.B
}

// UDP is an Ethernet frame of n bytes (≥ 60, the least that gopacket makes) with UDP 10.0.0.1:1000 → 10.0.0.2:2000, lengths and checksums right.
func UDP(n int) []byte {
	ip := ipv4(layers.IPProtocolUDP)
	udp := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	udp.SetNetworkLayerForChecksum(ip)
	return Frame(ether(layers.EthernetTypeIPv4), ip, udp, Payload(n-42))
}

// TCP is an Ethernet frame of n bytes (≥ 60) with TCP 10.0.0.1:1000 → 10.0.0.2:2000, lengths (65,535 at most, 0 above) and checksums right.
func TCP(n int) []byte {
	if n > 65535+14 {
		frame := append(TCP(60)[:54], Payload(n-54)...)
		frame[16], frame[17] = 0, 0
		return frame
	}
	ip := ipv4(layers.IPProtocolTCP)
	tcp := &layers.TCP{SrcPort: 1000, DstPort: 2000, Seq: 0xfffffff0, Ack: 1, ACK: true, PSH: true, FIN: true, CWR: true, Window: 500}
	tcp.SetNetworkLayerForChecksum(ip)
	return Frame(ether(layers.EthernetTypeIPv4), ip, tcp, Payload(n-54))
}

// Frame serializes layers with lengths and checksums made right.
func Frame(l ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		panic(err) // the layers are written down in tests
	}
	return b.Bytes()
}

// Payload is n bytes that do not repeat soon.
func Payload(n int) gopacket.Payload {
	p := make(gopacket.Payload, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

func ether(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: t}
}

func ipv4(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Id: 0xfffe, Protocol: p, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
}
