package dispatch

import (
	"slices"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

// heldEntries returns the entries that the subscription keeps something for.
func (r *rig) heldEntries(sinks ...*sink) (n int) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	n = r.d.replay.len()
	for _, c := range r.d.consumers {
		_, kept := c.pending.len()
		n += kept
	}
	for _, s := range sinks {
		s.mu.Lock()
		for _, d := range s.held {
			n += len(d.Messages)
		}
		s.mu.Unlock()
	}
	return n
}

func TestConsumersThatStandStillHoldABoundedNumber(t *testing.T) {
	const unacked, perConsumer, batch = 100, 50, 10
	stop := map[string]func(*Consumer, *sink){
		"unwritable":      func(c *Consumer, s *sink) { s.blocked.Store(true); c.Flow(1_000_000) },
		"no permits":      func(*Consumer, *sink) {},
		"no acks":         func(c *Consumer, _ *sink) { c.Flow(1_000_000) },
		"written to once": func(c *Consumer, s *sink) { s.hold, s.once = true, true; c.Flow(1_000_000) },
	}
	for _, typ := range []wire.SubType{wire.Shared, wire.KeyShared} {
		for name, stop := range stop {
			t.Run(typ.String()+" "+name, func(t *testing.T) {
				r := start(t, Config{
					MaxReadBatchSize: batch, MaxUnackedPerConsumer: unacked, MaxUnackedPerSubscription: 10 * unacked,
					LookAheadPerConsumer: perConsumer, LookAheadPerSubscription: 1000,
				})
				a, sa := r.join("a", typ)
				b, sb := r.join("b", typ)
				stop(a, sa)
				stop(b, sb)
				keys := []string{"k"}
				if typ == wire.KeyShared {
					keys = []string{r.keyOf(a), r.keyOf(b)}
				}
				for i := range 1500 {
					r.publish(keys[i%len(keys)])
				}
				r.settle()
				// Sent: up to the limit and a read more, twice if the sink keeps it
				// too. Not sent: up to the look-ahead and a read more.
				const most = 2*2*(unacked+batch) + 2*perConsumer + batch
				if n := r.heldEntries(sa, sb); n > most {
					t.Fatalf("%d entries held of 1500, want at most %d", n, most)
				}
				if st := r.d.Stats(); st.Backlog != 1500 {
					t.Fatalf("%+v", st)
				}
				sa.release()
				sb.release()
			})
		}
	}
}

func TestStuckConsumerBlocksOnlyItsKeys(t *testing.T) {
	r := start(t, Config{LookAheadPerConsumer: 100, MaxReadBatchSize: 7})
	stuck, ss := r.join("stuck", wire.KeyShared)
	free, sf := r.join("free", wire.KeyShared)
	ss.blocked.Store(true)
	stuck.Flow(1000)
	free.Flow(1000)
	closed, open := r.keyOf(stuck), r.keyOf(free)
	for range 100 {
		r.publish(closed)
		r.publish(open)
	}
	r.settle()
	if sf.count() != 100 || ss.count() != 0 || r.d.Stats().Replay != 100 {
		t.Fatalf("free got %d, stuck %d, %d wait", sf.count(), ss.count(), r.d.Stats().Replay)
	}
	var want ConsumerStats
	for _, s := range r.d.ConsumerStats() {
		if s.Name == "stuck" {
			want = s
		}
	}
	if want.Writable || want.Permits != 1000 || want.Delivered != 0 || want.Blocked {
		t.Fatalf("stats of the stuck one: %+v", want)
	}
	ss.blocked.Store(false)
	stuck.WritabilityChanged()
	r.settle()
	if got := ss.ids(); len(got) != 100 || !slices.IsSorted(got) || r.d.Stats().Replay != 0 {
		t.Fatalf("then stuck got %d, sorted %v", len(got), slices.IsSorted(got))
	}
}

func TestBothUnackedLimitsWithKeyShared(t *testing.T) {
	r := start(t, Config{MaxUnackedPerConsumer: 4, MaxUnackedPerSubscription: 6, MaxReadBatchSize: 1})
	a, sa := r.join("a", wire.KeyShared)
	b, sb := r.join("b", wire.KeyShared)
	a.Flow(100)
	b.Flow(100)
	ka, kb := r.keyOf(a), r.keyOf(b)
	for range 8 {
		r.publish(ka)
	}
	for range 8 {
		r.publish(kb)
	}
	r.settle()
	if sa.count() != 4 || sb.count() != 2 {
		t.Fatalf("a got %d, b %d; want a's limit of 4 and the rest of the subscription's 6", sa.count(), sb.count())
	}
	if st := r.d.Stats(); !st.Blocked || !a.Stats().Blocked || b.Stats().Blocked {
		t.Fatalf("blocked: subscription %v, a %v, b %v", st.Blocked, a.Stats().Blocked, b.Stats().Blocked)
	}
	a.Ack(sa.ids()[:2]) // a at half, the subscription above it
	r.settle()
	if sa.count() != 4 || sb.count() != 2 {
		t.Fatalf("a got %d, b %d, although the subscription is above half", sa.count(), sb.count())
	}
	b.Ack(sb.ids()[:1])
	r.settle()
	if n := sa.count() + sb.count(); n != 9 {
		t.Fatalf("%d sent, want the subscription's limit again", n)
	}
}
