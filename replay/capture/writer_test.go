package capture

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nicemu/replay/capture/capturetest"
)

var (
	aSection    = Section{Hardware: "i210", OS: "virtual time", Application: "nicemu", Comment: "a test"}
	interfaces  = []Interface{{Name: "q0", Description: "queue 0", Comment: "best effort"}, {Name: "q1", OS: "none", SnapLen: 100}}
	longComment = strings.Repeat("x", maxOption+1)
)

type written struct {
	iface   int
	time    int64
	frame   []byte
	wire    int
	comment []byte
}

func write(t fataler, packets []written) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, aSection, interfaces...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		if err := w.WritePacket(p.iface, p.time, p.frame, p.wire, p.comment); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestWhatIsWrittenReadsBackTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var packets []written
		for range rapid.IntRange(0, 20).Draw(t, "packets") {
			frame := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "frame")
			packets = append(packets, written{rapid.IntRange(0, 1).Draw(t, "interface"), rapid.Int64Range(0, 1<<62).Draw(t, "time"), frame,
				max(14, len(frame)) + rapid.IntRange(0, 2000).Draw(t, "cut"), rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "comment")})
		}
		file := write(t, packets)
		if !bytes.Equal(file, write(t, packets)) {
			t.Fatal("not deterministic")
		}
		r, err := NewReader(bytes.NewReader(file), "x")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range packets {
			p, err := r.Next()
			if err != nil || p.Interface != want.iface || p.Time != want.time || p.WireLen != want.wire || !bytes.Equal(p.Data, want.frame) {
				t.Fatalf("%+v %v, want %+v", p, err, want)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatal(err)
		}
	})
}

func TestWriterRefusesWhatAReaderWouldRefuse(t *testing.T) {
	if _, err := NewWriter(io.Discard, aSection); err == nil {
		t.Error("no interface")
	}
	if _, err := NewWriter(io.Discard, Section{Comment: longComment}, interfaces...); err == nil {
		t.Error("long option")
	}
	w, err := NewWriter(io.Discard, aSection, interfaces...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface(Interface{Name: longComment}); err == nil {
		t.Error("long name")
	}
	if n, err := w.AddInterface(Interface{Name: "q2"}); n != 2 || err != nil {
		t.Error(n, err)
	}
	frame := capturetest.UDP(60)
	for _, p := range []written{{3, 0, frame, 60, nil}, {-1, 0, frame, 60, nil}, {0, -1, frame, 60, nil}, {0, 0, frame, 59, nil},
		{0, 0, frame, maxWire + 1, nil}, {0, 0, make([]byte, maxCaptured+1), maxCaptured + 1, nil}, {0, 0, frame, 60, []byte(longComment)}} {
		if err := w.WritePacket(p.iface, p.time, p.frame, p.wire, p.comment); err == nil {
			t.Errorf("written: interface %d, time %d, %d bytes of %d", p.iface, p.time, len(p.frame), p.wire)
		}
	}
}

func TestWriterReportsAFullDisk(t *testing.T) {
	full := errors.New("full")
	w, err := NewWriter(failing{full}, aSection, interfaces...)
	for err == nil {
		err = w.WritePacket(0, 0, capturetest.UDP(1000), 1000, nil)
	}
	if err != full || w.Flush() != full {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestReadingAndWritingDoNotAllocatePerPacket(t *testing.T) {
	frame, comment := capturetest.TCP(1514), []byte("queue 1")
	w, err := NewWriter(io.Discard, aSection, interfaces...)
	if err != nil {
		t.Fatal(err)
	}
	var seg Segmenter
	step := func() {
		f := ParseFields(frame)
		f.FlowHash(frame)
		seg.Reset(frame, len(frame), 100)
		for _, _, ok := seg.Next(); ok; _, _, ok = seg.Next() {
		}
		if err := w.WritePacket(1, 1, frame, len(frame), comment); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("writing: %v allocations", n)
	}
	for link, packet := range map[uint32][]byte{1: frame, 101: frame[14:]} {
		record := capturetest.Pcap(le, capturetest.Micro, 0, link).Record(0, 0, len(packet), packet).B
		r, err := NewReader(capturetest.Repeat(record[:24], record[24:], 2000), "x")
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("reading: %v allocations", n)
		}
	}
}

// tool runs a program of Wireshark's, which must not complain.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed (Debian: tshark, wireshark-common)", name)
	}
	var out, complaints bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err = cmd.Run()
	said := strings.ReplaceAll(complaints.String(), "Running as user \"root\" and group \"root\". This could be dangerous.\n", "")
	if err != nil || said != "" {
		t.Fatalf("%s %v: %v\n%s", name, args, err, said)
	}
	return out.String()
}

func TestWiresharkOpensWhatIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.pcapng")
	file := write(t, []written{
		{0, 0, capturetest.UDP(60), 60, nil},
		{1, 1, capturetest.UDP(61), 1514, []byte("i210, queue 1")},
		{0, start + 1, capturetest.TCP(1514), 1514, []byte("late")},
		{0, start + 2, nil, 60, nil},
		{0, start + 3, capturetest.TCP(92442), 92442, nil},
	})
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	lines := tool(t, "tshark", "-r", path, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.interface_name", "-e", "frame.cap_len", "-e", "frame.len", "-e", "frame.comment")
	want(t, "tshark", lines, "0.000000000\tq0\t60\t60\t\n0.000000001\tq1\t61\t1514\ti210, queue 1\n1767225600.000000001\tq0\t1514\t1514\tlate\n"+
		"1767225600.000000002\tq0\t0\t60\t\n1767225600.000000003\tq0\t92442\t92442\t\n")
	info := tool(t, "capinfos", path)
	for _, says := range []string{"Number of packets:   5", "Capture hardware:    i210", "Capture oper-sys:    virtual time", "Capture application: nicemu", "Name = q0",
		"Description = queue 0", "Time precision = nanoseconds (9)", "Capture comment:     a test"} {
		if !strings.Contains(info, says) {
			t.Errorf("capinfos does not say %q:\n%s", says, info)
		}
	}
}

// tshark reads the fixtures to the same packets.
func TestReaderAgreesWithTshark(t *testing.T) {
	linkHeader := map[LinkType]int{1: 14, 101: 0, 276: 20}
	for _, f := range fixtures {
		path := filepath.Join(t.TempDir(), "fixture")
		if err := os.WriteFile(path, f.file, 0o600); err != nil {
			t.Fatal(err)
		}
		packets, _, s, _ := readAll(t, f.file)
		lines := strings.Split(strings.TrimSpace(tool(t, "tshark", "-r", path, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.cap_len", "-e", "frame.len")), "\n")
		want(t, f.name, len(lines), len(packets))
		for i, p := range packets {
			less := etherLen - linkHeader[s.Interfaces[p.Interface].LinkType]
			seconds := strconv.FormatInt(p.Time/1e9, 10) + "." + strconv.FormatInt(1e9+p.Time%1e9, 10)[1:]
			line := seconds + "\t" + strconv.Itoa(max(0, p.Cap-less)) + "\t" + strconv.Itoa(p.Wire-less)
			want(t, f.name, lines[i], line)
		}
	}
}
