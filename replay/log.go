package replay

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// logHeader describes the event log. It is mahimahi's with more columns and the symbol first.
const logHeader = `# nicemu replay, event log 1: %s
# times in ns, the first frame is due at %d, which is %d ns since the Unix epoch in the capture
# lines in the order in which frames were enqueued (+), freed by the driver after they had left (-), and dropped (d)
# BYTES are those of PACKETS on the wire without preamble, FCS and gap; COMPLETED is 0 if a reset of the card freed the frame
# + ENQUEUED QUEUE FRAME BYTES PACKETS
# - WIRE_END QUEUE FRAME BYTES PACKETS ENQUEUED POSTED FETCHED WIRE_START WIRE_END COMPLETED
# d TIME QUEUE FRAME BYTES PACKETS REASON
`

// eventLog writes one line for each event. Errors of the writer come out of flush.
type eventLog struct {
	w    *bufio.Writer
	line []byte
}

func newEventLog(w io.Writer, about string, origin engine.Time, epoch int64) *eventLog {
	l := &eventLog{w: bufio.NewWriterSize(w, 64<<10)}
	fmt.Fprintf(l.w, logHeader, about, origin, epoch)
	return l
}

func (l *eventLog) begin(symbol byte, t engine.Time, f *nic.Frame) {
	l.line = append(l.line[:0], symbol)
	l.number(int64(t))
	l.number(int64(f.Queue))
	l.number(int64(f.Seq))
	l.number(int64(f.Wire()))
	l.number(int64(f.Segs))
}

func (l *eventLog) number(v int64) { l.line = strconv.AppendInt(append(l.line, ' '), v, 10) }

func (l *eventLog) end() { l.w.Write(append(l.line, '\n')) }

func (l *eventLog) enqueued(f *nic.Frame) {
	l.begin('+', f.Enqueued, f)
	l.end()
}

func (l *eventLog) left(f *nic.Frame) {
	l.begin('-', f.WireEnd, f)
	for _, t := range [...]engine.Time{f.Enqueued, f.Posted, f.Fetched, f.WireStart, f.WireEnd, f.Completed} {
		l.number(int64(t))
	}
	l.end()
}

func (l *eventLog) dropped(f *nic.Frame, reason string, now engine.Time) {
	l.begin('d', now, f)
	l.line = append(append(l.line, ' '), reason...)
	l.end()
}

func (l *eventLog) flush() error { return l.w.Flush() }
