package liveplay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/emulator"
	"nicemu/replay"
	"nicemu/replay/capture"
	"nicemu/replay/trace"
	"nicemu/scenarios"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Side is where the frames go in.
type Side string

// The sides of a card.
const (
	Qdisc Side = "qdisc" // above: through the qdisc, the card sends them
	Wire  Side = "wire"  // below: the card receives them
)

// UnmarshalText reads "qdisc" or "wire".
func (s *Side) UnmarshalText(text []byte) error {
	if *s = Side(text); *s != Qdisc && *s != Wire {
		return fmt.Errorf("side %q: expected qdisc or wire", text)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (s Side) MarshalText() ([]byte, error) { return []byte(s), nil }

// Options say what is replayed where.
type Options struct {
	replay.StreamOptions
	Side   Side
	Device *nic.Device  // adjusted, not built; Run uses it up
	Name   string       // of the device as the user has it
	Netns  string       // of the card; empty: one of our own
	Peer   string       // namespace whose card receives what is sent, on side qdisc; empty: nobody does
	Far    *nic.Device  // the card there, with Peer
	TC     []string     // commands, with or without "tc", {dev} is the card's interface
	Link   *trace.Trace // what the wire carries; nil = the card's rate
	Way    emulator.Way // wanted back-pressure
	Seed   uint64

	Progress *scenarios.Progress
}

// check refuses what has no meaning live.
func (o *Options) check() error {
	switch {
	case o.Side == Wire && o.Peer != "":
		return errors.New("side wire takes no peer: the captures are what the other end sends")
	case o.Side == Wire && o.Link != nil:
		return errors.New("side wire takes no link trace: frames come when the captures have them")
	case o.Side == Wire && o.Offload == replay.Keep:
		return errors.New("side wire takes no GSO frames: what arrives on a wire has been segmented")
	case o.MTU > o.Device.MaxMTU:
		return fmt.Errorf("MTU of %d bytes: %s has at most %d", o.MTU, o.Name, o.Device.MaxMTU)
	}
	return nil
}

// complete fills in what follows from the rest.
func (o *Options) complete() {
	if o.MTU == 0 {
		o.MTU = capture.DefaultMTU
	}
	if o.Offload == "" {
		o.Offload = replay.Segment
		if o.Side == Qdisc && o.Device.TSO && o.Device.CSUM {
			o.Offload = replay.Keep
		}
	}
	o.Priorities = o.Side == Qdisc
}

// commands are the arguments of each tc command.
func (o *Options) commands(dev string) [][]string {
	list := make([][]string, len(o.TC))
	for i, line := range o.TC {
		args := strings.Fields(strings.ReplaceAll(line, "{dev}", dev))
		if len(args) > 0 && args[0] == "tc" {
			args = args[1:]
		}
		list[i] = args
	}
	return list
}

// sums is what a sender did.
type sums struct {
	accepted, refused nic.Count
	late              *hdrhistogram.Histogram // nil: nothing was due at a time
	span              engine.Time             // from the first frame to the last
	starved           uint64
	err               error
}

// Run replays to the end, or until ctx ends. Nothing that it made is left. If a
// capture goes wrong on the way, what came before is replayed and the error is
// returned beside the result; so is a *replay.NothingError.
func Run(ctx context.Context, o Options) (r *scenarios.Result, err error) {
	start := time.Now()
	if err := o.check(); err != nil {
		return nil, err
	}
	o.complete()
	if o.Way, err = emulator.ChooseWay(o.Way); err != nil {
		return nil, err
	}
	stream, err := replay.OpenStream(o.StreamOptions, o.Device.Config.Queues, true)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if runtime.GOMAXPROCS(0) == 1 { // a loop that never sleeps would keep the reader from it
		runtime.GOMAXPROCS(2)
		defer runtime.GOMAXPROCS(1)
	}
	if o.Link != nil {
		trace.NewLink(o.Link).Attach(o.Device)
	}
	defer emulator.Hurry()()
	b, err := newBench(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	p := &play{o: &o, bench: b, reader: newReader(stream, o.MTU, o.vnet())}
	if err := p.run(ctx); err != nil {
		return nil, err
	}
	r, err = p.result(ctx)
	if err != nil {
		return nil, err
	}
	r.WallS = time.Since(start).Seconds()
	return r, cmp.Or(p.reader.err, p.nothing())
}

// vnet says whether frames go to the kernel with a header in front.
func (o *Options) vnet() bool { return o.Side == Qdisc && o.Offload == replay.Keep }

// play is one replay on its bench.
type play struct {
	o      *Options
	bench  *bench
	reader *reader
	sender sender
	before uint64 // frames that had left the qdisc when it began
	tree   string // the qdiscs then
	stuck  bool   // what was queued did not leave
	spanS  float64
}

func (p *play) run(ctx context.Context) error {
	o, b := p.o, p.bench
	reading, stop := context.WithCancel(ctx)
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.reader.run(reading)
	}()
	defer func() {
		stop()
		<-read
	}()
	if o.Side == Wire {
		p.sender = newWire(b.loop, p.reader, b.card)
	} else {
		s, err := openSocket(b.ns, b.card.TAP().Ifindex(), o.vnet(), !o.Schedule.TopSpeed)
		if err != nil {
			return err
		}
		defer s.close()
		if p.sender = newPacer(b.loop, p.reader, s); o.Schedule.TopSpeed {
			f := newFlood(reading, p.reader, s)
			defer func() {
				stop()
				f.wait()
			}()
			p.sender = f
		}
	}
	if err := p.look(ctx); err != nil {
		return err
	}
	select {
	case <-p.reader.begun:
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	if err := b.loop.Do(func() { p.before = b.card.Passed(); p.sender.start() }); err != nil {
		return cmp.Or(b.halt(), err)
	}
	if err := p.watch(ctx); err != nil {
		return cmp.Or(b.halt(), err) // the loop's own failure says more
	}
	err := p.drain(ctx)
	p.spanS = time.Since(began).Seconds()
	return cmp.Or(b.halt(), err)
}

// watch waits for the sender to end.
func (p *play) watch(ctx context.Context) error {
	tick := time.NewTicker(time.Second / 4)
	defer tick.Stop()
	for began := time.Now(); ; {
		select {
		case <-p.sender.done():
			if err := p.sender.sums().err; err != nil {
				return &scenarios.KernelError{What: "sending on " + p.bench.card.TAP().Name(), Err: err}
			}
			return nil
		case <-p.bench.done:
			return emulator.ErrStopped
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			p.o.Progress.Step(fmt.Sprintf("replaying for %d s", time.Since(began)/time.Second))
		}
	}
}
