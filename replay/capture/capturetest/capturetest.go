// Package capturetest makes captures for tests, byte by byte: in either byte order, with old blocks, and wrong on purpose. It shares no code
// with the reader it tests.
package capturetest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
)

// Order is a byte order of a capture.
type Order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// Magic numbers of pcap.
const (
	Micro = 0xa1b2c3d4
	Nano  = 0xa1b23c4d
)

// File is a capture in the making.
type File struct {
	Order Order
	B     []byte
}

// Option is an option of a pcapng block.
type Option struct {
	Code  uint16
	Value []byte
}

// Pcap starts a pcap file of version 2.4.
func Pcap(o Order, magic, snapLen, linkType uint32) *File {
	f := &File{Order: o}
	f.B = o.AppendUint32(f.B, magic)
	f.B = o.AppendUint16(f.B, 2)
	f.B = o.AppendUint16(f.B, 4)
	f.B = append(f.B, make([]byte, 8)...)
	f.B = o.AppendUint32(f.B, snapLen)
	f.B = o.AppendUint32(f.B, linkType)
	return f
}

// Record adds a record whose captured length is that of data.
func (f *File) Record(sec, frac uint32, wire int, data []byte) *File {
	f.B = f.words(f.B, sec, frac, uint32(len(data)), uint32(wire))
	f.B = append(f.B, data...)
	return f
}

func (f *File) words(b []byte, words ...uint32) []byte {
	for _, w := range words {
		b = f.Order.AppendUint32(b, w)
	}
	return b
}

// Pcapng starts a pcapng file with a section.
func Pcapng(o Order) *File { return new(File).Section(o) }

// Section adds a section header block of unknown length; what follows is in its order.
func (f *File) Section(o Order, opts ...Option) *File {
	f.Order = o
	body := f.words(nil, 0x1a2b3c4d)
	body = o.AppendUint16(body, 1)
	body = o.AppendUint16(body, 0)
	body = f.words(body, 0xffffffff, 0xffffffff)
	return f.Block(0x0a0d0d0a, f.options(body, opts))
}

// Interface adds an interface description block.
func (f *File) Interface(linkType uint16, snapLen uint32, opts ...Option) *File {
	body := f.Order.AppendUint16(nil, linkType)
	body = append(body, 0, 0)
	return f.Block(1, f.options(f.words(body, snapLen), opts))
}

// Enhanced adds an enhanced packet block.
func (f *File) Enhanced(iface uint32, ticks uint64, wire int, data []byte, opts ...Option) *File {
	body := f.words(nil, iface, uint32(ticks>>32), uint32(ticks), uint32(len(data)), uint32(wire))
	return f.Block(6, f.options(pad(append(body, data...)), opts))
}

// Obsolete adds a packet block of the time before enhanced ones.
func (f *File) Obsolete(iface, drops uint16, ticks uint64, wire int, data []byte) *File {
	body := f.Order.AppendUint16(nil, iface)
	body = f.Order.AppendUint16(body, drops)
	body = f.words(body, uint32(ticks>>32), uint32(ticks), uint32(len(data)), uint32(wire))
	return f.Block(2, pad(append(body, data...)))
}

// Simple adds a simple packet block.
func (f *File) Simple(wire int, data []byte) *File {
	return f.Block(3, pad(append(f.words(nil, uint32(wire)), data...)))
}

// Statistics adds an interface statistics block.
func (f *File) Statistics(iface uint32, ticks uint64, opts ...Option) *File {
	return f.Block(5, f.options(f.words(nil, iface, uint32(ticks>>32), uint32(ticks)), opts))
}

// Block adds a block of any type.
func (f *File) Block(typ uint32, body []byte) *File {
	length := uint32(len(body) + 12)
	f.B = f.words(f.B, typ, length)
	f.B = append(f.B, body...)
	f.B = f.words(f.B, length)
	return f
}

func (f *File) options(b []byte, opts []Option) []byte {
	if len(opts) == 0 {
		return b
	}
	for _, o := range opts {
		b = f.Order.AppendUint16(b, o.Code)
		b = f.Order.AppendUint16(b, uint16(len(o.Value)))
		b = pad(append(b, o.Value...))
	}
	return f.words(b, 0)
}

func pad(b []byte) []byte { return append(b, make([]byte, -len(b)&3)...) }

// U64 is the value of an option of 64 bits.
func (f *File) U64(v uint64) []byte { return f.Order.AppendUint64(nil, v) }

// Gzip packs a capture.
func Gzip(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

// Repeat is head followed by n copies of record: a capture of any size in no memory.
func Repeat(head, record []byte, n int) io.Reader {
	return io.MultiReader(bytes.NewReader(head), &repeat{record: bytes.Repeat(record, 1+(64<<10)/len(record)), left: n * len(record)})
}

type repeat struct {
	record   []byte
	at, left int
}

func (r *repeat) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.left)], r.record[r.at:])
	r.left -= n
	r.at = (r.at + n) % len(r.record)
	return n, nil
}
