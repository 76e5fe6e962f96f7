package capture

import (
	"bytes"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"nicemu/replay/capture/capturetest"
)

// parts joins pieces of hex and of bytes.
func parts(pieces ...any) []byte {
	var b []byte
	for _, p := range pieces {
		switch p := p.(type) {
		case string:
			h, err := hex.DecodeString(strings.ReplaceAll(p, " ", ""))
			if err != nil {
				panic(err)
			}
			b = append(b, h...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

var (
	ip4 = capturetest.UDP(60)[14:]
	ip6 = capturetest.Frame(&layers.IPv6{Version: 6, NextHeader: layers.IPProtocolNoNextHeader, SrcIP: make([]byte, 16), DstIP: make([]byte, 16)})
)

const (
	toUs   = "020000000002 020000000001"
	a1     = "0a0000000001 "
	a2     = "0a0000000002 "
	a3     = "0a0000000003 "
	a4     = "0a0000000004 "
	snapV4 = "aaaa03000000 0800"
)

// rt is a radiotap header that has nothing but flags.
func rt(flags string) string { return "0000 0900 02000000" + flags }

func TestLinkTypesBecomeEthernet(t *testing.T) {
	for _, c := range []struct {
		name   string
		link   LinkType
		in     []byte
		out    []byte
		varies bool // what comes out depends on the length of the whole: FCS, 802.3 length
	}{
		{"raw 101, v4", 101, ip4, parts(toUs, "0800", ip4), false},
		{"raw 101, v6", 101, ip6, parts(toUs, "86dd", ip6), false},
		{"raw 12", 12, ip4, parts(toUs, "0800", ip4), false},
		{"raw 14", 14, ip6, parts(toUs, "86dd", ip6), false},
		{"IPv4", 228, ip4, parts(toUs, "0800", ip4), false},
		{"IPv6", 229, ip6, parts(toUs, "86dd", ip6), false},
		{"null, little-endian", 0, parts("02000000", ip4), parts(toUs, "0800", ip4), false},
		{"null, big-endian", 0, parts("00000002", ip4), parts(toUs, "0800", ip4), false},
		{"null, v6 of macOS", 0, parts("1e000000", ip6), parts(toUs, "86dd", ip6), false},
		{"null, v6 of FreeBSD", 0, parts("0000001c", ip6), parts(toUs, "86dd", ip6), false},
		{"loop, v6 of OpenBSD", 108, parts("00000018", ip6), parts(toUs, "86dd", ip6), false},
		{"SLL", 113, parts("0000 0001 0006 0a0000000009 0000 0800", ip4), parts("020000000002 0a0000000009 0800", ip4), false},
		{"SLL, multicast, no address", 113, parts("0002 fffe 0000 0000000000000000 0800", ip4), parts("333300000001 020000000001 0800", ip4), false},
		{"SLL, VLAN", 113, parts("0004 0001 0006 0a0000000009 0000 8100 6005 0800", ip4), parts("020000000002 0a0000000009 8100 6005 0800", ip4), false},
		{"SLL, LLC", 113, parts("0000 0001 0006 0a0000000009 0000 0004 424203"), parts("020000000002 0a0000000009 0003 424203"), true},
		{"SLL2, broadcast", 276, parts("86dd 0000 00000003 0001 01 06 0a0000000009 0000", ip6), parts("ffffffffffff 0a0000000009 86dd", ip6), false},
		{"802.11 from the access point", 127, parts(rt("00"), "0802 0000", a1, a2, a3, "1000", snapV4, ip4), parts(a1, a3, "0800", ip4), false},
		{"802.11 to the access point", 127, parts(rt("00"), "0801 0000", a1, a2, a3, "1000", snapV4, ip4), parts(a3, a2, "0800", ip4), false},
		{"802.11 ad hoc", 127, parts(rt("00"), "0800 0000", a1, a2, a3, "1000", snapV4, ip4), parts(a1, a2, "0800", ip4), false},
		{"802.11 between access points", 127, parts(rt("00"), "0803 0000", a1, a2, a3, "1000", a4, snapV4, ip4), parts(a3, a4, "0800", ip4), false},
		{"802.11 QoS", 127, parts(rt("00"), "8802 0000", a1, a2, a3, "1000 0500", snapV4, ip4), parts(a1, a3, "0800", ip4), false},
		{"802.11 QoS, padded", 127, parts(rt("20"), "8802 0000", a1, a2, a3, "1000 0500 0000", snapV4, ip4), parts(a1, a3, "0800", ip4), false},
		{"802.11 QoS with HT control", 127, parts(rt("00"), "8882 0000", a1, a2, a3, "1000 0500 00000000", snapV4, ip4), parts(a1, a3, "0800", ip4), false},
		{"802.11 with FCS", 127, parts(rt("10"), "0802 0000", a1, a2, a3, "1000", snapV4, ip4, "01020304"), parts(a1, a3, "0800", ip4), true},
		{"802.11, time before flags, two presence words", 127,
			parts("0000 1900 03000080 00000000 00000000 0807060504030201 10", "0802 0000", a1, a2, a3, "1000", snapV4, ip4, "01020304"), parts(a1, a3, "0800", ip4), true},
		{"802.11, bridge tunnel", 127, parts(rt("00"), "0802 0000", a1, a2, a3, "1000 aaaa030000f8 8137 0001"), parts(a1, a3, "8137 0001"), false},
		{"802.11, LLC", 127, parts(rt("00"), "0802 0000", a1, a2, a3, "1000 424203 0000000000"), parts(a1, a3, "0008 424203 0000000000"), true},
		{"802.11, short LLC", 127, parts(rt("00"), "0802 0000", a1, a2, a3, "1000 424203"), parts(a1, a3, "0003 424203"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			const missing = 7 // the same frame, cut short by the capture
			file := capturetest.Pcap(le, capturetest.Micro, 0, uint32(c.link)).Record(0, 0, len(c.in), c.in).
				Record(0, 0, len(c.in)+missing, c.in)
			packets, frames, s, err := readAll(t, file.B)
			if err != io.EOF || len(packets) == 0 {
				t.Fatalf("%v, refused %v", err, s.Refused)
			}
			want(t, "frame", hex.EncodeToString(frames[0]), hex.EncodeToString(c.out))
			want(t, "length on the wire", packets[0].Wire, len(c.out))
			if c.varies {
				return
			}
			want(t, "length of the cut one", packets[1].Wire, len(c.out)+missing)
			want(t, "the cut one", frames[1], frames[0])
		})
	}
}

func TestWhatIsNoEthernetFrameIsRefusedByReason(t *testing.T) {
	data := func(fc string) []byte { return parts(rt("00"), fc, "0000", a1, a2, a3, "1000", snapV4, ip4) }
	for _, c := range []struct {
		name string
		link LinkType
		in   []byte
		wire int // 0: as captured
		why  refusal
	}{
		{"raw IP version 5", 101, parts("50"), 0, refusedProtocol},
		{"raw IP, nothing", 101, nil, 0, refusedRunt},
		{"raw IP, nothing kept", 101, nil, 60, refusedCut},
		{"IPv4, nothing", 228, nil, 0, refusedRunt},
		{"loop, IPX", 108, parts("00000017", ip4), 0, refusedProtocol},
		{"loop, cut", 108, parts("0000"), 60, refusedCut},
		{"null, short", 0, parts("0200"), 0, refusedRunt},
		{"SLL, short", 113, parts("0000"), 0, refusedRunt},
		{"SLL, cut", 113, parts("0000"), 100, refusedCut},
		{"SLL, CAN", 113, parts("0000 0118 0000 0000000000000000 000c 00"), 0, refusedProtocol},
		{"SLL, netlink", 113, parts("0000 0338 0000 0000000000000000 0800 00"), 0, refusedProtocol},
		{"SLL, LLC too long", 113, parts("0000 0001 0006 0a0000000009 0000 0004 424203"), 2000, refusedProtocol},
		{"SLL2, short", 276, parts("0800"), 0, refusedRunt},
		{"radiotap, short", 127, parts("0000"), 0, refusedRunt},
		{"radiotap version 1", 127, parts("0100 0900 02000000 00"), 0, refusedProtocol},
		{"radiotap, length 4", 127, parts("0000 0400 02000000 00"), 0, refusedProtocol},
		{"radiotap, cut", 127, parts("0000 2000 02000000 00"), 100, refusedCut},
		{"presence words without end", 127, parts("0000 0c00 020000ff ffffffff 80"), 0, refusedRunt},
		{"bad FCS", 127, parts(rt("40"), "0802 0000", a1, a2, a3, "1000", snapV4, ip4), 0, refusedFCS},
		{"beacon", 127, data("8000"), 0, refusedNoData},
		{"acknowledgement", 127, parts(rt("00"), "d400 0000", a1), 0, refusedNoData},
		{"null data", 127, data("4801"), 0, refusedNoData},
		{"QoS null", 127, data("c801"), 0, refusedNoData},
		{"encrypted", 127, data("0842"), 0, refusedEncrypted},
		{"more fragments", 127, data("0806"), 0, refusedAggregate},
		{"last fragment", 127, parts(rt("00"), "0802 0000", a1, a2, a3, "1100", snapV4, ip4), 0, refusedAggregate},
		{"A-MSDU", 127, parts(rt("00"), "8802 0000", a1, a2, a3, "1000 8000", snapV4, ip4), 0, refusedAggregate},
		{"802.11 header cut", 127, parts(rt("00"), "0802 0000", a1), 100, refusedCut},
		{"802.11 header short", 127, parts(rt("00"), "0802 0000", a1), 0, refusedRunt},
		{"SNAP cut", 127, parts(rt("00"), "0802 0000", a1, a2, a3, "1000 aaaa"), 100, refusedCut},
		{"no LLC", 127, parts(rt("00"), "0802 0000", a1, a2, a3, "1000"), 0, refusedRunt},
	} {
		wire := max(c.wire, len(c.in))
		packets, _, s, err := readAll(t, capturetest.Pcap(le, capturetest.Micro, 0, uint32(c.link)).Record(0, 0, wire, c.in).B)
		if err != io.EOF || len(packets) != 0 || s.Refused[refusalNames[c.why]] != 1 {
			t.Errorf("%s: %v %v %v, want %q", c.name, packets, s.Refused, err, refusalNames[c.why])
		}
	}
}

// gopacket decodes the 802.11 frames above to the same addresses and payload.
func TestRadiotapAgreesWithGopacket(t *testing.T) {
	for _, fc := range []string{"0800", "0801", "0802"} {
		in := parts(rt("00"), fc, "0000", a1, a2, a3, "1000", snapV4, ip4, "00000000")
		p := gopacket.NewPacket(in, layers.LayerTypeRadioTap, gopacket.Default)
		if dot11, ok := p.Layer(layers.LayerTypeDot11).(*layers.Dot11); !ok || dot11.Address1.String() != "0a:00:00:00:00:01" {
			t.Fatal(p)
		}
		var c linkConverter
		frame, _, why := c.convert(linkRadiotap, in[:len(in)-4], len(in)-4)
		snap, ok := p.Layer(layers.LayerTypeSNAP).(*layers.SNAP)
		if why != accepted || !ok || be.Uint16(frame[12:]) != uint16(snap.Type) || !bytes.HasPrefix(snap.LayerPayload(), frame[14:]) {
			t.Errorf("%s: %x, gopacket %v", fc, frame, p)
		}
	}
}
