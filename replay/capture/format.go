package capture

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// FormatError is input that is not what it should be: which file, where, what was found and what was expected.
// It matches io.ErrUnexpectedEOF (errors.Is) when the file ends too early; the packets before it were good.
type FormatError struct {
	File         string
	Offset       int64 // bytes from the start of the file
	Uncompressed bool  // Offset counts uncompressed bytes
	Found        string
	Expected     string
	Err          error // cause, or nil
}

func (e *FormatError) Error() string {
	var unit, expected string
	if e.Uncompressed {
		unit = " (uncompressed)"
	}
	if e.Expected != "" {
		expected = ", expected " + e.Expected
	}
	return fmt.Sprintf("%s: offset %d%s: %s%s", e.File, e.Offset, unit, e.Found, expected)
}

func (e *FormatError) Unwrap() error { return e.Err }

func (r *Reader) badf(offset int64, expected, found string, args ...any) error {
	return &FormatError{File: r.name, Offset: offset, Uncompressed: r.gzip, Found: fmt.Sprintf(found, args...), Expected: expected}
}

// short says that the input ended, or failed, with got bytes where want were needed.
func (r *Reader) short(what string, want, got int64) *FormatError {
	e := &FormatError{File: r.name, Offset: r.w.offset(), Uncompressed: r.gzip,
		Expected: fmt.Sprintf("%d bytes", want), Err: r.w.err}
	switch r.w.err {
	case io.EOF, io.ErrUnexpectedEOF:
		e.Err = io.ErrUnexpectedEOF
		e.Found = fmt.Sprintf("file ends in %s after %d bytes", what, got)
	default:
		e.Found = fmt.Sprintf("reading %s: %v", what, r.w.err)
	}
	return e
}

const (
	magicMicro = 0xa1b2c3d4
	magicNano  = 0xa1b23c4d
	magicNg    = 0x0a0d0d0a // the same in both byte orders
	magicOrder = uint32(0x1a2b3c4d)
)

const expectedFormats = "pcap (a1b2c3d4, a1b23c4d), pcapng (0a0d0d0a) or one of them in gzip (1f8b)"

// foreign are files that people hand to a capture reader and that it can at least name.
var foreign = []struct{ magic, what string }{
	{"\x28\xb5\x2f\xfd", "zstd data (unpack with zstd -d)"},
	{"\xfd7zXZ\x00", "xz data (unpack with xz -d)"},
	{"BZh", "bzip2 data (unpack with bzip2 -d)"},
	{"\x04\x22\x4d\x18", "lz4 data (unpack with lz4 -d)"},
	{"snoop\x00", "a snoop capture (convert with editcap -F nsecpcap)"},
	{"\x34\xcd\xb2\xa1", "pcap as modified by Kuznetzov (convert with editcap -F nsecpcap)"},
	{"\xa1\xb2\xcd\x34", "pcap as modified by Kuznetzov (convert with editcap -F nsecpcap)"},
	{"\x1f\x8b", "gzip inside gzip"},
}

// detect looks at the first bytes, unpacks gzip, and reads the file header.
func (r *Reader) detect(in io.Reader) error {
	r.w = newWindow(in)
	if head := r.w.peek(2); string(head) == "\x1f\x8b" {
		rest := io.MultiReader(bytes.NewReader(r.w.buf[:r.w.hi]), in)
		if r.w.err != nil {
			rest = bytes.NewReader(r.w.buf[:r.w.hi])
		}
		z, err := gzip.NewReader(bufio.NewReaderSize(rest, 64<<10))
		if err != nil {
			return &FormatError{File: r.name, Found: "gzip header: " + err.Error(), Expected: "a whole one (RFC 1952)", Err: err}
		}
		r.gzip = true
		r.w = newWindow(z)
	}
	head := r.w.peek(6)
	if len(head) < 4 {
		e := r.short("the magic number", 4, int64(len(head)))
		e.Expected = expectedFormats
		return e
	}
	little, big := binary.LittleEndian.Uint32(head), binary.BigEndian.Uint32(head)
	switch {
	case big == magicNg:
		r.ng = true
		return r.readSection()
	case big == magicMicro || big == magicNano:
		r.bigEndian = true
		return r.readPcapHeader(big)
	case little == magicMicro || little == magicNano:
		return r.readPcapHeader(little)
	}
	for _, f := range foreign {
		if strings.HasPrefix(string(head), f.magic) {
			return r.badf(0, expectedFormats, "%s", f.what)
		}
	}
	return r.badf(0, expectedFormats, "magic number %08x", big)
}

func (r *Reader) u16(b []byte) uint16 {
	if r.bigEndian {
		return binary.BigEndian.Uint16(b)
	}
	return binary.LittleEndian.Uint16(b)
}

func (r *Reader) u32(b []byte) uint32 {
	if r.bigEndian {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

func (r *Reader) u64(b []byte) uint64 {
	if r.bigEndian {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}
