package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
	"pgregory.net/rapid"
)

// orderModel knows, for every entry, its key and who has it unacknowledged. It
// holds Key_Shared to its rule: an entry is sent only if every earlier
// unacknowledged entry of its key is with the same consumer.
type orderModel struct {
	mu    sync.Mutex          // sends come on the executor
	key   []string            // by entry
	with  map[int64]*Consumer // sent and not acknowledged
	acked map[int64]bool
	err   error
}

func (m *orderModel) sent(id int64, c *Consumer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.acked[id] || m.with[id] != nil {
		m.fail("entry %d sent again without a reason", id)
	}
	for e := range id {
		if m.key[e] == m.key[id] && !m.acked[e] && m.with[e] != c {
			m.fail("entry %d of %s sent to %s while %d is not with it", id, m.key[id], c.Name, e)
		}
	}
	m.with[id] = c
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

// take notes that c no longer has ids.
func (m *orderModel) take(ids []int64, acked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		delete(m.with, id)
		m.acked[id] = acked
	}
}

func (m *orderModel) published(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
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

func TestKeySharedOrderUnderChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, stop := newRig(t, Config{
			Flow: rapid.SampledFrom([]FlowMode{Atomic, Monitor}).Draw(t, "flow"), MaxReadBatchSize: rapid.IntRange(1, 8).Draw(t, "batch"),
			MaxUnackedPerConsumer: 12, MaxUnackedPerSubscription: 30, LookAheadPerConsumer: 5, LookAheadPerSubscription: 12,
		})
		defer stop()
		m := &orderModel{with: map[int64]*Consumer{}, acked: map[int64]bool{}}
		var members []*Consumer
		names := 0
		pick := func(t *rapid.T) *Consumer { return members[rapid.IntRange(0, len(members)-1).Draw(t, "who")] }
		join := func() {
			names++
			s := &sink{flaky: rapid.SampledFrom([]uint32{0, 3, 10, 30}).Draw(t, "flaky")}
			c, err := r.d.AddConsumer(ConsumerOptions{Name: fmt.Sprint("c", names), Type: wire.KeyShared, Sink: s})
			if err != nil {
				t.Fatal(err)
			}
			s.seen = func(msg Message) { m.sent(msg.Entry.ID, c) }
			members = append(members, c)
		}
		ack := func(c *Consumer, ids []int64) {
			m.take(ids, true)
			c.Ack(slices.Clone(ids))
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "n") {
					key := fmt.Sprint("k", rapid.IntRange(0, 9).Draw(t, "key"))
					m.published(key)
					r.publish(key)
				}
			},
			"flow": func(t *rapid.T) {
				if len(members) > 0 {
					pick(t).Flow(uint32(rapid.IntRange(1, 10).Draw(t, "permits")))
				}
			},
			"ack": func(t *rapid.T) {
				if len(members) == 0 {
					return
				}
				c := pick(t)
				if ids := m.of(c); len(ids) > 0 {
					ids = rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, len(ids), rapid.ID[int64]).Draw(t, "ids")
					ack(c, ids)
				}
			},
			"redeliver all": func(t *rapid.T) {
				if len(members) == 0 {
					return
				}
				c := pick(t)
				r.between(func() { m.take(m.of(c), false); c.Redeliver(nil) })
			},
			"join": func(*rapid.T) {
				if len(members) < 5 {
					join()
				}
			},
			"leave": func(t *rapid.T) {
				if len(members) == 0 {
					return
				}
				c := pick(t)
				members = slices.DeleteFunc(members, func(o *Consumer) bool { return o == c })
				r.between(func() { m.take(m.of(c), false); c.Close() })
			},
			"settle": func(*rapid.T) { r.settle() }, // otherwise sends go on beside the steps
			"": func(t *rapid.T) {
				if err := m.check(); err != nil {
					t.Fatal(err)
				}
			},
		})
		if len(members) == 0 {
			join()
		}
		for _, c := range members {
			c.Flow(100_000)
		}
		for idle := 0; ; { // all must come, if all is acknowledged
			r.settle()
			if err := m.check(); err != nil {
				t.Fatal(err)
			}
			unacked, with := m.left()
			if unacked == 0 {
				break
			}
			if idle++; with > 0 {
				idle = 0
			}
			if idle > 20 { // a flaky sink needs several tries
				t.Fatalf("stuck: %d not acknowledged, nothing sent, %+v", unacked, r.d.Stats())
			}
			for _, c := range members {
				ack(c, m.of(c))
				c.WritabilityChanged()
			}
		}
		if st := r.d.Stats(); st.Backlog != 0 || st.Replay != 0 || st.Unacked != 0 {
			t.Fatalf("at the end: %+v", st)
		}
	})
}

func TestReplaySetAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s replaySet
		model := map[int64]uint16{}
		sorted := func() (items []replayItem) {
			for id, h := range model {
				items = append(items, replayItem{id, h})
			}
			slices.SortFunc(items, func(a, b replayItem) int { return cmp.Compare(a.id, b.id) })
			return items
		}
		item := rapid.Custom(func(t *rapid.T) replayItem {
			id := rapid.Int64Range(0, 60).Draw(t, "id")
			return replayItem{id, uint16(id%7) + 1}
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				it := item.Draw(t, "item")
				s.add(it.id, it.hash)
				model[it.id] = it.hash
			},
			"add all": func(t *rapid.T) {
				items := rapid.SliceOf(item).Draw(t, "items")
				s.addAll(items)
				for _, it := range items {
					model[it.id] = it.hash
				}
			},
			"remove": func(t *rapid.T) {
				var ids []int64
				for _, it := range rapid.SliceOf(item).Draw(t, "items") {
					ids = append(ids, it.id)
					delete(model, it.id)
				}
				slices.Sort(ids)
				s.removeAll(slices.Compact(ids))
			},
			"pick": func(t *rapid.T) {
				n, odd := rapid.IntRange(0, 20).Draw(t, "n"), rapid.Uint16Range(0, 1).Draw(t, "odd")
				var want []int64
				for _, it := range sorted() {
					if len(want) < n && it.hash%2 == odd {
						want = append(want, it.id)
					}
				}
				if got := s.pick(nil, n, func(h uint16) bool { return h%2 == odd }); !slices.Equal(got, want) {
					t.Fatalf("picked %v, want %v", got, want)
				}
			},
			"": func(t *rapid.T) {
				if !slices.Equal(s.items, sorted()) {
					t.Fatalf("items %v, want %v", s.items, sorted())
				}
				for h := range uint16(9) {
					n := 0
					for _, v := range model {
						if v == h {
							n++
						}
					}
					if s.hashes != nil && s.hashes[h] != int32(n) || s.hasHash(h) != (n > 0) {
						t.Fatalf("hash %d counted %d times, want %d", h, s.hashes[h], n)
					}
				}
			},
		})
	})
}

func TestRingMovesOnlyTheShareOfWhoLeaves(t *testing.T) {
	var all []*Consumer
	for i := range 20 {
		all = append(all, &Consumer{ConsumerOptions: ConsumerOptions{Name: fmt.Sprint("consumer-", i)}, number: uint64(i)})
	}
	before := autoSplit(all)
	shuffled := slices.Clone(all)
	slices.Reverse(shuffled)
	again := autoSplit(shuffled)
	after := autoSplit(all[1:])
	share := map[*Consumer]int{}
	for h := range hashRange {
		o := before.owner(uint16(h))
		share[o]++
		if again.owner(uint16(h)) != o {
			t.Fatalf("hash %d: the owner depends on the order of joining", h)
		}
		if n := after.owner(uint16(h)); o != all[0] && n != o {
			t.Fatalf("hash %d moved from %s to %s when %s left", h, o.Name, n.Name, all[0].Name)
		}
	}
	for _, c := range all {
		if n := share[c]; n < hashRange/20/2 || n > hashRange/20*2 {
			t.Errorf("%s owns %d hashes, far from a twentieth of %d", c.Name, n, hashRange)
		}
	}
}

func TestStickyKey(t *testing.T) {
	for _, c := range []struct {
		md   wire.Metadata
		want string
	}{
		{wire.Metadata{PartitionKey: []byte("p"), OrderingKey: []byte("o")}, "o"},
		{wire.Metadata{PartitionKey: []byte("cA=="), PartitionKeyB64: true}, "p"},
		{wire.Metadata{PartitionKey: []byte("not base64!"), PartitionKeyB64: true}, "not base64!"},
		{wire.Metadata{PartitionKey: []byte("p")}, "p"},
		{wire.Metadata{}, string(noKey)},
	} {
		c.md.ProducerName = []byte("x")
		entry := wire.AppendHeadersAndPayload(nil, &c.md, []byte("payload"))
		var md wire.Metadata
		if got, _ := entryHash(entry, &md, nil); got != keyHash([]byte(c.want)) {
			t.Errorf("%+v does not hash as %q", c.md, c.want)
		}
	}
	if got, _ := entryHash([]byte("garbage"), new(wire.Metadata), nil); got != keyHash(noKey) {
		t.Error("an entry that cannot be read must hash as one without a key")
	}
}

func TestKeyHashKnownValues(t *testing.T) {
	for key, want := range map[string]uint32{
		"": 0, "hello": 0x248bfa47, "hello, world": 0x149bbb7f, "The quick brown fox jumps over the lazy dog": 0x2e4ff723,
	} {
		if got := murmur32([]byte(key)); got != want {
			t.Errorf("hash of %q is %#x, want %#x", key, got, want)
		}
	}
	if keyHash(nil) != 1 {
		t.Error("hash 0 is reserved and must become 1")
	}
}

func TestPendingAcksAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p pendingAcks
		model := map[int64]int32{}
		id := rapid.Int64Range(0, 300)
		ids := rapid.SliceOfN(id, 0, 100)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 50).Draw(t, "n") {
					a := pendingAck{id: id.Draw(t, "id"), messages: rapid.Int32Range(1, 3).Draw(t, "messages")}
					if !p.add(a) {
						t.Fatal("refused")
					}
					model[a.id] = a.messages
				}
			},
			"take": func(t *rapid.T) {
				found, messages := 0, int64(0)
				list := ids.Draw(t, "ids")
				for _, id := range list {
					if n, ok := model[id]; ok {
						delete(model, id)
						found++
						messages += int64(n)
					}
				}
				if got, n := p.take(list); n != found || got.messages != messages {
					t.Fatalf("took %d entries, %d messages; want %d and %d", n, got.messages, found, messages)
				}
			},
			"withdraw": func(t *rapid.T) {
				list := p.upTo(id.Draw(t, "last"))
				items, _ := p.withdraw(list)
				if len(items) != len(list) {
					t.Fatalf("withdrew %d of %d", len(items), len(list))
				}
				for _, it := range items {
					if _, ok := model[it.id]; !ok {
						t.Fatalf("withdrew %d, which was not pending", it.id)
					}
					delete(model, it.id)
				}
			},
			"": func(t *rapid.T) {
				all := p.upTo(1 << 60)
				if len(all) != len(model) || !slices.IsSorted(all) || p.gone > 64 && p.gone > len(p.items)/2 {
					t.Fatalf("%d pending, want %d; %d of %d elements gone", len(all), len(model), p.gone, len(p.items))
				}
			},
		})
		if items, _ := p.close(); len(items) != len(model) || p.add(pendingAck{id: 1, messages: 1}) {
			t.Fatalf("close returned %d of %d", len(items), len(model))
		}
	})
}
