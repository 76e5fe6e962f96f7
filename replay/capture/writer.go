package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

const (
	writeBuffer = 64 << 10
	optComment  = 1
	maxOption   = math.MaxUint16 // bytes of an option
)

// Section is what a capture says about its making; empty texts are left out.
type Section struct {
	Hardware    string // shb_hardware
	OS          string // shb_os
	Application string // shb_userappl
	Comment     string
}

// Interface is one interface of a capture to be written: Ethernet, nanoseconds.
type Interface struct {
	Name        string // if_name
	Description string // if_description
	OS          string // if_os
	Comment     string
	SnapLen     uint32 // 0: unlimited
}

// Writer writes a pcapng file of one section, little-endian, times in nanoseconds. The bytes depend on the calls only: no wall clock, nothing
// about the host. It does not allocate per packet.
type Writer struct {
	w    *bufio.Writer
	ng   *pcapgo.NgWriter // section and interface blocks; shares w
	n    int              // interfaces
	head [28]byte
	tail [16]byte
}

// NewWriter starts a file with a section and at least one interface. Call Flush at the end.
func NewWriter(out io.Writer, s Section, interfaces ...Interface) (*Writer, error) {
	if len(interfaces) == 0 {
		return nil, errors.New("capture: a pcapng file needs an interface")
	}
	if err := optionsFit(s.Hardware, s.OS, s.Application, s.Comment); err != nil {
		return nil, err
	}
	first, err := interfaces[0].pcapgo()
	if err != nil {
		return nil, err
	}
	w := &Writer{w: bufio.NewWriterSize(out, writeBuffer), n: 1}
	// pcapgo puts a bufio.Writer of its own on top, which bufio makes the same one.
	w.ng, err = pcapgo.NewNgWriterInterface(w.w, first, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo(s)})
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces[1:] {
		if _, err := w.AddInterface(i); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// AddInterface adds an interface and returns its index.
func (w *Writer) AddInterface(i Interface) (int, error) {
	ng, err := i.pcapgo()
	if err != nil {
		return 0, err
	}
	w.n++
	return w.ng.AddInterface(ng)
}

func (i Interface) pcapgo() (pcapgo.NgInterface, error) {
	return pcapgo.NgInterface{Name: i.Name, Description: i.Description, OS: i.OS, Comment: i.Comment, SnapLength: i.SnapLen,
		LinkType: layers.LinkTypeEthernet}, optionsFit(i.Name, i.Description, i.OS, i.Comment)
}

// optionsFit refuses what pcapgo would write with a wrong length.
func optionsFit(texts ...string) error {
	for _, t := range texts {
		if len(t) > maxOption {
			return fmt.Errorf("capture: an option of %d bytes, at most %d fit", len(t), maxOption)
		}
	}
	return nil
}

// WritePacket writes a frame with wireLen bytes on the wire, seen at t (ns since the epoch, not negative) on an interface.
// A comment that is not empty goes with it.
func (w *Writer) WritePacket(iface int, t int64, frame []byte, wireLen int, comment []byte) error {
	switch {
	case iface < 0 || iface >= w.n:
		return fmt.Errorf("capture: interface %d of %d", iface, w.n)
	case t < 0:
		return fmt.Errorf("capture: time %d ns is negative", t)
	case len(frame) > maxCaptured:
		return fmt.Errorf("capture: frame of %d bytes, at most %d are read back", len(frame), maxCaptured)
	case wireLen < len(frame) || wireLen > maxWire:
		return fmt.Errorf("capture: length on the wire of %d bytes for a frame of %d, at most %d", wireLen, len(frame), maxWire)
	case len(comment) > maxOption:
		return fmt.Errorf("capture: comment of %d bytes, at most %d", len(comment), maxOption)
	}
	length := blockFrame + 20 + (len(frame)+3)&^3
	if len(comment) > 0 {
		length += 4 + (len(comment)+3)&^3 + 4
	}
	le, h := binary.LittleEndian, &w.head
	le.PutUint32(h[0:], blockEnhanced)
	le.PutUint32(h[4:], uint32(length))
	le.PutUint32(h[8:], uint32(iface))
	le.PutUint32(h[12:], uint32(t>>32))
	le.PutUint32(h[16:], uint32(t))
	le.PutUint32(h[20:], uint32(len(frame)))
	le.PutUint32(h[24:], uint32(wireLen))
	w.w.Write(h[:]) // bufio keeps the first error and returns it from the last write
	w.w.Write(frame)
	pad := -len(frame) & 3
	tail := append(w.tail[:0], 0, 0, 0)[:pad]
	if len(comment) > 0 {
		tail = le.AppendUint16(tail, optComment)
		tail = le.AppendUint16(tail, uint16(len(comment)))
		w.w.Write(tail)
		w.w.Write(comment)
		tail = append(w.tail[:0], 0, 0, 0)[:-len(comment)&3]
		tail = append(tail, 0, 0, 0, 0) // end of options
	}
	_, err := w.w.Write(le.AppendUint32(tail, uint32(length)))
	return err
}

// Flush hands everything to the underlying writer.
func (w *Writer) Flush() error { return w.w.Flush() }
