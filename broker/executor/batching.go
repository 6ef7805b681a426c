package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/executor/mpsc"
	"github.com/contention-toolkit/contention/broker/stats"
)

// Delegate is what a Batching submits its batch tasks to; an *Executor is one.
type Delegate interface {
	Execute(Kind, Task) error
}

// BatchOptions configure a Batching of tasks of type T.
type BatchOptions[T any] struct {
	// Run runs one task. A panic is reported to Failed and does not stop the
	// batch.
	Run func(*T)
	// Rejected receives each task that will not run because the delegate
	// rejected a batch, except the rejected caller's own, whose Submit fails
	// instead. It may run on any submitting goroutine.
	Rejected func(*T, error)
	// Failed receives a task whose Run panicked; nil logs it.
	Failed func(task *T, panicked any)
	// Weight weighs a task for MaxWeight; nil = every task weighs nothing.
	Weight func(*T) int64

	// MaxItems is the most tasks of a batch, at least 2.
	MaxItems int
	// MaxWeight ends a batch once the tasks it has run weigh this much; a
	// batch always runs at least one. 0 = no limit.
	MaxWeight int64
	// Chunk is the number of tasks per chunk of the queue; 0 = 512.
	Chunk int
	// Eager makes the queue at once instead of by the first task.
	Eager bool
	// Sizes, when set, receives the number of tasks of each batch that ran any.
	Sizes *stats.Histogram
}

// Batching hands tasks over to a delegate in batches. Submit appends to a
// multi-producer queue; the goroutine that finds no batch scheduled submits
// one batch task, which runs what is queued by then, up to the limits, and
// schedules another for the rest, so that other tasks of the delegate get their
// turn in between.
//
// Whoever set the scheduled flag, and nobody else, consumes the queue until the
// flag is cleared: the batch task, or the submitter whose batch was rejected.
// The flag is cleared before the queue is looked at again, so nothing stays
// behind.
//
// The delegate must run tasks one at a time for the order of submission to
// hold per submitting goroutine.
type Batching[T any] struct {
	o         BatchOptions[T]
	delegate  Delegate
	scheduled atomic.Bool
	// queue is created by the first task, unless Eager, and never replaced, so
	// an owner that never submits costs no chunk.
	queue atomic.Pointer[mpsc.Queue[T]]
}

// NewBatching returns a Batching, or an error that names the bad option.
func NewBatching[T any](d Delegate, o BatchOptions[T]) (*Batching[T], error) {
	switch {
	case o.MaxItems < 2:
		return nil, fmt.Errorf("batching: the item limit is %d, want at least 2", o.MaxItems)
	case o.MaxWeight < 0:
		return nil, fmt.Errorf("batching: the weight limit is %d, want 0 (none) or more", o.MaxWeight)
	case o.Run == nil || o.Rejected == nil || d == nil:
		return nil, errors.New("batching: a delegate, Run and Rejected are required")
	}
	if o.MaxWeight == 0 {
		o.MaxWeight = math.MaxInt64
	}
	if o.Failed == nil {
		o.Failed = func(_ *T, p any) {
			slog.Error("batched task panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}
	b := &Batching[T]{o: o, delegate: d}
	if o.Eager {
		b.create()
	}
	return b, nil
}

// Limits returns the item and weight limits; 0 weight = none.
func (b *Batching[T]) Limits() (items int, weight int64) {
	if b.o.MaxWeight == math.MaxInt64 {
		return b.o.MaxItems, 0
	}
	return b.o.MaxItems, b.o.MaxWeight
}

// Created reports whether the queue exists: with Eager always, else once a task
// was submitted.
func (b *Batching[T]) Created() bool { return b.queue.Load() != nil }

// Pending returns the number of tasks submitted and not taken by a batch.
func (b *Batching[T]) Pending() int {
	if q := b.queue.Load(); q != nil {
		return q.Len()
	}
	return 0
}

// Submit hands t over. An error means that t has not run and will not: it was
// this caller's batch that the delegate rejected. Otherwise t runs, or goes to
// Rejected, exactly once. Any goroutine may call it.
func (b *Batching[T]) Submit(t *T) error {
	q := b.queue.Load()
	if q == nil {
		q = b.create()
	}
	q.Offer(t)
	return b.schedule(q, t)
}

func (b *Batching[T]) create() *mpsc.Queue[T] {
	b.queue.CompareAndSwap(nil, mpsc.New[T](b.o.Chunk))
	return b.queue.Load()
}

// schedule submits a batch task unless one is scheduled. If the delegate
// rejects it, the queue is emptied here: own, the caller's task if it has one,
// is skipped and the error returned for it, everything else is Rejected.
func (b *Batching[T]) schedule(q *mpsc.Queue[T], own *T) error {
	var ownErr error
	for b.scheduled.CompareAndSwap(false, true) {
		err := b.delegate.Execute(AddBatch, b)
		if err == nil {
			break
		}
		// The strict poll: a task claimed before now must not stay behind,
		// since perhaps nobody submits again.
		for t := q.Poll(); t != nil; t = q.Poll() {
			if t == own {
				ownErr = err
				own = nil // the caller may reuse its task for another Submit
				continue
			}
			b.o.Rejected(t, err)
		}
		b.scheduled.Store(false)
		if q.Empty() {
			break
		}
	}
	return ownErr
}

// Run runs one batch; the delegate calls it.
func (b *Batching[T]) Run() {
	q := b.queue.Load()
	items, weight := 0, int64(0)
	for items < b.o.MaxItems && weight < b.o.MaxWeight {
		t := q.PollRelaxed()
		if t == nil {
			break
		}
		items++
		if b.o.Weight != nil {
			weight += b.o.Weight(t) // first: t may be reused once it has run
		}
		b.runOne(t)
	}
	if items > 0 && b.o.Sizes != nil {
		b.o.Sizes.Observe(int64(items))
	}
	b.scheduled.Store(false)
	// Not empty may mean claimed and not yet visible; then the next batch finds
	// nothing, clears the flag and looks again, without holding the delegate.
	if !q.Empty() {
		_ = b.schedule(q, nil) // nil: there is no caller to fail
	}
}

func (b *Batching[T]) runOne(t *T) {
	defer func() {
		if p := recover(); p != nil {
			b.o.Failed(t, p)
		}
	}()
	b.o.Run(t)
}
