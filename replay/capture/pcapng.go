package capture

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Block types.
const (
	blockInterface  = 1
	blockPacketOld  = 2 // obsolete
	blockSimple     = 3
	blockStatistics = 5
	blockEnhanced   = 6
	blockSection    = magicNg
)

const (
	blockFrame  = 12       // type, length, and the length again at the end
	maxBlock    = 1 << 20  // bytes of a block that is looked into: a whole packet and a dozen long comments
	maxSkipped  = 16 << 20 // bytes of a block that is passed over
	maxWire     = 16 << 20 // original length of a packet; Linux builds GSO packets of up to 512 KiB
	maxNameLen  = 255
	untoldDrops = 0xffff // drop count of an obsolete packet block that does not know
)

// blockKind is what is known of a block type.
type blockKind struct {
	name string
	min  uint32 // bytes, with frame
}

var (
	kindSection    = blockKind{"section header block", blockFrame + 16}
	kindInterface  = blockKind{"interface description block", blockFrame + 8}
	kindStatistics = blockKind{"interface statistics block", blockFrame + 12}
	kindEnhanced   = blockKind{"enhanced packet block", blockFrame + 20}
	kindPacketOld  = blockKind{"packet block", blockFrame + 20}
	kindSimple     = blockKind{"simple packet block", blockFrame + 4}
)

// nextNg reads blocks until one holds a packet.
func (r *Reader) nextNg(rec *record) error {
	for {
		h := r.w.peek(8)
		if len(h) < 8 {
			if len(h) == 0 && r.w.err == io.EOF {
				return io.EOF
			}
			return r.short("a block header", 8, int64(len(h)))
		}
		typ := r.u32(h)
		var err error
		switch typ {
		case blockEnhanced:
			return r.readPacket(&kindEnhanced, rec)
		case blockPacketOld:
			return r.readPacket(&kindPacketOld, rec)
		case blockSimple:
			return r.readSimple(rec)
		case blockSection:
			err = r.readSection()
		case blockInterface:
			err = r.readInterface()
		case blockStatistics:
			err = r.readStatistics()
		default:
			err = r.skipBlock(typ)
		}
		if err != nil {
			return err
		}
	}
}

// block consumes a whole block of a known type and returns its body and the offset of the body.
func (r *Reader) block(kind *blockKind) ([]byte, int64, error) {
	at := r.w.offset()
	length := r.u32(r.w.peek(8)[4:])
	if length < kind.min || length > maxBlock {
		return nil, 0, r.badf(at+4, fmt.Sprintf("%d to %d", kind.min, maxBlock), "%s of %d bytes", kind.name, length)
	}
	n := padded(length)
	b := r.w.peek(n)
	if len(b) < n {
		return nil, 0, r.short("the "+kind.name, int64(n), int64(len(b)))
	}
	if again := r.u32(b[n-4:]); again != length {
		return nil, 0, r.badf(at+int64(n)-4, fmt.Sprintf("%d as at its start", length), "%s ends with length %d", kind.name, again)
	}
	r.w.take(n)
	return b[8 : n-4], at + 8, nil
}

// padded is the length of a block on disk. A length that is no multiple of 4 is against the draft; writers that give one pad all the same, as Wireshark takes it.
func padded(length uint32) int { return int(length+3) &^ 3 }

func (r *Reader) skipBlock(typ uint32) error {
	at := r.w.offset()
	length := r.u32(r.w.peek(8)[4:])
	if length < blockFrame || length > maxSkipped {
		return r.badf(at+4, fmt.Sprintf("%d to %d", blockFrame, maxSkipped), "block of type %#x with %d bytes", typ, length)
	}
	body := int64(padded(length)) - 4
	if got := r.w.skip(body); got < body {
		return r.short(fmt.Sprintf("a block of type %#x", typ), int64(length), got)
	}
	b := r.w.peek(4)
	if len(b) < 4 {
		return r.short(fmt.Sprintf("a block of type %#x", typ), int64(length), body+int64(len(b)))
	}
	if again := r.u32(b); again != length {
		return r.badf(at+body, fmt.Sprintf("%d as at its start", length), "block of type %#x ends with length %d", typ, again)
	}
	r.w.take(4)
	r.stats.SkippedBlock++
	return nil
}

// readSection starts a section: it may turn the byte order round, and it forgets the interfaces.
func (r *Reader) readSection() error {
	at := r.w.offset()
	h := r.w.peek(12)
	if len(h) < 12 {
		return r.short("a section header block", 12, int64(len(h)))
	}
	switch magicOrder {
	case binary.LittleEndian.Uint32(h[8:]):
		r.bigEndian = false
	case binary.BigEndian.Uint32(h[8:]):
		r.bigEndian = true
	default:
		return r.badf(at+8, "1a2b3c4d in either order", "byte-order magic %08x", binary.BigEndian.Uint32(h[8:]))
	}
	body, at, err := r.block(&kindSection)
	if err != nil {
		return err
	}
	// Minor 2 is what some writers put for 1.0; Wireshark reads both.
	if major, minor := r.u16(body[4:]), r.u16(body[6:]); major != 1 || minor != 0 && minor != 2 {
		return r.badf(at+4, "1.0", "pcapng version %d.%d", major, minor)
	}
	r.stats.Sections++
	r.first = len(r.ifaces)
	return nil
}

// Options of an interface description and of interface statistics.
const (
	optEnd      = 0
	optIfName   = 2
	optTsResol  = 9
	optFCSLen   = 13
	optTsOffset = 14
	optIfDrop   = 5
	optOSDrop   = 7
)

// option is one option, and where its value stands in the file.
type option struct {
	code  uint16
	value []byte
	at    int64
}

// nextOption cuts the first option off *b, which stands at *at; false at the end of the options.
func (r *Reader) nextOption(b *[]byte, at *int64) (option, bool, error) {
	if len(*b) < 4 {
		return option{}, false, nil
	}
	o := option{code: r.u16(*b), at: *at + 4}
	n := int(r.u16((*b)[2:]))
	if o.code == optEnd {
		return o, false, nil
	}
	rest := (*b)[4:]
	if n > len(rest) {
		return o, false, r.badf(*at+2, fmt.Sprintf("at most %d, the rest of its block", len(rest)), "option %d of %d bytes", o.code, n)
	}
	whole := min((n+3)&^3, len(rest))
	o.value, *b, *at = rest[:n], rest[whole:], o.at+int64(whole)
	return o, true, nil
}

// sized checks the length of an option that has a fixed one.
func (r *Reader) sized(o option, name string, n int) error {
	if len(o.value) == n {
		return nil
	}
	return r.badf(o.at-2, fmt.Sprint(n), "%s of %d bytes", name, len(o.value))
}

func (r *Reader) readInterface() error {
	body, at, err := r.block(&kindInterface)
	if err != nil {
		return err
	}
	i := iface{InterfaceStats: InterfaceStats{LinkType: LinkType(r.u16(body)), SnapLen: r.u32(body[4:]), offset: at}}
	resolution, shift, shiftAt := uint8(6), int64(0), int64(0)
	for opts, optAt := body[8:], at+8; ; {
		o, more, err := r.nextOption(&opts, &optAt)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		switch o.code {
		case optIfName:
			i.Name = string(o.value[:min(len(o.value), maxNameLen)])
		case optTsResol:
			if err := r.sized(o, "if_tsresol", 1); err != nil {
				return err
			}
			resolution = o.value[0]
		case optTsOffset:
			if err := r.sized(o, "if_tsoffset", 8); err != nil {
				return err
			}
			shift, shiftAt = int64(r.u64(o.value)), o.at
		case optFCSLen:
			if err := r.sized(o, "if_fcslen", 1); err != nil {
				return err
			}
			if i.fcs = int(o.value[0]); i.fcs >= 16 { // bits in the text of the draft, bytes in its example and in Wireshark
				i.fcs /= 8
			}
		}
	}
	var ok bool
	if i.clock, ok = newClock(resolution, shift); !ok {
		return r.badf(shiftAt, "seconds that fit 64 bits of nanoseconds", "if_tsoffset of %d s", shift)
	}
	i.Resolution = i.clock.name
	return r.addInterface(i)
}

// lookup finds an interface of this section.
func (r *Reader) lookup(id uint32, at int64) (int, error) {
	have := len(r.ifaces) - r.first
	if uint64(id) >= uint64(have) {
		return 0, r.badf(at, fmt.Sprintf("one of the %d described so far in its section", have), "interface %d", id)
	}
	return r.first + int(id), nil
}

func (r *Reader) readStatistics() error {
	body, at, err := r.block(&kindStatistics)
	if err != nil {
		return err
	}
	n, err := r.lookup(r.u32(body), at)
	if err != nil {
		return err
	}
	var drops uint64 // cumulative: a later block replaces an earlier one
	for opts, optAt := body[12:], at+12; ; {
		o, more, err := r.nextOption(&opts, &optAt)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if o.code == optIfDrop || o.code == optOSDrop {
			if err := r.sized(o, "a drop count", 8); err != nil {
				return err
			}
			drops += r.u64(o.value)
		}
	}
	r.ifaces[n].CaptureDrops = drops
	return nil
}

// readPacket reads an enhanced or an obsolete packet block. They differ in the first four bytes only.
func (r *Reader) readPacket(kind *blockKind, rec *record) error {
	rec.offset = r.w.offset()
	body, at, err := r.block(kind)
	if err != nil {
		return err
	}
	id, drops := r.u32(body), uint16(0)
	if kind == &kindPacketOld {
		id, drops = uint32(r.u16(body)), r.u16(body[2:])
	}
	if rec.iface, err = r.lookup(id, at); err != nil {
		return err
	}
	i := &r.ifaces[rec.iface]
	if drops != untoldDrops {
		i.CaptureDrops += uint64(drops)
	}
	ticks := uint64(r.u32(body[4:]))<<32 | uint64(r.u32(body[8:]))
	var ok bool
	if rec.time, ok = i.clock.ns(ticks); !ok {
		return r.badf(at+4, "one before the year 2262", "time stamp of %d ticks of %s s", ticks, i.Resolution)
	}
	captured := r.u32(body[12:])
	if room := uint32(len(body) - 20); captured > min(room, maxCaptured) {
		return r.badf(at+12, fmt.Sprintf("at most %d", min(room, maxCaptured)), "captured length %d", captured)
	}
	rec.data, rec.untimed = body[20:20+captured], false
	return r.setWire(rec, r.u32(body[16:]), at+16)
}

// readSimple: interface 0, no time, and the captured length follows from the snap length.
func (r *Reader) readSimple(rec *record) error {
	rec.offset = r.w.offset()
	body, at, err := r.block(&kindSimple)
	if err != nil {
		return err
	}
	if rec.iface, err = r.lookup(0, at); err != nil {
		return err
	}
	wire := r.u32(body)
	captured := wire
	if snap := r.ifaces[rec.iface].SnapLen; snap != 0 {
		captured = min(captured, snap)
	}
	if room := uint32(len(body) - 4); captured > min(room, maxCaptured) {
		return r.badf(at, fmt.Sprintf("at most %d", min(room, maxCaptured)), "captured length %d", captured)
	}
	rec.data, rec.time, rec.untimed = body[4:4+captured], r.last, true
	return r.setWire(rec, wire, at)
}

func (r *Reader) setWire(rec *record, wire uint32, at int64) error {
	if wire > maxWire {
		return r.badf(at, fmt.Sprintf("at most %d", maxWire), "original length %d", wire)
	}
	rec.wire = int(wire)
	return nil
}
