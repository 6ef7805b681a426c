package dispatch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/wire"
)

func TestFailedReadIsFollowedBySmallOnes(t *testing.T) {
	r := start(t, Config{MaxReadBatchSize: 8, ReadFailureBackoff: time.Millisecond})
	for range 20 {
		r.publish("k")
	}
	c, s := r.join("a", wire.Exclusive)
	callbacks{r.d}.ReadFailed(errors.New("too many requests"))
	if n := r.d.Stats().ReadBatch; n != 1 {
		t.Fatalf("the next read may have %d entries, want 1", n)
	}
	c.Flow(100)
	waitUntil(t, "all 20 sent", func() bool { return s.count() == 20 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.sizes, []int{1, 2, 4, 8, 5}) {
		t.Fatalf("deliveries of %v, want them to double up to 8", s.sizes)
	}
}

func TestNothingIsReadDuringTheBackoff(t *testing.T) {
	for name, fail := range map[string]func(callbacks, error){"read": callbacks.ReadFailed, "replay": callbacks.ReplayFailed} {
		r := start(t, Config{ReadFailureBackoff: time.Hour})
		c, s := r.join("a", wire.Exclusive)
		r.publish("k")
		fail(callbacks{r.d}, errors.New("too many requests"))
		c.Flow(100)
		c.Redeliver(nil)
		c.WritabilityChanged()
		r.settle()
		if s.count() != 0 {
			t.Errorf("%s: %d sent while nothing should be read", name, s.count())
		}
	}
}

func TestBackoffDoublesUntilASuccess(t *testing.T) {
	cfg := Config{}
	cfg.setDefaults()
	b := backoff{first: cfg.ReadFailureBackoff, most: cfg.ReadFailureBackoffMax}
	for _, want := range []time.Duration{15 * time.Second, 30 * time.Second, 60 * time.Second, 60 * time.Second} {
		if got := b.next(); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	if b.reset(); b.next() != 15*time.Second {
		t.Fatal("a success must start over")
	}
	r := start(t, Config{ReadFailureBackoff: time.Nanosecond, ReadFailureBackoffMax: time.Hour})
	callbacks{r.d}.ReadFailed(errors.New("x"))
	callbacks{r.d}.ReadFailed(errors.New("x"))
	first := r.d.failures.now
	callbacks{r.d}.EntriesReplayed(nil)
	if first != 2 || r.d.failures.now != 0 {
		t.Fatalf("%v after two failures, %v after a success", first, r.d.failures.now)
	}
}

func TestTriggersCollapseUntilTheTaskStarts(t *testing.T) {
	r := start(t, Config{})
	c, _ := r.join("a", wire.Shared)
	r.settle()
	before := r.e.Stats().Started[executor.Dispatch]
	r.between(func() {
		for range 100 {
			c.Flow(1)
			c.WritabilityChanged()
		}
	})
	r.settle()
	if n := r.e.Stats().Started[executor.Dispatch] - before; n != 1 {
		t.Fatalf("%d tasks for 200 triggers, want 1", n)
	}
}

// What was read while earlier entries came back goes behind them.
func TestNormalReadIsPutAsideForRedeliveries(t *testing.T) {
	r := start(t, Config{})
	c, s := r.join("a", wire.KeyShared)
	r.publish("k1")
	c.Flow(1)
	r.settle()
	r.publish("k2")
	r.between(func() {
		c.Flow(10) // its task starts the read of k2, behind which is
		if err := r.e.Execute(executor.Other, executor.Func(func() { c.Redeliver(nil) })); err != nil {
			t.Error(err)
		}
	})
	r.settle()
	if got := s.ids(); !slices.Equal(got, []int64{0, 0, 1}) || !slices.Equal(s.sizes, []int{1, 2}) {
		t.Fatalf("got %v in deliveries of %v; want 0, then 0 and 1 in one", got, s.sizes)
	}
}

// An entry acknowledged while it waits to be sent again must not be asked for
// for ever.
func TestEntryGoneInTheMiddleOfTheReplaySet(t *testing.T) {
	r := start(t, Config{})
	c, s := r.join("a", wire.Shared)
	for range 3 {
		r.publish("k")
	}
	c.Flow(3)
	r.settle()
	c.Redeliver(nil) // no permits are left: all wait
	r.between(func() {
		r.d.redeliver.count([]replayItem{{id: 1}}) // as when the acknowledgement came just before the count
		c.pending.add(pendingAck{id: 99, messages: 1})
		c.Ack([]int64{1})
		r.d.redeliver.count([]replayItem{{id: 1}})
	})
	c.pending.withdraw([]int64{99})
	c.Flow(10)
	r.settle()
	if got := s.ids(); !slices.Equal(got, []int64{0, 1, 2, 0, 2}) || r.d.Stats().Replay != 0 || len(r.d.redeliver.counts) != 2 {
		t.Fatalf("got %v, %d wait, counts %v; want 0 and 2 again", got, r.d.Stats().Replay, r.d.redeliver.counts)
	}
}

func TestReadLimitsChangeWhileRunning(t *testing.T) {
	r := start(t, Config{MaxReadBatchSize: 2})
	c, s := r.join("a", wire.Exclusive)
	for range 20 {
		r.publish("k")
	}
	c.Flow(2)
	r.settle()
	r.d.SetReadLimits(8, 0)
	c.Flow(10)
	r.settle()
	r.d.SetReadLimits(-1, 1)
	c.Flow(3)
	r.settle()
	r.d.SetReadLimits(0, -1)
	c.Flow(100)
	r.settle()
	// The read that waited for permits since the first two is asked for with
	// the limits of then.
	if !slices.Equal(s.sizes, []int{2, 8, 2, 1, 1, 1, 5}) {
		t.Fatalf("deliveries of %v", s.sizes)
	}
}

func TestNextReadWaitsUntilOneDeliveryIsWritten(t *testing.T) {
	r := start(t, Config{NextRead: NextReadAnyWritten, MaxReadBatchSize: 4, MaxRoundRobinBatch: 2})
	a, sa := r.join("a", wire.Shared)
	b, sb := r.join("b", wire.Shared)
	sa.hold, sb.hold = true, true
	for range 16 {
		r.publish("k")
	}
	a.Flow(100)
	b.Flow(100)
	sent := func() int { r.settle(); return sa.count() + sb.count() }
	if n := sent(); n != 4 {
		t.Fatalf("%d sent with nothing written, want one read of 4", n)
	}
	sa.release()
	if n := sent(); n != 8 {
		t.Fatalf("%d sent after one of two deliveries was written, want 8", n)
	}
	sb.release() // also the one of the first read, which nobody waits for
	if n := sent(); n != 12 {
		t.Fatalf("%d sent, want 12", n)
	}
	b.Close() // takes its unwritten delivery along; its entries are sent again
	a.Flow(100)
	for range 10 {
		sa.release()
		r.settle()
	}
	want := slices.Concat(sa.ids(), sb.ids())
	slices.Sort(want)
	if want = slices.Compact(want); len(want) != 16 {
		t.Fatalf("%v sent, want all 16", want)
	}
	sb.release()
}

func TestNextReadSurvivesWhoeverNeverWrites(t *testing.T) {
	for name, leave := range map[string]func(*rig, *Consumer){
		"close": func(_ *rig, c *Consumer) { // without a replay, which would let it go on
			c.Ack([]int64{0})
			c.Close()
		},
		"reset": func(r *rig, _ *Consumer) {
			if _, err := r.d.Reset(0); err != nil {
				r.t.Fatalf("%v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{NextRead: NextReadAnyWritten})
			a, sa := r.join("a", wire.Exclusive)
			sa.hold = true
			r.publish("k")
			a.Flow(100)
			r.settle()
			leave(r, a)
			b, sb := r.join("b", wire.Exclusive)
			r.publish("k")
			b.Flow(100)
			waitUntil(t, "b has what came after", func() bool { r.settle(); return slices.Contains(sb.ids(), 1) })
		})
	}
}

func TestNextReadDoesNotWaitByDefault(t *testing.T) {
	r := start(t, Config{MaxReadBatchSize: 2})
	c, s := r.join("a", wire.Exclusive)
	s.hold = true
	for range 10 {
		r.publish("k")
	}
	c.Flow(100)
	r.settle()
	if s.count() != 10 {
		t.Fatalf("%d sent, want all 10", s.count())
	}
	s.release()
}

func TestRejectedTriggerIsTriedAgain(t *testing.T) {
	r := start(t, Config{})
	small := executor.New(executor.Options{MaxTasks: 1})
	defer func() { _ = small.Shutdown(context.Background()) }()
	c, s := r.join("a", wire.Exclusive)
	r.publish("k")
	r.settle()
	r.between(func() { r.d.executor = small }) // triggers go there, reads stay where they are
	busy := make(chan struct{})
	if err := small.Execute(executor.Other, executor.Func(func() { <-busy })); err != nil {
		t.Fatal(err)
	}
	c.Flow(10)
	if r.d.requested.Load() || !r.d.retrying.Load() {
		t.Fatal("a rejected trigger is not due for another try")
	}
	close(busy)
	waitUntil(t, "sent", func() bool { return s.count() == 1 })
}
