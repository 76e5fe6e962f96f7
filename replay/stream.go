package replay

import (
	"errors"
	"fmt"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/capture"
)

// StreamOptions say which packets become which frames, when, and for which queue.
type StreamOptions struct {
	InputOptions
	Schedule Schedule
	Queues   QueueRule
	Offload  Offload
	MSS      int // payload of a segment; 0 = what fits the MTU

	// Priorities: a frame's Queue is a socket's priority, 0 to 15, and the kernel chooses the queue; see [QueueRule].
	Priorities bool
}

// Offload is what becomes of packets that were captured above a card that segments: larger than the MTU, or with an IP length of 0.
type Offload string

// What to do with GSO packets.
const (
	Keep    Offload = "keep"    // one GSO frame, which the card segments; segments if it is longer than the kernel gives to cards
	Segment Offload = "segment" // segments, as the kernel makes for a card that does not
)

// gsoMaxSize is what a card takes at once (GSO_LEGACY_MAX_SIZE, the default of gso_max_size; BIG TCP makes larger ones where it has been raised).
const gsoMaxSize = 65536

// UnmarshalText reads "keep" or "segment".
func (o *Offload) UnmarshalText(text []byte) error {
	if *o = Offload(text); *o != Keep && *o != Segment {
		return fmt.Errorf("offload %q: expected keep or segment", text)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (o Offload) MarshalText() ([]byte, error) { return []byte(o), nil }

// Played is how captures are played, as results have it.
type Played struct {
	Schedule string  `json:"schedule"`
	Loop     int     `json:"loop"`
	From     string  `json:"from,omitempty"`
	To       string  `json:"to,omitempty"`
	QueueBy  string  `json:"queue_by"` // with Priorities the priority, which the root qdisc maps to a queue
	Offload  Offload `json:"offload"`
	MSS      int     `json:"mss"` // 0: what fits the MTU
	MTU      int     `json:"mtu"`
}

// Played says how s plays its captures.
func (s *Stream) Played() Played {
	o := &s.o
	p := Played{o.Schedule.String(), max(1, o.Loop), o.From.String(), o.To.String(), o.Queues.String(), o.Offload, o.MSS, o.MTU}
	if o.PerQueue {
		p.QueueBy = "file"
	}
	return p
}

// StreamStats count what the stream has made of packets, all rounds together.
type StreamStats struct {
	Packets       uint64 `json:"packets"`       // read and in the window
	Frames        uint64 `json:"frames"`        // made of them
	GSO           uint64 `json:"gso"`           // packets kept as GSO frames of more than one segment
	Segmented     uint64 `json:"segmented"`     // packets cut into segments
	Unsegmentable uint64 `json:"unsegmentable"` // packets larger than the MTU that nothing can cut, sent as they are
}

// Stream yields the frames of captures in the order in which they are due.
type Stream struct {
	o      StreamOptions
	in     *inputs
	clock  clock
	queues int
	data   bool
	stats  StreamStats

	fields  capture.Fields
	hash    uint32
	queue   int
	at      int64
	segment capture.Segmenter
	cutting bool
	buffers buffers
}

// OpenStream opens the captures for a card of so many queues. With data every frame carries its bytes, in a buffer of the stream's; see
// [Stream.Recycle].
func OpenStream(o StreamOptions, queues int, data bool) (*Stream, error) {
	if o.MTU == 0 {
		o.MTU = capture.DefaultMTU
	}
	if o.Offload == "" {
		o.Offload = Keep
	}
	if o.Priorities {
		queues = priorities
	}
	if o.PerQueue && len(o.Files) > queues {
		return nil, fmt.Errorf("%d captures for one queue each: the card has %d", len(o.Files), queues)
	}
	if err := errors.Join(o.Schedule.check(), o.Queues.check(queues), o.checkSizes()); err != nil {
		return nil, err
	}
	in, err := openInputs(&o.InputOptions, o.Queues.By.key == byInterface)
	if err != nil {
		if in != nil {
			in.close()
		}
		return nil, err
	}
	return &Stream{o: o, in: in, clock: clock{Schedule: o.Schedule}, queues: queues, data: data}, nil
}

// checkSizes refuses sizes that no network has.
func (o *StreamOptions) checkSizes() error {
	if o.MTU < 68 || o.MTU > 65535 { // RFC 791; the length field of IP
		return fmt.Errorf("MTU of %d bytes: expected 68 to 65535", o.MTU)
	}
	if o.MSS < 0 || o.MSS > 65535 {
		return fmt.Errorf("MSS of %d bytes: expected 1 to 65535", o.MSS)
	}
	return nil
}

// Next makes f, which must be empty, the next frame and says when it is due, the first one at 0; io.EOF after the last. A *capture.FormatError
// ends the stream where a file goes wrong.
func (s *Stream) Next(f *nic.Frame) (engine.Time, error) {
	if s.cutting {
		if data, wire, ok := s.segment.Next(); ok {
			f.Single(wire)
			return s.emit(f, data)
		}
		s.cutting = false
	}
	in, at, err := s.in.next()
	if err != nil {
		return 0, err
	}
	s.stats.Packets++
	s.at = at
	p := &in.head
	s.fields = capture.ParseFields(p.Data)
	s.hash = s.fields.FlowHash(p.Data)
	if s.o.PerQueue {
		s.queue = in.index
	} else {
		number := 0
		if s.o.Queues.By.key == byInterface {
			number = s.in.interfaceOf(in)
		}
		if s.o.Priorities {
			s.queue = s.o.Queues.priority(&s.fields, number)
		} else {
			s.queue = s.o.Queues.queue(&s.fields, s.hash, number, s.queues)
		}
	}
	if s.offloaded(p) {
		if data, ok := s.cut(f, p); ok {
			return s.emit(f, data)
		}
	}
	f.Single(p.WireLen)
	return s.emit(f, p.Data)
}

// offloaded reports whether a packet shows that it was to be segmented below the point of capture.
func (s *Stream) offloaded(p *capture.Packet) bool {
	return p.WireLen > s.fields.L3+s.o.MTU || s.fields.IPVersion != 0 && s.fields.IPLen == 0
}

// cut makes f of a GSO packet; false if it cannot be segmented.
func (s *Stream) cut(f *nic.Frame, p *capture.Packet) ([]byte, bool) {
	mss := s.o.MSS
	if mss == 0 {
		mss = max(1, s.o.MTU-(s.fields.HeaderLen-s.fields.L3))
	}
	n, err := s.segment.Reset(p.Data, p.WireLen, mss)
	if err != nil {
		s.stats.Unsegmentable++
		return nil, false
	}
	if s.o.Offload == Segment || p.WireLen >= gsoMaxSize {
		if n > 1 {
			s.stats.Segmented++
		}
		s.cutting = true
		data, wire, _ := s.segment.Next()
		f.Single(wire)
		return data, true
	}
	header, payload := s.segment.Sizes()
	f.GSO(header+payload, header, mss)
	if f.Segs > 1 {
		s.stats.GSO++
	}
	return p.Data, true
}

func (s *Stream) emit(f *nic.Frame, data []byte) (engine.Time, error) {
	due, ok := s.clock.next(s.at, f.Wire())
	if !ok {
		return 0, fmt.Errorf("frame %d is due more than 146 years after the first one", s.stats.Frames+1)
	}
	s.stats.Frames++
	f.Seq = s.stats.Frames
	f.Queue, f.Flow, f.ECN = s.queue, s.hash, s.fields.ECN
	if s.data {
		f.Data = append(s.buffers.get(len(data)), data...)
	}
	return due, nil
}

// Recycle takes back the bytes of a frame that is not looked at any more.
func (s *Stream) Recycle(f *nic.Frame) {
	if s.data {
		s.buffers.put(f.Data)
		f.Data = nil
	}
}

// Epoch is the time of the first frame in ns since the Unix epoch.
func (s *Stream) Epoch() int64 { return s.in.epoch }

// Stats is what the stream has done so far.
func (s *Stream) Stats() StreamStats { return s.stats }

// Files is what the captures held, complete once Next has returned io.EOF.
func (s *Stream) Files() []FileStats { return s.in.fileStats() }

// Close closes the captures.
func (s *Stream) Close() { s.in.close() }

// buffers recycles the bytes of frames, large and small apart, so that a few GSO frames do not make every buffer large.
type buffers struct{ small, large [][]byte }

const smallBuffer = 2048

func (b *buffers) list(size int) *[][]byte {
	if size <= smallBuffer {
		return &b.small
	}
	return &b.large
}

func (b *buffers) get(size int) []byte {
	list := b.list(size)
	k := len(*list)
	if k == 0 {
		return make([]byte, 0, max(size, smallBuffer))
	}
	buf := (*list)[k-1]
	*list = (*list)[:k-1]
	return buf[:0]
}

func (b *buffers) put(buf []byte) {
	if cap(buf) == 0 {
		return
	}
	list := b.list(cap(buf))
	*list = append(*list, buf)
}
