package capture

import (
	"encoding/binary"
	"math/bits"
)

// sum adds b to a ones' complement sum (RFC 1071). Only the last part summed may have an odd length.
func sum(acc uint64, b []byte) uint64 {
	var carry uint64
	for len(b) >= 8 {
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	var tail uint64
	if len(b) >= 4 {
		tail, b = uint64(binary.BigEndian.Uint32(b)), b[4:]
	}
	if len(b) >= 2 {
		tail, b = tail+uint64(binary.BigEndian.Uint16(b)), b[2:]
	}
	if len(b) == 1 {
		tail += uint64(b[0]) << 8
	}
	acc, carry = bits.Add64(acc, tail, carry)
	return acc + carry
}

// fold ends a sum: the checksum as it stands in a header.
func fold(acc uint64) uint16 {
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>16&0xffff + acc>>32 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	return ^uint16(acc)
}
