package engine

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFIFOKeepsItsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q FIFO[int]
		var model []int
		for i := range rapid.IntRange(0, 100).Draw(t, "steps") {
			if len(model) > 0 && rapid.Bool().Draw(t, "pop") {
				h := *q.Head()
				if x := q.Pop(); h != model[0] || x != model[0] {
					t.Fatalf("head %d, popped %d, want %d", h, x, model[0])
				}
				model = model[1:]
			} else {
				q.Push(i)
				model = append(model, i)
			}
			if q.Len() != len(model) {
				t.Fatalf("length %d, want %d", q.Len(), len(model))
			}
		}
	})
}
