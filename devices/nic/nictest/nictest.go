// Package nictest stands in for the kernel above a card and the wire behind
// it: a host that recycles frames and keeps a queue supplied, and a wire that
// checks that every queue's frames leave in order. Tests of models, and of
// programs that use models, run against it.
package nictest

import (
	"fmt"
	"strings"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

// Rig is a card between a fake kernel and a fake wire. It implements [nic.Host]
// and [nic.Wire].
type Rig struct {
	Eng *engine.Engine
	CPU *nic.CPU
	NIC *nic.NIC

	// Refill, if set, is called when queue q may be sent to again.
	Refill func(q int)
	// OnWire, if set, sees every frame that leaves.
	OnWire func(f *nic.Frame, end engine.Time)
	// OnComplete, if set, sees every frame the driver frees, its stamps set.
	OnComplete func(f *nic.Frame)

	Completed, Delivered uint64
	Err                  error // the first broken law, e.g. order

	pool nic.Pool
	seq  []uint64 // next sequence number to give, by queue
	left []uint64 // last sequence number seen on the wire, by queue
}

// New builds device d on a fresh engine.
func New(d *nic.Device, seed uint64) (*Rig, error) {
	r := &Rig{Eng: engine.New(seed)}
	r.CPU = nic.NewCPU(r.Eng)
	n, err := d.Build(r.Eng, r.CPU, r, r)
	if err != nil {
		return nil, err
	}
	r.NIC = n
	r.seq = make([]uint64, n.Queues())
	r.left = make([]uint64, n.Queues())
	return r, nil
}

// TB is what Build needs of a testing.TB or a rapid.T.
type TB interface {
	Helper()
	Fatal(...any)
}

// Build is New with seed 1 and settings, each KNOB=VALUE; an error ends the test.
func Build(t TB, d *nic.Device, settings ...string) *Rig {
	t.Helper()
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if err := d.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	r, err := New(d, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Frame takes a frame for queue q from the pool.
func (r *Rig) Frame(q int) *nic.Frame { return r.pool.Get(q) }

// Post hands f to the card and reports whether it was taken.
func (r *Rig) Post(f *nic.Frame, more bool) bool {
	q := f.Queue
	f.Seq = r.seq[q] + 1
	f.Enqueued = r.Eng.Now()
	if !r.NIC.Post(f, more) {
		r.pool.Put(f)
		return false
	}
	r.seq[q]++
	return true
}

// Send posts a packet of the given size to queue q and reports whether it was
// taken.
func (r *Rig) Send(q, bytes int) bool {
	f := r.Frame(q)
	f.Single(bytes)
	return r.Post(f, false)
}

// Stopped reports whether either stop bit of queue q is set.
func (r *Rig) Stopped(q int) bool {
	drv, stack := r.NIC.XOFF(q)
	return drv || stack
}

// Wake implements [nic.Host].
func (r *Rig) Wake(q int) {
	if r.Refill != nil {
		r.Refill(q)
	}
}

// Complete implements [nic.Host].
func (r *Rig) Complete(f *nic.Frame) {
	r.Completed++
	if r.OnComplete != nil {
		r.OnComplete(f)
	}
	r.pool.Put(f)
}

// Deliver implements [nic.Host].
func (r *Rig) Deliver(f *nic.Frame) {
	r.Delivered++
	r.pool.Put(f)
}

// Transmit implements [nic.Wire].
func (r *Rig) Transmit(f *nic.Frame, end engine.Time) {
	if f.Seq <= r.left[f.Queue] && r.Err == nil {
		r.Err = fmt.Errorf("queue %d: frame %d left after frame %d", f.Queue, f.Seq, r.left[f.Queue])
	}
	if end < r.Eng.Now() && r.Err == nil {
		r.Err = fmt.Errorf("frame ends at %d, before now %d", end, r.Eng.Now())
	}
	r.left[f.Queue] = f.Seq
	if r.OnWire != nil {
		r.OnWire(f, end)
	}
}

// Saturate keeps every queue supplied with frames of the given size as a
// sender behind both stop bits does, from now on.
func (r *Rig) Saturate(bytes int) {
	fill := func(q int) {
		for !r.Stopped(q) {
			if !r.Send(q, bytes) {
				return
			}
		}
	}
	r.Refill = fill
	for q := range r.NIC.Queues() {
		fill(q)
	}
}

// Pktgen keeps queue q supplied as pktgen in start_xmit mode does: it honours
// DRV_XOFF only, and every frame costs core time.
func (r *Rig) Pktgen(q, bytes int) {
	cost := engine.Time(r.NIC.Config().CPU.Xmit)
	waiting := false
	var send func()
	send = func() {
		if drv, _ := r.NIC.XOFF(q); drv {
			waiting = true
			return
		}
		r.Send(q, bytes)
		r.CPU.App(cost, send)
	}
	r.Refill = func(woken int) {
		if woken == q && waiting {
			waiting = false
			r.CPU.App(cost, send)
		}
	}
	r.CPU.App(cost, send)
}

// Benchmark times the frames of a card that is kept supplied.
func Benchmark(b *testing.B, r *Rig) {
	r.Saturate(1514)
	r.Eng.AdvanceTo(10 * engine.Millisecond)
	b.ReportAllocs()
	b.ResetTimer()
	for end := r.Completed + uint64(b.N); r.Completed < end; {
		r.Eng.Step()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}

// Allocations is how many a millisecond of a card takes that is kept supplied.
func Allocations(r *Rig) float64 {
	r.Saturate(1514)
	r.Eng.AdvanceTo(100 * engine.Millisecond)
	return testing.AllocsPerRun(20, func() { r.Eng.AdvanceTo(r.Eng.Now() + engine.Millisecond) })
}

var (
	_ nic.Host = (*Rig)(nil)
	_ nic.Wire = (*Rig)(nil)
)
