package engine

// FIFO is a queue in one slice that grows to its high-water mark and then
// allocates no more. The zero value is empty.
type FIFO[T any] struct {
	buf   []T
	first int
	n     int
}

// Len is the number of elements waiting.
func (q *FIFO[T]) Len() int { return q.n }

// Head is the oldest element, which stays; the queue must not be empty.
func (q *FIFO[T]) Head() *T { return &q.buf[q.first] }

// Push adds x at the end.
func (q *FIFO[T]) Push(x T) {
	if q.n == len(q.buf) {
		grown := make([]T, max(8, 2*len(q.buf)))
		copy(grown[copy(grown, q.buf[q.first:]):], q.buf[:q.first])
		q.buf, q.first = grown, 0
	}
	i := q.first + q.n
	if i >= len(q.buf) {
		i -= len(q.buf)
	}
	q.buf[i] = x
	q.n++
}

// Pop removes the oldest element; the queue must not be empty.
func (q *FIFO[T]) Pop() T {
	var zero T
	x := q.buf[q.first]
	q.buf[q.first] = zero
	if q.first++; q.first == len(q.buf) {
		q.first = 0
	}
	q.n--
	return x
}
