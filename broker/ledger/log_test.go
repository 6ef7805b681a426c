package ledger

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/storage"
)

// fakeLog keeps entries in a slice and does as it is told.
type fakeLog struct {
	mu      sync.Mutex
	entries []Entry
	first   int64
	fail    error // of the next Append
	written bool  // a failing Append stores its entries all the same
	broken  bool
	appends int
	reads   int

	damage *storage.CorruptError // Read fails on it

	hold    chan struct{} // when set, Read waits for it to close
	holding atomic.Bool

	gate chan struct{} // when set, Append waits for one element
}

func (f *fakeLog) First() int64 { f.mu.Lock(); defer f.mu.Unlock(); return f.first }
func (f *fakeLog) Next() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.entries))
}
func (f *fakeLog) NextIndex() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.entries) == 0 {
		return 0
	}
	return f.entries[len(f.entries)-1].Index + 1
}
func (f *fakeLog) Size() int64 { return 0 }

func (f *fakeLog) Append(entries []Entry) error {
	if f.gate != nil {
		<-f.gate
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.appends++
	if f.broken {
		return errors.New("not recovered")
	}
	if f.fail != nil {
		f.broken = true
		if f.written {
			f.entries = append(f.entries, entries...)
		}
		return f.fail
	}
	f.entries = append(f.entries, entries...)
	return nil
}

func (f *fakeLog) Read(from int64, most int, maxBytes int64, into []Entry) ([]Entry, error) {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		f.holding.Store(true)
		<-hold
		f.holding.Store(false)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.fail != nil {
		return into, f.fail
	}
	if d := f.damage; d != nil && from >= d.First && from < d.Next {
		return into, d
	}
	var bytes int64
	for id := from; id >= f.first && id < int64(len(f.entries)) && len(into) < most; id++ {
		if f.damage != nil && id == f.damage.First {
			break
		}
		if bytes += int64(len(f.entries[id].Data)); maxBytes > 0 && bytes > maxBytes && len(into) > 0 {
			break
		}
		into = append(into, f.entries[id])
	}
	return into, nil
}

func (f *fakeLog) TrimKeeping(before, _ int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.first = max(f.first, before)
	return nil
}

func (f *fakeLog) Recover() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = false
	return f.fail
}

func (f *fakeLog) Close() error { return nil }

func (f *fakeLog) set(change func()) {
	f.mu.Lock()
	change()
	f.mu.Unlock()
}

// openOn opens a ledger on f and closes it at the end of the test.
func openOn(t *testing.T, e *executor.Executor, f *fakeLog, cfg Config) *Ledger {
	t.Helper()
	cfg.Log = f
	l := open(t, e, cfg)
	t.Cleanup(func() {
		l.Close()
		if err := l.CloseLog(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func TestAddsAreAcknowledgedOnceTheLogHasThem(t *testing.T) {
	for name, cfg := range modes {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t)
			f := &fakeLog{gate: make(chan struct{})}
			l := openOn(t, e, f, cfg)
			var lg log
			for i := range 100 {
				lg.add(t, l, strconv.Itoa(i))
			}
			eventually(t, "every add is in the write cache", func() bool { return l.commits.bytes.Load() == 190 })
			lg.mu.Lock()
			early := len(lg.entries)
			lg.mu.Unlock()
			if early != 0 || l.LastConfirmed() != -1 {
				t.Fatalf("%d acknowledged, last confirmed %d, with nothing stored", early, l.LastConfirmed())
			}
			close(f.gate)
			lg.settled.Wait()
			if len(lg.errs) != 0 || len(lg.entries) != 100 || !slices.IsSorted(lg.entries) {
				t.Fatalf("acknowledged %v, failed %v", lg.entries, lg.errs)
			}
			// What gathered behind the first commit was one more, of one task.
			if n := e.Stats().Started[executor.AddComplete]; int(n) != f.appends || f.appends > 2 {
				t.Fatalf("%d commits, %d tasks, want 2 of each at most", f.appends, n)
			}
		})
	}
}

func TestWriteCacheFullHoldsTheExecutorBack(t *testing.T) {
	e := newExecutor(t)
	f := &fakeLog{gate: make(chan struct{})}
	st := NewStorageStats()
	l := openOn(t, e, f, Config{WriteCacheBytes: 20, Storage: st})
	var lg log
	lg.add(t, l, "0123456789012345678901234567890") // larger than the cache: taken when it is empty
	lg.add(t, l, "1")
	ran := make(chan struct{})
	_ = e.Execute(executor.Other, executor.Func(func() { close(ran) }))
	eventually(t, "the first add is in the cache", func() bool { return l.commits.bytes.Load() == 31 })
	select {
	case <-ran:
		t.Fatal("the executor went on with a full write cache")
	default:
	}
	close(f.gate)
	lg.settled.Wait()
	<-ran
	if len(lg.errs) != 0 || st.Throttles.Load() != 1 || st.Throttled() <= 0 || st.Pending.Load() != 0 {
		t.Fatalf("errors %v, throttled %d times for %v, %d bytes pending", lg.errs, st.Throttles.Load(), st.Throttled(), st.Pending.Load())
	}
}

func TestWriteCacheThatStaysFullFailsTheAdd(t *testing.T) {
	e := newExecutor(t)
	f := &fakeLog{gate: make(chan struct{})}
	l := openOn(t, e, f, Config{WriteCacheBytes: 1, WriteCacheTimeout: time.Millisecond})
	var first, second log
	first.add(t, l, "a")
	second.add(t, l, "b")
	second.settled.Wait()
	if len(second.errs) != 1 || !errors.Is(second.errs[0], ErrThrottled) {
		t.Fatalf("%v, want %v", second.errs, ErrThrottled)
	}
	close(f.gate)
	first.settled.Wait()
	if len(first.errs) != 0 {
		t.Fatal(first.errs)
	}
}

func TestFailedCommitFencesUntilRecovered(t *testing.T) {
	full := errors.New("no space left")
	for _, written := range []bool{false, true} {
		e := newExecutor(t)
		f := &fakeLog{}
		told := make(chan error, 10)
		l := openOn(t, e, f, Config{OnLogFailure: func(err error) { told <- err }})
		_, r := openCursor(t, l, Earliest)
		var lg log
		lg.add(t, l, "kept")
		lg.settled.Wait()
		f.set(func() { f.fail, f.written = full, written })
		lg.add(t, l, "fails")
		lg.settled.Wait()
		lg.add(t, l, "fenced")
		lg.settled.Wait()
		if len(lg.errs) != 2 || !errors.Is(lg.errs[0], ErrPersistence) || !errors.Is(lg.errs[0], full) || !errors.Is(lg.errs[1], ErrFenced) {
			t.Fatalf("failed with %v", lg.errs)
		}
		if err := <-told; !errors.Is(err, full) {
			t.Fatalf("told of %v", err)
		}
		if err := l.Recover(); !errors.Is(err, full) {
			t.Fatalf("recovered a log that cannot: %v", err)
		}
		f.set(func() { f.fail = nil })
		old := l.Epoch()
		if err := l.Recover(); err != nil {
			t.Fatal(err)
		}
		lg.add(t, l, "old producer")
		lg.settled.Wait()
		if len(lg.errs) != 3 || !errors.Is(lg.errs[2], ErrFenced) || l.Epoch() == old {
			t.Fatalf("an add of before was taken: %v", lg.errs)
		}
		a := &logged{Add: Add{Data: []byte("new"), Messages: 1, Epoch: l.Epoch()}, l: &lg}
		a.Done = a
		lg.settled.Add(1)
		if err := l.AsyncAddEntry(&a.Add); err != nil {
			t.Fatal(err)
		}
		lg.settled.Wait()
		want := []string{"kept", "new"}
		if written { // nobody can tell, so readers get it
			want = []string{"kept", "fails", "new"}
		}
		var got []string
		for len(got) < len(want) {
			if err := l.cursors[0].AsyncReadOrWait(10, 0); err != nil {
				t.Fatal(err)
			}
			for _, e := range <-r.got {
				got = append(got, string(e.Data))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("read %q, want %q", got, want)
		}
	}
}

func TestLedgerGoesOnAfterItsLog(t *testing.T) {
	e := newExecutor(t)
	f := &fakeLog{}
	for i := range int64(10) {
		f.entries = append(f.entries, Entry{ID: i, Data: []byte("x"), Messages: 2, Index: 2*i + 1})
	}
	l := openOn(t, e, f, Config{})
	c, r := openCursor(t, l, Earliest)
	c.Restore(CursorState{MarkDelete: 4, Acked: [][2]int64{{6, 7}, {9, 30}}})
	if c.MarkDeletePosition() != 4 || c.Backlog() != 2 {
		t.Fatalf("mark %d, backlog %d", c.MarkDeletePosition(), c.Backlog())
	}
	var lg log
	lg.add(t, l, "y")
	lg.settled.Wait()
	var got []Entry
	for len(got) < 3 {
		if err := c.AsyncReadOrWait(10, 0); err != nil {
			t.Fatal(err)
		}
		got = append(got, <-r.got...)
	}
	if ids := idsOf(got); !slices.Equal(ids, []int64{5, 8, 10}) || got[2].Index != 20 {
		t.Fatalf("read %v, index %d", ids, got[2].Index)
	}
}

func TestFlushWaitsForEverythingHandedOver(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, cfg := range modes {
		e := executor.New(executor.Options{Name: "l"})
		f := &fakeLog{}
		cfg.Log, cfg.MaxBatchItems = f, min(cfg.MaxBatchItems, 4)
		l, err := OpenLedger(1, "l", e, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var lg log
		for range 1000 {
			lg.add(t, l, "x")
		}
		if err := l.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		lg.mu.Lock()
		done := len(lg.entries)
		lg.mu.Unlock()
		if done != 1000 {
			t.Errorf("%s: %d of 1000 acknowledged after Flush", name, done)
		}
		l.Close()
		if err := errors.Join(e.Shutdown(context.Background()), l.CloseLog()); err != nil {
			t.Error(err)
		}
		if l.Recover() == nil || l.Flush(context.Background()) == nil {
			t.Error("a closed ledger flushes or recovers")
		}
	}
}
