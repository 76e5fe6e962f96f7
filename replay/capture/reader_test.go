package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/gopacket/pcapgo"
	"pgregory.net/rapid"

	"nicemu/replay/capture/capturetest"
)

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

type opt = capturetest.Option

func TestPcapReadsInBothOrdersAndResolutions(t *testing.T) {
	frame := capturetest.UDP(60)
	for _, o := range []capturetest.Order{le, be} {
		for magic, ns := range map[uint32]int64{capturetest.Micro: 1000, capturetest.Nano: 1} {
			packets, _, _, err := readAll(t, capturetest.Pcap(o, magic, 65535, 1).Record(5, 7, 60, frame).B)
			if err != io.EOF {
				t.Fatal(err)
			}
			want(t, "packets", packets, []got{{Time: 5e9 + 7*ns, Offset: 24, Cap: 60, Wire: 60}})
		}
	}
}

func TestPcapngReadsEveryPacketBlockInBothOrders(t *testing.T) {
	frame := capturetest.UDP(61)
	for _, o := range []capturetest.Order{le, be} {
		f := capturetest.Pcapng(o).Interface(1, 0).Block(0x0bad, make([]byte, 100)).
			Enhanced(0, 7, 61, frame, opt{Code: 1, Value: []byte("a comment")}).
			Simple(61, frame).
			Obsolete(0, 3, 9, 61, frame).
			Obsolete(0, 0xffff, 9, 61, frame).
			Statistics(0, 10, opt{Code: 5, Value: o.AppendUint64(nil, 40)}, opt{Code: 7, Value: o.AppendUint64(nil, 2)})
		packets, frames, s, err := readAll(t, f.B)
		if err != io.EOF {
			t.Fatal(err)
		}
		want(t, "packets", packets, []got{
			{Time: 7000, Offset: 160, Cap: 61, Wire: 61},
			{Time: 7000, Offset: 276, Cap: 61, Wire: 61, Untimed: true},
			{Time: 9000, Offset: 356, Cap: 61, Wire: 61},
			{Time: 9000, Offset: 452, Cap: 61, Wire: 61},
		})
		for _, got := range frames {
			want(t, "frame", got, frame)
		}
		want(t, "skipped blocks", s.SkippedBlock, 1)
		want(t, "untimed", s.Untimed, 1)
		want(t, "drops the capture admits", s.CaptureDrops, 42)
	}
}

func TestSectionsHaveTheirOwnOrderAndInterfaces(t *testing.T) {
	f := capturetest.Pcapng(le).Interface(1, 0).Interface(1, 0).Enhanced(1, 1, 60, capturetest.UDP(60)).
		Section(be).Interface(101, 0).Enhanced(0, 2, 46, capturetest.UDP(60)[14:])
	packets, _, s, err := readAll(t, f.B)
	if err != io.EOF {
		t.Fatal(err)
	}
	want(t, "packets", packets, []got{
		{Time: 1000, Offset: 68, Cap: 60, Wire: 60, Interface: 1},
		{Time: 2000, Offset: 208, Cap: 60, Wire: 60, Sect: 1},
	})
	want(t, "sections", s.Sections, 2)
	_, _, _, err = readAll(t, f.Section(le).Enhanced(0, 3, 60, capturetest.UDP(60)).B)
	wantError(t, err, "x.pcap: offset 324: interface 0, expected one of the 0 described so far in its section")
}

// Some writers leave the padding out of the length of a block. Wireshark reads them, so does this.
func TestBlockLengthsMayLeaveOutThePadding(t *testing.T) {
	frame := capturetest.UDP(61)
	f := capturetest.Pcapng(le).Interface(1, 0).Enhanced(0, 1, 61, frame).Block(0x0bad, make([]byte, 8))
	for _, at := range []int{52, 140, 148, 160} { // both lengths of both blocks
		f.B[at] -= 3
	}
	packets, _, _, err := readAll(t, f.Enhanced(0, 2, 61, frame).B)
	if err != io.EOF {
		t.Fatal(err)
	}
	want(t, "packets", packets, []got{{Time: 1000, Offset: 48, Cap: 61, Wire: 61}, {Time: 2000, Offset: 164, Cap: 61, Wire: 61}})
}

func TestTimesFollowResolutionAndOffset(t *testing.T) {
	for _, c := range []struct {
		resolution byte
		offset     int64
		ticks      uint64
		ns         int64
		name       string
	}{
		{6, 0, 1234567, 1234567000, "10^-6"},
		{9, 0, 1<<63 - 1, 1<<63 - 1, "10^-9"},
		{0, 0, 17, 17e9, "10^-0"},
		{3, 0, 17, 17e6, "10^-3"},
		{12, 0, 17999, 17, "10^-12"},
		{28, 0, 1<<64 - 1, 1, "10^-28"},
		{29, 0, 1<<64 - 1, 0, "10^-29"},
		{127, 0, 1<<64 - 1, 0, "10^-127"},
		{0x80, 0, 17, 17e9, "2^-0"},
		{0x80 | 20, 0, 3 << 19, 1500000000, "2^-20"},
		{0x80 | 32, 0, 5<<32 + 1<<31, 5500000000, "2^-32"},
		{0x80 | 63, 0, 1<<64 - 1, 1999999999, "2^-63"},
		{0x80 | 64, 0, 1 << 63, 500000000, "2^-64"},
		{0x80 | 127, 0, 1<<64 - 1, 0, "2^-127"},
		{6, 100, 1, 100e9 + 1000, "10^-6"},
		{6, -100, 200e6, 100e9, "10^-6"},
		{6, -100, 0, -100e9, "10^-6"},
	} {
		f := capturetest.Pcapng(le)
		f.Interface(1, 0, opt{Code: 9, Value: []byte{c.resolution}}, opt{Code: 14, Value: f.U64(uint64(c.offset))}).
			Enhanced(0, c.ticks, 60, capturetest.UDP(60))
		packets, _, s, err := readAll(t, f.B)
		if err != io.EOF || packets[0].Time != c.ns || s.Interfaces[0].Resolution != c.name {
			t.Errorf("%+v: %v %v %v", c, packets, s.Interfaces[0].Resolution, err)
		}
	}
}

func TestFCSIsTakenOff(t *testing.T) {
	frame := capturetest.UDP(60)
	withFCS := append(bytes.Clone(frame), 1, 2, 3, 4)
	for name, f := range map[string]*capturetest.File{
		"pcap":              capturetest.Pcap(le, capturetest.Micro, 0, 1|1<<26|2<<28).Record(0, 0, 64, withFCS),
		"pcap, cut":         capturetest.Pcap(le, capturetest.Micro, 0, 1|1<<26|2<<28).Record(0, 0, 64, withFCS[:62]),
		"pcapng, in bytes":  capturetest.Pcapng(le).Interface(1, 0, opt{Code: 13, Value: []byte{4}}).Enhanced(0, 0, 64, withFCS),
		"pcapng, in bits":   capturetest.Pcapng(le).Interface(1, 0, opt{Code: 13, Value: []byte{32}}).Enhanced(0, 0, 64, withFCS),
		"pcap, no FCS said": capturetest.Pcap(le, capturetest.Micro, 0, 1|2<<28).Record(0, 0, 60, frame),
	} {
		packets, frames, _, err := readAll(t, f.B)
		if err != io.EOF || packets[0].Wire != 60 || !bytes.Equal(frames[0], frame) {
			t.Errorf("%s: %v %v", name, packets, err)
		}
	}
}

func TestOddRecordsAreCountedNotLost(t *testing.T) {
	frame := capturetest.UDP(100)
	packets, _, s, err := readAll(t, capturetest.Pcap(le, capturetest.Micro, 50, 1).
		Record(0, 0, 100, frame).    // longer than the snap length
		Record(0, 0, 40, frame).     // original length below the captured one
		Record(0, 0, 0, nil).        // nothing at all
		Record(0, 0, 13, nil).       // less than an Ethernet header
		Record(0, 1500000, 14, nil). // fraction above a second, empty frame
		B)
	if err != io.EOF {
		t.Fatal(err)
	}
	want(t, "packets", packets, []got{
		{Offset: 24, Cap: 100, Wire: 100}, {Offset: 140, Cap: 100, Wire: 100},
		{Time: 1500000000, Offset: 288, Wire: 14, Truncated: true},
	})
	want(t, "oversize", s.Oversize, 2)
	want(t, "raised", s.LengthRaised, 1)
	want(t, "zero length", s.ZeroLength, 3)
	want(t, "refused", s.Refused, map[string]uint64{"shorter than its link header": 2})
}

func TestWrongInputSaysFileOffsetAndWhatWasExpected(t *testing.T) {
	pcap := func(change func([]byte)) []byte {
		b := capturetest.ThreePackets()
		change(b)
		return b
	}
	ng := func(change func([]byte)) []byte {
		b := capturetest.TwoInterfaces() // section 0, interfaces 28 and 60, packets 100 and 228
		change(b)
		return b
	}
	long := capturetest.Pcapng(le).Interface(1, 0, opt{Code: 9, Value: []byte{6, 6}}).B
	for _, c := range []struct {
		file []byte
		text string
	}{
		{nil, "x.pcap: offset 0: file ends in the magic number after 0 bytes, expected " + expectedFormats},
		{[]byte("hello, world"), "x.pcap: offset 0: magic number 68656c6c, expected " + expectedFormats},
		{[]byte("\x28\xb5\x2f\xfd...."), "x.pcap: offset 0: zstd data (unpack with zstd -d), expected " + expectedFormats},
		{[]byte("\x34\xcd\xb2\xa1...."), "x.pcap: offset 0: pcap as modified by Kuznetzov (convert with editcap -F nsecpcap), expected " + expectedFormats},
		{capturetest.Gzip(capturetest.Gzip(pcap(func([]byte) {}))), "x.pcap: offset 0 (uncompressed): gzip inside gzip, expected " + expectedFormats},
		{[]byte("\x1f\x8b\x09\x00......."), "x.pcap: offset 0: gzip header: gzip: invalid header, expected a whole one (RFC 1952)"},
		{pcap(func(b []byte) { b[6] = 3 }), "x.pcap: offset 4: pcap version 2.3, expected 2.4"},
		{pcap(func(b []byte) { b[20] = 147 }), "x.pcap: offset 20: link type 147 (USER0), expected " + supportedLinkTypes},
		{pcap(func(b []byte) { b[104+8+2] = 5 }), "x.pcap: offset 112: captured length 327808, expected at most 262144"},
		{pcap(func(b []byte) { b[104+12+3] = 5 }), "x.pcap: offset 116: original length 83886208, expected at most 16777216"},
		{ng(func(b []byte) { b[8] = 0 }), "x.pcap: offset 8: byte-order magic 003c2b1a, expected 1a2b3c4d in either order"},
		{ng(func(b []byte) { b[4] = 24 }), "x.pcap: offset 4: section header block of 24 bytes, expected 28 to 1048576"},
		{ng(func(b []byte) { b[12] = 2 }), "x.pcap: offset 12: pcapng version 2.0, expected 1.0"},
		{ng(func(b []byte) { b[32] = 19 }), "x.pcap: offset 32: interface description block of 19 bytes, expected 20 to 1048576"},
		{ng(func(b []byte) { b[56] = 24 }), "x.pcap: offset 56: interface description block ends with length 24, expected 32 as at its start"},
		{ng(func(b []byte) { b[46] = 200 }), "x.pcap: offset 46: option 2 of 200 bytes, expected at most 8, the rest of its block"},
		{long, "x.pcap: offset 46: if_tsresol of 2 bytes, expected 1"},
		{ng(func(b []byte) { b[108] = 2 }), "x.pcap: offset 108: interface 2, expected one of the 2 described so far in its section"},
		{ng(func(b []byte) { b[120] = 97 }), "x.pcap: offset 120: captured length 97, expected at most 96"},
		{ng(func(b []byte) { b[127] = 2 }), "x.pcap: offset 124: original length 33554746, expected at most 16777216"},
		{ng(func(b []byte) { b[243] = 0xff }), "x.pcap: offset 240: time stamp of "},
		{capturetest.Pcapng(le).Simple(60, capturetest.UDP(60)).B, "x.pcap: offset 36: interface 0, expected one of the 0 described so far in its section"},
		{capturetest.Pcapng(le).Interface(1, 0).Simple(64, capturetest.UDP(60)).B, "x.pcap: offset 56: captured length 64, expected at most 60"},
		{append(capturetest.Pcapng(le).B, "\x77\x00\x00\x00\x00\x00\x00\x02...."...), "x.pcap: offset 32: block of type 0x77 with 33554432 bytes, expected 12 to 16777216"},
		{append(capturetest.Pcapng(le).B, "\x77\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x02"...), "x.pcap: offset 36: block of type 0x77 ends with length 33554432, expected 12 as at its start"},
		{append(capturetest.Pcapng(le).B, "\x77\x00\x00\x00\x0c\x00\x00\x00\x00"...), "x.pcap: offset 36: file ends in a block of type 0x77 after 9 bytes, expected 12 bytes"},
		{capturetest.Pcapng(le).Interface(147, 0).Enhanced(0, 0, 60, capturetest.UDP(60)).B,
			"x.pcap: offset 36: interface 0 of section 0 has link type 147 (USER0), expected " + supportedLinkTypes},
	} {
		_, _, _, err := readAll(t, c.file)
		var bad *FormatError
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), c.text) {
			t.Errorf("error:\n got %v\nwant %s", err, c.text)
		}
	}
}

func TestUnconvertibleInterfacesAmongOthersAreCounted(t *testing.T) {
	_, _, s, err := readAll(t, capturetest.Pcapng(le).Interface(189, 0, opt{Code: 2, Value: []byte("usbmon1")}).Interface(1, 0).
		Enhanced(0, 0, 60, capturetest.UDP(60)).Enhanced(1, 0, 60, capturetest.UDP(60)).B)
	if err != io.EOF {
		t.Fatal(err)
	}
	want(t, "refused", s.Refused, map[string]uint64{"link type cannot be converted": 1})
	want(t, "interface", s.Interfaces[0], InterfaceStats{Name: "usbmon1", LinkType: 189, LinkName: "USB_LINUX", Resolution: "10^-6", Refused: 1})
}

func TestDamagedGzipIsAnError(t *testing.T) {
	whole := capturetest.Gzip(capturetest.ThreePackets())
	for n := 1; n < len(whole); n++ {
		if _, _, _, err := readAll(t, whole[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	whole[len(whole)-5] ^= 1 // checksum
	_, _, _, err := readAll(t, whole)
	wantError(t, err, "x.pcap: offset 520 (uncompressed): reading a record header: gzip: invalid checksum, expected 16 bytes")
}

func TestReadErrorsKeepTheirCause(t *testing.T) {
	broken := errors.New("disk on fire")
	r, err := NewReader(io.MultiReader(bytes.NewReader(capturetest.ThreePackets()), iotest.ErrReader(broken)), "x")
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := NewReader(stuck{}, "x"); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

func TestOpenGoesByContentNotBySuffix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "misnamed.txt")
	if err := os.WriteFile(path, capturetest.Gzip(capturetest.TwoInterfaces()), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if p, err := r.Next(); err != nil || p.WireLen != 314 {
		t.Error(p, err)
	}
	if got := r.Stats().Format; got != "pcapng, little-endian, gzip" {
		t.Error(got)
	}
}

// However the input is handed over, the packets are the same.
func TestReadingDoesNotDependOnTheSizeOfReads(t *testing.T) {
	for _, f := range fixtures {
		wantPackets, _, _, _ := readAll(t, f.file)
		for _, in := range []io.Reader{iotest.OneByteReader(bytes.NewReader(f.file)), iotest.HalfReader(bytes.NewReader(f.file)), iotest.DataErrReader(bytes.NewReader(f.file))} {
			r, err := NewReader(in, "x")
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for ; ; n++ {
				p, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil || p.Offset != wantPackets[n].Offset || p.WireLen != wantPackets[n].Wire {
					t.Fatalf("%s: packet %d: %+v %v", f.name, n, p, err)
				}
			}
			want(t, f.name, n, len(wantPackets))
		}
	}
}

func TestMemoryDoesNotGrowWithTheFile(t *testing.T) {
	const size = 1 << 30
	frame := capturetest.TCP(1514)
	record := capturetest.Pcap(le, capturetest.Micro, 0, 1).Record(0, 0, 1514, frame).B
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := NewReader(capturetest.Repeat(record[:24], record[24:], size/len(record)), "large")
	for err == nil {
		_, err = r.Next()
	}
	runtime.ReadMemStats(&after)
	if err != io.EOF || r.Stats().Packets != size/uint64(len(record)) {
		t.Error(r.Stats().Packets, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}

// What pcapgo can read without falling into one of its traps reads the same here.
func TestReaderAgreesWithPcapgo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.SampledFrom([]capturetest.Order{le, be}).Draw(t, "order")
		f := capturetest.Pcapng(order)
		resolution := rapid.SampledFrom([]byte{3, 6, 9}).Draw(t, "resolution")
		f.Interface(1, 0, opt{Code: 9, Value: []byte{resolution}})
		for range rapid.IntRange(1, 20).Draw(t, "packets") {
			n := rapid.IntRange(60, 2000).Draw(t, "length")
			f.Enhanced(0, rapid.Uint64Range(0, 1<<40).Draw(t, "ticks"), n, capturetest.UDP(n)[:rapid.IntRange(0, n).Draw(t, "captured")])
		}
		oracle, err := pcapgo.NewNgReader(bytes.NewReader(f.B), pcapgo.DefaultNgReaderOptions)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(bytes.NewReader(f.B), "x")
		if err != nil {
			t.Fatal(err)
		}
		for {
			data, ci, wantErr := oracle.ReadPacketData()
			p, err := r.Next()
			if (err == nil) != (wantErr == nil) {
				t.Fatal(err, wantErr)
			}
			if err != nil {
				return
			}
			if p.Time != ci.Timestamp.UnixNano() || p.WireLen != ci.Length || !bytes.Equal(p.Data, data) {
				t.Fatalf("%+v, pcapgo %+v", p, ci)
			}
		}
	})
}
