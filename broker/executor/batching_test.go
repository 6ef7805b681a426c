package executor

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/contention-toolkit/contention/broker/stats"
)

// manual is a delegate driven by hand.
type manual struct {
	tasks  []Task
	reject func() error // called on Execute, may be nil
}

func (d *manual) Execute(k Kind, t Task) error {
	if d.reject != nil {
		if err := d.reject(); err != nil {
			return err
		}
	}
	d.tasks = append(d.tasks, t)
	return nil
}

func (d *manual) runBatch() {
	t := d.tasks[0]
	d.tasks = d.tasks[1:]
	t.Run()
}

// job is the task type of these tests.
type job struct {
	id     int
	weight int64
	do     func()
	inner  []*job // what do submits, for the model
}

// rig is a wrapper under test with what happened to its jobs.
type rig struct {
	*manual
	*Batching[job]

	ran, rejected []int
	cause         error // of the last rejection
	failed        int
}

func newRig(t testing.TB, o BatchOptions[job]) *rig {
	t.Helper()
	r := &rig{manual: &manual{}}
	o.Run = func(j *job) {
		r.ran = append(r.ran, j.id)
		if j.do != nil {
			j.do()
		}
	}
	o.Rejected = func(j *job, err error) { r.rejected, r.cause = append(r.rejected, j.id), err }
	o.Failed = func(*job, any) { r.failed++ }
	b, err := NewBatching(r.manual, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Batching = b
	return r
}

func (r *rig) submit(t testing.TB, ids ...int) {
	t.Helper()
	for _, id := range ids {
		if err := r.Submit(&job{id: id}); err != nil {
			t.Fatalf("submit %d: %v", id, err)
		}
	}
}

func (r *rig) expect(t testing.TB, scheduled int, ran ...int) {
	t.Helper()
	if len(r.tasks) != scheduled || !slices.Equal(r.ran, ran) {
		t.Fatalf("%d batches scheduled and ran %v; want %d and %v", len(r.tasks), r.ran, scheduled, ran)
	}
}

func weightOf(j *job) int64 { return j.weight }

func TestQueuedTasksShareOneBatch(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 10})
	r.submit(t, 1, 2, 3)
	r.expect(t, 1)
	r.runBatch()
	r.expect(t, 0, 1, 2, 3)
}

func TestItemLimitLeavesTheRestToTheNextBatch(t *testing.T) {
	sizes := stats.NewHistogram([]int64{1, 2})
	r := newRig(t, BatchOptions[job]{MaxItems: 2, Sizes: sizes})
	r.submit(t, 1, 2, 3)
	other := false
	if err := r.Execute(Other, Func(func() { other = true })); err != nil {
		t.Fatal(err)
	}
	r.runBatch()
	r.expect(t, 2, 1, 2)
	r.runBatch()
	if !other {
		t.Fatal("the next batch ran before the task that was submitted in between")
	}
	r.runBatch()
	r.expect(t, 0, 1, 2, 3)
	if got := sizes.Snapshot().Counts; !slices.Equal(got, []uint64{1, 1, 0}) {
		t.Fatalf("batch sizes %v, want one of 2 and one of 1", got)
	}
}

func TestWeightLimit(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []int64
		batches []int // tasks per batch
	}{
		{"stops once the limit is reached", []int64{4, 6, 1}, []int{2, 1}},
		{"the task that passes the limit still runs", []int64{9, 9, 9}, []int{2, 1}},
		{"heavier than the limit runs in a batch of its own", []int64{50, 1, 50}, []int{1, 2}},
		{"tasks without weight are limited by items only", []int64{0, 0, 0, 0, 0}, []int{4, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, BatchOptions[job]{MaxItems: 4, MaxWeight: 10, Weight: weightOf})
			for i, w := range c.weights {
				if err := r.Submit(&job{id: i, weight: w}); err != nil {
					t.Fatal(err)
				}
			}
			var batches []int
			for len(r.tasks) > 0 {
				before := len(r.ran)
				r.runBatch()
				batches = append(batches, len(r.ran)-before)
			}
			if !slices.Equal(batches, c.batches) {
				t.Fatalf("batches of %v, want %v", batches, c.batches)
			}
		})
	}
}

// A task that arrives during a batch is not left behind, and no second batch is
// scheduled while one runs.
func TestTaskQueuedWhileABatchRunsIsNotLeftBehind(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 2})
	during := -1
	err := r.Submit(&job{id: 1, do: func() {
		r.submit(t, 2, 3, 4)
		during = len(r.tasks)
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.runBatch()
	if during != 0 {
		t.Fatalf("%d more batches were scheduled while one ran", during)
	}
	r.expect(t, 1, 1, 2)
	r.runBatch()
	r.expect(t, 0, 1, 2, 3, 4)
}

// A rejected caller's task never runs, not even when a later submit is
// accepted.
func TestRejectedCallerFailsAndItsTaskDoesNotRunLater(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 4})
	r.reject = func() error { return ErrRejected }
	own := &job{id: 1}
	if err := r.Submit(own); !errors.Is(err, ErrRejected) {
		t.Fatalf("Submit returned %v, want ErrRejected", err)
	}
	r.reject = nil
	r.submit(t, 2)
	r.runBatch()
	r.expect(t, 0, 2)
	if len(r.rejected) != 0 {
		t.Fatalf("handler got %v: the caller was told already", r.rejected)
	}
	if err := r.Submit(own); err != nil { // the caller may use its task again
		t.Fatal(err)
	}
	r.runBatch()
	r.expect(t, 0, 2, 1)
}

// Tasks that other callers queued before the rejection go to the handler, at
// once and in order.
func TestTasksOfOthersGoToTheHandlerOnRejection(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 4})
	r.reject = func() error {
		r.reject = nil
		r.submit(t, 2, 3) // other callers, while the flag is set
		return ErrRejected
	}
	if err := r.Submit(&job{id: 1}); !errors.Is(err, ErrRejected) {
		t.Fatalf("Submit returned %v, want ErrRejected", err)
	}
	if !slices.Equal(r.rejected, []int{2, 3}) {
		t.Fatalf("handler got %v, want 2 and 3", r.rejected)
	}
	r.expect(t, 0)
	if !errors.Is(r.cause, ErrRejected) {
		t.Fatalf("handler got the cause %v", r.cause)
	}
}

func TestFailingTaskDoesNotStopTheBatch(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 10})
	r.submit(t, 1)
	if err := r.Submit(&job{id: 2, do: func() { panic("no") }}); err != nil {
		t.Fatal(err)
	}
	r.submit(t, 3)
	r.runBatch()
	r.expect(t, 0, 1, 2, 3)
	if r.failed != 1 {
		t.Fatalf("%d failures reported, want 1", r.failed)
	}
}

func TestQueueIsCreatedByTheFirstTask(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 2})
	if r.Created() || r.Pending() != 0 {
		t.Fatal("the queue exists before the first task")
	}
	r.submit(t, 1)
	q := r.queue.Load()
	r.submit(t, 2)
	if q == nil || r.queue.Load() != q {
		t.Fatal("the queue was replaced")
	}
	if n := r.Pending(); n != 2 {
		t.Fatalf("Pending says %d, want 2", n)
	}
	r.runBatch()
	if n := r.Pending(); n != 0 {
		t.Fatalf("Pending says %d after the batch", n)
	}
}

func TestEagerQueueIsThereBeforeTheFirstTask(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 2, Eager: true})
	q := r.queue.Load()
	if !r.Created() || q == nil {
		t.Fatal("no queue")
	}
	r.submit(t, 1)
	if r.queue.Load() != q {
		t.Fatal("the queue was replaced")
	}
}

// TestRacingFirstTasksUseOneQueue: a queue that replaced another would lose
// what was in it.
func TestRacingFirstTasksUseOneQueue(t *testing.T) {
	for range 300 {
		var d counting
		b, err := NewBatching(&d, BatchOptions[job]{MaxItems: 100, Run: func(*job) {}, Rejected: func(*job, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		const racers = 4
		var ready atomic.Int32
		var wg sync.WaitGroup
		for range racers {
			wg.Go(func() {
				for ready.Add(1); ready.Load() < racers; {
					runtime.Gosched()
				}
				if err := b.Submit(&job{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := b.queue.Load().Len(); n != racers || d.n.Load() != 1 {
			t.Fatalf("%d tasks in the queue and %d batches scheduled; want %d and 1", n, d.n.Load(), racers)
		}
	}
}

// counting accepts tasks and never runs them.
type counting struct{ n atomic.Int32 }

func (c *counting) Execute(Kind, Task) error { c.n.Add(1); return nil }

func TestWeightIsIgnoredWithoutALimitAndWithoutWeights(t *testing.T) {
	for _, o := range []BatchOptions[job]{
		{MaxItems: 10, Weight: weightOf},
		{MaxItems: 10, MaxWeight: 1},
	} {
		r := newRig(t, o)
		for id := range 5 {
			if err := r.Submit(&job{id: id, weight: 1 << 40}); err != nil {
				t.Fatal(err)
			}
		}
		r.runBatch()
		r.expect(t, 0, 0, 1, 2, 3, 4)
		if items, weight := r.Limits(); items != 10 || weight != o.MaxWeight {
			t.Errorf("Limits says %d, %d; want 10, %d", items, weight, o.MaxWeight)
		}
	}
}

func TestRejectedFollowUpBatchFailsWhatIsLeft(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 2})
	r.submit(t, 1, 2, 3, 4)
	r.reject = func() error { return ErrRejected }
	r.runBatch()
	r.expect(t, 0, 1, 2)
	if !slices.Equal(r.rejected, []int{3, 4}) {
		t.Fatalf("handler got %v, want 3 and 4", r.rejected)
	}
	r.reject = nil
	r.submit(t, 5)
	r.runBatch()
	r.expect(t, 0, 1, 2, 5)
}

// What arrives after the queue was emptied and before the flag is cleared must
// be scheduled by the goroutine that clears it.
func TestArrivalDuringRejectionIsScheduled(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 2})
	r.o.Rejected = func(j *job, _ error) {
		r.rejected = append(r.rejected, j.id)
		if j.id == 2 {
			r.submit(t, 3)
		}
	}
	r.reject = func() error {
		r.reject = nil
		r.submit(t, 2)
		return ErrRejected
	}
	if err := r.Submit(&job{id: 1}); !errors.Is(err, ErrRejected) {
		t.Fatalf("Submit returned %v", err)
	}
	if got := len(r.rejected) + len(r.ran); got != 2 || len(r.tasks) != 0 {
		t.Fatalf("rejected %v, ran %v, %d batches scheduled; want 2 and 3 accounted for", r.rejected, r.ran, len(r.tasks))
	}
}

func TestBatchThatFindsNothingVisibleGivesTheDelegateBack(t *testing.T) {
	r := newRig(t, BatchOptions[job]{MaxItems: 8})
	r.submit(t, 1)
	r.runBatch()
	r.scheduled.Store(true) // as a batch about to run; its queue is empty
	r.Run()
	r.expect(t, 0, 1)
	if r.scheduled.Load() {
		t.Fatal("the flag stayed set: nothing would ever be scheduled again")
	}
	r.submit(t, 2)
	r.runBatch()
	r.expect(t, 0, 1, 2)
}

func TestInvalidOptions(t *testing.T) {
	run, rej := func(*job) {}, func(*job, error) {}
	for _, o := range []BatchOptions[job]{
		{Run: run, Rejected: rej, MaxItems: -1},
		{Run: run, Rejected: rej, MaxItems: 0},
		{Run: run, Rejected: rej, MaxItems: 1},
		{Run: run, Rejected: rej, MaxItems: 2, MaxWeight: -1},
		{Run: run, MaxItems: 2},
		{Rejected: rej, MaxItems: 2},
	} {
		if _, err := NewBatching(&manual{}, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := NewBatching[job](nil, BatchOptions[job]{Run: run, Rejected: rej, MaxItems: 2}); err == nil {
		t.Error("a nil delegate was accepted")
	}
}
