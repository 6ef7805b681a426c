// Package mpsc is an unbounded queue for many producers and one consumer at a
// time, built from linked chunks: nothing is copied when it grows.
//
// # Why it is correct
//
// A producer first claims an index (a compare-and-set on tail), then stores
// its element into that index's slot. Between the two the element is claimed
// but not yet visible: the queue is not empty, yet there is nothing to take.
// [Queue.Poll] waits for such an element, [Queue.PollRelaxed] answers nil. An
// element's order is the order of claims.
//
// A producer that claims index i writes into the chunk of i: it loads tail and
// then tailChunk, and its compare-and-set fails unless tail still has the value
// it loaded; tailChunk changes only while tail's growing bit is set, and by
// then tail has another value for good, since indices never repeat.
//
// The consumer leaves a chunk only after it has taken every slot of it, so no
// producer can still be about to write there, and the chunk may serve again.
//
// The consumer may be another goroutine from one call to the next if the two
// are ordered by something else, such as an atomic flag.
package mpsc

import (
	"runtime"
	"sync/atomic"
)

// DefaultChunk is the number of elements a chunk holds unless told otherwise.
const DefaultChunk = 512

type chunk[T any] struct {
	next  atomic.Pointer[chunk[T]]
	slots []atomic.Pointer[T]
}

func newChunk[T any](size uint64) *chunk[T] {
	return &chunk[T]{slots: make([]atomic.Pointer[T], size)}
}

// Queue holds pointers to T. Use New; the zero value is not a queue.
type Queue[T any] struct {
	mask uint64

	// tail is the next index to claim, shifted left by one; its low bit is
	// set while one producer links another chunk.
	tail      atomic.Uint64
	tailChunk atomic.Pointer[chunk[T]]
	_         [64]byte // the consumer's words lie on another cache line

	// head is written by the consumer only.
	head      atomic.Uint64
	headChunk *chunk[T]
	// spare is a chunk the consumer has emptied and a producer may link again.
	spare atomic.Pointer[chunk[T]]
}

// New returns an empty queue with chunks of at least size elements, rounded up
// to a power of two; zero or less means DefaultChunk.
func New[T any](size int) *Queue[T] {
	if size <= 0 {
		size = DefaultChunk
	}
	n := uint64(2)
	for n < uint64(size) {
		n *= 2
	}
	q := &Queue[T]{mask: n - 1, headChunk: newChunk[T](n)}
	q.tailChunk.Store(q.headChunk)
	return q
}

// Offer appends v, which must not be nil. Any goroutine may call it.
func (q *Queue[T]) Offer(v *T) {
	for {
		t := q.tail.Load()
		if t&1 != 0 { // another producer is linking a chunk
			runtime.Gosched()
			continue
		}
		i := t >> 1
		if i&q.mask == 0 && i != 0 {
			if q.tail.CompareAndSwap(t, t|1) {
				q.grow(t, v)
				return
			}
			continue
		}
		c := q.tailChunk.Load()
		if q.tail.CompareAndSwap(t, t+2) {
			pause(claimed)
			c.slots[i&q.mask].Store(v)
			return
		}
	}
}

// grow links a chunk for the index in t, stores v as its first element and
// ends the growing state. Only the producer that set the growing bit is here.
func (q *Queue[T]) grow(t uint64, v *T) {
	pause(growing)
	c := q.spare.Swap(nil)
	if c == nil {
		c = newChunk[T](q.mask + 1)
	}
	old := q.tailChunk.Load()
	c.slots[0].Store(v)
	q.tailChunk.Store(c)
	q.tail.Store(t + 2)
	// Linked last, so that head can never pass tail: until here the element is
	// claimed and not visible.
	pause(unlinked)
	old.next.Store(c)
}

// PollRelaxed takes the oldest element. It returns nil when the queue is empty
// and also when the oldest element is claimed but not yet visible, so nil does
// not mean empty. Only the consumer may call it.
func (q *Queue[T]) PollRelaxed() *T {
	i := q.head.Load()
	c := q.headChunk
	if i&q.mask == 0 && i != 0 {
		next := c.next.Load()
		if next == nil {
			return nil
		}
		c.next.Store(nil)
		q.spare.Store(c)
		q.headChunk = next
		c = next // its first element was stored before it was linked
	}
	slot := &c.slots[i&q.mask]
	v := slot.Load()
	if v == nil {
		return nil
	}
	slot.Store(nil)
	q.head.Store(i + 1)
	return v
}

// Poll takes the oldest element and returns nil only when the queue is empty:
// it waits for an element that is claimed but not yet visible. Only the
// consumer may call it.
func (q *Queue[T]) Poll() *T {
	for {
		if v := q.PollRelaxed(); v != nil {
			return v
		}
		if q.Empty() {
			return nil
		}
		runtime.Gosched()
	}
}

// Empty reports whether every claimed element has been taken. An element that
// is claimed but not yet visible counts. Any goroutine may call it.
func (q *Queue[T]) Empty() bool { return q.Len() == 0 }

// Len returns the number of elements claimed and not taken; it is exact when
// nobody else uses the queue.
func (q *Queue[T]) Len() int {
	head := q.head.Load()
	return int(q.tail.Load()>>1 - head)
}
