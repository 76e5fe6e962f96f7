package engine

import (
	"sort"
	"testing"

	"pgregory.net/rapid"
)

func TestEqualTimesRunInTheOrderOfScheduling(t *testing.T) {
	e := New(1)
	var got []int
	timers := make([]Timer, 8)
	for i := range timers {
		e.Init(&timers[i], func() { got = append(got, i) })
		e.At(&timers[i], 5)
	}
	e.At(&timers[0], 5) // re-armed: now the last of its time
	e.AdvanceTo(5)
	want := []int{1, 2, 3, 4, 5, 6, 7, 0}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("order %v, want %v", got, want)
		}
	}
}

// A random script of arm, move and cancel fires exactly what a sorted list
// would, in the same order, each at its own time.
func TestHeapAgreesWithASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type pending struct {
			at  Time
			seq int
			id  int
		}
		e := New(1)
		timers := make([]Timer, 12)
		var model, fired []pending
		for i := range timers {
			e.Init(&timers[i], func() { fired = append(fired, pending{e.Now(), 0, i}) })
		}
		drop := func(id int) {
			for i := range model {
				if model[i].id == id {
					model = append(model[:i], model[i+1:]...)
					return
				}
			}
		}
		steps := rapid.IntRange(1, 200).Draw(t, "steps")
		for s := range steps {
			id := rapid.IntRange(0, len(timers)-1).Draw(t, "timer")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				at := e.Now() + Time(rapid.IntRange(0, 30).Draw(t, "after"))
				drop(id)
				model = append(model, pending{at, s, id})
				e.At(&timers[id], at)
			case 2:
				drop(id)
				e.Cancel(&timers[id])
			case 3:
				to := e.Now() + Time(rapid.IntRange(0, 15).Draw(t, "to"))
				sort.SliceStable(model, func(i, j int) bool {
					return model[i].at < model[j].at || model[i].at == model[j].at && model[i].seq < model[j].seq
				})
				fired = fired[:0]
				e.AdvanceTo(to)
				for i := 0; len(model) > 0 && model[0].at <= to; i++ {
					if i >= len(fired) || fired[i].id != model[0].id || fired[i].at != model[0].at {
						t.Fatalf("fired %v, next expected %v", fired, model[0])
					}
					model = model[1:]
				}
				if e.Now() != to {
					t.Fatalf("now %d after AdvanceTo(%d)", e.Now(), to)
				}
			}
			for i := range timers {
				armed := false
				for _, p := range model {
					armed = armed || p.id == i
				}
				if timers[i].Armed() != armed {
					t.Fatalf("timer %d armed %v, want %v", i, timers[i].Armed(), armed)
				}
			}
		}
	})
}

func TestArmingAllocatesNothing(t *testing.T) {
	e := New(1)
	var a, b Timer
	e.Init(&a, func() {})
	e.Init(&b, func() {})
	e.At(&a, 1)
	e.At(&b, 2)
	if n := testing.AllocsPerRun(100, func() {
		e.After(&a, 3)
		e.After(&b, 2)
		e.Step()
	}); n != 0 {
		t.Fatalf("%v allocations per event", n)
	}
}

func BenchmarkEvent(b *testing.B) {
	e := New(1)
	timers := make([]Timer, 16)
	for i := range timers {
		t := &timers[i]
		e.Init(t, func() { e.After(t, Time(7*i+3)) })
		e.After(t, Time(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		e.Step()
	}
}
