package executor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// hold occupies the executor until the returned function is called.
func hold(t *testing.T, e *Executor) (release func()) {
	t.Helper()
	running, free := make(chan struct{}), make(chan struct{})
	if err := e.Execute(Other, Func(func() { close(running); <-free })); err != nil {
		t.Fatal(err)
	}
	<-running
	return sync.OnceFunc(func() { close(free) })
}

func TestQueueAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		var model []Kind
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(t, "n") {
					k := Kind(rapid.Uint8().Draw(t, "kind"))
					if err := q.Offer(Item{Kind: k}); err != nil {
						t.Fatal(err)
					}
					model = append(model, k)
				}
			},
			"take": func(t *rapid.T) {
				if len(model) == 0 {
					return // TakeAll would wait
				}
				into := make([]Item, rapid.IntRange(1, 150).Draw(t, "room"))
				n := q.TakeAll(into)
				if n != min(len(into), len(model)) {
					t.Fatalf("took %d into %d places with %d queued", n, len(into), len(model))
				}
				for i := range n {
					if into[i].Kind != model[i] {
						t.Fatalf("item %d is %d, want %d", i, into[i].Kind, model[i])
					}
				}
				model = model[n:]
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) {
					t.Fatalf("Len %d, want %d", q.Len(), len(model))
				}
			},
		})
		q.Close()
		if len(q.Drain()) != len(model) || q.TakeAll(make([]Item, 1)) != 0 {
			t.Fatal("a drained closed queue must say 0")
		}
	})
}

func TestQueueForgetsWhatWasTaken(t *testing.T) {
	var q Queue
	for range 100 {
		if err := q.Offer(Item{Task: Func(func() {})}); err != nil {
			t.Fatal(err)
		}
	}
	q.TakeAll(make([]Item, 100))
	for i := range q.items {
		if q.items[i].Task != nil {
			t.Fatalf("slot %d still holds its task", i)
		}
	}
}

func TestPanicIsCountedAndLoggedAndTheLoopGoesOn(t *testing.T) {
	var log strings.Builder
	e := New(Options{Name: "x", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	var ran []int
	for i := range 3 {
		err := e.Execute(Wake, Func(func() {
			ran = append(ran, i)
			if i == 1 {
				panic("task one")
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := e.Stats()
	if len(ran) != 3 || s.Submitted != 3 || s.Completed != 2 || s.Failed != 1 || s.Started[Wake] != 3 {
		t.Fatalf("ran %v, stats %+v", ran, s)
	}
	if d := s.Delay[Wake]; d.Count() != 3 {
		t.Fatalf("%d delays observed, want 3", d.Count())
	}
	if !strings.Contains(log.String(), "task one") || !strings.Contains(log.String(), "executor=x") {
		t.Fatalf("log: %s", log.String())
	}
}

func TestShutdownRunsTheQueueThenRejects(t *testing.T) {
	e := New(Options{})
	release := hold(t, e)
	ran := 0
	for range 2000 {
		if err := e.Execute(Add, Func(func() { ran++ })); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Shutdown with a busy executor and an ended context: %v", err)
	}
	if err := e.Execute(Add, Func(func() {})); !errors.Is(err, ErrRejected) {
		t.Fatalf("Execute after Shutdown: %v", err)
	}
	release()
	if err := e.Shutdown(t.Context()); err != nil || ran != 2000 {
		t.Fatalf("second Shutdown: %v, ran %d", err, ran)
	}
	if s := e.Stats(); s.Rejected != 1 || s.Submitted != 2001 || s.Completed != 2001 {
		t.Fatalf("stats %+v", s)
	}
}

func TestShutdownNowReturnsTheRest(t *testing.T) {
	e := New(Options{})
	release := hold(t, e)
	for range 3 {
		if err := e.Execute(Add, Func(func() { t.Error("a returned task ran") })); err != nil {
			t.Fatal(err)
		}
	}
	if rest := e.ShutdownNow(); len(rest) != 3 {
		t.Fatalf("%d tasks returned, want 3", len(rest))
	}
	release()
	<-e.Done()
}

func TestLimitCountsTakenTasks(t *testing.T) {
	e := New(Options{MaxTasks: 2})
	release := hold(t, e) // taken, not finished
	if err := e.Execute(Add, Func(func() {})); err != nil {
		t.Fatal(err)
	}
	if err := e.Execute(Add, Func(func() {})); !errors.Is(err, ErrRejected) {
		t.Fatalf("third task with a limit of 2: %v", err)
	}
	release()
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOrderPerSubmitter(t *testing.T) {
	o := NewOrdered(3, Options{Name: "o", Logger: quiet})
	e := o.Choose(12345)
	if o.Choose(12345) != e || len(o.All()) != 3 {
		t.Fatal("Choose is not stable")
	}
	const submitters, each = 4, 5000
	var next [submitters]int
	var wg sync.WaitGroup
	for p := range submitters {
		wg.Go(func() {
			for n := range each {
				err := e.Execute(Add, Func(func() {
					if next[p] != n {
						t.Errorf("submitter %d: task %d ran where %d was due", p, n, next[p])
					}
					next[p] = n + 1
				}))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := o.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next != [submitters]int{each, each, each, each} {
		t.Fatalf("ran %v", next)
	}
}

type nop struct{}

func (*nop) Run() {}

func BenchmarkExecute(b *testing.B) {
	e := New(Options{})
	n := &nop{}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = e.Execute(Add, n)
		}
	})
	_ = e.Shutdown(context.Background())
}

func BenchmarkBatchingSubmit(b *testing.B) {
	e := New(Options{})
	s, err := NewBatching(e, BatchOptions[nop]{MaxItems: 1024, Run: (*nop).Run, Rejected: func(*nop, error) {}})
	if err != nil {
		b.Fatal(err)
	}
	n := &nop{}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = s.Submit(n)
		}
	})
	_ = e.Shutdown(context.Background())
}
