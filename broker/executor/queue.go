package executor

import (
	"errors"
	"sync"
)

// ErrRejected is what Execute returns after shutdown and, with a limit, when
// the queue is full.
var ErrRejected = errors.New("executor rejected the task")

// MaxDrain is the most items one TakeAll hands over.
const MaxDrain = 1024

const initialRing = 64

// Item is a task on its way through a queue.
type Item struct {
	Task Task
	Kind Kind
	At   int64 // when it was submitted, by stats.Now
}

// Queue is a lock, a condition "not empty" and a growing ring: many producers,
// one consumer that takes what is there in one go. It is the queue whose lock
// the hand-over modes are about. The zero value is an empty queue without a
// limit.
type Queue struct {
	// Limit bounds queued items plus those the consumer still has to run, as
	// told by Running; 0 = none. Set it before use.
	Limit int
	// Running returns how many taken items have not been run; needed only with
	// a Limit. It is called with the lock held.
	Running func() int

	mu        sync.Mutex
	notEmpty  sync.Cond // its L is set on first wait
	ring      []Item    // length is zero or a power of two
	head      int
	size      int
	closed    bool
	submitted uint64
}

// Offer appends one item: one acquisition of the lock. It fails with
// ErrRejected when the queue is closed or at its limit.
func (q *Queue) Offer(it Item) error {
	q.mu.Lock()
	if q.closed || q.Limit > 0 && q.size+q.running() >= q.Limit {
		q.mu.Unlock()
		return ErrRejected
	}
	if q.size == len(q.ring) {
		q.grow()
	}
	q.ring[(q.head+q.size)&(len(q.ring)-1)] = it
	q.size++
	q.submitted++
	first := q.size == 1
	q.mu.Unlock()
	if first {
		q.notEmpty.Signal()
	}
	return nil
}

func (q *Queue) running() int {
	if q.Running == nil {
		return 0
	}
	return q.Running()
}

func (q *Queue) grow() {
	ring := make([]Item, max(initialRing, 2*len(q.ring)))
	n := copy(ring, q.ring[q.head:])
	copy(ring[n:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}

// TakeAll waits until there are items and moves as many as fit into into, one
// acquisition of the lock for all. It returns 0 once the queue is closed and
// empty. One goroutine only may take.
func (q *Queue) TakeAll(into []Item) int {
	q.mu.Lock()
	q.notEmpty.L = &q.mu
	for q.size == 0 && !q.closed {
		q.notEmpty.Wait()
	}
	n := q.take(into)
	q.mu.Unlock()
	return n
}

func (q *Queue) take(into []Item) int {
	n := min(q.size, len(into))
	for done := 0; done < n; {
		part := q.ring[q.head:min(q.head+n-done, len(q.ring))]
		copy(into[done:], part)
		clear(part) // tasks that ran must not be kept alive by the ring
		done += len(part)
		q.head = (q.head + len(part)) & (len(q.ring) - 1)
	}
	q.size -= n
	return n
}

// Close makes Offer fail and TakeAll return what is left, then 0.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.notEmpty.Broadcast()
}

// Drain removes and returns everything queued.
func (q *Queue) Drain() []Item {
	q.mu.Lock()
	rest := make([]Item, q.size)
	q.take(rest)
	q.mu.Unlock()
	return rest
}

// Len returns the number of items queued.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// Submitted returns the number of items ever accepted.
func (q *Queue) Submitted() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.submitted
}
