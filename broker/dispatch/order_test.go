package dispatch

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
	"pgregory.net/rapid"
)

// orderModel knows, for every entry, its key and who has it unacknowledged. It
// holds the types that keep order to their rule: an entry is sent only if every
// earlier unacknowledged entry of its key is with the same consumer, and for
// the first time only after all earlier ones of its key.
type orderModel struct {
	ordered bool
	oneKey  bool // every entry counts as one key

	mu    sync.Mutex          // sends come on the executor
	key   []string            // by entry
	with  map[int64]*Consumer // sent and not acknowledged
	acked map[int64]bool
	seen  map[int64]bool   // sent since the beginning or the last seek
	last  map[string]int64 // by key, the last one that was sent for the first time
	err   error
}

func newOrderModel(typ wire.SubType, anyOrder bool) *orderModel {
	return &orderModel{
		ordered: typ != wire.Shared && !anyOrder, oneKey: typ == wire.Failover,
		with: map[int64]*Consumer{}, acked: map[int64]bool{}, seen: map[int64]bool{}, last: map[string]int64{},
	}
}

func (m *orderModel) sent(msg Message, c *Consumer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := msg.Entry.ID
	if m.acked[id] || m.with[id] != nil {
		m.fail("entry %d sent again without a reason", id)
	}
	if again := m.seen[id]; again != (msg.Redeliveries > 0) {
		m.fail("entry %d sent before: %v, redelivery count %d", id, again, msg.Redeliveries)
	}
	if m.ordered {
		m.checkOrder(id, c)
	}
	m.with[id], m.seen[id] = c, true
}

func (m *orderModel) checkOrder(id int64, c *Consumer) {
	key := m.key[id]
	for e := range id {
		if m.key[e] == key && !m.acked[e] && m.with[e] != c {
			m.fail("entry %d of %q sent to %s while %d is not with it", id, key, c.Name, e)
		}
	}
	if !m.seen[id] {
		if last, ok := m.last[key]; ok && id < last {
			m.fail("entry %d of %q sent for the first time after %d", id, key, last)
		}
		m.last[key] = id
	}
}

func (m *orderModel) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

// check returns what went wrong so far.
func (m *orderModel) check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// of returns what c has.
func (m *orderModel) of(c *Consumer) (ids []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, o := range m.with {
		if o == c {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// waiting returns what was sent and is with nobody now.
func (m *orderModel) waiting() (ids []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.seen {
		if !m.acked[id] && m.with[id] == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// take notes that nobody has ids any longer.
func (m *orderModel) take(ids []int64, acked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		delete(m.with, id)
		m.acked[id] = acked
	}
}

// seek notes that everything from next on is to be sent, and nothing before.
func (m *orderModel) seek(next int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.with)
	clear(m.seen)
	clear(m.last)
	for id := range m.key {
		m.acked[int64(id)] = int64(id) < next
	}
}

func (m *orderModel) published(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.oneKey {
		key = ""
	}
	m.key = append(m.key, key)
}

// left returns how many entries are not acknowledged, and how many of them are
// with a consumer.
func (m *orderModel) left() (unacked, with int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.key {
		if !m.acked[int64(id)] {
			unacked++
		}
	}
	return unacked, len(m.with)
}

// slots are the parts of the hash range that sticky consumers share out.
const slots = 6

func slot(i int) wire.HashRange {
	size := int32(hashRange / slots)
	r := wire.HashRange{Start: int32(i) * size, End: int32(i+1)*size - 1}
	if i == slots-1 {
		r.End = hashRange - 1
	}
	return r
}

// orderTest drives a subscription and its model.
type orderTest struct {
	*rig
	m       *orderModel
	typ     wire.SubType
	policy  *wire.KeySharedMeta // of every consumer, without ranges
	members []*Consumer
	sinks   []*sink // all that ever were
	names   int
}

func (o *orderTest) pick(t *rapid.T) *Consumer {
	if len(o.members) == 0 {
		t.SkipNow()
	}
	return rapid.SampledFrom(o.members).Draw(t, "who")
}

// freeSlots returns the sticky ranges nobody has.
func (o *orderTest) freeSlots() (free []int) {
	for i := range slots {
		if !slices.ContainsFunc(o.members, func(c *Consumer) bool { return slices.Contains(c.KeyShared.Ranges, slot(i)) }) {
			free = append(free, i)
		}
	}
	return free
}

func (o *orderTest) join(t *rapid.T) {
	o.names++
	s := &sink{flaky: rapid.SampledFrom([]uint32{0, 3, 10, 30}).Draw(t, "flaky"), hold: rapid.Bool().Draw(t, "hold")}
	opts := ConsumerOptions{Name: fmt.Sprint("c", o.names), Type: o.typ, Sink: s, Priority: rapid.Int32Range(0, 2).Draw(t, "priority")}
	if o.policy != nil {
		policy := *o.policy
		opts.KeyShared = &policy
		if policy.Mode == wire.Sticky {
			free := o.freeSlots()
			if len(free) == 0 {
				return
			}
			for _, i := range rapid.SliceOfNDistinct(rapid.SampledFrom(free), 1, min(2, len(free)), rapid.ID[int]).Draw(t, "slots") {
				policy.Ranges = append(policy.Ranges, slot(i))
			}
		}
	}
	o.between(func() {
		active := o.d.active
		c, err := o.d.AddConsumer(opts)
		if err != nil {
			o.m.fail("%v", err)
			return
		}
		if active != nil && active != o.d.active { // what it had is sent to the new one
			o.m.take(o.m.of(active), false)
		}
		s.seen = func(msg Message) { o.m.sent(msg, c) }
		o.members = append(o.members, c)
		o.sinks = append(o.sinks, s)
	})
}

func (o *orderTest) ack(c *Consumer, ids []int64) {
	o.m.take(ids, true)
	c.Ack(slices.Clone(ids))
}

func some(t *rapid.T, ids []int64) []int64 {
	if len(ids) == 0 {
		t.SkipNow()
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, len(ids), rapid.ID[int64]).Draw(t, "ids")
}

func (o *orderTest) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"publish": func(t *rapid.T) {
			for range rapid.IntRange(1, 10).Draw(t, "n") {
				key := fmt.Sprint("k", rapid.IntRange(0, 9).Draw(t, "key"))
				o.m.published(key)
				o.publish(key)
			}
		},
		"flow": func(t *rapid.T) { o.pick(t).Flow(uint32(rapid.IntRange(1, 30).Draw(t, "permits"))) },
		"ack":  func(t *rapid.T) { c := o.pick(t); o.ack(c, some(t, o.m.of(c))) },
		"ack of another's": func(t *rapid.T) {
			c, other := o.pick(t), o.pick(t)
			o.ack(c, some(t, o.m.of(other)))
		},
		"late ack": func(t *rapid.T) { // of what waits to be sent again
			c, n := o.pick(t), rapid.IntRange(0, 100).Draw(t, "which") // not to be drawn on the executor
			o.between(func() {
				if ids := o.m.waiting(); len(ids) > 0 {
					o.ack(c, []int64{ids[n%len(ids)]})
				}
			})
		},
		"redeliver": func(t *rapid.T) {
			c := o.pick(t)
			ids := some(t, o.m.of(c))
			o.between(func() {
				if now := o.m.of(c); slices.ContainsFunc(ids, func(id int64) bool { return !slices.Contains(now, id) }) {
					return
				}
				o.m.take(ids, false)
				c.Redeliver(slices.Clone(ids))
			})
		},
		"redeliver all": func(t *rapid.T) {
			c := o.pick(t)
			o.between(func() { o.m.take(o.m.of(c), false); c.Redeliver(nil) })
		},
		"join": func(t *rapid.T) {
			if len(o.members) < 5 {
				o.join(t)
			}
		},
		"leave": func(t *rapid.T) {
			c := o.pick(t)
			o.members = slices.DeleteFunc(o.members, func(m *Consumer) bool { return m == c })
			o.between(func() { o.m.take(o.m.of(c), false); c.Close() })
		},
		"seek": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
				t.SkipNow()
			}
			next := rapid.Int64Range(o.l.First(), o.l.LastConfirmed()+1).Draw(t, "next")
			removed, err := o.d.Reset(next)
			if err != nil || len(removed) != len(o.members) {
				t.Fatalf("%d removed of %d: %v", len(removed), len(o.members), err)
			}
			o.members = nil
			o.m.seek(next)
			for _, c := range removed { // void
				c.Ack([]int64{next})
				c.Flow(5)
				c.Redeliver(nil)
				c.Close()
			}
		},
		"release": func(*rapid.T) { o.release() },
		"limits": func(t *rapid.T) {
			o.d.SetReadLimits(rapid.IntRange(1, 8).Draw(t, "entries"), rapid.SampledFrom([]int64{0, 1, 100}).Draw(t, "bytes"))
		},
		"settle": func(*rapid.T) { o.settle() }, // otherwise sends go on beside the steps
		"": func(t *rapid.T) {
			if err := o.m.check(); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func (o *orderTest) release() {
	for _, s := range o.sinks {
		s.release()
	}
}

// finish acknowledges until nothing is left.
func (o *orderTest) finish(t *rapid.T) {
	for o.policy != nil && o.policy.Mode == wire.Sticky && len(o.freeSlots()) > 0 || len(o.members) == 0 {
		o.join(t)
	}
	for _, c := range o.members {
		c.Flow(100_000)
	}
	for idle := 0; ; {
		o.settle()
		o.release()
		o.settle()
		if err := o.m.check(); err != nil {
			t.Fatal(err)
		}
		unacked, with := o.m.left()
		if unacked == 0 {
			break
		}
		if idle++; with > 0 {
			idle = 0
		}
		if idle > 500 { // a flaky sink needs many tries: it must say yes several times in a row
			t.Fatalf("stuck: %d not acknowledged, nothing sent, %+v", unacked, o.d.Stats())
		}
		for _, c := range o.members {
			o.ack(c, o.m.of(c))
			c.WritabilityChanged()
		}
	}
	o.members[0].WritabilityChanged() // so that the replay set is looked at once more
	o.settle()
	if st := o.d.Stats(); st.Backlog != 0 || st.Replay != 0 || st.Unacked != 0 || st.DrainingHashes != 0 || len(o.d.redeliver.counts) != 0 {
		t.Fatalf("at the end: %+v, redelivery counts %v", st, o.d.redeliver.counts)
	}
	var credited int64
	for _, c := range o.members {
		credited += c.credited.Load()
	}
	if total := o.d.total.Load(); total != credited {
		t.Fatalf("total %d, consumers were credited %d", total, credited)
	}
}

func TestOrderUnderChange(t *testing.T) {
	for name, v := range map[string]struct {
		typ    wire.SubType
		policy *wire.KeySharedMeta
	}{
		"KeyShared":  {typ: wire.KeyShared},
		"Sticky":     {wire.KeyShared, &wire.KeySharedMeta{Mode: wire.Sticky}},
		"OutOfOrder": {wire.KeyShared, &wire.KeySharedMeta{AllowOutOfOrder: true}},
		"Failover":   {typ: wire.Failover},
		"Shared":     {typ: wire.Shared},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r, stop := newRig(t, Config{
					Flow:             rapid.SampledFrom([]FlowMode{Atomic, Monitor}).Draw(t, "flow"),
					NextRead:         rapid.SampledFrom([]string{NextReadNone, NextReadAnyWritten}).Draw(t, "next read"),
					MaxReadBatchSize: rapid.IntRange(1, 8).Draw(t, "batch"), MaxReadSizeBytes: rapid.SampledFrom([]int64{0, 1, 100}).Draw(t, "bytes"),
					MaxUnackedPerConsumer: 12, MaxUnackedPerSubscription: 30, LookAheadPerConsumer: 5, LookAheadPerSubscription: 12,
				})
				defer stop()
				o := &orderTest{rig: r, typ: v.typ, policy: v.policy}
				o.m = newOrderModel(v.typ, v.policy != nil && v.policy.AllowOutOfOrder)
				for range 2 {
					o.join(t)
					o.members[len(o.members)-1].Flow(20)
				}
				t.Repeat(o.actions())
				o.finish(t)
			})
		})
	}
}
