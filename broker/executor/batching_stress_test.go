package executor

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

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

func TestBatchingStress(t *testing.T) {
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
		t.Run(c.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, kind QueueKind) { stress(t, kind, c.items, c.weight, c.reject) })
		})
	}
}

func stress(t *testing.T, kind QueueKind, items int, weight, reject int64) {
	const producers, each = 8, 10_000
	e := New(Options{Name: "stress", Queue: kind, ChannelSize: 2})
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
