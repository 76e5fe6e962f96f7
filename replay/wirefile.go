package replay

import (
	"encoding/binary"
	"fmt"
	"io"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/capture"
)

// wireFile writes every packet that leaves the MAC to a pcapng file: one interface for each queue, the time that of the first bit of the preamble.
// It stands behind the shapers of each queue, which the MAC tells of every unit that it has sent.
type wireFile struct {
	w    *capture.Writer
	base int64 // of time 0, ns since the epoch
	taps []*tap
	err  error
}

// attachWireFile has the MAC of d, which is to be built after this, tell the file what it sends.
func attachWireFile(d *nic.Device) *wireFile {
	w := &wireFile{}
	own := d.Rules.Shapers
	d.Rules.Shapers = func(n *nic.NIC, q int) (list []nic.Shaper) {
		if own != nil {
			list = own(n, q)
		}
		t := &tap{file: w, nic: n, queue: q}
		w.taps = append(w.taps, t)
		return append(list, t)
	}
	return w
}

// open writes the head of the file.
func (w *wireFile) open(out io.Writer, device, about string, base int64) (err error) {
	w.base = max(0, base)
	var list []capture.Interface
	for q := range w.taps {
		list = append(list, capture.Interface{Name: fmt.Sprintf("q%d", q), Description: fmt.Sprintf("%s, transmit queue %d", device, q), Comment: about})
	}
	w.w, err = capture.NewWriter(out, capture.Section{Hardware: device, OS: "virtual time", Application: "nicemu", Comment: about}, list...)
	return err
}

func (w *wireFile) packet(queue int, start engine.Time, data []byte, wire int) {
	if err := w.w.WritePacket(queue, w.base+int64(start), data, wire, nil); err != nil && w.err == nil {
		w.err = err
	}
}

func (w *wireFile) flush() error {
	if w.err != nil {
		return w.err
	}
	return w.w.Flush()
}

// tap is a shaper that holds nothing back and sees what its queue sends.
type tap struct {
	file    *wireFile
	nic     *nic.NIC
	queue   int
	head    *nic.Frame // asked for last, so the one that is sent next
	unit    int        // bytes of the unit asked for
	cut     uint64     // number of the frame that segment is at
	segment capture.Segmenter
}

// Eligible implements [nic.Shaper].
func (t *tap) Eligible(_ engine.Time, f *nic.Frame, bytes int) (bool, engine.Time) {
	t.head, t.unit = f, bytes
	return true, 0
}

// Backlog implements [nic.Shaper].
func (t *tap) Backlog(engine.Time, bool) {}

// Sent implements [nic.Shaper]. A unit is a frame, or one segment where the card fetches them one by one.
func (t *tap) Sent(start, end engine.Time, wire int) {
	f := t.head
	if t.cut != f.Seq {
		markCE(f)
	}
	if !f.Offload {
		t.file.packet(t.queue, start, f.Data, f.Len)
		return
	}
	if t.cut != f.Seq {
		t.begin(f)
	}
	whole := t.unit == f.Wire()
	link := &t.nic.Config().Link
	for at := 0; ; {
		data, n, ok := t.segment.Next()
		if !ok {
			return
		}
		t.file.packet(t.queue, start+(end-start)*engine.Time(at)/engine.Time(wire), data, n)
		if at += n + link.Preamble + link.FCS + link.Gap; !whole {
			return
		}
	}
}

// begin segments a frame as the stream has counted its segments.
func (t *tap) begin(f *nic.Frame) {
	t.cut = f.Seq
	mss := f.SegSize
	if f.Segs == 1 {
		mss = f.Len
	}
	for wire := f.Len; ; {
		if _, err := t.segment.Reset(f.Data, wire, mss); err != nil {
			panic("replay: " + err.Error()) // it was not refused when it was counted
		}
		header, payload := t.segment.Sizes()
		if header+payload >= f.Len {
			return
		}
		wire += f.Len - header - payload // a jumbo payload option goes away: the capture was so much longer
	}
}

// markCE writes the mark that a qdisc has set into the frame's bytes.
func markCE(f *nic.Frame) {
	const ce = 3
	if f.ECN != ce {
		return
	}
	fields := capture.ParseFields(f.Data)
	if fields.ECN == ce {
		return
	}
	ip := f.Data[fields.L3:]
	switch fields.IPVersion {
	case 4:
		old := binary.BigEndian.Uint16(ip)
		ip[1] |= ce
		binary.BigEndian.PutUint16(ip[10:], checksumAfter(binary.BigEndian.Uint16(ip[10:]), old, binary.BigEndian.Uint16(ip)))
	case 6:
		ip[1] |= ce << 4
	}
}

// checksumAfter is a checksum after one of its words has changed (RFC 1624, equation 3).
func checksumAfter(sum, old, new uint16) uint16 {
	s := uint32(^sum) + uint32(^old) + uint32(new)
	s = s&0xffff + s>>16
	return ^uint16(s&0xffff + s>>16)
}

var _ nic.Shaper = (*tap)(nil)
