package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
	"nicemu/replay/qdisc"
	"nicemu/replay/stack"
	"nicemu/replay/trace"
)

// Options say what is replayed through what, and what is written down.
type Options struct {
	StreamOptions
	Device *nic.Device // adjusted, not built; Run uses it up
	Name   string      // of the device as the user has it; empty = Device.Name
	Qdisc  Qdisc
	Launch Launch
	Link   *trace.Trace // what the wire carries; nil = the card's rate
	Seed   uint64

	Log            io.Writer      // event log, see logHeader; nil = none
	Wire           io.Writer      // pcapng of what left the card; nil = none
	Series         io.Writer      // time series of queues; nil = none
	SeriesJSON     bool           // an array of objects instead of CSV
	SeriesInterval units.Duration // between samples; 0 = 1 ms

	Progress func(Progress) // called now and then; nil = not
}

// Progress is how far a run is.
type Progress struct {
	Frames  uint64      // offered
	Virtual engine.Time // now
}

const (
	defaultInterval = units.Millisecond

	// patience is how long nothing may come or go, beyond the time of the
	// largest frame on the wire, until what is queued is given up.
	patience    = 60 * engine.Second
	largest     = 256 << 10 // bytes of a frame, at most
	stepsToLook = 1 << 13   // between looks at the world outside
)

// run is one replay. Its methods are called by the stack, in the order of a frame's way.
type run struct {
	o      *Options
	eng    *engine.Engine
	stack  *stack.Stack
	qdiscs []qdisc.Qdisc
	wait   waiting
	feed   feed
	book   *book
	legs   []*queueLegs // by queue; nil until it has sent
	log    *eventLog
	series *series
	wire   *wireFile

	stuck bool // given up: nothing leaves any more
}

// Run replays to the end. If a capture goes wrong on the way, what came before is replayed and the error is returned beside the result; so is a
// [NothingError].
func Run(ctx context.Context, o Options) (*Result, error) {
	start := time.Now()
	r := &run{o: &o, eng: engine.New(o.Seed)}
	stream, err := r.build()
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if err := r.loop(ctx); err != nil {
		return nil, err
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	nothing := r.nothing()
	return r.result(time.Since(start), nothing), cmp.Or(r.feed.err, nothing)
}

func (r *run) build() (*Stream, error) {
	o := r.o
	if o.Name == "" {
		o.Name = o.Device.Name
	}
	if o.Offload == "" {
		o.Offload = Segment
		if o.Device.TSO {
			o.Offload = Keep
		}
	}
	if o.Offload == Keep && !o.Device.TSO {
		return nil, fmt.Errorf("%s takes no GSO frames: its driver has no TSO; expected --offload segment", o.Name)
	}
	if o.Link != nil {
		trace.NewLink(o.Link).Attach(o.Device)
	}
	if o.Wire != nil {
		r.wire = attachWireFile(o.Device)
	}
	s, err := stack.New(r.eng, nic.NewCPU(r.eng), o.Device, func(int) qdisc.Qdisc {
		q := o.Qdisc.build(&r.wait)
		r.qdiscs = append(r.qdiscs, q)
		return q
	})
	if err != nil {
		return nil, err
	}
	r.stack, r.book = s, newBook(s.NIC)
	r.legs = make([]*queueLegs, s.NIC.Queues())
	s.OnWire(r.left)
	s.OnComplete(r.freed)
	s.OnDrop(r.dropped)
	s.OnWake(func(int) { r.feed.woken() })
	if err := r.prepareLaunch(); err != nil {
		return nil, err
	}
	stream, err := OpenStream(o.StreamOptions, s.NIC.Queues(), o.Wire != nil)
	if err != nil {
		return nil, err
	}
	r.feed.init(r, stream)
	if err := r.openOutputs(stream.Epoch()); err != nil {
		stream.Close()
		return nil, err
	}
	return stream, nil
}

func (r *run) openOutputs(epoch int64) error {
	o := r.o
	about := r.about()
	if o.Log != nil {
		r.log = newEventLog(o.Log, about, r.feed.origin, epoch)
	}
	if o.Series != nil {
		if o.SeriesInterval == 0 {
			o.SeriesInterval = defaultInterval
		}
		r.series = newSeries(r, o.Series, o.SeriesJSON, engine.Time(o.SeriesInterval))
	}
	if o.Wire != nil {
		return r.wire.open(o.Wire, o.Name, about, epoch-int64(r.feed.origin))
	}
	return nil
}

// loop runs the models until every frame has been freed or nothing moves any more.
func (r *run) loop(ctx context.Context) error {
	r.feed.tick()
	for steps := 1; !r.feed.done() || r.book.under > 0; steps++ {
		if !r.eng.Step() {
			r.stuck = true
			return nil
		}
		if steps%stepsToLook != 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(err, r.finish())
		}
		if r.wire != nil && r.wire.err != nil {
			return r.wire.err
		}
		if r.idleTooLong() {
			r.stuck = true
			return nil
		}
		if r.o.Progress != nil {
			r.o.Progress(Progress{r.feed.stream.Stats().Frames, r.eng.Now()})
		}
	}
	return nil
}

func (r *run) idleTooLong() bool {
	if !r.feed.done() && !r.feed.paused {
		return false
	}
	rate := max(1, int64(r.stack.NIC.Config().Link.Rate))
	return r.eng.Now()-r.book.progress > patience+engine.Time(largest*8*int64(engine.Second)/rate)
}

// full reports whether queue q has as much waiting as its sender lets wait.
func (r *run) full(q int) bool {
	if r.o.Schedule.TopSpeed {
		return r.qdiscs[q].Len() >= r.o.Qdisc.room()
	}
	return r.wait.full()
}

// offer hands a frame to the stack that was due at the given time.
func (r *run) offer(f *nic.Frame, due engine.Time) {
	f.Enqueued = due
	if r.o.Schedule.TopSpeed {
		f.Enqueued = r.eng.Now()
	}
	r.book.offer(f, r.eng.Now())
	if r.log != nil {
		r.log.enqueued(f)
	}
	if r.series != nil {
		r.series.wake()
	}
	if r.tooLong(f) {
		r.book.refuse(f, r.eng.Now())
		if r.log != nil {
			r.log.dropped(f, tooLong, r.eng.Now())
		}
		r.feed.stream.Recycle(f)
		r.stack.Pool.Put(f)
		return
	}
	r.stack.Send(f)
}

// tooLong reports whether a frame is longer than the card's largest MTU allows, with two VLAN tags.
func (r *run) tooLong(f *nic.Frame) bool { return f.Segs == 1 && f.Len > r.o.Device.MaxMTU+14+2*4 }

// left sees a frame on the wire.
func (r *run) left(f *nic.Frame, end engine.Time) {
	r.book.left(f, end, r.o.Qdisc.kind != fqCodel)
}

// freed sees a frame that the driver gives back.
func (r *run) freed(f *nic.Frame) {
	if reason := r.book.freed(f, r.eng.Now()); reason != "" {
		if r.log != nil {
			r.log.dropped(f, reason, r.eng.Now())
		}
	} else {
		if r.legs[f.Queue] == nil {
			r.legs[f.Queue] = newQueueLegs()
		}
		r.legs[f.Queue].sent(f)
		if r.log != nil {
			r.log.left(f)
		}
	}
	r.feed.stream.Recycle(f)
}

// dropped sees a frame that a qdisc discards.
func (r *run) dropped(f *nic.Frame, reason string) {
	r.book.drop(f, reason, r.eng.Now())
	if r.log != nil {
		r.log.dropped(f, reason, r.eng.Now())
	}
	r.feed.stream.Recycle(f)
}

// finish hands all output to its writers.
func (r *run) finish() error {
	var errs []error
	if r.log != nil {
		errs = append(errs, r.log.flush())
	}
	if r.series != nil {
		errs = append(errs, r.series.finish())
	}
	if r.wire != nil {
		errs = append(errs, r.wire.flush())
	}
	return errors.Join(errs...)
}
