package executor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
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

func TestPanicIsCountedAndLoggedAndTheLoopGoesOn(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		var log strings.Builder
		e := New(Options{Name: "x", Queue: kind, Logger: slog.New(slog.NewTextHandler(&log, nil))})
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
	})
}

func TestShutdownRunsTheQueueThenRejects(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		e := New(Options{Queue: kind, ChannelSize: 4096})
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
	})
}

func TestShutdownNowReturnsTheRest(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		e := New(Options{Queue: kind, ChannelSize: 4096})
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
	})
}

func TestLimitCountsTakenTasks(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		e := New(Options{Queue: kind, MaxTasks: 2})
		release := hold(t, e) // taken, not finished
		if err := e.Execute(Add, Func(func() {})); err != nil {
			t.Fatal(err)
		}
		if err := e.Execute(Add, Func(func() {})); !errors.Is(err, ErrRejected) {
			t.Fatalf("third task with a limit of 2: %v", err)
		}
		completed := make(chan struct{})
		if err := e.Execute(AddComplete, Func(func() { close(completed) })); err != nil {
			t.Fatalf("completions of adds that were let pass: %v", err)
		}
		release()
		<-completed
		if err := e.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOrderPerSubmitter(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		o := NewOrdered(3, Options{Name: "o", Queue: kind, ChannelSize: 100, Logger: quiet})
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
	})
}

// TestShutdownNowSettlesEveryTask: under fire, each task is run, returned or
// rejected, and only one of them.
func TestShutdownNowSettlesEveryTask(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		const submitters, each = 8, 2000
		e := New(Options{Queue: kind, ChannelSize: 32})
		var fate [submitters][each]atomic.Int32
		var wg sync.WaitGroup
		for p := range submitters {
			wg.Go(func() {
				for n := range each {
					f := &fate[p][n]
					if e.Execute([]Kind{Add, Wake}[n%2], (*fateTask)(f)) != nil {
						f.Add(1)
					}
				}
			})
		}
		eventually(t, "tasks are accepted", func() bool { return e.Stats().Submitted > 1000 })
		for _, task := range e.ShutdownNow() {
			(*atomic.Int32)(task.(*fateTask)).Add(1)
		}
		wg.Wait()
		<-e.Done()
		for p := range fate {
			for n := range fate[p] {
				if f := fate[p][n].Load(); f != 1 {
					t.Fatalf("task %d of submitter %d was run, returned or rejected %d times", n, p, f)
				}
			}
		}
	})
}

type fateTask atomic.Int32

func (f *fateTask) Run() { (*atomic.Int32)(f).Add(1) }

func TestBusyCountsTheTimeTasksRun(t *testing.T) {
	e := New(Options{})
	release := hold(t, e)
	first := e.Stats().Busy
	eventually(t, "busy time grows while a task runs", func() bool { return e.Stats().Busy > first && first >= 0 })
	release()
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	end := e.Stats().Busy
	if again := e.Stats().Busy; again != end || end <= first {
		t.Fatalf("busy %v, then %v, then %v", first, end, again)
	}
}

func TestBusyClock(t *testing.T) {
	var c busyClock
	for _, s := range []struct {
		do        func(int64)
		at, read  int64
		want      int64
		condition string
	}{
		{func(int64) {}, 0, 1000, 0, "not started"},
		{c.start, 1000, 1000, 0, "started"},
		{func(int64) {}, 0, 1500, 500, "running"},
		{func(int64) {}, 0, 1400, 500, "read with an older clock"},
		{c.stop, 2000, 5000, 1000, "stopped"},
		{c.start, 6000, 5999, 1000, "started again, read with a clock from before"},
		{c.stop, 6500, 6400, 1500, "stopped again"},
	} {
		s.do(s.at)
		if got := int64(c.read(s.read)); got != s.want {
			t.Fatalf("%s: %d, want %d", s.condition, got, s.want)
		}
	}
}
