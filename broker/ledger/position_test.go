package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/broker/executor"
)

// onExecutor runs f on e and waits for it.
func onExecutor(e *executor.Executor, f func()) {
	done := make(chan struct{})
	if err := e.Execute(executor.Other, executor.Func(func() { f(); close(done) })); err != nil {
		panic(err)
	}
	<-done
}

func TestExtendedReadAsksAgainWhileEntriesArrive(t *testing.T) {
	for _, tt := range []struct {
		completion ReadCompletion
		want       []int64
		reads      uint64
	}{
		{LastConfirmed, []int64{0}, 1},
		{Extend, []int64{0, 1, 2, 3}, 2},
	} {
		e := newExecutor(t)
		l := open(t, e, Config{ReadCompletion: tt.completion, Handover: Direct})
		c, r := openCursor(t, l, Earliest)
		var lg log
		// The executor has, in this order: an add, a read, three adds.
		onExecutor(e, func() {
			lg.add(t, l, "a")
			onTail := executor.Func(func() { _ = c.AsyncReadOrWait(4, 0) })
			_ = e.Execute(executor.Other, onTail)
			for range 3 {
				_ = e.Execute(executor.Other, executor.Func(func() { lg.add(t, l, "b") }))
			}
		})
		if got := r.next(t); !slices.Equal(got, tt.want) {
			t.Errorf("%s read %v, want %v", tt.completion, got, tt.want)
		}
		if n := e.Stats().Started[executor.Read]; n != tt.reads {
			t.Errorf("%s took %d read tasks, want %d", tt.completion, n, tt.reads)
		}
	}
}

func TestExtendedReadEndsWhenFull(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{ReadCompletion: Extend})
	c, r := openCursor(t, l, Earliest)
	var lg log
	for range 10 {
		lg.add(t, l, "12345")
	}
	lg.settled.Wait()
	for _, step := range []struct {
		most  int
		bytes int64
		want  []int64
	}{{3, 0, []int64{0, 1, 2}}, {10, 10, []int64{3, 4}}, {10, 1, []int64{5}}, {10, 0, []int64{6, 7, 8, 9}}} {
		if err := c.AsyncReadOrWait(step.most, step.bytes); err != nil {
			t.Fatal(err)
		}
		if got := r.next(t); !slices.Equal(got, step.want) {
			t.Fatalf("at most %d entries and %d bytes: %v, want %v", step.most, step.bytes, got, step.want)
		}
	}
}

func TestResetMovesTheCursorAndDropsReadsUnderWay(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{})
	c, r := openCursor(t, l, Earliest)
	var lg log
	for range 10 {
		lg.add(t, l, "x")
	}
	lg.settled.Wait()
	_ = c.AsyncReadOrWait(10, 0)
	r.next(t)
	c.MarkDelete(9)
	_ = c.AsyncReadOrWait(10, 0) // waits at the tail
	onExecutor(e, func() {
		_ = c.AsyncReplay([]int64{1}, 0) // under way
		c.Reset(4)
	})
	if c.Backlog() != 6 || c.MarkDeletePosition() != 3 || !c.TakeDirty() {
		t.Fatalf("backlog %d, mark %d", c.Backlog(), c.MarkDeletePosition())
	}
	if err := c.AsyncReadOrWait(100, 0); err != nil { // none is pending any more
		t.Fatal(err)
	}
	if got := r.next(t); !slices.Equal(got, seq(4, 10)) {
		t.Fatalf("read %v", got)
	}
	_ = c.AsyncReadOrWait(100, 0)
	lg.add(t, l, "y")
	if got := r.next(t); !slices.Equal(got, []int64{10}) {
		t.Fatalf("read %v at the tail", got)
	}
	onExecutor(e, func() {})
	select {
	case got := <-r.replay:
		t.Fatalf("a replay of before the reset came back: %v", got)
	default:
	}
	for at, want := range map[int64]int64{-5: 11, 99: 0} {
		onExecutor(e, func() { c.Reset(at) })
		if c.Backlog() != want {
			t.Errorf("reset to %d: backlog %d, want %d", at, c.Backlog(), want)
		}
	}
}

func TestCursorsStartWhereTheyAreTold(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{})
	keeper, _ := openCursor(t, l, Earliest)
	var lg log
	for range 10 {
		lg.add(t, l, "x")
	}
	lg.settled.Wait()
	keeper.MarkDelete(2)
	l.requestTrim()
	onExecutor(e, func() {})
	for at, want := range map[Position]int64{Latest: 10, Earliest: 3, 5: 5, 0: 3, 50: 10} {
		c, _ := openCursor(t, l, at)
		if c.ReadPosition() != want || c.MarkDeletePosition() != want-1 || c.Backlog() != 10-want {
			t.Errorf("at %d: reads %d next, mark %d, backlog %d", at, c.ReadPosition(), c.MarkDeletePosition(), c.Backlog())
		}
		c.Close()
	}
}

func TestSearchFindsTheFirst(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{})
	keeper, _ := openCursor(t, l, Earliest)
	find := func(from string) int64 {
		n, err := l.Search(func(e Entry) bool { return string(e.Data) >= from })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := find("0"); n != 0 {
		t.Fatalf("found %d in an empty ledger", n)
	}
	var lg log
	for i := range 50 {
		lg.add(t, l, fmt.Sprintf("%02d", i))
	}
	lg.settled.Wait()
	keeper.MarkDelete(9)
	l.requestTrim()
	onExecutor(e, func() {})
	for from, want := range map[string]int64{"00": 10, "10": 10, "10x": 11, "49": 49, "5": 50} {
		if n := find(from); n != want {
			t.Errorf("first from %q is %d, want %d", from, n, want)
		}
	}
}

func TestStateSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &Ledger{}
		l.entries.startAt(0, 0)
		l.trimming.Store(true)
		last := rapid.Int64Range(0, 500).Draw(t, "last")
		l.lastConfirmed.Store(last)
		c := &Cursor{ledger: l}
		c.startAt(0)
		acked := map[int64]bool{}
		for _, run := range rapid.SliceOf(rapid.Int64Range(0, last)).Draw(t, "runs") {
			var ids []int64
			for id := run; id <= min(last, run+rapid.Int64Range(0, 100).Draw(t, "n")); id++ {
				ids = append(ids, id)
				acked[id] = true
			}
			c.Delete(ids)
		}
		d := &Cursor{ledger: l}
		d.Restore(c.State())
		for id := range last + 1 {
			if d.isAcked(id) != acked[id] {
				t.Fatalf("entry %d acknowledged: %v, want %v; state %+v", id, d.isAcked(id), acked[id], c.State())
			}
		}
		if d.Backlog() != last+1-int64(len(acked)) || d.MarkDeletePosition() != c.MarkDeletePosition() || d.ReadPosition() != d.MarkDeletePosition()+1 {
			t.Fatalf("backlog %d, mark %d, reads %d next", d.Backlog(), d.MarkDeletePosition(), d.ReadPosition())
		}
	})
}

func TestRetentionKeepsTheNewestAcknowledged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s store
		s.startAt(0, 0)
		var sizes []int64
		base := int64(0)
		keep := rapid.Int64Range(-1, 300).Draw(t, "keep")
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 50).Draw(t, "n") {
					n := rapid.Int64Range(0, 40).Draw(t, "size")
					sizes = append(sizes, n)
					s.append(make([]byte, n), 1, 0)
				}
			},
			"trim": func(t *rapid.T) { // marks may go back, as cursors may
				n := rapid.Int64Range(0, int64(len(sizes))+5).Draw(t, "before")
				s.trimKeeping(n, keep)
				var held int64
				for _, b := range sizes[base:max(base, min(n, int64(len(sizes))))] {
					held += b
				}
				for keep >= 0 && base < min(n, int64(len(sizes))) && (held > keep || keep == 0) {
					held -= sizes[base]
					base++
				}
			},
			"": func(t *rapid.T) {
				if s.base != base {
					t.Fatalf("first entry held %d, want %d", s.base, base)
				}
			},
		})
	})
}

func TestRetentionOfALedger(t *testing.T) {
	e := newExecutor(t)
	l := open(t, e, Config{RetentionBytes: 100})
	c, _ := openCursor(t, l, Earliest)
	var lg log
	for range 50 {
		lg.add(t, l, "0123456789")
	}
	lg.settled.Wait()
	c.MarkDelete(39)
	l.requestTrim()
	onExecutor(e, func() {})
	if st := l.Stats(); st.Kept != 20 { // 10 of the backlog, 10 of 10 bytes beside
		t.Fatalf("%d entries kept, want 20", st.Kept)
	}
	if err := l.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestRejectedWakeFailsTheReadThatWaits(t *testing.T) {
	e := executor.New(executor.Options{})
	l := open(t, e, Config{})
	c, r := openCursor(t, l, Earliest)
	if err := c.AsyncReadOrWait(1, 0); err != nil { // registers: there is nothing
		t.Fatal(err)
	}
	running, gate := make(chan struct{}), make(chan struct{})
	_ = e.Execute(executor.Other, executor.Func(func() { close(running); <-gate }))
	<-running
	var lg log
	lg.add(t, l, "x")
	closed := make(chan error, 1)
	go func() { closed <- e.Shutdown(context.Background()) }()
	eventually(t, "the executor takes no tasks", func() bool {
		return e.Execute(executor.Other, executor.Func(func() {})) != nil
	})
	close(gate) // the add runs, and its wake-up is rejected
	select {
	case err := <-r.failed:
		if !errors.Is(err, executor.ErrRejected) {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the read still waits, and nobody will wake it")
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}
