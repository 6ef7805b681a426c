package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

// joinWith connects a consumer with options of its own.
func (r *rig) joinWith(o ConsumerOptions) (*Consumer, *sink) {
	r.t.Helper()
	s := &sink{}
	o.Sink = s
	c, err := r.d.AddConsumer(o)
	if err != nil {
		r.t.Fatalf("%s cannot join: %v", o.Name, err)
	}
	return c, s
}

func stickyMeta(ranges ...int32) *wire.KeySharedMeta {
	k := &wire.KeySharedMeta{Mode: wire.Sticky}
	for i := 0; i < len(ranges); i += 2 {
		k.Ranges = append(k.Ranges, wire.HashRange{Start: ranges[i], End: ranges[i+1]})
	}
	return k
}

// keyIn returns a key whose hash lies in a range.
func keyIn(start, end uint16) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("key-%d", i)
		if h := keyHash([]byte(key)); start <= h && h <= end {
			return key
		}
	}
}

func TestStickyConsumersGetTheirRanges(t *testing.T) {
	r := start(t, Config{})
	a, sa := r.joinWith(ConsumerOptions{Name: "a", Type: wire.KeyShared, KeyShared: stickyMeta(0, 999, 60000, 65535)})
	b, sb := r.joinWith(ConsumerOptions{Name: "b", Type: wire.KeyShared, KeyShared: stickyMeta(1000, 1999)})
	a.Flow(100)
	b.Flow(100)
	low, high, mid, nobody := keyIn(0, 999), keyIn(60000, 65535), keyIn(1000, 1999), keyIn(2000, 59999)
	for _, key := range []string{nobody, low, mid, nobody, high, mid} {
		r.publish(key)
	}
	r.settle()
	if got := sa.ids(); !slices.Equal(got, []int64{1, 4}) {
		t.Errorf("a got %v, want 1 and 4", got)
	}
	if got := sb.ids(); !slices.Equal(got, []int64{2, 5}) {
		t.Errorf("b got %v, want 2 and 5", got)
	}
	if n := r.d.Stats().Replay; n != 2 {
		t.Fatalf("%d entries wait for an owner, want 2", n)
	}
	c, sc := r.joinWith(ConsumerOptions{Name: "c", Type: wire.KeyShared, KeyShared: stickyMeta(2000, 59999)})
	c.Flow(100)
	r.settle()
	if got := sc.ids(); !slices.Equal(got, []int64{0, 3}) || sc.got[0].Redeliveries != 0 {
		t.Fatalf("the new owner got %v, want 0 and 3, for the first time", got)
	}
}

func TestHashWithoutOwnerCountsAgainstTheLookAhead(t *testing.T) {
	r := start(t, Config{LookAheadPerConsumer: 4, MaxReadBatchSize: 1})
	a, sa := r.joinWith(ConsumerOptions{Name: "a", Type: wire.KeyShared, KeyShared: stickyMeta(0, 999)})
	a.Flow(100)
	nobody := keyIn(2000, 65535)
	for range 6 {
		r.publish(nobody)
	}
	r.publish(keyIn(0, 999))
	r.settle()
	if n := r.d.Stats().Replay; n != 4 || sa.count() != 0 {
		t.Fatalf("%d read ahead, %d sent; want the limit of 4 and none", n, sa.count())
	}
	// One more consumer, even without permits, lets twice as many be read ahead.
	r.joinWith(ConsumerOptions{Name: "b", Type: wire.KeyShared, KeyShared: stickyMeta(1000, 1000)})
	r.settle()
	if n := r.d.Stats().Replay; n != 6 || sa.count() != 1 {
		t.Fatalf("%d read ahead, %d sent; want 6 and 1", n, sa.count())
	}
}

// What nobody owns is never picked for replay, so it must leave the set another
// way once it is acknowledged.
func TestAcknowledgedEntriesWithoutOwnerAreForgotten(t *testing.T) {
	r := start(t, Config{})
	a, _ := r.joinWith(ConsumerOptions{Name: "a", Type: wire.KeyShared, KeyShared: stickyMeta(0, 999)})
	b, _ := r.joinWith(ConsumerOptions{Name: "b", Type: wire.KeyShared, KeyShared: stickyMeta(1000, 65535)})
	b.Flow(100)
	for range 3 {
		r.publish(keyIn(1000, 65535))
	}
	r.settle()
	b.Close()
	if st := r.d.Stats(); st.Replay != 3 {
		t.Fatalf("%d wait for an owner, want 3", st.Replay)
	}
	a.Ack([]int64{0, 1, 2})
	a.Flow(1)
	r.settle()
	if st := r.d.Stats(); st.Replay != 0 || st.Backlog != 0 {
		t.Fatalf("left over: %+v", st)
	}
}

func TestConsumersAreRefused(t *testing.T) {
	auto := func(anyOrder bool) *wire.KeySharedMeta { return &wire.KeySharedMeta{AllowOutOfOrder: anyOrder} }
	outOfOrder := stickyMeta(5, 6)
	outOfOrder.AllowOutOfOrder = true
	for name, c := range map[string]struct {
		present, wants *wire.KeySharedMeta
		err            error
		says           string
	}{
		"same range":       {stickyMeta(10, 20), stickyMeta(10, 20), ErrKeyRanges, "hash 10, which consumer present has"},
		"inside":           {stickyMeta(10, 20), stickyMeta(12, 13), ErrKeyRanges, "hash 12"},
		"around":           {stickyMeta(10, 20), stickyMeta(0, 65535), ErrKeyRanges, "hash 10"},
		"touches the end":  {stickyMeta(10, 20), stickyMeta(0, 1, 20, 30), ErrKeyRanges, "hash 20"},
		"touches a second": {stickyMeta(10, 20, 40, 50), stickyMeta(30, 40), ErrKeyRanges, "hash 40"},
		"beside":           {stickyMeta(10, 20), stickyMeta(21, 30, 0, 9), nil, ""},
		"no range":         {stickyMeta(10, 20), stickyMeta(), ErrKeyRanges, "no hash range"},
		"reversed":         {stickyMeta(10, 20), stickyMeta(31, 30), ErrKeyRanges, "31 to 30"},
		"negative":         {stickyMeta(10, 20), stickyMeta(-1, 5), ErrKeyRanges, "-1 to 5"},
		"too large":        {stickyMeta(10, 20), stickyMeta(30, 65536), ErrKeyRanges, "30 to 65536"},
		"largest":          {stickyMeta(10, 20), stickyMeta(30, 1<<31-1), ErrKeyRanges, "2147483647"},
		"twice itself":     {stickyMeta(10, 20), stickyMeta(40, 50, 30, 40), ErrKeyRanges, "hash 40 twice"},
		"auto to sticky":   {stickyMeta(10, 20), nil, ErrOtherPolicy, "it is sticky, consumer wants wants auto-split"},
		"sticky to auto":   {nil, stickyMeta(10, 20), ErrOtherPolicy, "it is auto-split, consumer wants wants sticky"},
		"order":            {auto(false), auto(true), ErrOtherPolicy, "auto-split, out of order"},
		"sticky order":     {stickyMeta(10, 20), outOfOrder, ErrOtherPolicy, "sticky, out of order"},
		"auto by default":  {nil, auto(false), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{})
			present, _ := r.joinWith(ConsumerOptions{Name: "present", Type: wire.KeyShared, KeyShared: c.present})
			o := ConsumerOptions{Name: "wants", Type: wire.KeyShared, KeyShared: c.wants, Sink: &sink{}}
			_, err := r.d.AddConsumer(o)
			if !errors.Is(err, c.err) || c.err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want %v with %q", err, c.err, c.says)
			}
			if n := r.d.Consumers(); (n == 2) != (c.err == nil) {
				t.Fatalf("%d consumers", n)
			}
			if c.err == ErrOtherPolicy { // alone, it may have its own
				present.Close()
				r.joinWith(o)
			}
		})
	}
}

func TestOutOfOrderIsNotHeldBack(t *testing.T) {
	r := start(t, Config{})
	meta := &wire.KeySharedMeta{AllowOutOfOrder: true}
	a, _ := r.joinWith(ConsumerOptions{Name: "a", Type: wire.KeyShared, KeyShared: meta})
	a.Flow(100)
	b, _ := r.joinWith(ConsumerOptions{Name: "b", Type: wire.KeyShared, KeyShared: meta})
	key := r.keyOf(b)
	b.Close()
	r.publish(key)
	r.settle()
	b, sb := r.joinWith(ConsumerOptions{Name: "b", Type: wire.KeyShared, KeyShared: meta})
	b.Flow(100)
	r.publish(key)
	r.settle()
	if got := sb.ids(); !slices.Equal(got, []int64{1}) || r.d.Stats().DrainingHashes != 0 {
		t.Fatalf("the new owner got %v, want 1 although 0 is not acknowledged", got)
	}
}

func TestFailoverSwitchesToABetterPriority(t *testing.T) {
	r := start(t, Config{})
	b, sb := r.joinWith(ConsumerOptions{Name: "b", Type: wire.Failover, Priority: 1})
	c, sc := r.joinWith(ConsumerOptions{Name: "c", Type: wire.Failover, Priority: 1})
	b.Flow(100)
	c.Flow(100)
	for range 4 {
		r.publish("k")
	}
	r.settle()
	b.Ack([]int64{1})
	a, sa := r.joinWith(ConsumerOptions{Name: "a", Type: wire.Failover})
	a.Flow(100)
	r.publish("k")
	r.settle()
	if got := sa.ids(); !slices.Equal(got, []int64{0, 2, 3, 4}) || sa.got[0].Redeliveries != 1 || sa.got[3].Redeliveries != 0 {
		t.Fatalf("the new active consumer got %v, want what was not acknowledged, then the new one", got)
	}
	if st := r.d.Stats(); st.Active != "a" || st.Unacked != 4 || b.Stats().Unacked != 0 || !a.Active() || b.Active() {
		t.Fatalf("stats %+v, of the former one %+v", st, b.Stats())
	}
	b.Ack([]int64{2}) // it still has it
	if st := r.d.Stats(); st.Unacked != 3 || st.Backlog != 3 {
		t.Fatalf("after an acknowledgement by the former one: %+v", st)
	}
	a.Close()
	r.settle()
	if got := sb.ids(); !slices.Equal(got, []int64{0, 1, 2, 3, 0, 3, 4}) || sc.count() != 0 {
		t.Fatalf("then b got %v, c %d; want b to go on, as it came first", got, sc.count())
	}
	b.Close()
	r.settle()
	if got := sc.ids(); !slices.Equal(got, []int64{0, 3, 4}) {
		t.Fatalf("then c got %v", got)
	}
	for _, want := range []struct {
		s    *sink
		told []bool
	}{
		{sb, []bool{true, false, true}},
		{sc, []bool{false, false, false, true}},
		{sa, []bool{true}},
	} {
		if got := want.s.told(); !slices.Equal(got, want.told) {
			t.Errorf("told %v, want %v", got, want.told)
		}
	}
}

func TestOnlyFailoverIsToldWhoIsActive(t *testing.T) {
	for _, typ := range []wire.SubType{wire.Exclusive, wire.Shared, wire.KeyShared} {
		r := start(t, Config{})
		_, s := r.join("a", typ)
		if len(s.told()) != 0 {
			t.Errorf("%v was told %v", typ, s.told())
		}
	}
}

func TestCumulativeAckByTheFormerActiveConsumer(t *testing.T) {
	r := start(t, Config{})
	b, _ := r.joinWith(ConsumerOptions{Name: "b", Type: wire.Failover, Priority: 1})
	b.Flow(100)
	for range 5 {
		r.publish("k")
	}
	r.settle()
	a, _ := r.joinWith(ConsumerOptions{Name: "a", Type: wire.Failover})
	a.Flow(100)
	r.settle()
	if n := b.AckCumulative(3); n != 4 {
		t.Fatalf("%d acknowledged, want 4", n)
	}
	if st := r.d.Stats(); st.Unacked != 1 || st.Backlog != 1 || a.Stats().Unacked != 1 || len(r.d.redeliver.counts) != 1 {
		t.Fatalf("left over: %+v, %+v, counts %v", st, a.Stats(), r.d.redeliver.counts)
	}
}

func TestSharedServesTheBestPriorityFirst(t *testing.T) {
	r := start(t, Config{MaxRoundRobinBatch: 1, MaxReadBatchSize: 100})
	low, slow := r.joinWith(ConsumerOptions{Name: "low", Type: wire.Shared, Priority: 5})
	a, sa := r.joinWith(ConsumerOptions{Name: "a", Type: wire.Shared, Priority: 1})
	b, sb := r.joinWith(ConsumerOptions{Name: "b", Type: wire.Shared, Priority: 1})
	for range 12 {
		r.publish("k")
	}
	r.d.mu.Lock()
	low.Flow(100)
	a.Flow(4)
	b.Flow(4)
	r.d.mu.Unlock()
	r.settle()
	if sa.count() != 4 || sb.count() != 4 || slow.count() != 4 {
		t.Fatalf("%d and %d, then %d to the lower priority; want 4 each", sa.count(), sb.count(), slow.count())
	}
	if ids := slow.ids(); ids[0] != 8 {
		t.Fatalf("the lower priority got %v while the better one had permits", ids)
	}
}
