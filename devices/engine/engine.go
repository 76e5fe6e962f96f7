// Package engine is the one clock of every model: virtual nanoseconds since the
// start of a run, a heap of timers, and one seeded source of randomness.
//
// It knows nothing of wall time. A virtual run jumps from timer to timer; a
// live run calls [Engine.Step] for what is due and [Engine.AdvanceTo] with the
// time it has read from its clock. Equal times run in the order of scheduling,
// so a run is a pure function of its inputs and its seed.
//
// An Engine and everything driven by it belong to one goroutine.
package engine

import (
	"math"
	"math/rand/v2"
)

// Time is a point in time or a span, in nanoseconds; points count from the
// start of the run.
type Time int64

// Spans.
const (
	Nanosecond  Time = 1
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Never is later than every time that a run can reach.
const Never Time = math.MaxInt64

// Timer is one pending call. It is a field of its owner and is prepared once by
// [Engine.Init]; arming, moving and cancelling it allocate nothing.
type Timer struct {
	fire func()
	pos  int // place in the heap plus one; 0 = idle
}

// Armed reports whether the timer waits to fire.
func (t *Timer) Armed() bool { return t.pos != 0 }

// Engine orders timers. The zero value is not ready: use [New].
type Engine struct {
	now  Time
	seq  uint64
	heap []entry
	rng  *rand.Rand
}

// entry keeps the key beside the pointer, so that sifting stays in one slice.
type entry struct {
	at  Time
	seq uint64
	t   *Timer
}

// New returns an engine at time 0 whose random source is determined by seed.
func New(seed uint64) *Engine {
	return &Engine{rng: rand.New(rand.NewPCG(seed, 0x6e6963656d75))}
}

// Now is the current time.
func (e *Engine) Now() Time { return e.now }

// Rand is the run's only source of randomness.
func (e *Engine) Rand() *rand.Rand { return e.rng }

// Init gives t the function that it calls when it fires.
func (e *Engine) Init(t *Timer, fire func()) { t.fire = fire }

// At arms t for time at, moving it if it is armed; a time in the past means now.
func (e *Engine) At(t *Timer, at Time) {
	at = max(at, e.now)
	e.seq++
	if t.pos == 0 {
		e.heap = append(e.heap, entry{at, e.seq, t})
		t.pos = len(e.heap)
		e.up(len(e.heap) - 1)
		return
	}
	i := t.pos - 1
	earlier := at < e.heap[i].at
	e.heap[i].at, e.heap[i].seq = at, e.seq
	if earlier {
		e.up(i)
	} else {
		e.down(i)
	}
}

// After arms t for d from now.
func (e *Engine) After(t *Timer, d Time) { e.At(t, e.now+d) }

// Cancel disarms t; a timer that is idle stays so.
func (e *Engine) Cancel(t *Timer) {
	if t.pos == 0 {
		return
	}
	e.remove(t.pos - 1)
}

// Due is when an armed timer fires, [Never] for an idle one.
func (e *Engine) Due(t *Timer) Time {
	if t.pos == 0 {
		return Never
	}
	return e.heap[t.pos-1].at
}

// Next is the time of the earliest timer, [Never] if none is armed.
func (e *Engine) Next() Time {
	if len(e.heap) == 0 {
		return Never
	}
	return e.heap[0].at
}

// Step moves the clock to the earliest timer and fires it. It reports false,
// and moves nothing, if no timer is armed.
func (e *Engine) Step() bool {
	if len(e.heap) == 0 {
		return false
	}
	t := e.heap[0].t
	e.now = e.heap[0].at
	e.remove(0)
	t.fire()
	return true
}

// AdvanceTo fires everything due up to and including t, each at its own time,
// and leaves the clock at t.
func (e *Engine) AdvanceTo(t Time) {
	for len(e.heap) > 0 && e.heap[0].at <= t {
		e.Step()
	}
	e.now = max(e.now, t)
}

func (e *Engine) remove(i int) {
	h := e.heap
	h[i].t.pos = 0
	last := len(h) - 1
	moved := h[last]
	h[last] = entry{}
	e.heap = h[:last]
	if i == last {
		return
	}
	h[i] = moved
	moved.t.pos = i + 1
	e.down(i)
	e.up(moved.t.pos - 1)
}

func less(a, b *entry) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (e *Engine) up(i int) {
	h, x := e.heap, e.heap[i]
	for i > 0 {
		p := (i - 1) / 2
		if !less(&x, &h[p]) {
			break
		}
		h[i] = h[p]
		h[i].t.pos = i + 1
		i = p
	}
	h[i] = x
	x.t.pos = i + 1
}

func (e *Engine) down(i int) {
	h, x := e.heap, e.heap[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if r := c + 1; r < len(h) && less(&h[r], &h[c]) {
			c = r
		}
		if !less(&h[c], &x) {
			break
		}
		h[i] = h[c]
		h[i].t.pos = i + 1
		i = c
	}
	h[i] = x
	x.t.pos = i + 1
}
