package replay

import (
	"io"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// feed hands the frames of a stream over when they are due. One frame is read ahead of time, or with launch times all of the next `ahead`.
type feed struct {
	run    *run
	stream *Stream
	origin engine.Time // when the first frame is due

	// Frames of launching queues are handed over so long before they are due,
	// others wait in held until then.
	ahead  engine.Time
	launch []bool // by queue
	held   engine.FIFO[pending]

	timer, heldTimer engine.Timer
	next             *nic.Frame
	due              engine.Time // of next
	busy             bool        // in tick
	paused           bool        // next waits for room
	ended            bool
	err              error
}

type pending struct {
	f   *nic.Frame
	due engine.Time
}

func (d *feed) init(r *run, stream *Stream) {
	d.run, d.stream = r, stream
	r.eng.Init(&d.timer, d.tick)
	r.eng.Init(&d.heldTimer, d.release)
	if d.ahead > 0 {
		d.origin = d.ahead
	}
}

// tick hands over what is due and waits for the next, or for room.
func (d *feed) tick() {
	if d.busy {
		return // called from below: the loop under way sees the room
	}
	d.busy = true
	for d.next != nil || d.read() {
		if at := d.due - d.ahead; at > d.run.eng.Now() {
			d.run.eng.At(&d.timer, at)
			break
		}
		if d.paused = d.run.full(d.next.Queue); d.paused {
			break
		}
		f := d.next
		d.next = nil
		d.hand(f)
	}
	d.busy = false
}

// read takes the next frame from the stream.
func (d *feed) read() bool {
	if d.ended {
		return false
	}
	f := d.run.stack.Pool.Get(0)
	due, err := d.stream.Next(f)
	if err != nil {
		d.run.stack.Pool.Put(f)
		d.ended = true
		if err != io.EOF {
			d.err = err
		}
		return false
	}
	d.next, d.due = f, d.origin+due
	return true
}

// hand gives a frame to the stack, or keeps it until it is due.
func (d *feed) hand(f *nic.Frame) {
	switch {
	case d.ahead == 0:
		d.run.offer(f, d.due)
	case d.launch[f.Queue]:
		f.Launch = d.due
		d.run.offer(f, d.due-d.ahead)
	default:
		d.held.Push(pending{f, d.due})
		if d.held.Len() == 1 {
			d.run.eng.At(&d.heldTimer, d.due)
		}
	}
}

// release hands over the frames that have been read ahead and are due.
func (d *feed) release() {
	for d.held.Len() > 0 {
		p := *d.held.Head()
		if p.due > d.run.eng.Now() {
			d.run.eng.At(&d.heldTimer, p.due)
			return
		}
		d.held.Pop()
		d.run.offer(p.f, p.due)
	}
}

// woken is called when a queue may be sent to again.
func (d *feed) woken() {
	if d.paused {
		d.tick()
	}
}

// done reports whether every frame of the stream has been handed over.
func (d *feed) done() bool { return d.ended && d.next == nil && d.held.Len() == 0 }
