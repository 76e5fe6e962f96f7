package liveplay

import (
	"nicemu/devices/engine"
	"nicemu/emulator"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// head is how long before its first frame a replay starts, so that the
	// first timer is no later than others.
	head = engine.Millisecond
	// retry is how long a starved sender waits for its reader.
	retry = 100 * engine.Microsecond
	// longestLate is the largest lateness told from larger ones.
	longestLate = 1000 * engine.Second
)

// sender puts all packets of a reader where they belong.
type sender interface {
	// start begins; it is called on the loop's thread.
	start()
	// done is closed when nothing is left to send, or sending failed.
	done() <-chan struct{}
	// sums is what it did, after done or the end of the loop.
	sums() sums
}

// timing is the part that senders on the loop share.
type timing struct {
	loop    *emulator.Loop
	in      cursor
	timer   engine.Timer
	origin  engine.Time // when a packet due at 0 is due
	late    *hdrhistogram.Histogram
	first   engine.Time // the first and the last packet were in the kernel
	last    engine.Time
	starved uint64
	err     error
	ended   chan struct{}
}

func (t *timing) init(l *emulator.Loop, r *reader, fire func()) {
	t.loop, t.in = l, cursor{r: r}
	t.late = hdrhistogram.New(1, int64(longestLate), 3)
	t.ended = make(chan struct{})
	l.Engine().Init(&t.timer, fire)
}

func (t *timing) start() {
	t.origin = t.loop.Clock() + head
	t.loop.Engine().At(&t.timer, t.origin)
}

func (t *timing) done() <-chan struct{} { return t.ended }

// next is the packets that have been read; if there are none it has seen to
// what comes then.
func (t *timing) next() []packet {
	ps := t.in.peek()
	switch {
	case len(ps) > 0:
	case t.in.ended:
		t.end(nil)
	default:
		t.starved++
		t.loop.Engine().At(&t.timer, t.loop.Clock()+retry)
	}
	return ps
}

func (t *timing) end(err error) {
	t.err = err
	close(t.ended)
}

// record notes n packets that the kernel has had since now.
func (t *timing) record(due, now engine.Time) {
	if t.late.TotalCount() == 0 {
		t.first = now
	}
	t.last = now
	t.late.RecordValue(int64(min(max(1, now-due), longestLate)))
}

// pacer sends every packet through the qdisc when it is due, from a timer of
// the live loop. Packets that are due together go together, burst by burst;
// between bursts the loop turns, so that the card is never kept waiting.
type pacer struct {
	timing
	socket *socket
}

func newPacer(l *emulator.Loop, r *reader, s *socket) *pacer {
	p := &pacer{socket: s}
	p.init(l, r, p.fire)
	return p
}

func (p *pacer) fire() {
	ps := p.next()
	if len(ps) == 0 {
		return
	}
	now, n := p.loop.Clock(), 0
	for most := take(ps); n < most && p.origin+ps[n].due <= now; n++ {
	}
	if n > 0 {
		if err := p.socket.send(p.in.slab(), ps[:n]); err != nil {
			p.end(err)
			return
		}
		now = p.loop.Clock()
		for i := range n {
			p.record(p.origin+ps[i].due, now)
		}
		p.in.skip(n)
		if ps = p.next(); len(ps) == 0 {
			return
		}
	}
	p.loop.Engine().At(&p.timer, max(p.origin+ps[0].due, now))
}

func (p *pacer) sums() sums {
	return sums{
		accepted: p.socket.accepted, refused: p.socket.refused,
		late: p.late, span: p.last - p.first, starved: p.starved, err: p.err,
	}
}

var _ sender = (*pacer)(nil)
