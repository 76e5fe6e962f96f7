package gate

import "math"

const (
	// overhead is what tbf adds to the length of every packet, the most its u16 can say. It turns bytes into packets: a
	// packet costs overhead plus its bytes, so a grant is first of all a number of packets.
	overhead = math.MaxUint16

	// stab is how much a size table of the user's (`tc … stab overhead 24`) may add to a packet without harm.
	stab = 64

	// minPacket is the shortest packet: an Ethernet header.
	minPacket = 14

	// MaxPacket is the largest packet, in bytes on the wire with the headers of every segment (qdisc_pkt_len), that
	// passes the gate whole. It is tbf's least burst, and the largest one whose tokens never pay for two packets.
	MaxPacket = overhead + 2*minPacket - 1

	// MaxGSO is the gso_max_size, in bytes, that keeps TCP's packets within MaxPacket as long as the headers are less
	// than 7 % of a segment (MSS above 910 with IPv4, 1190 with IPv6).
	MaxGSO = 60 << 10

	// leastTokens are the tokens of the least burst, enough for any one packet.
	leastTokens = MaxPacket + overhead

	// mostTokens are the tokens of the largest burst that fits its u32.
	mostTokens = math.MaxUint32 + overhead
)

// Room is what the card takes from one queue, counted from what has passed the qdisc so far (read or not).
type Room struct {
	// Bytes until byte queue limits stop the queue. Like BQL, the gate lets a packet go as long as this is not negative.
	Bytes int64
	// Packets until the ring stops the queue.
	Packets int64
}

// Open says whether the queue may send at all.
func (r Room) Open() bool { return r.Bytes >= 0 && r.Packets > 0 }

// Credit keeps the books of one tbf: how many tokens it was given and how many can be left. It is pure.
//
// The laws, for packets up to MaxPacket, s being the largest packet the qdisc holds: what a grant lets pass is at most
// Room.Bytes + s bytes and Room.Packets packets (one packet if that is more); while the room is open, after Decide the
// tokens pay for any packet, so the qdisc never stands still with a packet and room for it. A queue whose room closes
// with tokens left has them taken back, but for one packet's. So the card never holds more than its limit and one
// packet, or two packets if the limit shrank or a packet larger than s came in meanwhile. Packets that pass while a
// grant is on its way add to that.
type Credit struct {
	granted       int64 // tokens set by the last grant
	wire, packets uint64
}

// Decide says whether the tbf needs a grant and of which burst, in bytes as tc counts them. wire and packets are the
// running totals of what passed: bytes on the wire, or an upper bound, and packets, or segments where packets are cut
// after the qdisc. largest is the largest packet lately in the qdisc, 0 if unknown. Decide takes the grant as made.
func (c *Credit) Decide(room Room, wire, packets, largest uint64) (burst uint32, grant bool) {
	// At least this many tokens are left.
	left := c.granted - int64(wire-c.wire) - (overhead+stab)*int64(packets-c.packets)
	if !room.Open() {
		if left <= leastTokens {
			return 0, false
		}
		c.set(0, wire, packets) // so that a grant, and with it a kick, comes when it opens
		return MaxPacket, true
	}
	size := int64(largest)
	if size == 0 || size > MaxPacket {
		size = MaxPacket
	}
	size = max(size, minPacket)
	due := tokens(room, size)
	// Half of what is due is left for the time until the next look. More than is due means that the room shrank.
	if left >= leastTokens && left >= due/2 && left <= due+size+overhead {
		return 0, false
	}
	c.set(due, wire, packets)
	return uint32(due - overhead), true
}

// Reset forgets the tokens: the next Decide with open room grants. For a tbf that was made anew.
func (c *Credit) Reset() { c.granted = 0 }

func (c *Credit) set(tokens int64, wire, packets uint64) {
	c.granted, c.wire, c.packets = tokens, wire, packets
}

// tokens pay for as many packets of the size as may begin within the room's bytes, and for no more packets of any size
// than the room has.
func tokens(room Room, size int64) int64 {
	packets := min(1+room.Bytes/size, mostTokens/(size+overhead))
	byBytes := packets * (size + overhead)
	byPackets := min(room.Packets, mostTokens/(minPacket+overhead)) * (minPacket + overhead)
	return max(leastTokens, min(byBytes, byPackets))
}

// recent is the largest packet of the last one to two windows of packets. A packet leaves the qdisc long before it leaves
// the window, unless thousands overtake it.
type recent struct {
	before uint64 // largest of the window before this one
	start  uint64 // packets passed when this one began
}

const recentWindow = 2048 // packets; twice the usual limit of a qdisc

// largest returns the largest lately, and whether a new window begins; now is the largest in this window so far. A queue
// begins with the worst case, since one small packet tells nothing about the next.
func (r *recent) largest(now, passed uint64) (size uint64, next bool) {
	if r.before == 0 {
		r.before = MaxPacket
	}
	size = max(r.before, now)
	if passed-r.start < recentWindow {
		return size, false
	}
	r.before, r.start = max(now, minPacket), passed
	return size, true
}
