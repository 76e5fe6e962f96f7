package replay

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"nicemu/replay/capture"
)

// InputOptions say which packets are read.
type InputOptions struct {
	Files    []string // captures; "-" is standard input
	PerQueue bool     // file i goes to queue i and starts at its own first packet, instead of all being merged by time
	Loop     int      // times the whole is played, 0 = 1: a round begins the mean gap of the one before behind its last packet
	From, To Bound    // packets of [From, To) of the first packet, or absolute
	MTU      int      // bytes of the network layer in a wire packet; 0 = capture.DefaultMTU
}

// FileStats is what one capture held and what became of it.
type FileStats struct {
	capture.Stats
	Selected uint64 `json:"selected"` // packets of the window, in one round
	Outside  uint64 `json:"outside"`  // packets outside of it
}

// input is one file and its first packet not yet played.
type input struct {
	index  int
	name   string
	r      *capture.Reader
	head   capture.Packet
	more   bool
	first  int64 // time of the first packet, in the window or not
	origin int64 // the time that is 0 in the schedule
	time   int64 // of head, never before the one played last
	stats  FileStats
}

// inputs merges files by time. Packets of one file stay in its order.
type inputs struct {
	o      *InputOptions
	window window
	files  []*input
	taken  *input // its head has been given out
	round  int

	start   int64 // of the round in the schedule
	last    int64 // in the schedule
	packets uint64

	numbers map[iface]int // of capture interfaces, if wanted
	section iface         // numbered last
	number  int

	epoch int64 // the time that is 0 in the schedule, in ns since the Unix epoch
}

// iface is an interface of a capture.
type iface struct{ file, section, id int }

func openInputs(o *InputOptions, numbered bool) (*inputs, error) {
	if len(o.Files) == 0 {
		return nil, errors.New("no capture to replay")
	}
	if o.Loop < 0 {
		return nil, fmt.Errorf("loop %d: expected 1 or more", o.Loop)
	}
	m := &inputs{o: o, window: window{o.From, o.To}}
	if err := m.window.check(); err != nil {
		return nil, err
	}
	stdin := 0
	for i, name := range o.Files {
		if name == "-" {
			stdin++
		}
		m.files = append(m.files, &input{index: i, name: name})
	}
	if stdin > 1 || stdin == 1 && o.Loop > 1 {
		return nil, errors.New("standard input can be read once only: save it to a file")
	}
	if numbered {
		m.numbers = map[iface]int{}
	}
	return m, m.open()
}

// open begins a round: it reads up to the first packet in the window of every file.
func (m *inputs) open() error {
	first := int64(math.MaxInt64)
	for _, f := range m.files {
		if err := f.open(m.o.MTU); err != nil {
			return err
		}
		if f.more {
			f.first = f.head.Time
			first = min(first, f.first)
		}
		m.describe(f)
	}
	origin := int64(math.MaxInt64)
	for _, f := range m.files {
		if !m.o.PerQueue {
			f.first = first
		}
		f.time = math.MinInt64
		if err := m.settle(f); err != nil {
			return err
		}
		f.origin = f.time
		if f.more {
			origin = min(origin, f.time)
		}
	}
	for _, f := range m.files {
		if !m.o.PerQueue {
			f.origin = origin
		}
	}
	if m.round == 0 && origin != math.MaxInt64 {
		m.epoch = origin
	}
	return nil
}

func (f *input) open(mtu int) (err error) {
	if f.name == "-" {
		f.r, err = capture.NewReader(os.Stdin, "standard input")
	} else {
		f.r, err = capture.Open(f.name)
	}
	if err != nil {
		return err
	}
	f.r.MTU = mtu
	return f.read()
}

func (f *input) read() error {
	var err error
	f.head, err = f.r.Next()
	f.more = err == nil
	if err == io.EOF {
		return nil
	}
	return err
}

// settle passes over packets outside of the window, and sets the time of the head. A packet whose time lies before that of one ahead of it in its
// file goes with that one.
func (m *inputs) settle(f *input) error {
	for f.more && !m.window.holds(f.head.Time, f.first) {
		f.count(&f.stats.Outside, m.round)
		if err := f.read(); err != nil {
			return err
		}
	}
	if f.more {
		f.count(&f.stats.Selected, m.round)
		f.time = max(f.time, f.head.Time)
	}
	return nil
}

// count counts in the first round only: every round reads the same.
func (f *input) count(n *uint64, round int) {
	if round == 0 {
		*n++
	}
}

// offset is the time of the head in the schedule. It may need 64 bits.
func (f *input) offset() uint64 { return uint64(f.time) - uint64(f.origin) }

// next gives the file whose head is due next and when, in ns since the first packet of the first round; io.EOF after the last. The head is valid
// until the next call.
func (m *inputs) next() (*input, int64, error) {
	if f := m.taken; f != nil {
		m.taken = nil
		if err := f.read(); err != nil {
			return nil, 0, err
		}
		if err := m.settle(f); err != nil {
			return nil, 0, err
		}
	}
	var best *input
	for _, f := range m.files {
		if f.more && (best == nil || f.offset() < best.offset()) {
			best = f
		}
	}
	if best == nil {
		return m.again()
	}
	at := int64(best.offset())
	if at < 0 || m.start > math.MaxInt64-at {
		return nil, 0, fmt.Errorf("%s: offset %d: packet of %d ns since the epoch is more than 292 years from the first one", best.name, best.head.Offset, best.head.Time)
	}
	m.taken, m.last = best, m.start+at
	m.packets++
	return best, m.last, nil
}

// again begins the next round, or ends.
func (m *inputs) again() (*input, int64, error) {
	m.close()
	if m.round++; m.round >= max(1, m.o.Loop) || m.packets == 0 {
		return nil, 0, io.EOF
	}
	gap := int64(0)
	if m.packets > 1 {
		gap = (m.last - m.start) / int64(m.packets-1)
	}
	m.start, m.packets = m.last+gap, 0
	if err := m.open(); err != nil {
		return nil, 0, err
	}
	return m.next()
}

// close closes the files and keeps what the first round has counted.
func (m *inputs) close() {
	for _, f := range m.files {
		if f.r == nil {
			continue
		}
		if m.round == 0 {
			f.stats.Stats = f.r.Stats()
		}
		f.r.Close()
		f.r, f.more = nil, false
	}
}

// fileStats are the counts of the first round so far.
func (m *inputs) fileStats() []FileStats {
	list := make([]FileStats, len(m.files))
	for i, f := range m.files {
		if f.r != nil && m.round == 0 {
			f.stats.Stats = f.r.Stats()
		}
		list[i] = f.stats
	}
	return list
}

// describe numbers the interfaces that a file has described so far.
func (m *inputs) describe(f *input) {
	if m.numbers == nil {
		return
	}
	for _, i := range f.r.Stats().Interfaces {
		key := iface{f.index, i.Section, i.ID}
		if _, known := m.numbers[key]; !known {
			m.numbers[key] = len(m.numbers)
		}
	}
}

// interfaceOf is the number of the interface that a file's head came from.
func (m *inputs) interfaceOf(f *input) int {
	key := iface{f.index, f.head.Section, f.head.Interface}
	if key == m.section {
		return m.number
	}
	n, known := m.numbers[key]
	if !known {
		m.describe(f)
		n = m.numbers[key]
	}
	m.section, m.number = key, n
	return n
}
