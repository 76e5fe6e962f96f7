package capture

import (
	"fmt"
	"io"
	"os"
)

// maxCaptured is the most bytes of one packet that are believed, as libpcap's MAXIMUM_SNAPLEN and Wireshark's standard limit.
const maxCaptured = 256 << 10

const maxInterfaces = 1 << 16 // interface descriptions per file, over all its sections

// DefaultMTU is what Reader.MTU means when it is 0, in bytes of the network layer.
const DefaultMTU = 1500

// Packet is one captured frame, in terms of Ethernet whatever the link type of the capture.
type Packet struct {
	Time      int64  // ns since the Unix epoch
	Data      []byte // from destination MAC, without FCS; len(Data) < WireLen when truncated. Valid until the next call of Next
	WireLen   int    // bytes the whole frame had, without FCS
	Interface int    // index of the interface within its section; 0 in a pcap file
	Section   int    // index of the section; 0 in a pcap file
	Offset    int64  // of the record in the file, uncompressed
	Untimed   bool   // the record carries no time (simple packet block); Time repeats the one before
}

// Truncated reports whether the capture kept less than the frame had.
func (p *Packet) Truncated() bool { return len(p.Data) < p.WireLen }

// Reader reads the packets of one capture in file order. It is not safe for concurrent use.
type Reader struct {
	MTU int // frames with more network-layer bytes are counted as Stats.OverMTU; 0 is DefaultMTU. Set before Next

	name      string
	closer    io.Closer
	w         *window
	gzip, ng  bool
	bigEndian bool
	nano      bool // pcap

	first   int // index in ifaces of the first interface of this section
	ifaces  []iface
	last    int64 // time of the last packet that had one
	started bool  // last is set
	linked  linkConverter
	stats   Stats
	err     error // sticky
}

// iface is an interface description (one is made up for a pcap file).
type iface struct {
	InterfaceStats
	clock clock
	fcs   int // bytes of FCS at the end of each packet
}

// record is a packet as the file has it.
type record struct {
	time    int64
	data    []byte
	wire    int
	offset  int64
	iface   int // index in Reader.ifaces
	untimed bool
}

// Open opens the capture at path. Errors are *FormatError for content, *os.PathError otherwise.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(f, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.closer = f
	return r, nil
}

// NewReader reads a capture from in; name stands for the file in errors and in Stats.
func NewReader(in io.Reader, name string) (*Reader, error) {
	r := &Reader{name: name}
	if err := r.detect(in); err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes the file that Open opened.
func (r *Reader) Close() error {
	if r.closer == nil {
		return nil
	}
	return r.closer.Close()
}

// Next returns the next packet, io.EOF after the last, or a *FormatError; errors are final.
// Packets that cannot be an Ethernet frame are counted in Stats.Refused and passed over. A file of which every
// packet was refused for its link type ends in a *FormatError that names it.
func (r *Reader) Next() (Packet, error) {
	var rec record
	for r.err == nil {
		if r.ng {
			r.err = r.nextNg(&rec)
		} else {
			r.err = r.nextPcap(&rec)
		}
		if r.err != nil {
			break
		}
		if p, ok := r.accept(&rec); ok {
			return p, nil
		}
	}
	if r.err == io.EOF {
		r.err = r.end()
	}
	return Packet{}, r.err
}

// end turns a file that had packets only of link types nobody can convert into an error.
func (r *Reader) end() error {
	if r.stats.Packets > 0 || r.stats.refused[refusedLinkType] == 0 {
		return io.EOF
	}
	for _, i := range r.ifaces {
		if i.Refused > 0 && !i.LinkType.supported() {
			return r.badf(i.offset, supportedLinkTypes, "interface %d of section %d has link type %s", i.ID, i.Section, i.LinkType)
		}
	}
	return io.EOF
}

// accept turns a record into a packet, counting all that is odd about it; false when it is refused.
func (r *Reader) accept(rec *record) (Packet, bool) {
	i, s := &r.ifaces[rec.iface], &r.stats
	s.Records++
	if len(rec.data) > rec.wire {
		s.LengthRaised++
		rec.wire = len(rec.data)
	}
	if i.SnapLen != 0 && len(rec.data) > int(i.SnapLen) {
		s.Oversize++
	}
	if len(rec.data) == 0 {
		s.ZeroLength++
	}
	if i.fcs != 0 {
		rec.wire = max(0, rec.wire-i.fcs)
		rec.data = rec.data[:min(len(rec.data), rec.wire)]
	}
	data, wire, why := rec.data, rec.wire, refusedRunt
	if i.LinkType != linkEthernet {
		data, wire, why = r.linked.convert(i.LinkType, data, wire)
	} else if wire >= etherLen {
		why = accepted
	}
	if why != accepted {
		s.refused[why]++
		i.Refused++
		return Packet{}, false
	}
	p := Packet{Time: rec.time, Data: data, WireLen: wire, Interface: i.ID, Section: i.Section, Offset: rec.offset, Untimed: rec.untimed}
	r.count(&p, &i.InterfaceStats)
	return p, true
}

func (r *Reader) count(p *Packet, i *InterfaceStats) {
	s := &r.stats
	s.Packets++
	s.Bytes += uint64(p.WireLen)
	s.Captured += uint64(len(p.Data))
	i.Packets++
	i.Bytes += uint64(p.WireLen)
	if p.Truncated() {
		s.Truncated++
	}
	if p.Untimed {
		s.Untimed++
	} else {
		if r.started && p.Time < r.last {
			s.Backward++
			s.BackwardMax = max(s.BackwardMax, uint64(r.last)-uint64(p.Time))
		}
		r.last, r.started = p.Time, true
	}
	over, zero := offloaded(p.Data, p.WireLen, r.mtu())
	if over {
		s.OverMTU++
	}
	if zero {
		s.IPLengthZero++
	}
}

func (r *Reader) mtu() int {
	if r.MTU == 0 {
		return DefaultMTU
	}
	return r.MTU
}

// addInterface appends an interface of the current section.
func (r *Reader) addInterface(i iface) error {
	if len(r.ifaces) == maxInterfaces {
		return r.badf(i.offset, fmt.Sprintf("at most %d", maxInterfaces), "one more interface description")
	}
	i.Section, i.ID = r.stats.Sections-1, len(r.ifaces)-r.first
	r.ifaces = append(r.ifaces, i)
	return nil
}
