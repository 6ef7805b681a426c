package dispatch

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/wire"
)

// Flow credits the consumer at once and the dispatcher's total later; removing
// the consumer in between must debit only what was credited (Pulsar #26289: the
// total drifted negative for ever, and reads went on, which hid it).
func TestRemovalDebitsOnlyWhatWasCredited(t *testing.T) {
	r := start(t, Config{Flow: Monitor})
	c, _ := r.join("a", wire.KeyShared)
	other, _ := r.join("b", wire.KeyShared)
	other.Flow(7)
	c.Flow(5)
	r.settle()
	free := make(chan struct{})
	var running sync.WaitGroup
	for _, w := range r.workers.All() { // so that the next credit stays on its way
		running.Add(1)
		if err := w.Execute(executor.Other, executor.Func(func() { running.Done(); <-free })); err != nil {
			t.Fatal(err)
		}
	}
	running.Wait()
	c.Flow(1000)
	if got := c.permits.Load(); got != 1005 {
		t.Fatalf("the consumer has %d permits, want them at once", got)
	}
	c.Close()
	if got := r.d.total.Load(); got != 7 {
		t.Errorf("total %d right after the removal, want the other consumer's 7", got)
	}
	close(free)
	r.settle()
	if got := r.d.total.Load(); got != 7 {
		t.Errorf("total %d after the late credit, want 7", got)
	}
}

func TestAtomicFlowBesideRemoval(t *testing.T) {
	for _, mode := range []FlowMode{Atomic, Monitor} {
		t.Run(string(mode), func(t *testing.T) {
			r := start(t, Config{Flow: mode})
			stop := make(chan struct{})
			var publisher sync.WaitGroup
			publisher.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						r.publish("k")
					}
				}
			})
			for range 50 {
				c, _ := r.join("c", wire.KeyShared)
				var flows sync.WaitGroup
				for range 3 {
					flows.Go(func() {
						for range 20 {
							c.Flow(3)
						}
					})
				}
				c.Close()
				flows.Wait()
			}
			close(stop)
			publisher.Wait()
			r.settle()
			if got := r.d.total.Load(); got != 0 {
				t.Fatalf("total %d with no consumer left, want 0", got)
			}
		})
	}
}

func TestOnlyMonitorFlowWaitsForTheLock(t *testing.T) {
	for _, mode := range []FlowMode{Atomic, Monitor} {
		r := start(t, Config{Flow: mode})
		c, s := r.join("a", wire.Exclusive)
		r.publish("k")
		r.d.mu.Lock() // as a running send loop
		c.Flow(10)
		credited := r.d.total.Load()
		r.d.mu.Unlock()
		if want := map[FlowMode]int64{Atomic: 10, Monitor: 0}[mode]; credited != want {
			t.Errorf("%s: %d permits credited while the lock was held, want %d", mode, credited, want)
		}
		r.settle()
		if s.count() != 1 || r.d.total.Load() != 9 {
			t.Errorf("%s: %d sent, total %d", mode, s.count(), r.d.total.Load())
		}
	}
}

func TestPermitsCountMessages(t *testing.T) {
	r := start(t, Config{})
	c, s := r.join("a", wire.Exclusive)
	for range 3 {
		r.publishMessage(&wire.Metadata{ProducerName: []byte("p"), NumMessages: 10, Batched: true})
	}
	c.Flow(11)
	r.settle()
	if s.count() != 2 || c.permits.Load() != -9 {
		t.Fatalf("%d entries sent, %d permits left; 11 permits take two entries of 10 messages", s.count(), c.permits.Load())
	}
	c.Flow(9)
	r.settle()
	if s.count() != 2 {
		t.Fatalf("%d entries sent with no permit left", s.count())
	}
	c.Flow(1)
	r.settle()
	if s.count() != 3 {
		t.Fatalf("%d entries sent, want all 3", s.count())
	}
}

func TestReadBatchesAreLimited(t *testing.T) {
	r := start(t, Config{MaxReadBatchSize: 4})
	for range 10 {
		r.publish("k")
	}
	c, s := r.join("a", wire.Exclusive)
	c.Flow(100)
	r.settle()
	if !slices.Equal(s.sizes, []int{4, 4, 2}) {
		t.Fatalf("deliveries of %v, want 4, 4 and 2", s.sizes)
	}
}

func TestExclusiveRefusesASecondConsumerAndOtherTypes(t *testing.T) {
	r := start(t, Config{})
	c, _ := r.join("a", wire.Exclusive)
	if _, err := r.d.AddConsumer(ConsumerOptions{Name: "b", Type: wire.Exclusive}); !errors.Is(err, ErrConsumerBusy) {
		t.Errorf("second exclusive consumer: %v", err)
	}
	if _, err := r.d.AddConsumer(ConsumerOptions{Name: "b", Type: wire.Shared}); !errors.Is(err, ErrOtherType) {
		t.Errorf("shared consumer beside an exclusive one: %v", err)
	}
	c.Close()
	r.join("b", wire.Shared)
}

func TestFailoverHandsOverInOrder(t *testing.T) {
	r := start(t, Config{})
	a, sa := r.join("a", wire.Failover)
	b, sb := r.join("b", wire.Failover)
	for _, c := range []*Consumer{a, b} {
		c.Flow(100)
	}
	for range 5 {
		r.publish("k")
	}
	r.settle()
	a.Ack([]int64{0, 1})
	if sa.count() != 5 || sb.count() != 0 {
		t.Fatalf("active got %d, standby %d", sa.count(), sb.count())
	}
	a.Close()
	r.publish("k")
	r.settle()
	if got := sb.ids(); !slices.Equal(got, []int64{2, 3, 4, 5}) {
		t.Fatalf("the standby got %v, want what was not acknowledged, then the new one", got)
	}
	if sb.got[0].Redeliveries != 1 || sb.got[3].Redeliveries != 0 {
		t.Fatalf("redelivery counts %d and %d, want 1 and 0", sb.got[0].Redeliveries, sb.got[3].Redeliveries)
	}
}

func TestSharedTakesTurns(t *testing.T) {
	r := start(t, Config{MaxRoundRobinBatch: 3})
	for range 12 {
		r.publish("k")
	}
	a, sa := r.join("a", wire.Shared)
	b, sb := r.join("b", wire.Shared)
	r.d.mu.Lock()
	a.Flow(100)
	b.Flow(100)
	r.d.mu.Unlock()
	r.settle()
	if sa.count() != 6 || sb.count() != 6 {
		t.Fatalf("%d and %d entries, want 6 each", sa.count(), sb.count())
	}
	ids := sa.ids()
	if ids[2] != ids[0]+2 || ids[3] == ids[2]+1 {
		t.Fatalf("first consumer got %v, want runs of 3", ids)
	}
}

func TestNewOwnerWaitsUntilTheOldOneHasAcknowledged(t *testing.T) {
	r := start(t, Config{})
	a, sa := r.join("a", wire.KeyShared)
	a.Flow(100)
	b, _ := r.join("b", wire.KeyShared)
	key := r.keyOf(b)
	b.Close()
	r.publish(key)
	r.publish(key)
	r.settle()
	if sa.count() != 2 {
		t.Fatalf("the only consumer got %d", sa.count())
	}
	b, sb := r.join("b", wire.KeyShared)
	b.Flow(100)
	r.publish(key)
	a.Ack([]int64{1})
	r.settle()
	if sb.count() != 0 {
		t.Fatal("the new owner got a message while the old one has an earlier one")
	}
	a.Ack([]int64{0})
	r.settle()
	if got := sb.ids(); !slices.Equal(got, []int64{2}) {
		t.Fatalf("after the last acknowledgement the new owner got %v, want 2", got)
	}
}

func TestBlockedKeyDoesNotBlockOthersUpToTheLookAhead(t *testing.T) {
	r := start(t, Config{LookAheadPerConsumer: 10, LookAheadPerSubscription: 15, MaxReadBatchSize: 5})
	stuck, ss := r.join("stuck", wire.KeyShared)
	free, sf := r.join("free", wire.KeyShared)
	free.Flow(1000)
	blocked, open := r.keyOf(stuck), r.keyOf(free)
	for range 10 {
		r.publish(blocked)
		r.publish(open)
	}
	r.settle()
	if sf.count() != 10 || ss.count() != 0 {
		t.Fatalf("free got %d, stuck got %d", sf.count(), ss.count())
	}
	for range 40 {
		r.publish(blocked)
	}
	r.settle()
	// A read may begin just below the limit.
	if n := r.d.Stats().Replay; n < 15 || n >= 15+5 {
		t.Fatalf("%d entries read ahead, want 15 and less than a read more", n)
	}
	stuck.Flow(1000)
	r.settle()
	got := ss.ids()
	if len(got) != 50 || !slices.IsSorted(got) {
		t.Fatalf("stuck got %d after its permits, sorted %v", len(got), slices.IsSorted(got))
	}
}

func TestUnackedLimitStopsAndResumesAtHalf(t *testing.T) {
	r := start(t, Config{MaxUnackedPerConsumer: 4, MaxUnackedPerSubscription: -1, MaxReadBatchSize: 2})
	c, s := r.join("a", wire.Shared)
	c.Flow(100)
	for range 10 {
		r.publish("k")
	}
	r.settle()
	if s.count() != 4 {
		t.Fatalf("%d sent, want the limit of 4", s.count())
	}
	c.Ack([]int64{0})
	r.settle()
	if s.count() != 4 {
		t.Fatalf("%d sent above half the limit", s.count())
	}
	c.Ack([]int64{1})
	r.settle()
	if s.count() != 6 {
		t.Fatalf("%d sent, want 2 more", s.count())
	}
}

func TestSubscriptionUnackedLimit(t *testing.T) {
	r := start(t, Config{MaxUnackedPerSubscription: 4, MaxReadBatchSize: 2})
	c, s := r.join("a", wire.Shared)
	for range 10 {
		r.publish("k")
	}
	c.Flow(100)
	r.settle()
	if s.count() != 4 {
		t.Fatalf("%d sent, want the limit of 4", s.count())
	}
	c.Ack([]int64{0, 1})
	r.settle()
	if s.count() != 6 {
		t.Fatalf("%d sent after half was acknowledged, want 2 more", s.count())
	}
}

func TestUnwritableConsumerGetsNothingUntilItIsWritable(t *testing.T) {
	r := start(t, Config{})
	c, s := r.join("a", wire.KeyShared)
	s.blocked.Store(true)
	c.Flow(100)
	r.publish("k")
	r.settle()
	if s.count() != 0 {
		t.Fatal("sent to an unwritable connection")
	}
	s.blocked.Store(false)
	c.WritabilityChanged()
	r.settle()
	if s.count() != 1 {
		t.Fatal("not sent after the connection became writable")
	}
}

// What was read for one type of subscription has no key hash for another.
func TestChangeOfTypeKeepsKeysInOrder(t *testing.T) {
	r := start(t, Config{})
	x, _ := r.join("x", wire.Exclusive)
	x.Flow(100)
	for range 3 {
		r.publish("k1")
		r.publish("k2")
	}
	r.settle()
	x.Close()
	a, sa := r.join("a", wire.KeyShared)
	b, sb := r.join("b", wire.KeyShared)
	a.Flow(2)
	b.Flow(2)
	for range 3 {
		r.publish("k1")
		r.publish("k2")
	}
	r.settle()
	a.Flow(100)
	b.Flow(100)
	waitUntil(t, "all 12 delivered", func() bool { r.settle(); return sa.count()+sb.count() == 12 })
	next := map[string]int64{}
	for _, s := range []*sink{sa, sb} {
		for _, m := range s.got {
			_, key, _ := wire.SplitPayload(m.Entry.Data)
			if m.Entry.ID < next[string(key)] {
				t.Errorf("key %s: entry %d after %d", key, m.Entry.ID, next[string(key)])
			}
			next[string(key)] = m.Entry.ID
		}
	}
}

func TestClosedSubscriptionRefusesConsumers(t *testing.T) {
	r := start(t, Config{})
	c, _ := r.join("a", wire.KeyShared)
	r.d.Close()
	if _, err := r.d.AddConsumer(ConsumerOptions{Name: "b", Type: wire.KeyShared}); !errors.Is(err, ErrClosed) {
		t.Fatalf("joining a closed subscription: %v", err)
	}
	c.Flow(10) // harmless
	c.Close()
	r.settle()
}

func TestBadConfig(t *testing.T) {
	for _, cfg := range []Config{{Flow: "lock"}, {MaxReadBatchSize: -1}, {MaxReadSizeBytes: -1}, {LookAheadPerConsumer: -1}, {Flow: Monitor}} {
		if _, err := New(nil, nil, "s", 0, true, cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}
