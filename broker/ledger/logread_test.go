package ledger

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/storage"
)

func TestReadsBeyondTheCacheComeFromTheLog(t *testing.T) {
	e := newExecutor(t)
	f := &fakeLog{}
	l := openOn(t, e, f, Config{ReadCacheBytes: 30}) // ten entries of three bytes
	c, r := openCursor(t, l, Earliest)
	var lg log
	for i := range 100 {
		lg.add(t, l, strconv.Itoa(100+i))
	}
	lg.settled.Wait()
	if st := l.Stats(); st.Bytes != 30 || st.Kept != 100 {
		t.Fatalf("%+v, want 30 bytes in memory of 100 entries", st)
	}
	c.Delete([]int64{3, 95})
	var got []int64
	for len(got) < 98 {
		if err := c.AsyncReadOrWait(40, 0); err != nil {
			t.Fatal(err)
		}
		got = append(got, r.next(t)...)
	}
	want := slices.DeleteFunc(seq(0, 100), func(id int64) bool { return id == 3 || id == 95 })
	if !slices.Equal(got, want) {
		t.Fatalf("read %v", got)
	}
	if f.reads == 0 {
		t.Fatal("nothing was read from the log")
	}
	// A replay of both kinds may take several rounds.
	wanted := []int64{1, 2, 3, 50, 94, 96}
	var replayed []int64
	for len(replayed) < 5 {
		if err := c.AsyncReplay(wanted, 0); err != nil {
			t.Fatal(err)
		}
		ids := idsOf(<-r.replay)
		if len(ids) == 0 {
			t.Fatalf("nothing of %v was replayed", wanted)
		}
		replayed = append(replayed, ids...)
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(id int64) bool { return slices.Contains(ids, id) })
	}
	if !slices.Equal(replayed, []int64{1, 2, 50, 94, 96}) {
		t.Fatalf("replayed %v", replayed)
	}
	f.set(func() { f.fail = errors.New("bad disk") })
	_ = c.AsyncReplay([]int64{1}, 0)
	if err := <-r.failed; !errors.Is(err, f.fail) {
		t.Fatalf("failing replay: %v", err)
	}
	c.MarkDelete(59)
	f.set(func() { f.fail = nil })
	l.requestTrim()
	eventually(t, "the log is trimmed", func() bool { return f.First() == 60 })
	if e, ok, err := l.Entry(59); ok || err != nil {
		t.Fatalf("entry 59 after trimming: %v %v %v", e, ok, err)
	}
	if e, ok, err := l.Entry(60); !ok || err != nil || string(e.Data) != "160" {
		t.Fatalf("entry 60: %v %v %v", e, ok, err)
	}
}

func seq(from, to int64) (ids []int64) {
	for id := from; id < to; id++ {
		ids = append(ids, id)
	}
	return ids
}

func TestDamagedEntriesStopOrArePassedOver(t *testing.T) {
	damage := &storage.CorruptError{File: "f", Offset: 7, First: 3, Next: 6}
	for _, skip := range []bool{false, true} {
		e := newExecutor(t)
		f := &fakeLog{damage: damage}
		st := NewStorageStats()
		l := openOn(t, e, f, Config{ReadCacheBytes: 1, SkipCorrupt: skip, Storage: st})
		c, r := openCursor(t, l, Earliest)
		var lg log
		for range 10 {
			lg.add(t, l, "abc")
		}
		lg.settled.Wait()
		_ = c.AsyncReadOrWait(3, 0)
		if got := r.next(t); !slices.Equal(got, seq(0, 3)) {
			t.Fatalf("before the damage: %v", got)
		}
		_ = c.AsyncReadOrWait(10, 0)
		_ = c.AsyncReplay([]int64{1, 3, 4, 8}, 0)
		if !skip {
			for range 2 { // the read and the replay
				var got *storage.CorruptError
				if err := <-r.failed; !errors.As(err, &got) || got != damage {
					t.Fatalf("%v", err)
				}
			}
			if c.Backlog() != 10 {
				t.Fatalf("backlog %d: something was acknowledged", c.Backlog())
			}
			continue
		}
		if got := r.next(t); !slices.Equal(got, seq(6, 10)) {
			t.Fatalf("after the damage: %v", got)
		}
		if got := idsOf(<-r.replay); !slices.Equal(got, []int64{1, 8}) {
			t.Fatalf("replayed %v", got)
		}
		if c.Backlog() != 7 || st.Skipped.Load() != 3 {
			t.Fatalf("backlog %d, %d passed over", c.Backlog(), st.Skipped.Load())
		}
	}
}

// A read of the log whose end the executor takes no more fails; its subscription
// would wait for ever otherwise.
func TestReadsOfTheLogThatAreRejectedFail(t *testing.T) {
	e := executor.New(executor.Options{MaxTasks: 2})
	t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	f := &fakeLog{}
	l := openOn(t, e, f, Config{Handover: Direct, ReadCacheBytes: 1})
	c, r := openCursor(t, l, Earliest)
	for range 3 {
		var lg log
		lg.add(t, l, "abc")
		lg.settled.Wait()
	}
	for name, read := range map[string]func() error{
		"read":   func() error { return c.AsyncReadOrWait(1, 0) },
		"replay": func() error { return c.AsyncReplay([]int64{0}, 0) },
	} {
		f.set(func() { f.hold = make(chan struct{}) })
		if err := read(); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" of the log has begun", func() bool { return f.holding.Load() })
		running, gate := make(chan struct{}), make(chan struct{})
		_ = e.Execute(executor.Other, executor.Func(func() { close(running); <-gate }))
		<-running
		_ = e.Execute(executor.Other, executor.Func(func() {})) // now it is full
		close(f.hold)
		select {
		case err := <-r.failed:
			if !errors.Is(err, executor.ErrRejected) {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the %s neither ends nor fails", name)
		}
		f.set(func() { f.hold = nil })
		close(gate)
		eventually(t, "the executor is free", func() bool { return e.Stats().Queued == 0 })
	}
}
