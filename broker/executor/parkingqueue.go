package executor

import "github.com/contention-toolkit/contention/broker/executor/futex"

// ParkingQueue is a [Queue] whose lock and condition block the operating-system
// thread, as the model's do on a JVM (see package futex): the waits of its
// producers and of its consumer are the thread plane's. Linux only; elsewhere
// [QueueKind.Validate] refuses it. The zero value is an empty queue without a
// limit.
type ParkingQueue struct {
	mu       futex.Mutex
	notEmpty futex.Cond
	ring
}

// Offer appends one item: one acquisition of the lock. It fails with
// ErrRejected when the queue is closed or at its limit.
func (q *ParkingQueue) Offer(it Item) error {
	q.mu.Lock()
	first, ok := q.put(it)
	q.mu.Unlock()
	if !ok {
		return ErrRejected
	}
	if first {
		q.notEmpty.Signal()
	}
	return nil
}

// TakeAll is [Queue.TakeAll].
func (q *ParkingQueue) TakeAll(into []Item) int {
	q.mu.Lock()
	for q.idle() {
		q.notEmpty.Wait(&q.mu)
	}
	n := q.take(into)
	q.mu.Unlock()
	return n
}

// Close makes Offer fail and TakeAll return what is left, then 0.
func (q *ParkingQueue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.notEmpty.Broadcast()
}

// Drain removes and returns everything queued.
func (q *ParkingQueue) Drain() []Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.drain()
}

// Len returns the number of items queued.
func (q *ParkingQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// Submitted returns the number of items ever accepted.
func (q *ParkingQueue) Submitted() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.submitted
}
