package executor

import (
	"errors"
	"fmt"
	"sync"

	"github.com/contention-toolkit/contention/broker/executor/futex"
)

// ErrRejected is what Execute returns after shutdown and, with a limit, when
// the queue is full.
var ErrRejected = errors.New("executor rejected the task")

// MaxDrain is the most items one TakeAll hands over.
const MaxDrain = 1024

// DefaultChannelSize is the capacity of a [ChannelQueue] unless told otherwise.
const DefaultChannelSize = 1024

// Item is a task on its way through a queue.
type Item struct {
	Task Task
	Kind Kind
	At   int64 // when it was submitted, by stats.Now
}

// QueueKind names a kind of queue.
type QueueKind string

// The kinds of queue.
const (
	QueueLock    QueueKind = ""        // a [Queue]
	QueueParking QueueKind = "parking" // a [ParkingQueue]
	QueueChannel QueueKind = "channel" // a [ChannelQueue]
)

// Validate returns why a queue of this kind cannot be made here, or nil.
func (k QueueKind) Validate() error {
	switch k {
	case QueueLock, QueueChannel:
		return nil
	case QueueParking:
		return futex.Supported()
	}
	return fmt.Errorf("executor queue kind %q is not known: use %q (a lock), %q or %q", string(k), string(QueueLock), string(QueueParking), string(QueueChannel))
}

// queue is what an Executor takes its tasks from: many producers, one consumer.
// The conformance test says what each kind must do.
type queue interface {
	// Offer appends an item or fails with ErrRejected: the queue is closed or
	// at its limit.
	Offer(Item) error
	// TakeAll waits until there are items and moves as many as fit into its
	// argument, which must have room for one. It returns 0 once the queue is
	// closed and empty. One goroutine only may take.
	TakeAll([]Item) int
	// Close makes Offer fail and TakeAll return what is left, then 0.
	Close()
	// Drain removes and returns everything queued. After Close nothing is
	// accepted that Drain or TakeAll did not return.
	Drain() []Item
	// Len returns the number of items queued.
	Len() int
	// Submitted returns the number of items ever accepted.
	Submitted() uint64
	// finished tells that a taken item has been run; only limits need it.
	finished()
}

// newQueue makes a queue; limit bounds the items queued or taken and not yet
// finished, 0 = no bound.
func newQueue(k QueueKind, limit, channelSize int) queue {
	switch k {
	case QueueParking:
		return &ParkingQueue{ring: ring{limit: limit}}
	case QueueChannel:
		return newChannelQueue(limit, channelSize)
	}
	return &Queue{ring: ring{limit: limit}}
}

// Queue is a lock, a condition "not empty" and a growing ring: many producers,
// one consumer that takes what is there in one go. It is the queue whose lock
// the hand-over modes are about. A waiter is a parked goroutine: its thread
// goes on with another. The zero value is an empty queue without a limit.
type Queue struct {
	mu       sync.Mutex
	notEmpty sync.Cond // its L is set on first wait
	ring
}

// Offer appends one item: one acquisition of the lock. It fails with
// ErrRejected when the queue is closed or at its limit.
func (q *Queue) Offer(it Item) error {
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

// TakeAll waits until there are items and moves as many as fit into into, one
// acquisition of the lock for all. It returns 0 once the queue is closed and
// empty. One goroutine only may take.
func (q *Queue) TakeAll(into []Item) int {
	q.mu.Lock()
	q.notEmpty.L = &q.mu
	for q.idle() {
		q.notEmpty.Wait()
	}
	n := q.take(into)
	q.mu.Unlock()
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
	defer q.mu.Unlock()
	return q.drain()
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
