package capture

import (
	"fmt"
	"io"
)

const (
	pcapHeaderLen = 24
	pcapRecordLen = 16
	pcapMajor     = 2
	pcapMinor     = 4
)

func (r *Reader) readPcapHeader(magic uint32) error {
	h := r.w.peek(pcapHeaderLen)
	if len(h) < pcapHeaderLen {
		return r.short("the pcap header", pcapHeaderLen, int64(len(h)))
	}
	if major, minor := r.u16(h[4:]), r.u16(h[6:]); major != pcapMajor || minor != pcapMinor {
		return r.badf(4, "2.4", "pcap version %d.%d", major, minor)
	}
	r.nano = magic == magicNano
	resolution := uint8(6)
	if r.nano {
		resolution = 9
	}
	// Upper bits of the link type: 28–31 the length of the FCS in 16-bit words, valid when 26 is set.
	link := r.u32(h[20:])
	i := iface{InterfaceStats: InterfaceStats{LinkType: LinkType(link), SnapLen: r.u32(h[16:]), offset: 20}}
	i.clock, _ = newClock(resolution, 0)
	i.Resolution = i.clock.name
	if link&(1<<26) != 0 {
		i.fcs = int(link>>28) * 2
	}
	if !i.LinkType.supported() {
		return r.badf(i.offset, supportedLinkTypes, "link type %s", i.LinkType)
	}
	r.stats.Sections = 1
	r.w.take(pcapHeaderLen)
	return r.addInterface(i)
}

func (r *Reader) nextPcap(rec *record) error {
	h := r.w.peek(pcapRecordLen)
	if len(h) < pcapRecordLen {
		if len(h) == 0 && r.w.err == io.EOF {
			return io.EOF
		}
		return r.short("a record header", pcapRecordLen, int64(len(h)))
	}
	at := r.w.offset()
	captured, wire := r.u32(h[8:]), r.u32(h[12:])
	if captured > maxCaptured {
		return r.badf(at+8, fmt.Sprintf("at most %d", maxCaptured), "captured length %d", captured)
	}
	if wire > maxWire {
		return r.badf(at+12, fmt.Sprintf("at most %d", maxWire), "original length %d", wire)
	}
	// Fractions of a second and more are added up, as libpcap does: some writers put nanoseconds into a microsecond file.
	rec.time = int64(r.u32(h))*1e9 + int64(r.u32(h[4:]))*int64(r.ifaces[0].clock.mul)
	n := pcapRecordLen + int(captured)
	b := r.w.peek(n)
	if len(b) < n {
		return r.short("packet data", int64(n), int64(len(b)))
	}
	rec.data, rec.wire, rec.offset = b[pcapRecordLen:], int(wire), at
	r.w.take(n)
	return nil
}
