package capture

// rssKey is the key of Microsoft's RSS verification suite, the default of many drivers.
var rssKey = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

const rssInput = 36 // two IPv6 addresses and two ports

// rssTable holds the hash of every value of every nibble of the input: 4.5 KiB, and no loop over bits.
var rssTable = makeRSSTable()

func makeRSSTable() (t [2 * rssInput][16]uint32) {
	for n := range t {
		for v := range 16 {
			for bit := range 4 {
				if v&(8>>bit) != 0 {
					t[n][v] ^= keyWindow(n*4 + bit)
				}
			}
		}
	}
	return t
}

// keyWindow is the 32 bits of the key from the given bit on.
func keyWindow(bit int) uint32 {
	var w uint64
	for i := range 5 {
		w = w<<8 | uint64(rssKey[bit/8+i])
	}
	return uint32(w >> (8 - bit%8))
}

func toeplitz(hash uint32, at int, input []byte) uint32 {
	for i, b := range input {
		hash ^= rssTable[2*(at+i)][b>>4] ^ rssTable[2*(at+i)+1][b&15]
	}
	return hash
}

// FlowHash is the Toeplitz hash of receive side scaling (Microsoft's RSS specification and verification key) over addresses and, for TCP,
// UDP and SCTP that is not fragmented, ports. The two directions of a connection hash differently. Frames without IP hash to 0, as on a card.
func (f *Fields) FlowHash(frame []byte) uint32 {
	var addresses []byte
	switch f.IPVersion {
	case 4:
		addresses = frame[f.L3+12 : f.L3+20]
	case 6:
		addresses = frame[f.L3+8 : f.L3+40]
	default:
		return 0
	}
	hash := toeplitz(0, 0, addresses)
	if f.SrcPort == 0 && f.DstPort == 0 {
		return hash
	}
	return toeplitz(hash, len(addresses), frame[f.L4:f.L4+4])
}
