package liveplay

import (
	"encoding/binary"

	"nicemu/devices/nic"
	"nicemu/emulator/tap"
	"nicemu/replay/capture"
)

// offload makes a GSO packet what the stack gives to a card: lengths of the
// whole packet, the transport checksum only that of the pseudo header, and the
// rest in the header in front (tcp_gso_segment, udp4_ufo_fragment and
// virtio_net_hdr_to_skb expect it so).
func offload(frame []byte, f *nic.Frame) tap.Header {
	p := capture.ParseFields(frame)
	h := tap.Header{
		Flags: tap.NeedsCsum, GSOType: tap.GSOTCPv4,
		HdrLen: uint16(p.HeaderLen), GSOSize: uint16(f.SegSize), CsumStart: uint16(p.L4), CsumOffset: 16,
	}
	ip, l4 := frame[p.L3:], frame[p.L4:]
	const tcp, udp, cwr = 6, 17, 0x80
	switch {
	case p.Proto == udp:
		h.GSOType, h.CsumOffset = tap.GSOUDP, 6
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	case p.IPVersion == 6:
		h.GSOType = tap.GSOTCPv6
	}
	if p.Proto == tcp && l4[13]&cwr != 0 {
		h.GSOType |= tap.GSOECN
	}
	pseudo := uint64(p.Proto) + uint64(len(l4))
	if p.IPVersion == 4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^fold(add(0, ip[:p.L4-p.L3])))
		pseudo = add(pseudo, ip[12:20])
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
		pseudo = add(pseudo, ip[8:40])
	}
	binary.BigEndian.PutUint16(l4[h.CsumOffset:], fold(pseudo))
	return h
}

// add adds up the 16-bit words of an even number of bytes.
func add(sum uint64, b []byte) uint64 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint64(binary.BigEndian.Uint16(b))
	}
	return sum
}

func fold(sum uint64) uint16 {
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
