package capture

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nicemu/replay/capture/capturetest"
)

const start = int64(capturetest.Start) * 1e9

// got is a packet as tests compare it.
type got struct {
	Time, Offset               int64
	Cap, Wire, Interface, Sect int
	Truncated, Untimed         bool
}

// readAll reads to the end, and returns what Next said there.
func readAll(t testing.TB, file []byte) ([]got, [][]byte, Stats, error) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(file), "x.pcap")
	if err != nil {
		return nil, nil, Stats{}, err
	}
	var packets []got
	var frames [][]byte
	for {
		p, err := r.Next()
		if err != nil {
			s := r.Stats()
			checkBooks(t, s)
			if _, again := r.Next(); again != err {
				t.Errorf("an error is not final: %v, then %v", err, again)
			}
			return packets, frames, s, err
		}
		packets = append(packets, got{p.Time, p.Offset, len(p.Data), p.WireLen, p.Interface, p.Section, p.Truncated(), p.Untimed})
		frames = append(frames, bytes.Clone(p.Data))
	}
}

// checkBooks holds the law: records = packets + refused, in all and per interface.
func checkBooks(t testing.TB, s Stats) {
	t.Helper()
	var packets, count, byInterface uint64
	for _, n := range s.Refused {
		count += n
	}
	for _, i := range s.Interfaces {
		packets += i.Packets
		byInterface += i.Refused
	}
	if s.Records != s.Packets+count || packets != s.Packets || byInterface != count {
		t.Errorf("records %d ≠ packets %d (by interface %d) + refused %d (by interface %d)", s.Records, s.Packets, packets, count, byInterface)
	}
}

var fixtures = []struct {
	name    string
	file    []byte
	packets []got
	check   func(t *testing.T, s Stats, frames [][]byte)
}{
	{"three packets", capturetest.ThreePackets(), []got{
		{Time: start, Offset: 24, Cap: 64, Wire: 64},
		{Time: start + 1e9, Offset: 104, Cap: 128, Wire: 128},
		{Time: start + 1e9 + 1e6, Offset: 248, Cap: 256, Wire: 256},
	}, func(t *testing.T, s Stats, frames [][]byte) {
		want(t, "format", s.Format, "pcap, us, little-endian")
		want(t, "bytes", s.Bytes, 64+128+256)
		want(t, "frame", frames[2], capturetest.UDP(256))
	}},
	{"two interfaces", capturetest.TwoInterfaces(), []got{
		{Time: start, Offset: 100, Cap: 96, Wire: 314, Truncated: true},
		{Time: start + 2500, Offset: 228, Cap: 314, Wire: 314, Interface: 1},
	}, func(t *testing.T, s Stats, frames [][]byte) {
		want(t, "truncated", s.Truncated, 1)
		want(t, "frame from raw IP", frames[1][14:], capturetest.UDP(314)[14:])
		want(t, "its header", frames[1][:14], []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00"))
		want(t, "interfaces", s.Interfaces, []InterfaceStats{
			{Name: "eth0", LinkType: 1, LinkName: "ETHERNET", SnapLen: 96, Resolution: "10^-6", Packets: 1, Bytes: 314},
			{ID: 1, Name: "tun0", LinkType: 101, LinkName: "RAW", Resolution: "10^-9", Packets: 1, Bytes: 314},
		})
	}},
	{"SLL2", capturetest.SLL2(), []got{
		{Time: start, Offset: 24, Cap: 100, Wire: 100},
		{Time: start + 1000, Offset: 146, Cap: 100, Wire: 100},
		{Time: start + 2000, Offset: 268, Cap: 100, Wire: 100},
	}, func(t *testing.T, s Stats, frames [][]byte) {
		want(t, "received", frames[0][:14], []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\xaa\x08\x00"))
		want(t, "to all", frames[2][:14], []byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\xaa\x08\x00"))
		want(t, "payload", frames[1][14:], capturetest.UDP(100)[14:])
	}},
	{"TSO with IP length 0", capturetest.TSO(), []got{
		{Time: start, Offset: 24, Cap: 14654, Wire: 14654},
		{Time: start + 10000, Offset: 14694, Cap: 1514, Wire: 1514},
	}, func(t *testing.T, s Stats, frames [][]byte) {
		want(t, "over MTU", s.OverMTU, 1)
		want(t, "IP length 0", s.IPLengthZero, 1)
	}},
	{"92,442 bytes", capturetest.Large(), []got{
		{Time: start, Offset: 24, Cap: 92442, Wire: 92442},
	}, func(t *testing.T, s Stats, frames [][]byte) {
		want(t, "oversize", s.Oversize, 1)
		want(t, "over MTU", s.OverMTU, 1)
		want(t, "frame", frames[0], capturetest.TCP(92442))
	}},
	{"snap length 0", capturetest.SnapZero(), []got{
		{Time: start, Offset: 24, Cap: 1514, Wire: 1514},
		{Time: start + 1000, Offset: 1554, Wire: 1514, Truncated: true},
	}, func(t *testing.T, s Stats, frames [][]byte) {
		want(t, "oversize", s.Oversize, 0)
		want(t, "zero length", s.ZeroLength, 1)
		want(t, "truncated", s.Truncated, 1)
	}},
	{"times going backwards", capturetest.Backward(), []got{
		{Time: start + 10e6, Offset: 24, Cap: 64, Wire: 64},
		{Time: start + 7e6, Offset: 104, Cap: 64, Wire: 64},
		{Time: start + 12e6, Offset: 184, Cap: 64, Wire: 64},
	}, func(t *testing.T, s Stats, frames [][]byte) {
		want(t, "backward", s.Backward, 1)
		want(t, "largest step back", s.BackwardMax, 3e6)
	}},
	{"nanoseconds", capturetest.Nanosecond(), []got{
		{Time: start + 999999998, Offset: 24, Cap: 64, Wire: 64},
		{Time: start + 999999999, Offset: 104, Cap: 64, Wire: 64},
	}, func(t *testing.T, s Stats, frames [][]byte) {
		want(t, "format", s.Format, "pcap, ns, big-endian")
	}},
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.AllowUnexported(InterfaceStats{}), ignoreOffset); d != "" {
		t.Errorf("%s: want -, got +\n%s", what, d)
	}
}

var ignoreOffset = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".offset" }, cmp.Ignore())

func TestFixturesReadAsTheyWereMade(t *testing.T) {
	for _, f := range fixtures {
		t.Run(f.name, func(t *testing.T) {
			packets, frames, s, err := readAll(t, f.file)
			if err != io.EOF {
				t.Fatal(err)
			}
			want(t, "packets", packets, f.packets)
			f.check(t, s, frames)
			zipped, zippedFrames, s, err := readAll(t, capturetest.Gzip(f.file))
			if err != io.EOF || !strings.HasSuffix(s.Format, ", gzip") {
				t.Fatalf("in gzip: format %q, %v", s.Format, err)
			}
			want(t, "packets in gzip", zipped, packets)
			want(t, "frames in gzip", zippedFrames, frames)
		})
	}
}

// A file cut anywhere gives its whole packets, and then io.EOF at the border of a record or an error that knows where and what.
func TestFixturesCutAtEveryByte(t *testing.T) {
	for _, f := range fixtures {
		t.Run(f.name, func(t *testing.T) {
			borders := recordBorders(f.file)
			for n := range f.file {
				if n > 4000 && n%197 != 0 && !borders[n] && !borders[n-1] && !borders[n+1] {
					continue // inside of one large packet
				}
				packets, _, _, err := readAll(t, f.file[:n])
				if whole := wholeRecords(f.packets, borders, n); len(packets) != whole {
					t.Fatalf("cut at %d: %d packets, want %d", n, len(packets), whole)
				}
				if borders[n] {
					if err != io.EOF {
						t.Fatalf("cut at the border %d: %v", n, err)
					}
					continue
				}
				var bad *FormatError
				if !errors.As(err, &bad) || !errors.Is(err, io.ErrUnexpectedEOF) || bad.Offset > int64(n) || bad.Expected == "" {
					t.Fatalf("cut at %d: %v", n, err)
				}
			}
		})
	}
}

// recordBorders are the offsets at which a file may end.
func recordBorders(file []byte) map[int]bool {
	borders := map[int]bool{}
	switch file[0] {
	case 0x0a:
		for at := 0; at < len(file); {
			at += int(le.Uint32(file[at+4:]))
			borders[at] = true
		}
	case 0xa1:
		for at := 24; at < len(file); at += 16 + int(be.Uint32(file[at+8:])) {
			borders[at] = true
		}
	default:
		for at := 24; at < len(file); at += 16 + int(le.Uint32(file[at+8:])) {
			borders[at] = true
		}
	}
	return borders
}

// wholeRecords counts the packets whose record ends at or before n.
func wholeRecords(packets []got, borders map[int]bool, n int) int {
	whole := 0
	for _, p := range packets {
		end := int(p.Offset) + 1
		for !borders[end] && end <= n {
			end++
		}
		if end <= n {
			whole++
		}
	}
	return whole
}

func TestFourGigabytesFromEightyBytesAreRefused(t *testing.T) {
	file := capturetest.FourGigabytes()
	want(t, "size", len(file), 80)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, _, err := readAll(t, file)
	runtime.ReadMemStats(&after)
	wantError(t, err, "x.pcap: offset 52: enhanced packet block of 4294967292 bytes, expected 32 to 1048576")
	if n := after.TotalAlloc - before.TotalAlloc; n > 2*windowSize {
		t.Errorf("%d bytes allocated", n)
	}
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	var bad *FormatError
	if !errors.As(err, &bad) || err.Error() != text {
		t.Errorf("error:\n got %v\nwant %s", err, text)
	}
}
