package tap

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// HeaderLen is the size of the virtio_net_hdr in front of every frame, in bytes.
const HeaderLen = 10

// Flags of a Header.
const (
	NeedsCsum = 1 // the checksum at CsumStart+CsumOffset covers only the pseudo header yet
	DataValid = 2 // the checksum has been verified
)

// GSO types of a Header.
const (
	GSONone  = 0
	GSOTCPv4 = 1
	GSOTCPv6 = 4
	GSOUDP   = 5    // USO: a train of UDP datagrams
	GSOECN   = 0x80 // or-ed to a TCP type: the first segment carries CWR
)

// Header is struct virtio_net_hdr (include/uapi/linux/virtio_net.h) in the machine's byte order.
type Header struct {
	Flags   uint8
	GSOType uint8
	// HdrLen is a hint: tun writes the length of the linear part of the packet, which may be more than the headers.
	HdrLen uint16
	// GSOSize is the payload of each segment in bytes.
	GSOSize    uint16
	CsumStart  uint16
	CsumOffset uint16
}

// ParseHeader reads the header at the start of b, which has at least HeaderLen bytes.
func ParseHeader(b []byte) Header {
	_ = b[HeaderLen-1]
	return Header{
		Flags:      b[0],
		GSOType:    b[1],
		HdrLen:     binary.NativeEndian.Uint16(b[2:]),
		GSOSize:    binary.NativeEndian.Uint16(b[4:]),
		CsumStart:  binary.NativeEndian.Uint16(b[6:]),
		CsumOffset: binary.NativeEndian.Uint16(b[8:]),
	}
}

// Encode writes the header to the start of b, which has at least HeaderLen bytes.
func (h Header) Encode(b []byte) {
	_ = b[HeaderLen-1]
	b[0], b[1] = h.Flags, h.GSOType
	binary.NativeEndian.PutUint16(b[2:], h.HdrLen)
	binary.NativeEndian.PutUint16(b[4:], h.GSOSize)
	binary.NativeEndian.PutUint16(b[6:], h.CsumStart)
	binary.NativeEndian.PutUint16(b[8:], h.CsumOffset)
}

// Segments says what the card puts on the wire for the frame: the number of Ethernet frames, the length of the headers
// that each of them repeats (0 if there is only one), and all their bytes, without padding, FCS and preamble.
func (h Header) Segments(frame []byte) (segs, hdrLen, wireBytes int) {
	if h.GSOType&^GSOECN == GSONone || h.GSOSize == 0 {
		return 1, 0, len(frame)
	}
	hdrLen = h.headers(frame)
	payload := len(frame) - hdrLen
	segs = max(1, (payload+int(h.GSOSize)-1)/int(h.GSOSize))
	return segs, hdrLen, payload + segs*hdrLen
}

// headers is the length of Ethernet, IP and transport headers of a GSO frame.
func (h Header) headers(frame []byte) int {
	start := int(h.CsumStart)
	n := int(h.HdrLen)
	switch h.GSOType &^ GSOECN {
	case GSOTCPv4, GSOTCPv6:
		if start > 0 && start+12 < len(frame) {
			n = start + int(frame[start+12]>>4)*4
		}
	case GSOUDP:
		if start > 0 {
			n = start + 8
		}
	}
	return min(n, len(frame))
}

// CompleteChecksum computes the checksum that the kernel left to the card, if it did, and takes the request out of the
// header. It is needed only where a frame leaves for something that is not a Port: a capture, a socket. The result for
// a GSO frame is that of the whole frame, as captures on the sending host show it.
func (h *Header) CompleteChecksum(frame []byte) error {
	if h.Flags&NeedsCsum == 0 {
		return nil
	}
	start, at := int(h.CsumStart), int(h.CsumStart)+int(h.CsumOffset)
	if at+2 > len(frame) {
		return fmt.Errorf("checksum at byte %d of a frame of %d bytes", at, len(frame))
	}
	sum := ^fold(sum16(frame[start:]))
	if sum == 0 { // UDP reads 0 as "no checksum"; for TCP the two are the same number
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(frame[at:], sum)
	h.Flags &^= NeedsCsum
	return nil
}

// sum16 is the one's complement sum (RFC 1071) before folding.
func sum16(b []byte) uint64 {
	var sum, carry uint64
	for ; len(b) >= 8; b = b[8:] {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
	}
	var tail [8]byte
	copy(tail[:], b)
	sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(tail[:]), carry)
	sum, _ = bits.Add64(sum, 0, carry)
	return sum
}

func fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum)
}
