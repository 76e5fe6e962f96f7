package capture

import (
	"net"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"

	"nicemu/replay/capture/capturetest"
)

// drawFrame makes an Ethernet frame of any shape these tests are about; its layers come back with it.
func drawFrame(t *rapid.T) ([]byte, []gopacket.SerializableLayer) {
	payload := capturetest.Payload(rapid.IntRange(0, 6000).Draw(t, "payload"))
	class := rapid.Byte().Draw(t, "traffic class")
	v4 := &layers.IPv4{Version: 4, IHL: 5, TOS: class, TTL: 64, Id: rapid.Uint16().Draw(t, "ID"), Flags: layers.IPv4DontFragment,
		SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
	v6 := &layers.IPv6{Version: 6, TrafficClass: class, HopLimit: 64, SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
	var network interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	} = v4
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	if rapid.Bool().Draw(t, "v6") {
		network, eth.EthernetType = v6, layers.EthernetTypeIPv6
	} else if rapid.Bool().Draw(t, "options") {
		v4.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}} // router alert
	}
	stack := []gopacket.SerializableLayer{eth}
	typ := eth.EthernetType
	for i := range rapid.IntRange(0, 2).Draw(t, "tags") {
		tag := &layers.Dot1Q{Priority: rapid.Uint8Range(0, 7).Draw(t, "PCP"), VLANIdentifier: rapid.Uint16Range(0, 4095).Draw(t, "VID"), Type: typ}
		if i == 0 {
			eth.EthernetType = layers.EthernetTypeDot1Q
		} else {
			eth.EthernetType, tag.Type = layers.EthernetTypeQinQ, layers.EthernetTypeDot1Q
			stack[1].(*layers.Dot1Q).Type = typ
		}
		stack = append([]gopacket.SerializableLayer{eth, tag}, stack[1:]...)
	}
	stack = append(stack, network)
	ports := rapid.Uint16Range(1, 65535)
	if rapid.Bool().Draw(t, "TCP") {
		v4.Protocol, v6.NextHeader = layers.IPProtocolTCP, layers.IPProtocolTCP
		tcp := &layers.TCP{SrcPort: layers.TCPPort(ports.Draw(t, "source")), DstPort: layers.TCPPort(ports.Draw(t, "destination")),
			Seq: rapid.Uint32().Draw(t, "sequence"), ACK: true, Window: 1000,
			PSH: rapid.Bool().Draw(t, "PSH"), FIN: rapid.Bool().Draw(t, "FIN"), CWR: rapid.Bool().Draw(t, "CWR")}
		if rapid.Bool().Draw(t, "timestamps") {
			tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop},
				{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}}
		}
		tcp.SetNetworkLayerForChecksum(network)
		stack = append(stack, tcp)
	} else {
		v4.Protocol, v6.NextHeader = layers.IPProtocolUDP, layers.IPProtocolUDP
		udp := &layers.UDP{SrcPort: layers.UDPPort(ports.Draw(t, "source")), DstPort: layers.UDPPort(rapid.Uint16Range(10000, 65535).Draw(t, "destination"))}
		udp.SetNetworkLayerForChecksum(network)
		stack = append(stack, udp)
	}
	return capturetest.Frame(append(stack, payload)...), append(stack, payload)
}

func TestFieldsAgreeWithGopacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame, _ := drawFrame(t)
		f := ParseFields(frame)
		var want Fields
		for _, l := range gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy).Layers() {
			switch l := l.(type) {
			case *layers.Ethernet:
				want.EtherType, want.L3 = uint16(l.EthernetType), len(l.Contents)
			case *layers.Dot1Q:
				if want.VLANs == 0 {
					want.PCP, want.VID = l.Priority, l.VLANIdentifier
				}
				want.VLANs, want.EtherType = want.VLANs+1, uint16(l.Type)
				want.L3 += len(l.Contents)
			case *layers.IPv4:
				want.IPVersion, want.DSCP, want.ECN, want.Proto = 4, l.TOS>>2, l.TOS&3, uint8(l.Protocol)
				want.L4, want.IPLen = want.L3+len(l.Contents), int(l.Length)
			case *layers.IPv6:
				want.IPVersion, want.DSCP, want.ECN, want.Proto = 6, l.TrafficClass>>2, l.TrafficClass&3, uint8(l.NextHeader)
				want.L4, want.IPLen = want.L3+len(l.Contents), 40+int(l.Length)
			case *layers.TCP:
				want.SrcPort, want.DstPort, want.HeaderLen = uint16(l.SrcPort), uint16(l.DstPort), want.L4+len(l.Contents)
			case *layers.UDP:
				want.SrcPort, want.DstPort, want.HeaderLen = uint16(l.SrcPort), uint16(l.DstPort), want.L4+len(l.Contents)
			}
		}
		if f != want {
			t.Fatalf("got %+v\nwant %+v", f, want)
		}
	})
}

// Whatever is cut off, the fields that are left are those of the whole frame.
func TestFieldsOfACutFrameAreThoseOfTheWholeOrNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame, _ := drawFrame(t)
		whole := ParseFields(frame)
		for n := range min(len(frame), whole.HeaderLen+1) {
			f := ParseFields(frame[:n])
			f.FlowHash(frame[:n])
			if f.IPVersion != 0 && (f.IPVersion != whole.IPVersion || f.DSCP != whole.DSCP || f.L4 != whole.L4 || f.IPLen != whole.IPLen) ||
				f.SrcPort != 0 && f.SrcPort != whole.SrcPort || f.HeaderLen > whole.HeaderLen || f.VLANs > whole.VLANs {
				t.Fatalf("cut at %d: %+v of %+v", n, f, whole)
			}
		}
	})
}

func TestFieldsSeeThroughIPv6ExtensionHeaders(t *testing.T) {
	frame := parts("020000000002 020000000001 86dd", "6b800000 0028 00 40", make([]byte, 32),
		"3c00 0000 00000000"+ // hop by hop
			"2c00 0000 00000000"+ // destination options
			"1100 0000 00000001"+ // a fragment that is the whole packet
			"03e8 07d0 0010 0000", make([]byte, 8))
	f := ParseFields(frame)
	want(t, "fields", f, Fields{EtherType: 0x86dd, IPVersion: 6, DSCP: 46, Proto: 17, SrcPort: 1000, DstPort: 2000, L3: 14, L4: 78, HeaderLen: 86, IPLen: 80})
	frame[73] = 1 // more fragments
	if f := ParseFields(frame); !f.Fragment || f.SrcPort != 0 || f.HeaderLen != 78 {
		t.Errorf("%+v", f)
	}
}

func TestFragmentsHaveNoPorts(t *testing.T) {
	frame := capturetest.UDP(100)
	frame[20] = 0x20 // more fragments
	if f := ParseFields(frame); !f.Fragment || f.SrcPort != 0 || f.DstPort != 0 {
		t.Errorf("%+v", f)
	}
}

// The vectors of Microsoft's "Verifying the RSS Hash Calculation".
func TestFlowHashIsThatOfRSS(t *testing.T) {
	for _, c := range []struct {
		src, dst         string
		srcPort, dstPort uint16
		ports, addresses uint32
	}{
		{"66.9.149.187", "161.142.100.80", 2794, 1766, 0x51ccc178, 0x323e8fc2},
		{"199.92.111.2", "65.69.140.83", 14230, 4739, 0xc626b0ea, 0xd718262a},
		{"24.19.198.95", "12.22.207.184", 12898, 38024, 0x5c2b394a, 0xd2d0a5de},
		{"38.27.205.30", "209.142.163.6", 48228, 2217, 0xafc7327f, 0x82989176},
		{"153.39.163.191", "202.188.127.2", 44251, 1303, 0x10e828a2, 0x5d1809c5},
		{"3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766, 0x40207d3d, 0x2cc18cd5},
		{"3ffe:501:8::260:97ff:fe40:efab", "ff02::1", 14230, 4739, 0xdde51bbf, 0x0f0c461c},
		{"3ffe:1900:4545:3:200:f8ff:fe21:67cf", "fe80::200:f8ff:fe21:67cf", 44251, 38024, 0x02d1feef, 0x4b61e985},
	} {
		src, dst := net.ParseIP(c.src), net.ParseIP(c.dst)
		eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
		var ip interface {
			gopacket.NetworkLayer
			gopacket.SerializableLayer
		} = &layers.IPv4{Version: 4, IHL: 5, Protocol: layers.IPProtocolTCP, SrcIP: src, DstIP: dst}
		if src.To4() == nil {
			eth.EthernetType = layers.EthernetTypeIPv6
			ip = &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolTCP, SrcIP: src, DstIP: dst}
		}
		tcp := &layers.TCP{SrcPort: layers.TCPPort(c.srcPort), DstPort: layers.TCPPort(c.dstPort)}
		tcp.SetNetworkLayerForChecksum(ip)
		frame := capturetest.Frame(eth, ip, tcp)
		f := ParseFields(frame)
		if got := f.FlowHash(frame); got != c.ports {
			t.Errorf("%s → %s with ports: %08x, want %08x", c.src, c.dst, got, c.ports)
		}
		f.SrcPort, f.DstPort = 0, 0
		if got := f.FlowHash(frame); got != c.addresses {
			t.Errorf("%s → %s: %08x, want %08x", c.src, c.dst, got, c.addresses)
		}
	}
}
