package dispatch

import (
	"slices"
	"testing"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/wire"
)

func TestRedeliverSendsAgain(t *testing.T) {
	r := start(t, Config{})
	c, s := r.join("a", wire.Shared)
	c.Flow(100)
	for range 4 {
		r.publish("k")
	}
	r.settle()
	c.Ack([]int64{1})
	c.Redeliver([]int64{0, 1, 2, 77})
	r.settle()
	if got := s.ids(); !slices.Equal(got, []int64{0, 1, 2, 3, 0, 2}) {
		t.Fatalf("got %v, want 0 and 2 again", got)
	}
	if n := s.got[4].Redeliveries; n != 1 {
		t.Fatalf("redelivery count %d", n)
	}
	c.Redeliver(nil)
	r.settle()
	if got := s.ids()[6:]; !slices.Equal(got, []int64{0, 2, 3}) {
		t.Fatalf("then %v, want all that is unacknowledged", got)
	}
	c.Ack([]int64{0, 2, 3})
	if st := r.d.Stats(); st.Unacked != 0 || st.Backlog != 0 || r.d.redeliver.any.Load() {
		t.Fatalf("left over: %+v, counts %v", st, r.d.redeliver.counts)
	}
}

func TestEntryAcknowledgedBeforeItsReplayIsDropped(t *testing.T) {
	r := start(t, Config{})
	c, s := r.join("a", wire.KeyShared)
	r.publish("k")
	r.publish("k")
	c.Flow(2)
	r.settle()
	c.Redeliver(nil) // no permits are left: both wait
	r.settle()
	c.Ack([]int64{0})
	c.Flow(10)
	r.settle()
	if got := s.ids(); !slices.Equal(got, []int64{0, 1, 1}) || r.d.Stats().Replay != 0 {
		t.Fatalf("got %v, %d wait; want only 1 again and nothing waiting", got, r.d.Stats().Replay)
	}
}

func TestAckByAnotherConsumer(t *testing.T) {
	r := start(t, Config{})
	a, sa := r.join("a", wire.Shared)
	b, _ := r.join("b", wire.Shared)
	a.Flow(100)
	r.publish("k")
	r.settle()
	if sa.count() != 1 || b.Ack([]int64{0}) != 1 {
		t.Fatal("the acknowledgement did not count")
	}
	if st := r.d.Stats(); st.Unacked != 0 || st.Backlog != 0 {
		t.Fatalf("left over: %+v", st)
	}
	if a.Ack([]int64{0}) != 0 {
		t.Fatal("counted twice")
	}
}

func TestCumulativeAck(t *testing.T) {
	r := start(t, Config{})
	c, _ := r.join("a", wire.Exclusive)
	c.Flow(100)
	for range 5 {
		r.publish("k")
	}
	r.settle()
	if n := c.AckCumulative(3); n != 4 {
		t.Fatalf("%d acknowledged, want 4", n)
	}
	if st := r.d.Stats(); st.Unacked != 1 || st.Backlog != 1 {
		t.Fatalf("left over: %+v", st)
	}
	c.Close()
	k, _ := r.join("b", wire.KeyShared)
	if n := k.AckCumulative(4); n != 0 {
		t.Fatalf("%d acknowledged cumulatively on Key_Shared, want it ignored", n)
	}
}

// An entry that comes back while a later one of its key is being read again
// goes before it.
func TestReplayIsPickedAgainForEarlierEntries(t *testing.T) {
	r := start(t, Config{})
	c, s := r.join("a", wire.KeyShared)
	c.Flow(100)
	r.publish("k")
	r.publish("k")
	r.settle()
	r.between(func() {
		c.Redeliver([]int64{1}) // its task starts the replay, behind which is
		if err := r.e.Execute(executor.Other, executor.Func(func() { c.Redeliver([]int64{0}) })); err != nil {
			t.Error(err)
		}
	})
	r.settle()
	if got := s.ids(); !slices.Equal(got, []int64{0, 1, 0, 1}) {
		t.Fatalf("got %v, want 0 before 1 again", got)
	}
}

func TestNackByTheFormerOwnerFreesTheHash(t *testing.T) {
	r := start(t, Config{})
	a, _ := r.join("a", wire.KeyShared)
	a.Flow(100)
	b, _ := r.join("b", wire.KeyShared)
	key := r.keyOf(b)
	b.Close()
	r.publish(key)
	r.settle()
	b, sb := r.join("b", wire.KeyShared)
	b.Flow(100)
	r.publish(key)
	r.settle()
	if n := r.d.Stats().DrainingHashes; n != 1 || sb.count() != 0 {
		t.Fatalf("%d hashes drain, the new owner got %d", n, sb.count())
	}
	a.Redeliver([]int64{0})
	r.settle()
	if got := sb.ids(); !slices.Equal(got, []int64{0, 1}) || r.d.Stats().DrainingHashes != 0 {
		t.Fatalf("the new owner got %v, want 0 and 1", got)
	}
}
