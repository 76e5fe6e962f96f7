package capture

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"

	"nicemu/replay/capture/capturetest"
)

type segment struct {
	data []byte
	wire int
}

// fataler is what *testing.T and *rapid.T have in common here.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func segments(t fataler, frame []byte, wire, mss int) []segment {
	t.Helper()
	var s Segmenter
	n, err := s.Reset(frame, wire, mss)
	if err != nil {
		t.Fatal(err)
	}
	var out []segment
	for data, wire, ok := s.Next(); ok; data, wire, ok = s.Next() {
		out = append(out, segment{bytes.Clone(data), wire})
	}
	if len(out) != n {
		t.Fatalf("%d segments announced, %d made", n, len(out))
	}
	return out
}

// Every segment is, byte for byte, the frame that gopacket makes of the same headers and its share of the payload.
func TestSegmentsAreTheFramesThatWouldBeSentOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame, stack := drawFrame(t)
		mss := rapid.IntRange(1, 2000).Draw(t, "MSS")
		f := ParseFields(frame)
		if rapid.Bool().Draw(t, "IP length 0") && int(f.L3)+f.IPLen == len(frame) {
			at := map[uint8]int{4: 2, 6: 4}[f.IPVersion]
			frame[f.L3+at], frame[f.L3+at+1] = 0, 0
		}
		payload := stack[len(stack)-1].(gopacket.Payload)
		got := segments(t, frame, len(frame), mss)
		for i, seg := range got {
			from := i * mss
			share := payload[min(from, len(payload)):min(from+mss, len(payload))]
			want := expected(stack, share, from, i, i == len(got)-1)
			if at := f.L4 + 6; f.Proto == 17 && want[at] == 0 && want[at+1] == 0 {
				want[at], want[at+1] = 0xff, 0xff // RFC 768: a computed 0 is sent as all ones; gopacket sends it as 0
			}
			if want = want[:min(len(want), f.HeaderLen+len(share))]; !bytes.Equal(seg.data, want) || seg.wire != len(want) {
				t.Fatalf("segment %d of %d:\n got %x\nwant %x", i, len(got), seg.data, want)
			}
		}
	})
}

// expected serializes the i-th segment, whose payload begins at from.
func expected(stack []gopacket.SerializableLayer, share gopacket.Payload, from, i int, last bool) []byte {
	var out []gopacket.SerializableLayer
	var network gopacket.NetworkLayer
	for _, l := range stack[:len(stack)-1] {
		switch l := l.(type) {
		case *layers.IPv4:
			ip := *l
			ip.Id += uint16(i)
			network = &ip
			out = append(out, &ip)
		case *layers.IPv6:
			ip := *l
			network = &ip
			out = append(out, &ip)
		case *layers.TCP:
			tcp := *l
			tcp.Seq += uint32(from)
			tcp.FIN, tcp.PSH = tcp.FIN && last, tcp.PSH && last
			tcp.CWR = tcp.CWR && i == 0
			tcp.SetNetworkLayerForChecksum(network)
			out = append(out, &tcp)
		case *layers.UDP:
			udp := *l
			udp.SetNetworkLayerForChecksum(network)
			out = append(out, &udp)
		default:
			out = append(out, l)
		}
	}
	return capturetest.Frame(append(out, share)...)
}

func TestBigTCPIsSegmentedToo(t *testing.T) {
	frame := capturetest.TCP(92442)
	got := segments(t, frame, len(frame), 1448)
	want(t, "segments", len(got), (92442-54+1447)/1448)
	var whole []byte
	for i, s := range got {
		f := ParseFields(s.data)
		if f.IPLen != s.wire-14 || be.Uint32(s.data[38:]) != 0xfffffff0+uint32(i*1448) {
			t.Fatalf("segment %d: %+v", i, f)
		}
		whole = append(whole, s.data[54:]...)
	}
	if !bytes.Equal(whole, frame[54:]) {
		t.Error("the payload changed")
	}
}

func TestJumboPayloadOptionGoesAway(t *testing.T) {
	tcp := "03e8 07d0 00000001 00000002 5010 0100 0000 0000"
	frame := parts("020000000002 020000000001 86dd", "60000000 0000 00 40", make([]byte, 32), "0600 c204 00011170", tcp, []byte(capturetest.Payload(70000)))
	got := segments(t, frame, len(frame), 9000)
	want(t, "segments", len(got), 8)
	for i, s := range got {
		n := min(9000, 70000-9000*i)
		f := ParseFields(s.data)
		if f.Proto != protoTCP || f.L4 != 54 || f.IPLen != 60+n || !bytes.Equal(s.data[74:], frame[82+9000*i:][:n]) {
			t.Fatalf("segment %d: %+v", i, f)
		}
		checkTransport(t, s.data)
	}
}

// checkTransport verifies the transport checksum: summed with itself in it, it comes to nothing.
func checkTransport(t *testing.T, frame []byte) {
	t.Helper()
	s := Segmenter{buf: frame, f: ParseFields(frame)}
	if c := fold(sum(s.pseudo(len(frame)-s.f.L4), frame[s.f.L4:])); c != 0 {
		t.Errorf("checksum off by %04x", c)
	}
}

func TestSegmentsOfATruncatedFrameKeepTheirLength(t *testing.T) {
	whole := capturetest.TCP(14654)
	got := segments(t, whole[:2000], 14654, 1460)
	want(t, "segments", len(got), 10)
	total := 0
	for i, s := range got {
		total += s.wire - 54
		want(t, "captured", len(s.data), 54+min(max(0, 1946-1460*i), 1460))
		want(t, "IP length", int(be.Uint16(s.data[16:])), s.wire-14)
	}
	want(t, "payload", total, 14600)
	checkTransport(t, got[0].data)
	want(t, "checksum of what is not known", be.Uint16(got[2].data[50:]), 0)
}

func TestPaddingIsNoPayload(t *testing.T) {
	frame := capturetest.TCP(60)
	frame[17] = 40
	got := segments(t, frame, 60, 1460)
	want(t, "segments", len(got), 1)
	want(t, "length", got[0].wire, 54)
}

func TestUDPWithoutChecksumStaysSo(t *testing.T) {
	frame := capturetest.UDP(3042)
	frame[40], frame[41] = 0, 0
	for _, s := range segments(t, frame, 3042, 1000) {
		want(t, "checksum", be.Uint16(s.data[40:]), uint16(0))
		want(t, "UDP length", be.Uint16(s.data[38:]), 1008)
	}
}

func TestUnsegmentableFramesSaySo(t *testing.T) {
	fragment := capturetest.UDP(3042)
	fragment[20] = 0x20
	icmp := capturetest.UDP(3042)
	icmp[23] = 1
	vxlan := capturetest.UDP(3042)
	be.PutUint16(vxlan[36:], portVXLAN)
	for _, c := range []struct {
		frame []byte
		mss   int
		want  error
	}{
		{capturetest.UDP(3042), 0, errMSS}, {parts(toUs, "0806", make([]byte, 46)), 100, errNotIP}, {nil, 100, errNotIP},
		{fragment, 100, errFragment}, {icmp, 100, errNoL4}, {capturetest.TCP(100)[:53], 100, errNoL4}, {vxlan, 100, errTunnel},
	} {
		var s Segmenter
		if n, err := s.Reset(c.frame, max(60, len(c.frame)), c.mss); n != 0 || err != c.want || !errors.Is(err, ErrUnsegmentable) {
			t.Errorf("%d %v, want %v", n, err, c.want)
		}
	}
}
