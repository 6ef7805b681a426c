package dispatch

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/wire"
)

func TestResetSendsFromTheNewPosition(t *testing.T) {
	for _, typ := range []wire.SubType{wire.Exclusive, wire.Failover, wire.Shared, wire.KeyShared} {
		r := start(t, Config{})
		a, sa := r.join("a", typ)
		a.Flow(100)
		for range 6 {
			r.publish("k")
		}
		r.settle()
		a.Ack([]int64{0, 1, 2, 4})
		a.Redeliver([]int64{5})
		removed, err := r.d.Reset(2)
		if err != nil || !slices.Equal(removed, []*Consumer{a}) {
			t.Fatalf("%v: removed %v, %v", typ, removed, err)
		}
		st := r.d.Stats()
		if st.Consumers != 0 || st.Unacked != 0 || st.Permits != 0 || st.Replay != 0 || st.Backlog != 4 || st.Active != "" || len(r.d.redeliver.counts) != 0 {
			t.Fatalf("%v: after it %+v", typ, st)
		}
		sent := sa.count()
		a.Ack([]int64{3}) // too late
		a.AckCumulative(5)
		a.Flow(10)
		a.Redeliver(nil)
		a.Close()
		b, sb := r.join("b", typ)
		b.Flow(100)
		r.settle()
		if got := sb.ids(); !slices.Equal(got, []int64{2, 3, 4, 5}) || sa.count() != sent || sb.got[0].Redeliveries != 0 {
			t.Fatalf("%v: the next consumer got %v, the former one %d more", typ, got, sa.count()-sent)
		}
		if n := r.d.total.Load(); n != 96 {
			t.Fatalf("%v: total %d, want 96", typ, n)
		}
	}
}

func TestResetForward(t *testing.T) {
	r := start(t, Config{})
	for range 6 {
		r.publish("k")
	}
	if removed, err := r.d.Reset(4); err != nil || len(removed) != 0 {
		t.Fatalf("removed %v, %v", removed, err)
	}
	c, s := r.join("a", wire.Exclusive)
	c.Flow(100)
	r.settle()
	if got := s.ids(); !slices.Equal(got, []int64{4, 5}) {
		t.Fatalf("got %v, want 4 and 5", got)
	}
}

func TestResetFailsWithoutHanging(t *testing.T) {
	r := start(t, Config{})
	r.d.Close()
	if _, err := r.d.Reset(0); !errors.Is(err, ErrClosed) {
		t.Fatalf("of a closed subscription: %v", err)
	}
	r = start(t, Config{})
	started, free := make(chan struct{}), make(chan struct{})
	if err := r.e.Execute(executor.Other, executor.Func(func() { close(started); <-free })); err != nil {
		t.Fatal(err)
	}
	<-started
	failed := make(chan error)
	queued := r.e.Stats().Submitted
	go func() { _, err := r.d.Reset(0); failed <- err }()
	waitUntil(t, "queued", func() bool { return r.e.Stats().Submitted > queued })
	r.e.ShutdownNow() // the task is never run
	close(free)
	if err := <-failed; !errors.Is(err, executor.ErrRejected) {
		t.Fatalf("while the executor is shut down: %v", err)
	}
	if _, err := r.d.Reset(0); !errors.Is(err, executor.ErrRejected) {
		t.Fatalf("after it: %v", err)
	}
}

// No acknowledgement of before a seek may reach the cursor after it, and
// nothing may be sent to a consumer that a seek has removed.
func TestResetBesideEverythingElse(t *testing.T) {
	for _, typ := range []wire.SubType{wire.Failover, wire.Shared, wire.KeyShared} {
		t.Run(typ.String(), func(t *testing.T) {
			r := start(t, Config{MaxReadBatchSize: 7})
			const entries, rounds = 100, 15
			for range entries {
				r.publish("k")
			}
			for range rounds {
				var wg sync.WaitGroup
				var over atomic.Bool
				for i := range 3 {
					c, s := r.join(string(rune('a'+i)), typ)
					s.seen = func(Message) {
						if over.Load() {
							t.Error("sent after the seek")
						}
					}
					wg.Go(func() {
						for !over.Load() {
							c.Flow(20)
							c.Ack(c.pending.all())
							if ids := c.pending.all(); len(ids) > 3 {
								c.Redeliver(ids[:3])
							}
						}
						c.Ack([]int64{3, 4, 5})
						c.Close()
					})
				}
				removed, err := r.d.Reset(0)
				over.Store(true)
				wg.Wait()
				st := r.d.Stats()
				if err != nil || len(removed) != 3 || st.Backlog != entries || st.Unacked != 0 || st.Permits != 0 || st.Replay != 0 {
					t.Fatalf("%v, %d removed, %+v", err, len(removed), st)
				}
			}
			c, s := r.join("last", typ)
			c.Flow(entries)
			waitUntil(t, "everything sent", func() bool { return s.count() == entries })
		})
	}
}
