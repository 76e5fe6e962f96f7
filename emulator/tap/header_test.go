package tap

import (
	"encoding/binary"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"
)

func TestHeaderSurvivesEncodeAndParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), HeaderLen, HeaderLen).Draw(t, "raw")
		out := make([]byte, HeaderLen)
		ParseHeader(raw).Encode(out)
		if string(out) != string(raw) {
			t.Fatalf("%x became %x", raw, out)
		}
	})
}

// frame builds an Ethernet frame whose checksum holds only the pseudo header's sum, as the kernel leaves it.
func frame(t *rapid.T, v6, tcp bool, options, payload int) (b []byte, csumStart, csumOffset int) {
	data := make([]byte, payload)
	seed := rapid.Byte().Draw(t, "seed")
	for i := range data {
		seed = seed*31 + 7
		data[i] = seed
	}
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	var net gopacket.NetworkLayer
	proto := layers.IPProtocolUDP
	if tcp {
		proto = layers.IPProtocolTCP
	}
	var ip gopacket.SerializableLayer
	ipLen := 20
	if v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		l := &layers.IPv6{Version: 6, NextHeader: proto, HopLimit: 64, SrcIP: make([]byte, 16), DstIP: []byte{0xfd, 15: 1}}
		ip, net, ipLen = l, l, 40
	} else {
		l := &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
		ip, net = l, l
	}
	var transport gopacket.SerializableLayer
	if tcp {
		l := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 77, Window: 500}
		for range options {
			l.Options = append(l.Options, layers.TCPOption{OptionType: layers.TCPOptionKindNop})
		}
		l.SetNetworkLayerForChecksum(net)
		transport, csumOffset = l, 16
	} else {
		l := &layers.UDP{SrcPort: 1, DstPort: 2}
		l.SetNetworkLayerForChecksum(net)
		transport, csumOffset = l, 6
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, eth, ip, transport, gopacket.Payload(data)); err != nil {
		t.Fatal(err)
	}
	header := 14 + ipLen + 8
	if tcp {
		header = 14 + ipLen + 20 + options
	}
	return buf.Bytes()[:header+payload], 14 + ipLen, csumOffset // gopacket pads to 60 bytes
}

func TestCompletedChecksumIsTheOneGopacketComputes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, start, off := frame(t, rapid.Bool().Draw(t, "v6"), rapid.Bool().Draw(t, "tcp"), 0, rapid.IntRange(0, 3000).Draw(t, "payload"))
		want := binary.BigEndian.Uint16(b[start+off:])
		// What is missing in the field is the sum of everything from start on: take it out of the right answer.
		binary.BigEndian.PutUint16(b[start+off:], 0)
		pseudo := fold(uint64(^want) + uint64(^fold(sum16(b[start:]))))
		binary.BigEndian.PutUint16(b[start+off:], pseudo)
		h := Header{Flags: NeedsCsum, CsumStart: uint16(start), CsumOffset: uint16(off)}
		if err := h.CompleteChecksum(b); err != nil {
			t.Fatal(err)
		}
		got := binary.BigEndian.Uint16(b[start+off:])
		if got != want && !(got == 0xffff && want == 0) {
			t.Fatalf("checksum %#04x, want %#04x", got, want)
		}
		if h.Flags&NeedsCsum != 0 {
			t.Fatal("the header still asks for the checksum")
		}
	})
}

func TestChecksumOutsideTheFrameIsAnError(t *testing.T) {
	h := Header{Flags: NeedsCsum, CsumStart: 60, CsumOffset: 16}
	if err := h.CompleteChecksum(make([]byte, 64)); err == nil {
		t.Fatal("no error")
	}
}

func TestSegmentsCountTheRealHeadersNotTheHint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v6, tcp := rapid.Bool().Draw(t, "v6"), rapid.Bool().Draw(t, "tcp")
		words := 0
		if tcp {
			words = rapid.IntRange(0, 10).Draw(t, "option words")
		}
		payload := rapid.IntRange(1, 20000).Draw(t, "payload")
		size := rapid.IntRange(1, 9000).Draw(t, "gso_size")
		b, start, off := frame(t, v6, tcp, words*4, payload)
		h := Header{Flags: NeedsCsum, GSOType: GSOUDP, HdrLen: 2000, GSOSize: uint16(size), CsumStart: uint16(start), CsumOffset: uint16(off)}
		hdr := start + 8
		if tcp {
			h.GSOType, hdr = GSOTCPv4|GSOECN, start+20+words*4
		}
		wire, n := 0, 0
		for left := payload; left > 0; left -= size {
			wire += hdr + min(left, size)
			n++
		}
		segs, hdrLen, bytes := h.Segments(b)
		if segs != n || hdrLen != hdr || bytes != wire {
			t.Fatalf("Segments = %d, %d, %d, want %d, %d, %d", segs, hdrLen, bytes, n, hdr, wire)
		}
	})
}

func TestFrameWithoutGSOIsOneSegment(t *testing.T) {
	if segs, hdr, wire := (Header{}).Segments(make([]byte, 99)); segs != 1 || hdr != 0 || wire != 99 {
		t.Fatalf("Segments = %d, %d, %d, want 1, 0, 99", segs, hdr, wire)
	}
}

func FuzzSegmentsNeverPanicsNorInventsBytes(f *testing.F) {
	f.Add(make([]byte, 200), uint8(1), uint16(66), uint16(1448), uint16(34))
	f.Fuzz(func(t *testing.T, b []byte, kind uint8, hdrLen, size, start uint16) {
		h := Header{Flags: NeedsCsum, GSOType: kind, HdrLen: hdrLen, GSOSize: size, CsumStart: start, CsumOffset: 16}
		segs, hdr, wire := h.Segments(b)
		if segs < 1 || hdr > len(b) || wire < len(b)-hdr {
			t.Fatalf("Segments = %d, %d, %d for %d bytes", segs, hdr, wire, len(b))
		}
		h.CompleteChecksum(b)
	})
}

func BenchmarkSegments(b *testing.B) {
	buf := make([]byte, 65226)
	buf[34+12] = 8 << 4
	h := Header{GSOType: GSOTCPv4, GSOSize: 1448, CsumStart: 34}
	b.ReportAllocs()
	for b.Loop() {
		h.Segments(buf)
	}
}
