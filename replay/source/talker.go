package source

import (
	"nicemu/devices/engine"
	"nicemu/replay/stack"
)

// Talker sends one frame a cycle with a launch time, as a TSN application under
// SO_TXTIME and etf does: the frame whose launch time is the k-th multiple of
// the cycle is handed over Ahead of it.
type Talker struct {
	Queue    int
	Bytes    int         // frame without FCS
	Cycle    engine.Time // from one launch time to the next
	Offset   engine.Time // of the launch times within the cycle
	Ahead    engine.Time // etf's delta
	Priority uint32
	// Untimed frames carry no launch time: it then sends at the times themselves
	// if Ahead is 0.
	Untimed bool

	s    *stack.Stack
	flow uint32
	k    uint64
	next engine.Timer
}

// Start makes it run; its first launch time is the first that it can hand over
// in time.
func (t *Talker) Start(s *stack.Stack) {
	t.s, t.flow = s, s.Flows(1)
	for t.launch()-t.Ahead < s.Eng.Now() || t.launch() == 0 {
		t.k++
	}
	s.Eng.Init(&t.next, t.send)
	s.Eng.At(&t.next, t.launch()-t.Ahead)
}

func (t *Talker) launch() engine.Time { return t.Offset + engine.Time(t.k)*t.Cycle }

func (t *Talker) send() {
	f := t.s.Pool.Get(t.Queue)
	f.Single(t.Bytes)
	f.Flow, f.Priority = t.flow, t.Priority
	if !t.Untimed {
		f.Launch = t.launch()
	}
	t.k++
	t.s.Eng.At(&t.next, t.launch()-t.Ahead)
	t.s.Send(f)
}
