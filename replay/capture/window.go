package capture

import "io"

const (
	windowSize = 128 << 10 // first size of the window: larger than nearly every record, small enough for the L2 cache
	maxStalls  = 100       // reads of nothing in a row before the input is given up, as bufio does
)

// window is the part of the input that is in memory. Slices it hands out are valid until the next peek or skip.
type window struct {
	in     io.Reader
	buf    []byte
	lo, hi int   // buf[lo:hi] is read and not yet consumed
	base   int64 // stream offset of buf[0]
	err    error // what ended the input; io.EOF when it simply ended
}

func newWindow(in io.Reader) *window { return &window{in: in, buf: make([]byte, windowSize)} }

// offset is the stream offset of the next byte.
func (w *window) offset() int64 { return w.base + int64(w.lo) }

// peek returns the next n bytes without consuming them, or fewer when the input ends before; w.err then says why.
// The window grows to hold n: callers bound n first.
func (w *window) peek(n int) []byte {
	if w.hi-w.lo < n {
		w.fill(n)
		n = min(n, w.hi-w.lo)
	}
	return w.buf[w.lo : w.lo+n]
}

// take consumes n bytes that peek has shown. The bytes stay in place.
func (w *window) take(n int) { w.lo += n }

// skip consumes n bytes and returns how many there were.
func (w *window) skip(n int64) int64 {
	left := n
	for left > 0 {
		if w.lo == w.hi && len(w.peek(1)) == 0 {
			break
		}
		step := min(left, int64(w.hi-w.lo))
		w.lo += int(step)
		left -= step
	}
	return n - left
}

func (w *window) fill(n int) {
	keep := w.buf[w.lo:w.hi]
	if n > len(w.buf) {
		size := len(w.buf)
		for size < n {
			size *= 2
		}
		w.buf = make([]byte, size)
	}
	copy(w.buf, keep)
	w.base += int64(w.lo)
	w.lo, w.hi = 0, len(keep)
	for stalls := 0; w.hi < n && w.err == nil; {
		k, err := w.in.Read(w.buf[w.hi:])
		w.hi += k
		w.err = err
		if k > 0 {
			stalls = 0
		} else if stalls++; stalls == maxStalls && err == nil {
			w.err = io.ErrNoProgress
		}
	}
}
