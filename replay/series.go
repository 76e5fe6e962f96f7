package replay

import (
	"bufio"
	"io"
	"strconv"

	"nicemu/devices/engine"
)

// seriesColumns are what a sample of one queue holds.
var seriesColumns = [...]string{"time_ns", "queue", "waiting_frames", "waiting_bytes", "ring_descriptors", "bql_limit_bytes", "bql_inflight_bytes"}

// series samples every queue at multiples of an interval, while there is anything under way, and writes what has changed.
type series struct {
	run      *run
	w        *bufio.Writer
	json     bool
	interval engine.Time
	timer    engine.Timer
	last     [][len(seriesColumns)]int64
	rows     int
	line     []byte
}

func newSeries(r *run, w io.Writer, json bool, interval engine.Time) *series {
	s := &series{run: r, w: bufio.NewWriterSize(w, 64<<10), json: json, interval: interval}
	s.last = make([][len(seriesColumns)]int64, r.stack.NIC.Queues())
	r.eng.Init(&s.timer, s.tick)
	if json {
		s.w.WriteString("[")
	} else {
		for i, name := range seriesColumns {
			if i > 0 {
				s.w.WriteByte(',')
			}
			s.w.WriteString(name)
		}
	}
	return s
}

// wake goes on sampling: a frame has come.
func (s *series) wake() {
	if !s.timer.Armed() {
		now := s.run.eng.Now()
		s.run.eng.At(&s.timer, now-now%s.interval+s.interval)
	}
}

func (s *series) tick() {
	s.sample()
	if s.run.book.under > 0 {
		s.run.eng.After(&s.timer, s.interval)
	}
}

func (s *series) sample() {
	n := s.run.stack.NIC
	for q := range s.last {
		now := [len(seriesColumns)]int64{
			int64(s.run.eng.Now()), int64(q),
			int64(s.run.qdiscs[q].Len()), int64(s.run.qdiscs[q].Bytes()),
			int64(n.RingUsed(q)), int64(n.Limit(q)), int64(n.Inflight(q)),
		}
		was := s.last[q]
		was[0], was[1] = now[0], now[1]
		if now != was {
			s.last[q] = now
			s.write(&now)
		}
	}
}

func (s *series) write(row *[len(seriesColumns)]int64) {
	b := append(s.line[:0], '\n')
	if s.json {
		if s.rows > 0 {
			b = append(b[:0], ",\n"...)
		}
		b = append(b, '{')
	}
	for i, v := range row {
		if i > 0 {
			b = append(b, ',')
		}
		if s.json {
			b = strconv.AppendQuote(b, seriesColumns[i])
			b = append(b, ':')
		}
		b = strconv.AppendInt(b, v, 10)
	}
	if s.json {
		b = append(b, '}')
	}
	s.rows++
	s.line = b
	s.w.Write(b)
}

// finish takes the last sample and hands everything to the writer.
func (s *series) finish() error {
	s.sample()
	if s.json {
		s.w.WriteString("\n]")
	}
	s.w.WriteString("\n")
	return s.w.Flush()
}
