package replay

import (
	"encoding"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/replay/capture"
	"nicemu/replay/capture/capturetest"
)

// played is a frame of a stream.
type played struct {
	Due   engine.Time
	Queue int
	Bytes int
}

func stream(t testing.TB, o StreamOptions, queues int) (list []played) {
	t.Helper()
	s, err := OpenStream(o, queues, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		var f nic.Frame
		due, err := s.Next(&f)
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, played{due, f.Queue, f.Wire()})
	}
}

func dues(list []played) (due []engine.Time) {
	for _, p := range list {
		due = append(due, p.Due)
	}
	return due
}

// at is a capture of UDP frames of 64 bytes at the given ns after its start, which is some seconds after the start of all fixtures.
func at(start int, times ...int) []byte {
	f := capturetest.Pcap(le, capturetest.Nano, 0, 1)
	for _, ns := range times {
		f.Record(uint32(capturetest.Start+start), uint32(ns), 64, capturetest.UDP(64))
	}
	return f.B
}

func TestSchedulesCountFromTheFirstPacket(t *testing.T) {
	path := file(t, "c", at(0, 100, 150, 1100))
	for _, c := range []struct {
		name     string
		schedule Schedule
		loop     int
		want     []engine.Time
	}{
		{"original", Schedule{}, 1, []engine.Time{0, 50, 1000}},
		{"a third of the speed", Schedule{Speed: Speed{1, 3}}, 1, []engine.Time{0, 150, 3000}},
		{"seven times the speed, rounded down but not added up", Schedule{Speed: Speed{7, 1}}, 1, []engine.Time{0, 7, 142}},
		{"rounds begin the mean gap behind the last packet", Schedule{}, 3, []engine.Time{0, 50, 1000, 1500, 1550, 2500, 3000, 3050, 4000}},
		{"512 bits at 3 Gbit/s", Schedule{Rate: 3 * units.Gbit}, 2, []engine.Time{0, 170, 341, 512, 682, 853}},
		{"7 packets in 1 s", Schedule{PPS: 7}, 2, []engine.Time{0, 142857142, 285714285, 428571428, 571428571, 714285714}},
		{"top speed", Schedule{TopSpeed: true}, 1, []engine.Time{0, 0, 0}},
	} {
		o := StreamOptions{InputOptions: InputOptions{Files: []string{path}, Loop: c.loop}, Schedule: c.schedule}
		if d := cmp.Diff(c.want, dues(stream(t, o, 1))); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// A periodic capture that is looped stays periodic.
func TestALoopedPeriodGoesOn(t *testing.T) {
	path := file(t, "c", at(0, 0, 250, 500, 750))
	got := dues(stream(t, StreamOptions{InputOptions: InputOptions{Files: []string{path}, Loop: 100}}, 1))
	for i, due := range got {
		if due != engine.Time(250*i) {
			t.Fatalf("frame %d due at %d", i, due)
		}
	}
	if len(got) != 400 {
		t.Fatal(len(got))
	}
}

// Hours of any rate: frame n is due at n times its share, to the nanosecond.
func TestRatesDoNotDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := clock{Schedule: Schedule{Rate: units.Rate(rapid.Int64Range(1000, 1e12).Draw(t, "rate"))}}
		c.bits = 8 * rapid.Uint64Range(0, 1e12).Draw(t, "bytes before")
		due, ok := c.next(0, 64)
		want := float64(c.bits-8*64) / float64(c.Rate) * 1e9
		if diff := float64(due) - want; ok && (diff > 1+want*1e-12 || diff < -1-want*1e-12) {
			t.Fatalf("due at %d, want %f", due, want)
		}
		if !ok && want < 1<<61 {
			t.Fatal("refused")
		}
	})
}

func TestCapturesAreMergedByTimeAndKeepTheirOrder(t *testing.T) {
	a, b := file(t, "a", at(1, 0, 500, 900)), file(t, "b", at(1, 100, 500, 300, 2000))
	o := StreamOptions{InputOptions: InputOptions{Files: []string{a, b}}, Queues: QueueRule{By: QueueBy{key: byInterface}}}
	want := []played{{0, 0, 64}, {100, 1, 64}, {500, 0, 64}, {500, 1, 64}, {500, 1, 64}, {900, 0, 64}, {2000, 1, 64}} // 300 goes with the 500 before it
	if d := cmp.Diff(want, stream(t, o, 2)); d != "" {
		t.Error(d)
	}
}

func TestOneFilePerQueueStartsAtItsOwnFirstPacket(t *testing.T) {
	a, b := file(t, "a", at(1, 100, 500)), file(t, "b", at(3000, 7, 8, 9))
	o := StreamOptions{InputOptions: InputOptions{Files: []string{a, b}, PerQueue: true}}
	want := []played{{0, 0, 64}, {0, 1, 64}, {1, 1, 64}, {2, 1, 64}, {400, 0, 64}}
	if d := cmp.Diff(want, stream(t, o, 2)); d != "" {
		t.Error(d)
	}
	if _, err := OpenStream(o, 1, false); err == nil || err.Error() != "2 captures for one queue each: the card has 1" {
		t.Error(err)
	}
}

func TestAWindowIsHalfOpenAndTheFirstPacketInItIsTheNewZero(t *testing.T) {
	path := file(t, "c", at(0, 100, 200, 300, 400, 150))
	for _, c := range []struct {
		from, to string
		want     []engine.Time
		outside  uint64
	}{
		{"100ns", "", []engine.Time{0, 100, 200}, 2},
		{"50ns", "", []engine.Time{0, 100, 200, 200}, 1},
		{"", "200ns", []engine.Time{0, 100, 100}, 2},
		{"100ns", "300ns", []engine.Time{0, 100}, 3},
		{"0ns", "2026-01-01T00:00:00.000000201Z", []engine.Time{0, 100, 100}, 2},
		{"2026-01-01T00:00:00.0000003Z", "", []engine.Time{0, 100}, 3},
		{"2026-01-01T01:00:00+01:00", "1s", []engine.Time{0, 100, 200, 300, 300}, 0},
		{"5s", "", nil, 5},
	} {
		o := StreamOptions{InputOptions: InputOptions{Files: []string{path}}}
		for text, b := range map[string]*Bound{c.from: &o.From, c.to: &o.To} {
			if text == "" {
				continue
			}
			if err := b.UnmarshalText([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		s, err := OpenStream(o, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		var got []engine.Time
		for err == nil {
			var due engine.Time
			if due, err = s.Next(&nic.Frame{}); err == nil {
				got = append(got, due)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s to %s: %s", c.from, c.to, d)
		}
		if f := s.Files()[0]; f.Outside != c.outside || f.Selected != uint64(len(c.want)) || f.Packets != 5 {
			t.Errorf("%s to %s: %d selected, %d outside of %d", c.from, c.to, f.Selected, f.Outside, f.Packets)
		}
		s.Close()
	}
}

// tagged is a frame with a VLAN priority.
func tagged(pcp byte) []byte {
	frame := capturetest.UDP(100)
	return append(append(append([]byte{}, frame[:12]...), 0x81, 0, pcp<<5, 1), frame[12:]...)
}

func withDSCP(dscp byte) []byte {
	frame := capturetest.UDP(100)
	frame[15] = dscp << 2
	return frame
}

func TestQueuesAreChosenByKey(t *testing.T) {
	rule := func(by, mapping string) (r QueueRule) {
		if err := r.By.UnmarshalText([]byte(by)); err != nil {
			t.Fatal(err)
		}
		if mapping != "" {
			if err := r.Map.UnmarshalText([]byte(mapping)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.check(4); err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain := capturetest.UDP(100)
	for _, c := range []struct {
		by, mapping string
		frame       []byte
		want        int
	}{
		{"fixed:2", "", plain, 2},
		{"pcp", "", plain, 3}, {"pcp", "", tagged(1), 3}, {"pcp", "", tagged(3), 2}, {"pcp", "", tagged(5), 1}, {"pcp", "", tagged(7), 0},
		{"pcp", "3:0,2:1", tagged(3), 0}, {"pcp", "3:0,2:1", tagged(2), 1}, {"pcp", "3:0,2:1", plain, 3}, {"pcp", "3:0,*:2", plain, 2},
		{"dscp", "", withDSCP(46), 1}, {"dscp", "", withDSCP(0), 3}, {"dscp", "", withDSCP(56), 0},
		{"dscp", "46:0,*:1", withDSCP(46), 0}, {"dscp", "46:0,*:1", withDSCP(45), 1}, {"dscp", "46:0", tagged(5), 3},
		{"interface", "", plain, 2}, {"interface", "6:1", plain, 1},
	} {
		r := rule(c.by, c.mapping)
		if got := r.queue(fieldsOf(c.frame), hashOf(c.frame), 6, 4); got != c.want {
			t.Errorf("%v: queue %d, want %d", r, got, c.want)
		}
	}
	var seen [4]int
	for port := range 256 {
		frame := capturetest.UDP(100)
		frame[35] = byte(port)
		r := QueueRule{}
		seen[r.queue(fieldsOf(frame), hashOf(frame), 0, 4)]++
	}
	for q, n := range seen {
		if n < 32 {
			t.Errorf("flow hash: queue %d has %d of 256 flows", q, n)
		}
	}
}

// Interfaces count on from file to file and from section to section.
func TestInterfacesAreNumberedAsMergecapDoes(t *testing.T) {
	o := StreamOptions{Queues: QueueRule{By: QueueBy{key: byInterface}}}
	sections := capturetest.Pcapng(le).Interface(1, 0).Interface(1, 0).Enhanced(1, 5e6, 64, capturetest.UDP(64)).
		Section(le).Interface(1, 0).Interface(1, 0).Enhanced(1, 6e6, 64, capturetest.UDP(64)).Enhanced(0, 7e6, 64, capturetest.UDP(64)).B
	o.Files = []string{file(t, "a", sections)}
	if d := cmp.Diff([]played{{0, 1, 64}, {1e9, 3, 64}, {2e9, 2, 64}}, stream(t, o, 8)); d != "" {
		t.Error(d)
	}
	o.Files = []string{file(t, "two", capturetest.TwoInterfaces()), file(t, "three", capturetest.ThreePackets())}
	if d := cmp.Diff([]played{{0, 0, 314}, {0, 2, 64}, {2500, 1, 314}, {1e9, 2, 128}, {1001e6, 2, 256}}, stream(t, o, 8)); d != "" {
		t.Error(d)
	}
}

func TestGSOPacketsAreKeptOrCut(t *testing.T) {
	path := file(t, "tso", capturetest.TSO())
	for _, c := range []struct {
		offload Offload
		mss     int
		want    []int // wire bytes of each frame
		stats   StreamStats
	}{
		{Keep, 0, []int{14600 + 10*54, 1514}, StreamStats{Packets: 2, Frames: 2, GSO: 1}},
		{Keep, 1000, []int{14600 + 15*54, 1514}, StreamStats{Packets: 2, Frames: 2, GSO: 1}},
		{Segment, 5000, []int{5054, 5054, 4654, 1514}, StreamStats{Packets: 2, Frames: 4, Segmented: 1}},
		{Segment, 20000, []int{14654, 1514}, StreamStats{Packets: 2, Frames: 2}},
	} {
		s, err := OpenStream(StreamOptions{InputOptions: InputOptions{Files: []string{path}}, Offload: c.offload, MSS: c.mss}, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for {
			var f nic.Frame
			if _, err := s.Next(&f); err != nil {
				break
			}
			got = append(got, f.Wire())
		}
		if d := cmp.Diff(c.want, got); d != "" || s.Stats() != c.stats {
			t.Errorf("%s with MSS %d: %+v %s", c.offload, c.mss, s.Stats(), d)
		}
		s.Close()
	}
}

func TestWhatCannotBeMeantSaysWhatWasExpected(t *testing.T) {
	var (
		speed  Speed
		bound  Bound
		by     QueueBy
		table  QueueMap
		off    Offload
		qdisc  Qdisc
		queues LaunchQueues
	)
	for _, c := range []struct {
		into  encoding.TextUnmarshaler
		texts string // with | between
		want  string
	}{
		{&speed, "2|x|0x|-1x|1.x|1e3x|1.2.3x|1234567890x|", "a factor above 0 with at most 9 digits and an x"},
		{&bound, "5|soon|1600-01-01T00:00:00Z|2300-01-01T00:00:00Z|2026-01-01|", "a duration from the first packet"},
		{&by, "port|fixed|fixed:|fixed:x|fixed:-1|pcp:3|", "hash, pcp, dscp, interface or fixed:N"},
		{&table, "3|3:|:0|3:0,3:1|*:0,*:1|x:1|3:-1|3:0,|", "KEY:QUEUE with each key once"},
		{&off, "gso|Keep|", "keep or segment"},
		{&qdisc, "fq|fifo:x|fifo:0|fifo:|none:1|fq_codel:5|", "expected"},
		{&queues, "0,|x|-1|0 1|", "all, or numbers with commas between"},
	} {
		for text := range strings.SplitSeq(c.texts, "|") {
			if err := c.into.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%T of %q: %v", c.into, text, err)
			}
		}
	}
	path := file(t, "c", capturetest.ThreePackets())
	one := InputOptions{Files: []string{path}}
	mapped := func(by, mapping string) (r QueueRule) {
		if err := errors.Join(r.By.UnmarshalText([]byte(by)), r.Map.UnmarshalText([]byte(mapping))); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		o    StreamOptions
		want string
	}{
		{StreamOptions{}, "no capture to replay"},
		{StreamOptions{InputOptions: InputOptions{Files: []string{path}, Loop: -1}}, "loop -1: expected 1 or more"},
		{StreamOptions{InputOptions: InputOptions{Files: []string{"-"}, Loop: 2}}, "standard input can be read once only: save it to a file"},
		{StreamOptions{InputOptions: InputOptions{Files: []string{path}, MTU: 20}}, "MTU of 20 bytes: expected 68 to 65535"},
		{StreamOptions{InputOptions: one, MSS: 70000}, "MSS of 70000 bytes: expected 1 to 65535"},
		{StreamOptions{InputOptions: one, Schedule: Schedule{PPS: 1, TopSpeed: true}}, "speed, rate, packets a second and top speed: expected one of them"},
		{StreamOptions{InputOptions: one, Schedule: Schedule{PPS: -1}}, "-1 packets a second: expected 1 to 1000000000"},
		{StreamOptions{InputOptions: one, Queues: QueueRule{By: QueueBy{byFixed, 4}}}, `queue 4 in "fixed:4": the card has queues 0 to 3`},
		{StreamOptions{InputOptions: one, Queues: mapped("pcp", "8:0")}, `queue map "8:0": key 8, expected 0 to 7`},
		{StreamOptions{InputOptions: one, Queues: mapped("hash", "1:0")}, `queue map "1:0": queues by hash take none`},
		{StreamOptions{InputOptions: one, Queues: mapped("dscp", "1:0,*:7")}, `queue 7 in "dscp 1:0,*:7": the card has queues 0 to 3`},
	} {
		if _, err := OpenStream(c.o, 4, false); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if _, err := OpenStream(StreamOptions{InputOptions: InputOptions{Files: []string{path, path + ".none"}}}, 1, false); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// inYear is a capture of one packet so many seconds after the epoch.
func inYear(seconds uint64) []byte {
	return capturetest.Pcapng(le).Interface(1, 0, capturetest.Option{Code: 14, Value: le.AppendUint64(nil, seconds)}).
		Enhanced(0, 0, 64, capturetest.UDP(64)).B
}

func TestTimesThatNoClockHoldsAreRefused(t *testing.T) {
	const before = 4_294_967_296 // 1833
	early := inYear(1<<64 - before)
	for _, c := range []struct {
		late uint64
		want string
	}{
		{9_000_000_000, "late: offset 64: packet of 9000000000000000000 ns since the epoch is more than 292 years from the first one"},
		{1_000_000_000, "frame 2 is due more than 146 years after the first one"},
	} {
		o := StreamOptions{InputOptions: InputOptions{Files: []string{file(t, "early", early), file(t, "late", inYear(c.late))}}}
		s, err := OpenStream(o, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Next(&nic.Frame{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(&nic.Frame{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Error(err)
		}
	}
}

// A file that ends in the middle of a packet plays what came before.
func TestAStreamEndsWhereItsFileGoesWrong(t *testing.T) {
	b := capturetest.ThreePackets()
	s, err := OpenStream(StreamOptions{InputOptions: InputOptions{Files: []string{file(t, "cut", b[:len(b)-1])}}}, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 2 {
		if _, err := s.Next(&nic.Frame{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.Next(&nic.Frame{})
	var bad *capture.FormatError
	if !errors.As(err, &bad) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
