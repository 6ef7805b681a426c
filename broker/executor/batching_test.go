package executor

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/contention-toolkit/contention/broker/executor/mpsc"
	"github.com/contention-toolkit/contention/broker/stats"
	"pgregory.net/rapid"
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

func (d *manual) runOne() {
	t := d.tasks[0]
	d.tasks = d.tasks[1:]
	t.Run()
}

// job is the task type of these tests.
type job struct {
	id     int
	weight int64
	do     func()
}

// rig is a wrapper under test with what happened to its jobs.
type rig struct {
	*manual
	sub interface{ Submit(*job) error }

	ran, rejected []int
	failed        int
}

// builder makes the implementation under test: the real one, or a mutant.
type builder func(Delegate, BatchOptions[job]) (interface{ Submit(*job) error }, error)

func realBatching(d Delegate, o BatchOptions[job]) (interface{ Submit(*job) error }, error) {
	return NewBatching(d, o)
}

func newRig(t testing.TB, build builder, o BatchOptions[job]) *rig {
	t.Helper()
	r := &rig{manual: &manual{}}
	o.Run = func(j *job) {
		r.ran = append(r.ran, j.id)
		if j.do != nil {
			j.do()
		}
	}
	o.Rejected = func(j *job, _ error) { r.rejected = append(r.rejected, j.id) }
	o.Failed = func(*job, any) { r.failed++ }
	sub, err := build(r.manual, o)
	if err != nil {
		t.Fatal(err)
	}
	r.sub = sub
	return r
}

func (r *rig) submit(t testing.TB, ids ...int) {
	t.Helper()
	for _, id := range ids {
		if err := r.sub.Submit(&job{id: id}); err != nil {
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
	r := newRig(t, realBatching, BatchOptions[job]{MaxItems: 10})
	r.submit(t, 1, 2, 3)
	r.expect(t, 1)
	r.runOne()
	r.expect(t, 0, 1, 2, 3)
}

func TestItemLimitLeavesTheRestToTheNextBatch(t *testing.T) {
	sizes := stats.NewHistogram([]int64{1, 2})
	r := newRig(t, realBatching, BatchOptions[job]{MaxItems: 2, Sizes: sizes})
	r.submit(t, 1, 2, 3)
	other := false
	if err := r.Execute(Other, Func(func() { other = true })); err != nil {
		t.Fatal(err)
	}
	r.runOne()
	r.expect(t, 2, 1, 2)
	r.runOne()
	if !other {
		t.Fatal("the next batch ran before the task that was submitted in between")
	}
	r.runOne()
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
			r := newRig(t, realBatching, BatchOptions[job]{MaxItems: 4, MaxWeight: 10, Weight: weightOf})
			for i, w := range c.weights {
				if err := r.sub.Submit(&job{id: i, weight: w}); err != nil {
					t.Fatal(err)
				}
			}
			var batches []int
			for len(r.tasks) > 0 {
				before := len(r.ran)
				r.runOne()
				batches = append(batches, len(r.ran)-before)
			}
			if !slices.Equal(batches, c.batches) {
				t.Fatalf("batches of %v, want %v", batches, c.batches)
			}
		})
	}
}

// The cases that the earlier draft of the design got wrong return an error
// instead of failing the test, so that mutants can be shown to be caught.

// queuedWhileRunning: a task that arrives during a batch is not left behind,
// and no second batch is scheduled while one runs.
func queuedWhileRunning(t testing.TB, build builder) error {
	r := newRig(t, build, BatchOptions[job]{MaxItems: 2})
	during := -1
	err := r.sub.Submit(&job{id: 1, do: func() {
		for id := 2; id <= 4; id++ {
			r.submit(t, id)
		}
		during = len(r.tasks)
	}})
	if err != nil {
		return err
	}
	r.runOne()
	if during != 0 {
		return fmt.Errorf("%d more batches were scheduled while one ran", during)
	}
	for i := 0; len(r.tasks) > 0; i++ {
		r.runOne()
	}
	if !slices.Equal(r.ran, []int{1, 2, 3, 4}) {
		return fmt.Errorf("ran %v, want 1 to 4", r.ran)
	}
	return nil
}

// rejectedCaller: the caller fails and its task never runs, not even when a
// later submit is accepted.
func rejectedCaller(t testing.TB, build builder) error {
	r := newRig(t, build, BatchOptions[job]{MaxItems: 4})
	r.reject = func() error { return ErrRejected }
	if err := r.sub.Submit(&job{id: 1}); !errors.Is(err, ErrRejected) {
		return fmt.Errorf("Submit returned %v, want ErrRejected", err)
	}
	r.reject = nil
	r.submit(t, 2)
	for len(r.tasks) > 0 {
		r.runOne()
	}
	if !slices.Equal(r.ran, []int{2}) || len(r.rejected) != 0 {
		return fmt.Errorf("ran %v, handler got %v; want only 2 to run", r.ran, r.rejected)
	}
	return nil
}

// rejectedOthers: tasks that other callers queued before the rejection go to
// the handler, at once.
func rejectedOthers(t testing.TB, build builder) error {
	r := newRig(t, build, BatchOptions[job]{MaxItems: 4})
	r.reject = func() error {
		r.reject = nil
		r.submit(t, 2, 3) // other callers, while the flag is set
		return ErrRejected
	}
	if err := r.sub.Submit(&job{id: 1}); !errors.Is(err, ErrRejected) {
		return fmt.Errorf("Submit returned %v, want ErrRejected", err)
	}
	if !slices.Equal(r.rejected, []int{2, 3}) || len(r.ran) != 0 || len(r.tasks) != 0 {
		return fmt.Errorf("handler got %v, ran %v, %d batches left; want 2 and 3 rejected", r.rejected, r.ran, len(r.tasks))
	}
	return nil
}

var draftCases = map[string]func(testing.TB, builder) error{
	"queued while a batch runs": queuedWhileRunning,
	"rejected caller":           rejectedCaller,
	"rejected others":           rejectedOthers,
}

func TestHandoverRules(t *testing.T) {
	for name, c := range draftCases {
		if err := c(t, realBatching); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// draft is the design's earlier draft: it clears the flag before it polls, and
// on rejection only clears the flag and passes the error on.
type draft struct {
	o          BatchOptions[job]
	d          Delegate
	q          *mpsc.Queue[job]
	scheduled  atomic.Bool
	clearFirst bool // else: after the batch, as it should be
	drain      bool // on rejection
}

func (b *draft) Submit(t *job) error { b.q.Offer(t); return b.schedule(t) }

func (b *draft) schedule(own *job) error {
	if !b.scheduled.CompareAndSwap(false, true) {
		return nil
	}
	err := b.d.Execute(AddBatch, b)
	if err != nil {
		for b.drain && !b.q.Empty() {
			if t := b.q.Poll(); t != own {
				b.o.Rejected(t, err)
			}
		}
		b.scheduled.Store(false)
	}
	return err
}

func (b *draft) Run() {
	if b.clearFirst {
		b.scheduled.Store(false)
	}
	for range b.o.MaxItems {
		t := b.q.PollRelaxed()
		if t == nil {
			break
		}
		b.o.Run(t)
	}
	if !b.clearFirst {
		b.scheduled.Store(false)
	}
	if !b.q.Empty() {
		_ = b.schedule(nil)
	}
}

func TestDefectsOfTheDraftAreCaught(t *testing.T) {
	for _, c := range []struct {
		name              string
		clearFirst, drain bool
		caught            []string
	}{
		{"clears the flag first", true, true, []string{"queued while a batch runs"}},
		{"keeps the queue on rejection", false, false, []string{"rejected caller", "rejected others"}},
	} {
		build := func(d Delegate, o BatchOptions[job]) (interface{ Submit(*job) error }, error) {
			return &draft{o: o, d: d, q: mpsc.New[job](0), clearFirst: c.clearFirst, drain: c.drain}, nil
		}
		for name, run := range draftCases {
			err := run(t, build)
			if want := slices.Contains(c.caught, name); want != (err != nil) {
				t.Errorf("%s: case %q says %v", c.name, name, err)
			}
		}
	}
}

func TestFailingTaskDoesNotStopTheBatch(t *testing.T) {
	r := newRig(t, realBatching, BatchOptions[job]{MaxItems: 10})
	r.submit(t, 1)
	if err := r.sub.Submit(&job{id: 2, do: func() { panic("no") }}); err != nil {
		t.Fatal(err)
	}
	r.submit(t, 3)
	r.runOne()
	r.expect(t, 0, 1, 2, 3)
	if r.failed != 1 {
		t.Fatalf("%d failures reported, want 1", r.failed)
	}
}

func TestQueueIsCreatedByTheFirstTask(t *testing.T) {
	r := newRig(t, realBatching, BatchOptions[job]{MaxItems: 2})
	b := r.sub.(*Batching[job])
	if b.Created() {
		t.Fatal("the queue exists before the first task")
	}
	r.submit(t, 1)
	q := b.queue.Load()
	r.submit(t, 2)
	if q == nil || b.queue.Load() != q {
		t.Fatal("the queue was replaced")
	}
}

func TestRejectedFollowUpBatchFailsWhatIsLeft(t *testing.T) {
	r := newRig(t, realBatching, BatchOptions[job]{MaxItems: 2})
	r.submit(t, 1, 2, 3, 4)
	r.reject = func() error { return ErrRejected }
	r.runOne()
	r.expect(t, 0, 1, 2)
	if !slices.Equal(r.rejected, []int{3, 4}) {
		t.Fatalf("handler got %v, want 3 and 4", r.rejected)
	}
	r.reject = nil
	r.submit(t, 5)
	r.runOne()
	r.expect(t, 0, 1, 2, 5)
}

// What arrives after the queue was emptied and before the flag is cleared must
// be scheduled by the goroutine that clears it.
func TestArrivalDuringRejectionIsScheduled(t *testing.T) {
	r := newRig(t, realBatching, BatchOptions[job]{MaxItems: 2})
	b := r.sub.(*Batching[job])
	b.o.Rejected = func(j *job, _ error) {
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
	if err := r.sub.Submit(&job{id: 1}); !errors.Is(err, ErrRejected) {
		t.Fatalf("Submit returned %v", err)
	}
	if got := len(r.rejected) + len(r.ran); got != 2 || len(r.tasks) != 0 {
		t.Fatalf("rejected %v, ran %v, %d batches scheduled; want 2 and 3 accounted for", r.rejected, r.ran, len(r.tasks))
	}
}

func TestBatchThatFindsNothingVisibleGivesTheDelegateBack(t *testing.T) {
	r := newRig(t, realBatching, BatchOptions[job]{MaxItems: 8})
	b := r.sub.(*Batching[job])
	r.submit(t, 1)
	r.runOne()
	b.scheduled.Store(true) // as a batch about to run; its queue is empty
	b.Run()
	r.expect(t, 0, 1)
	if b.scheduled.Load() {
		t.Fatal("the flag stayed set: nothing would ever be scheduled again")
	}
	r.submit(t, 2)
	r.runOne()
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

// TestAgainstAModel drives the wrapper by random steps beside a slice.
func TestAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		items := rapid.IntRange(2, 5).Draw(rt, "items")
		limit := rapid.Int64Range(0, 9).Draw(rt, "weight")
		r := newRig(t, realBatching, BatchOptions[job]{MaxItems: items, MaxWeight: limit, Weight: weightOf, Chunk: 2})
		var queue []*job // the model: accepted and not yet run
		var wantRan, wantRejected []int
		next := 0
		reject := false
		r.reject = func() error {
			if reject {
				return ErrRejected
			}
			return nil
		}
		rt.Repeat(map[string]func(*rapid.T){
			"submit": func(rt *rapid.T) {
				j := &job{id: next, weight: rapid.Int64Range(0, 6).Draw(rt, "w")}
				next++
				err := r.sub.Submit(j)
				if refused := reject && len(queue) == 0; refused != (err != nil) {
					rt.Fatalf("Submit returned %v with %d queued, rejecting %v", err, len(queue), reject)
				} else if !refused {
					queue = append(queue, j)
				}
			},
			"toggle": func(*rapid.T) { reject = !reject },
			"run": func(rt *rapid.T) {
				if (len(r.tasks) > 0) != (len(queue) > 0) || len(r.tasks) > 1 {
					rt.Fatalf("%d batches scheduled with %d tasks queued", len(r.tasks), len(queue))
				}
				if len(queue) == 0 {
					return
				}
				for n, w := 0, int64(0); len(queue) > 0 && n < items && (limit == 0 || w < limit); n++ {
					w += queue[0].weight
					wantRan, queue = append(wantRan, queue[0].id), queue[1:]
				}
				if reject {
					for _, j := range queue {
						wantRejected = append(wantRejected, j.id)
					}
					queue = nil
				}
				r.runOne()
			},
			"": func(rt *rapid.T) {
				if !slices.Equal(r.ran, wantRan) || !slices.Equal(r.rejected, wantRejected) {
					rt.Fatalf("ran %v, rejected %v; want %v and %v", r.ran, r.rejected, wantRan, wantRejected)
				}
			},
		})
	})
}

// stressJob knows who submitted it, and how often it ran or was rejected.
type stressJob struct {
	producer, n int
	fate        atomic.Int32
}

// everyNth rejects every nth batch; 1 rejects all, 0 none.
type everyNth struct {
	d     Delegate
	n     int64
	count atomic.Int64
}

func (e *everyNth) Execute(k Kind, t Task) error {
	if e.n > 0 && e.count.Add(1)%e.n == 0 {
		return ErrRejected
	}
	return e.d.Execute(k, t)
}

func TestStress(t *testing.T) {
	for _, c := range []struct {
		name   string
		items  int
		weight int64
		reject int64
	}{
		{"2 items", 2, 0, 0},
		{"1024 items", 1024, 0, 0},
		{"weight 50", 1024, 50, 0},
		{"always rejecting", 1024, 0, 1},
		{"every third rejected", 8, 0, 3},
		{"every third rejected, weight", 1024, 50, 3},
	} {
		t.Run(c.name, func(t *testing.T) { stress(t, c.items, c.weight, c.reject) })
	}
}

func stress(t *testing.T, items int, weight, reject int64) {
	const producers, each = 8, 10_000
	e := New(Options{Name: "stress"})
	var ran, refused, handled atomic.Int64
	var settled sync.WaitGroup // every job ran or was rejected
	settled.Add(producers * each)
	last := [producers]int{-1, -1, -1, -1, -1, -1, -1, -1} // executor goroutine only
	b, err := NewBatching(&everyNth{d: e, n: reject}, BatchOptions[stressJob]{
		MaxItems: items, MaxWeight: weight, Weight: func(*stressJob) int64 { return 7 },
		Run: func(j *stressJob) {
			if j.n <= last[j.producer] {
				t.Errorf("producer %d: task %d ran after %d", j.producer, j.n, last[j.producer])
			}
			last[j.producer] = j.n
			j.fate.Add(1)
			ran.Add(1)
			settled.Done()
		},
		Rejected: func(j *stressJob, _ error) { j.fate.Add(1); handled.Add(1); settled.Done() },
	})
	if err != nil {
		t.Fatal(err)
	}
	jobs := make([][]stressJob, producers)
	for p := range producers {
		jobs[p] = make([]stressJob, each)
		go func() {
			for n := range each {
				j := &jobs[p][n]
				j.producer, j.n = p, n
				if err := b.Submit(j); err != nil {
					j.fate.Add(1)
					refused.Add(1)
					settled.Done()
				}
				if n%100 == 0 {
					runtime.Gosched()
				}
			}
		}()
	}
	settled.Wait() // a task that is lost makes the test time out
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for p := range jobs {
		for n := range jobs[p] {
			if f := jobs[p][n].fate.Load(); f != 1 {
				t.Fatalf("producer %d task %d: run or rejected %d times, want once", p, n, f)
			}
		}
	}
	if reject == 1 && ran.Load() != 0 {
		t.Errorf("%d tasks ran though every batch was rejected", ran.Load())
	}
	if reject == 0 && ran.Load() != producers*each {
		t.Errorf("%d of %d tasks ran", ran.Load(), producers*each)
	}
	if reject == 3 && (ran.Load() == 0 || refused.Load()+handled.Load() == 0) {
		t.Errorf("ran %d, refused %d, handled %d: the case does not mix", ran.Load(), refused.Load(), handled.Load())
	}
}
