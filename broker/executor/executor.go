// Package executor runs the broker's serial work: an Ordered is a set of
// single-goroutine executors, each fed by one queue, and a [Batching] hands many
// small tasks of one owner over as one.
//
//	Execute → Offer (one lock per task) → TakeAll (≤ 1,024 per lock) → run →
//	time in queue, per Kind
//
// The queue is a [Queue] (lock and condition), a [ParkingQueue] (the same, with
// waiters that block their thread) or a [ChannelQueue].
//
// Tasks given to one Executor run one after the other in the order of their
// Execute calls (a full ChannelQueue excepted); a task that panics is logged
// and counted and does not stop the ones behind it.
package executor

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/stats"
)

// Task is a unit of work. Pointer types implement it so that submitting one
// allocates nothing.
type Task interface{ Run() }

// Func is a function as a Task.
type Func func()

// Run calls f.
func (f Func) Run() { f() }

// Kind says what a task is for; time in queue is measured per kind.
type Kind uint8

const (
	Other       Kind = iota
	Add              // one message's append, submitted on its own
	AddBatch         // a batch of adds (the adds themselves are observed as Add)
	Wake             // a waiting cursor learns of new entries
	Read             // a read of entries and what follows from it, dispatch included
	Dispatch         // a request to read more
	AddComplete      // the completions of one group commit
	NumKinds
)

var kindNames = [NumKinds]string{"other", "add", "add_batch", "wake", "read", "dispatch", "add_complete"}

// String returns the label used in metrics.
func (k Kind) String() string {
	if k < NumKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Bounds of the time-in-queue histograms, in nanoseconds: 1 µs to 10 s.
var delayBounds = stats.Exponential(1_000, 10_000_000_000, 1.5)

// Options configure an Executor; the zero value is usable.
type Options struct {
	Name string
	// MaxTasks bounds the tasks queued or taken and not yet run; Execute
	// rejects beyond it, but for AddComplete, whose adds were let pass before.
	// 0 = no bound.
	MaxTasks int
	// Queue is the kind of queue; the zero value is a [Queue].
	Queue QueueKind
	// ChannelSize is the capacity, in tasks, of a [ChannelQueue]; 0 =
	// [DefaultChannelSize].
	ChannelSize int
	// Logger receives panics of tasks; nil = slog.Default().
	Logger *slog.Logger
}

// Validate returns what is wrong with o, or nil.
func (o Options) Validate() error {
	switch {
	case o.MaxTasks < 0:
		return fmt.Errorf("executor %q: the task limit is %d: use 0 for none, or more", o.Name, o.MaxTasks)
	case o.ChannelSize < 0:
		return fmt.Errorf("executor %q: the channel size is %d: use 0 for %d, or more", o.Name, o.ChannelSize, DefaultChannelSize)
	}
	if err := o.Queue.Validate(); err != nil {
		return fmt.Errorf("executor %q: %w", o.Name, err)
	}
	return nil
}

// Executor runs tasks on one goroutine. Make one with New; its methods may be
// called from any goroutine.
type Executor struct {
	name string
	log  *slog.Logger
	done chan struct{}

	queue     queue
	limited   bool
	busy      busyClock
	started   [NumKinds]atomic.Uint64
	completed atomic.Uint64
	failed    atomic.Uint64
	rejected  atomic.Uint64
	delay     [NumKinds]*stats.Histogram
}

// New starts an executor; it ends with Shutdown or ShutdownNow. Options that
// Validate refuses are a mistake of the program: New panics.
func New(o Options) *Executor {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	e := &Executor{
		name: o.Name, log: o.Logger, done: make(chan struct{}),
		queue: newQueue(o.Queue, o.MaxTasks, o.ChannelSize), limited: o.MaxTasks > 0,
	}
	if e.log == nil {
		e.log = slog.Default()
	}
	for k := range e.delay {
		e.delay[k] = stats.NewHistogram(delayBounds)
	}
	go e.loop()
	return e
}

// Execute submits t. After shutdown, or beyond MaxTasks, it returns ErrRejected
// and t will not run. On a full [ChannelQueue] an [Add] waits for room.
func (e *Executor) Execute(k Kind, t Task) error {
	err := e.queue.Offer(Item{Task: t, Kind: k, At: stats.Now()})
	if err != nil {
		e.rejected.Add(1)
	}
	return err
}

func (e *Executor) loop() {
	defer close(e.done)
	batch := make([]Item, MaxDrain)
	for {
		n := e.queue.TakeAll(batch)
		if n == 0 {
			return
		}
		e.busy.start(stats.Now())
		for i := range batch[:n] {
			e.run(&batch[i])
			batch[i] = Item{}
			if e.limited {
				e.queue.finished()
			}
		}
		e.busy.stop(stats.Now())
	}
}

func (e *Executor) run(it *Item) {
	e.delay[it.Kind].Observe(stats.Now() - it.At)
	e.started[it.Kind].Add(1)
	defer e.recoverTask(it.Kind)
	it.Task.Run()
	e.completed.Add(1)
}

func (e *Executor) recoverTask(k Kind) {
	if p := recover(); p != nil {
		e.failed.Add(1)
		e.log.Error("executor task panicked", "executor", e.name, "kind", k.String(), "panic", p, "stack", string(debug.Stack()))
	}
}

// Observe records the time in queue, in nanoseconds, of something that
// travelled inside another task, such as an add inside a batch.
func (e *Executor) Observe(k Kind, ns int64) { e.delay[k].Observe(ns) }

// Shutdown makes Execute reject, runs what is queued and waits for it or for
// ctx, whose error it returns.
func (e *Executor) Shutdown(ctx context.Context) error {
	e.queue.Close()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shutting executor %q down: %w", e.name, ctx.Err())
	}
}

// ShutdownNow makes Execute reject and returns the tasks that were still
// queued; those already taken by the loop still run. It does not wait: Done
// tells when the loop has ended.
func (e *Executor) ShutdownNow() []Task {
	e.queue.Close()
	items := e.queue.Drain()
	rest := make([]Task, len(items))
	for i := range items {
		rest[i] = items[i].Task
	}
	return rest
}

// Done is closed when the executor has ended.
func (e *Executor) Done() <-chan struct{} { return e.done }

// Stats are an executor's counters since its start.
type Stats struct {
	Submitted uint64 // accepted by Execute
	Completed uint64 // run to their end, without a panic
	Failed    uint64 // panicked
	Rejected  uint64
	Queued    int              // in the queue now
	Busy      time.Duration    // spent running tasks; over the time elapsed, the busy share
	Started   [NumKinds]uint64 // tasks run or running, per kind
	Delay     [NumKinds]stats.Snapshot
}

// Stats reads the counters; they are not one consistent cut.
func (e *Executor) Stats() Stats {
	s := Stats{
		Submitted: e.queue.Submitted(), Completed: e.completed.Load(), Failed: e.failed.Load(),
		Rejected: e.rejected.Load(), Queued: e.queue.Len(),
		Busy: e.busy.read(stats.Now()),
	}
	for k := range e.started {
		s.Started[k] = e.started[k].Load()
		s.Delay[k] = e.delay[k].Snapshot()
	}
	return s
}
