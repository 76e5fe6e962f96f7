package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrUnsegmentable is in every error of Segmenter.Reset: the frame has to be sent as it is, or not at all.
var ErrUnsegmentable = errors.New("frame cannot be segmented")

func unsegmentable(why string) error { return fmt.Errorf("%w: %s", ErrUnsegmentable, why) }

var (
	errMSS      = unsegmentable("the MSS must be at least 1")
	errNotIP    = unsegmentable("neither IPv4 nor IPv6, or its header is cut off")
	errFragment = unsegmentable("it is an IP fragment")
	errNoL4     = unsegmentable("neither TCP nor UDP, or its header is cut off")
	errTunnel   = unsegmentable("the UDP payload is a VXLAN or GENEVE tunnel")
)

const (
	portVXLAN  = 4789
	portGENEVE = 6081
	maxIPLen   = 65535

	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// Segmenter cuts a GSO frame into the frames that leave the wire, as a card with TSO or USO does (Linux: tcp_gso_segment, __udp_gso_segment;
// Documentation/networking/segmentation-offloads.rst): lengths and checksums anew, the IPv4 ID counted up, the sequence number moved on,
// FIN and PSH in the last segment only, CWR in the first only. A jumbo payload option (IPv6 BIG TCP) goes away. Tunnels are not entered.
// It reuses its buffer and does not allocate after the first large frame.
//
// Of a truncated frame the segments have the right length on the wire, as much data as there is, and a transport checksum of 0 where it is not all.
type Segmenter struct {
	frame   []byte
	f       Fields
	seq     uint32
	id      uint16
	flags   byte
	noCheck bool // UDP without checksum
	mss     int
	payload int // bytes on the wire, all segments together
	done    int // of them
	count   int // segments handed out
	buf     []byte
}

// Reset starts on a frame with wireLen bytes on the wire and returns the number of segments with at most mss bytes of TCP or UDP
// payload each (fewer where the IP length could not say so many). The frame must stay valid until the last segment is done with.
func (s *Segmenter) Reset(frame []byte, wireLen, mss int) (int, error) {
	f := ParseFields(frame)
	switch {
	case mss < 1:
		return 0, errMSS
	case f.IPVersion == 0:
		return 0, errNotIP
	case f.Fragment:
		return 0, errFragment
	case f.Proto != protoTCP && f.Proto != protoUDP, f.HeaderLen == f.L4:
		return 0, errNoL4
	case f.Proto == protoUDP && (f.DstPort == portVXLAN || f.DstPort == portGENEVE):
		return 0, errTunnel
	}
	end := max(wireLen, len(frame))
	if f.IPLen != 0 { // without the padding of a short frame
		end = min(end, f.L3+f.IPLen)
	}
	s.frame, s.f, s.done, s.count = frame[:min(len(frame), max(end, f.HeaderLen))], f, 0, 0
	s.payload = max(0, end-f.HeaderLen)
	s.header()
	s.mss = min(mss, maxIPLen-(s.f.HeaderLen-s.f.L3))
	return max(1, (s.payload+s.mss-1)/s.mss), nil
}

// Sizes are the header bytes that every segment repeats, and the payload bytes on the wire of all segments together.
func (s *Segmenter) Sizes() (header, payload int) { return s.f.HeaderLen, s.payload }

// header copies the headers to the buffer, without a jumbo payload option, and reads what changes from segment to segment.
func (s *Segmenter) header() {
	s.buf = append(s.buf[:0], s.frame[:s.f.HeaderLen]...)
	if jumbo := s.f.L3 + ipv6Len; s.f.IPVersion == 6 && s.f.IPLen == 0 && s.f.L4 > jumbo && isJumboHeader(s.buf[s.f.L3:]) {
		s.buf[s.f.L3+6] = s.buf[jumbo]
		s.buf = append(s.buf[:jumbo], s.buf[jumbo+8:]...)
		s.frame = s.frame[8:] // only what follows the headers is read from here on
		s.f.L4 -= 8
		s.f.HeaderLen -= 8
	}
	if s.f.IPVersion == 4 {
		s.id = binary.BigEndian.Uint16(s.buf[s.f.L3+4:])
	}
	l4 := s.buf[s.f.L4:]
	if s.f.Proto == protoTCP {
		s.seq, s.flags = binary.BigEndian.Uint32(l4[4:]), l4[13]
	}
	s.noCheck = s.f.Proto == protoUDP && s.f.IPVersion == 4 && l4[6] == 0 && l4[7] == 0
}

// isJumboHeader: a hop-by-hop header of 8 bytes that holds a jumbo payload option (RFC 2675) and nothing else.
func isJumboHeader(ip []byte) bool {
	ext := ip[ipv6Len:]
	return ip[6] == protoHopByHop && ext[1] == 0 && ext[2] == 0xc2 && ext[3] == 4
}

// Next returns the next segment, valid until the next call, and its length on the wire; false after the last.
func (s *Segmenter) Next() ([]byte, int, bool) {
	if s.frame == nil || s.count > 0 && s.done >= s.payload {
		return nil, 0, false
	}
	n := min(s.mss, s.payload-s.done)
	from := s.f.HeaderLen + s.done
	have := s.frame[min(from, len(s.frame)):min(from+n, len(s.frame))]
	s.buf = append(s.buf[:s.f.HeaderLen], have...)
	s.network(n)
	s.transport(n, s.done+n >= s.payload, len(have) == n)
	s.done += n
	s.count++
	return s.buf, s.f.HeaderLen + n, true
}

// network writes length, ID and header checksum for n bytes of payload.
func (s *Segmenter) network(n int) {
	length, ip := s.f.HeaderLen+n-s.f.L3, s.buf[s.f.L3:s.f.L4]
	if s.f.IPVersion == 6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(length-ipv6Len))
		return
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(length))
	binary.BigEndian.PutUint16(ip[4:], s.id+uint16(s.count))
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], fold(sum(0, ip)))
}

// transport writes sequence number, flags, length and checksum for n bytes of payload.
func (s *Segmenter) transport(n int, last, whole bool) {
	l4 := s.buf[s.f.L4:]
	var check []byte
	if s.f.Proto == protoUDP {
		check = l4[6:8]
		binary.BigEndian.PutUint16(l4[4:], uint16(udpLen+n))
	} else {
		check = l4[16:18]
		binary.BigEndian.PutUint32(l4[4:], s.seq+uint32(s.done))
		l4[13] = s.flags
		if !last {
			l4[13] &^= tcpFIN | tcpPSH
		}
		if s.count > 0 {
			l4[13] &^= tcpCWR
		}
	}
	check[0], check[1] = 0, 0
	if s.noCheck || !whole {
		return
	}
	c := fold(sum(s.pseudo(s.f.HeaderLen-s.f.L4+n), l4))
	if c == 0 && s.f.Proto == protoUDP {
		c = 0xffff // 0 would say: no checksum
	}
	binary.BigEndian.PutUint16(check, c)
}

// pseudo is the sum of the pseudo header.
func (s *Segmenter) pseudo(length int) uint64 {
	acc := uint64(s.f.Proto) + uint64(length)
	if s.f.IPVersion == 4 {
		return sum(acc, s.buf[s.f.L3+12:s.f.L3+20])
	}
	return sum(acc, s.buf[s.f.L3+8:s.f.L3+40])
}
