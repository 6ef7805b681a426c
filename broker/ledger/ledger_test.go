package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/stats"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log collects the ends of adds.
type log struct {
	mu      sync.Mutex
	entries []int64
	errs    []error
	settled sync.WaitGroup
}

type logged struct {
	Add
	l *log
}

func (a *logged) AddCompleted(entry int64) {
	a.l.mu.Lock()
	a.l.entries = append(a.l.entries, entry)
	a.l.mu.Unlock()
	a.l.settled.Done()
}

func (a *logged) AddFailed(err error) {
	a.l.mu.Lock()
	a.l.errs = append(a.l.errs, err)
	a.l.mu.Unlock()
	a.l.settled.Done()
}

func (l *log) add(t testing.TB, led *Ledger, data string) {
	t.Helper()
	a := &logged{Add: Add{Data: []byte(data), Messages: 1}, l: l}
	a.Done = a
	l.settled.Add(1)
	if err := led.AsyncAddEntry(&a.Add); err != nil {
		t.Fatal(err)
	}
}

// reads collects what a cursor reads.
type reads struct {
	got    chan []Entry
	replay chan []Entry
	failed chan error
}

func newReads() *reads {
	return &reads{make(chan []Entry, 10), make(chan []Entry, 10), make(chan error, 10)}
}

func (r *reads) EntriesRead(e []Entry)     { r.got <- slices.Clone(e) }
func (r *reads) EntriesReplayed(e []Entry) { r.replay <- slices.Clone(e) }
func (r *reads) ReadFailed(err error)      { r.failed <- err }
func (r *reads) ReplayFailed(err error)    { r.failed <- err }

func (r *reads) next(t *testing.T) (ids []int64) {
	t.Helper()
	select {
	case e := <-r.got:
		return idsOf(e)
	case err := <-r.failed:
		t.Fatalf("read failed: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("no read completed")
	}
	return nil
}

func idsOf(entries []Entry) (ids []int64) {
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return ids
}

func newExecutor(t testing.TB) *executor.Executor {
	e := executor.New(executor.Options{Name: "test"})
	t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	return e
}

func open(t testing.TB, e *executor.Executor, cfg Config) *Ledger {
	t.Helper()
	l, err := OpenLedger(7, "l", e, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

var modes = map[string]Config{
	"direct":                {Handover: Direct, MaxBatchItems: 1024},
	"batched":               {Handover: Batched, MaxBatchItems: 1024, MaxBatchBytes: 5 << 20},
	"batched, 2 items":      {MaxBatchItems: 2},
	"a batch for every add": {MaxBatchItems: 1024, MaxBatchBytes: 1},
}

func TestAddsCompleteInOrder(t *testing.T) {
	for name, cfg := range modes {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t)
			sizes := stats.NewHistogram([]int64{1, 2})
			cfg.BatchSizes = sizes
			l := open(t, e, cfg)
			var lg log
			var want []int64
			for i := range 300 {
				lg.add(t, l, fmt.Sprint(i))
				want = append(want, int64(i))
			}
			lg.settled.Wait()
			if !slices.Equal(lg.entries, want) || len(lg.errs) > 0 {
				t.Fatalf("entries %v, errors %v", lg.entries, lg.errs)
			}
			if l.LastConfirmed() != 299 {
				t.Fatalf("last confirmed %d", l.LastConfirmed())
			}
			st := e.Stats()
			if d := st.Delay[executor.Add]; d.Count() != 300 {
				t.Errorf("%d times in queue of adds observed, want one per add", d.Count())
			}
			direct := cfg.Handover == Direct
			if direct != (st.Started[executor.Add] == 300) || direct != (st.Started[executor.AddBatch] == 0) {
				t.Errorf("%d add tasks and %d batch tasks", st.Started[executor.Add], st.Started[executor.AddBatch])
			}
			onExecutor(e, func() {}) // a batch's size is counted once it has run
			if s := sizes.Snapshot(); cfg.MaxBatchBytes == 1 && s.Counts[0] != 300 {
				t.Errorf("batch sizes %v, want 300 of one", s.Counts)
			}
		})
	}
}

func TestLimitsAreCapturedAtOpen(t *testing.T) {
	e := newExecutor(t)
	cfg := Config{MaxBatchItems: 10, MaxBatchBytes: 99}
	l := open(t, e, cfg)
	cfg.MaxBatchItems, cfg.MaxBatchBytes = 1, 1
	if mode, items, bytes := l.Handover(); mode != Batched || items != 10 || bytes != 99 {
		t.Errorf("limits changed under an open ledger: %v %d %d", mode, items, bytes)
	}
	if mode, _, _ := open(t, e, cfg).Handover(); mode != Direct {
		t.Errorf("a ledger opened with 1 item is %v, want direct", mode)
	}
	if _, _, bytes := open(t, e, Config{MaxBatchItems: 5}).Handover(); bytes != 0 {
		t.Errorf("byte limit %d, want none", bytes)
	}
	if mode, _, _ := open(t, e, Config{Handover: Direct, MaxBatchItems: 1024}).Handover(); mode != Direct {
		t.Errorf("direct with a batch size is %v", mode)
	}
}

func TestBadConfig(t *testing.T) {
	for _, cfg := range []Config{
		{Handover: "none"}, {MaxBatchItems: -1}, {MaxBatchBytes: -1}, {QueueChunk: -1}, {NewEntriesCheckDelay: -1},
	} {
		if _, err := OpenLedger(1, "l", nil, cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestRejectedAddFailsItsCallerOnly(t *testing.T) {
	for name, cfg := range modes {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t)
			l := open(t, e, cfg)
			if err := e.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := &logged{Add: Add{Data: []byte("x")}, l: &log{}}
			a.Done = a // settled.Done would panic: the callback must not be called
			if err := l.AsyncAddEntry(&a.Add); !errors.Is(err, executor.ErrRejected) {
				t.Fatalf("AsyncAddEntry: %v, want ErrRejected", err)
			}
			if len(a.l.entries)+len(a.l.errs) != 0 {
				t.Fatal("the callback was called as well")
			}
		})
	}
}

func TestStatesFailAdds(t *testing.T) {
	e := newExecutor(t)
	for state, want := range map[State]error{Fenced: ErrFenced, Terminated: ErrTerminated, Closed: ErrClosed} {
		l := open(t, e, Config{MaxBatchItems: 10})
		l.SetState(state)
		var lg log
		lg.add(t, l, "x")
		lg.settled.Wait()
		if len(lg.errs) != 1 || !errors.Is(lg.errs[0], want) {
			t.Errorf("state %d: %v, want %v", state, lg.errs, want)
		}
	}
}

func openCursor(t *testing.T, l *Ledger, at Position) (*Cursor, *reads) {
	t.Helper()
	r := newReads()
	c, err := l.OpenCursor("c", at, true, r)
	if err != nil {
		t.Fatal(err)
	}
	return c, r
}

func TestReadStopsAtItsLimits(t *testing.T) {
	l := open(t, newExecutor(t), Config{})
	c, r := openCursor(t, l, Earliest)
	var lg log
	for range 10 {
		lg.add(t, l, "12345")
	}
	lg.settled.Wait()
	for _, step := range []struct {
		entries int
		bytes   int64
		want    []int64
	}{
		{3, 0, []int64{0, 1, 2}},
		{100, 10, []int64{3, 4}}, // two entries fit
		{100, 14, []int64{5, 6}}, // and not nearly three
		{100, 1, []int64{7}},     // one at least
		{0, 0, []int64{8}},       // one at least
		{100, 0, []int64{9}},     // to the last confirmed entry, no further
	} {
		if err := c.AsyncReadOrWait(step.entries, step.bytes); err != nil {
			t.Fatal(err)
		}
		if got := r.next(t); !slices.Equal(got, step.want) {
			t.Fatalf("read of %d entries, %d bytes: %v, want %v", step.entries, step.bytes, got, step.want)
		}
	}
}

func TestOneWakeTaskPerWaitingCursor(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{MaxBatchItems: 10})
	var cursors []*Cursor
	var rs []*reads
	for range 3 {
		c, r := openCursor(t, l, Latest)
		if err := c.AsyncReadOrWait(10, 0); err != nil {
			t.Fatal(err)
		}
		cursors, rs = append(cursors, c), append(rs, r)
	}
	if err := cursors[0].AsyncReadOrWait(1, 0); !errors.Is(err, ErrReadPending) {
		t.Fatalf("second read: %v, want ErrReadPending", err)
	}
	var lg log
	lg.add(t, l, "x")
	for i, r := range rs {
		if got := r.next(t); !slices.Equal(got, []int64{0}) {
			t.Fatalf("cursor %d read %v", i, got)
		}
	}
	lg.add(t, l, "y") // nobody waits any more
	lg.settled.Wait()
	if n := e.Stats().Started[executor.Wake]; n != 3 {
		t.Fatalf("%d wake tasks, want one for each of 3 cursors", n)
	}
}

func TestEntryThatComesDuringTheCheckDelayNeedsNoWake(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{NewEntriesCheckDelay: time.Millisecond})
	c, r := openCursor(t, l, Latest)
	var lg log
	for i := range 20 {
		if err := c.AsyncReadOrWait(10, 0); err != nil {
			t.Fatal(err)
		}
		lg.add(t, l, "x") // before or after the check: either way it is read
		if got := r.next(t); !slices.Equal(got, []int64{int64(i)}) {
			t.Fatalf("round %d: read %v", i, got)
		}
	}
}

func TestEndedCursorReadsNoMore(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{NewEntriesCheckDelay: time.Hour})
	c, r := openCursor(t, l, Latest)
	if err := c.AsyncReadOrWait(10, 0); err != nil {
		t.Fatal(err)
	}
	c.Close() // must not wait for the hour
	if err := c.AsyncReadOrWait(10, 0); !errors.Is(err, ErrClosed) {
		t.Fatalf("read on a closed cursor: %v", err)
	}
	var lg log
	lg.add(t, l, "x")
	lg.settled.Wait()
	if len(r.got)+len(r.failed) != 0 {
		t.Fatal("a read completed after Close")
	}
}

func TestReadRejectedAtWakeIsReported(t *testing.T) {
	e := executor.New(executor.Options{})
	l := open(t, e, Config{NewEntriesCheckDelay: time.Millisecond})
	c, r := openCursor(t, l, Earliest)
	var lg log
	if err := c.AsyncReadOrWait(1, 0); err != nil {
		t.Fatal(err)
	}
	lg.add(t, l, "x")
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.got: // the check came before the shutdown
	case err := <-r.failed:
		if !errors.Is(err, executor.ErrRejected) {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("neither read nor failed")
	}
	if err := c.AsyncReadOrWait(1, 0); err != nil && !errors.Is(err, executor.ErrRejected) {
		t.Fatalf("read after the failure: %v", err)
	}
}

func TestReplaySkipsWhatIsGone(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{})
	c, r := openCursor(t, l, Earliest)
	var lg log
	for range 10 {
		lg.add(t, l, "12345")
	}
	lg.settled.Wait()
	c.Delete([]int64{0, 4})
	if err := c.AsyncReplay([]int64{0, 2, 4, 6, 8, 99}, 10); err != nil {
		t.Fatal(err)
	}
	if got := idsOf(<-r.replay); !slices.Equal(got, []int64{2, 6}) {
		t.Fatalf("replayed %v, want 2 and 6: two fit", got)
	}
}

func TestMemoryStaysBounded(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{MaxBatchItems: 64})
	slow, _ := openCursor(t, l, Earliest)
	fast, _ := openCursor(t, l, Earliest)
	var lg log
	const n = 5 * segmentSize
	for range n {
		lg.add(t, l, "12345678")
	}
	lg.settled.Wait()
	settle := func() Stats {
		done := make(chan struct{})
		_ = e.Execute(executor.Other, executor.Func(func() { close(done) }))
		<-done
		return l.Stats()
	}
	fast.MarkDelete(n - 1)
	if st := settle(); st.Kept != n {
		t.Fatalf("%d entries kept, want all: one cursor has not moved", st.Kept)
	}
	slow.MarkDelete(2*segmentSize + 5)
	if st := settle(); st.Kept != n-2*segmentSize-6 || st.Bytes != 8*st.Kept {
		t.Fatalf("%+v after the slow cursor passed two segments", st)
	}
	slow.Close()
	if st := settle(); st.Kept != 0 {
		t.Fatalf("%d entries kept after the slow cursor left", st.Kept)
	}
	fast.Close()
	for range 2 * segmentSize {
		lg.add(t, l, "12345678")
	}
	lg.settled.Wait()
	if st := settle(); st.Kept > segmentSize {
		t.Fatalf("%d entries kept with no cursor at all", st.Kept)
	}
}

func TestHostileAcksChangeNothing(t *testing.T) {
	l := open(t, newExecutor(t), Config{})
	c, _ := openCursor(t, l, Earliest)
	var lg log
	lg.add(t, l, "x")
	lg.settled.Wait()
	if n := c.Delete([]int64{1, 1 << 60, -1, -1 << 63}); n != 0 || len(c.acked.words) > 1 {
		t.Fatalf("%d acknowledged, %d words", n, len(c.acked.words))
	}
	if n := c.MarkDelete(1 << 60); n != 1 || c.MarkDeletePosition() != 0 || c.Backlog() != 0 {
		t.Fatalf("cumulative beyond the end: %d acknowledged, mark %d, backlog %d", n, c.MarkDeletePosition(), c.Backlog())
	}
}

func TestQueueIsMadeByTheFirstAdd(t *testing.T) {
	l := open(t, newExecutor(t), Config{MaxBatchItems: 10})
	if l.batching.Created() {
		t.Error("a ledger never written to has a queue")
	}
	var lg log
	lg.add(t, l, "x")
	lg.settled.Wait()
	if !l.batching.Created() {
		t.Error("no queue after the first add")
	}
}

func TestAddsAfterAFailedOneOfTheirProducerFail(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{MaxBatchItems: 10})
	var failed atomic.Bool
	var lg log
	add := func() {
		a := &logged{Add: Add{Data: []byte("x"), Messages: 1, Failed: &failed}, l: &lg}
		a.Done = a
		lg.settled.Add(1)
		if err := l.AsyncAddEntry(&a.Add); err != nil {
			t.Fatal(err)
		}
	}
	add()
	lg.settled.Wait()
	running, gate := make(chan struct{}), make(chan struct{})
	_ = e.Execute(executor.Other, executor.Func(func() { close(running); <-gate }))
	<-running
	add() // handed over before the failure, run after it
	failed.Store(true)
	close(gate)
	lg.settled.Wait()
	if len(lg.entries) != 1 || len(lg.errs) != 1 || !errors.Is(lg.errs[0], ErrFenced) {
		t.Fatalf("stored %v, failed %v", lg.entries, lg.errs)
	}
}
