package dispatch

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// someOwners returns a selector of consumers with few permits each that own the
// hashes up to 9, and nobody some of them; or none.
func someOwners(t *rapid.T) *selector {
	n := rapid.IntRange(-1, 4).Draw(t, "owners")
	if n < 0 {
		return nil
	}
	s := &selector{table: make([]uint16, hashRange)}
	for range n {
		c := &Consumer{ConsumerOptions: ConsumerOptions{Sink: &sink{}}}
		c.permits.Store(rapid.SampledFrom([]int64{-1, 0, 1, 2, 5, 100}).Draw(t, "permits"))
		s.owners = append(s.owners, c)
	}
	for h := range uint16(10) {
		s.table[h] = uint16(rapid.IntRange(0, n).Draw(t, "owner"))
	}
	return s
}

// replayModel is the replay set in its simplest form.
type replayModel struct {
	hashes map[int64]uint16
	owners *selector
}

func (m *replayModel) sorted() (items []replayItem) {
	for _, id := range slices.Sorted(maps.Keys(m.hashes)) {
		items = append(items, replayItem{id, m.hashes[id]})
	}
	return items
}

func (m *replayModel) add(items ...replayItem) {
	for _, it := range items {
		if _, ok := m.hashes[it.id]; !ok {
			m.hashes[it.id] = it.hash
		}
	}
}

// pick looks at everything that waits.
func (m *replayModel) pick(n int, may func(uint16) bool) (picked []replayItem) {
	sent := map[*Consumer]int64{}
	for _, it := range m.sorted() {
		if it.hash != unknownHash && m.owners != nil {
			c := m.owners.owner(it.hash)
			if c == nil || sent[c] >= c.permits.Load() || !may(it.hash) {
				continue
			}
			sent[c]++
		} else if it.hash != unknownHash && !may(it.hash) {
			continue
		}
		if len(picked) < n {
			picked = append(picked, it)
		}
	}
	return picked
}

func TestReplaySetAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s replaySet
		m := replayModel{hashes: map[int64]uint16{}}
		assign := func(t *rapid.T) { m.owners = someOwners(t); s.assign(m.owners) }
		assign(t)
		id := rapid.Int64Range(0, 60)
		item := rapid.Custom(func(t *rapid.T) replayItem {
			id := id.Draw(t, "id")
			h := uint16(id%7) + 1
			if known, ok := m.hashes[id]; ok {
				h = known // what is in the set keeps its hash
			}
			return replayItem{id, h}
		})
		n := rapid.IntRange(0, 20)
		t.Repeat(map[string]func(*rapid.T){
			"assign": assign,
			"add": func(t *rapid.T) {
				items := rapid.SliceOf(item).Draw(t, "items")
				s.add(items...)
				m.add(items...)
			},
			"add one": func(t *rapid.T) {
				it := item.Draw(t, "item")
				s.add(it)
				m.add(it)
			},
			"remove": func(t *rapid.T) { // some that are not there, too
				var items []replayItem
				for _, id := range slices.Sorted(slices.Values(rapid.SliceOfDistinct(id, rapid.ID[int64]).Draw(t, "ids"))) {
					h, ok := m.hashes[id]
					if !ok {
						h = uint16(id%7) + 1
					}
					items = append(items, replayItem{id, h})
					delete(m.hashes, id)
				}
				s.remove(items)
			},
			"remove up to": func(t *rapid.T) {
				last := id.Draw(t, "last")
				s.removeUpTo(last)
				maps.DeleteFunc(m.hashes, func(id int64, _ uint16) bool { return id <= last })
			},
			"forget hashes": func(*rapid.T) {
				s.forgetHashes()
				for id := range m.hashes {
					m.hashes[id] = unknownHash
				}
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "seldom") == 0 {
					s.clear()
					clear(m.hashes)
				}
			},
			"pick": func(t *rapid.T) {
				n, odd := n.Draw(t, "n"), rapid.Uint16Range(0, 1).Draw(t, "odd")
				may := func(h uint16) bool { return h%2 == odd }
				if got, want := s.pick(nil, n, may), m.pick(n, may); !slices.Equal(got, want) {
					t.Fatalf("picked %v, want %v", got, want)
				}
			},
			"pick of all": func(t *rapid.T) {
				n := n.Draw(t, "n")
				if got, want := s.pick(nil, n, nil), m.pick(n, func(uint16) bool { return true }); !slices.Equal(got, want) {
					t.Fatalf("picked %v, want %v", got, want)
				}
			},
			"pick and remove": func(t *rapid.T) {
				picked := s.pick(nil, n.Draw(t, "n"), nil)
				s.remove(picked)
				for _, it := range picked {
					delete(m.hashes, it.id)
				}
			},
			"pick while it changes": func(t *rapid.T) {
				picked := s.pick(nil, n.Draw(t, "n"), func(uint16) bool { return rapid.Bool().Draw(t, "may") })
				checkNothingSkipped(t, m.sorted(), picked)
			},
			"": func(t *rapid.T) { checkReplaySet(t, &s, &m) },
		})
	})
}

// checkNothingSkipped checks that what is picked of a hash is the first of it.
func checkNothingSkipped(t *rapid.T, all, picked []replayItem) {
	skipped := map[uint16]bool{}
	for _, it := range all {
		switch {
		case len(picked) == 0 || picked[0] != it:
			skipped[it.hash] = true
		case skipped[it.hash]:
			t.Fatalf("picked %v and not all before it of its hash", it)
		default:
			picked = picked[1:]
		}
	}
	if len(picked) > 0 {
		t.Fatalf("picked %v, which is not in the set or out of order", picked)
	}
}

func checkReplaySet(t *rapid.T, s *replaySet, m *replayModel) {
	var all []replayItem
	for i := range s.buckets {
		b := &s.buckets[i]
		if !slices.IsSortedFunc(b.items(), byID) || b.unordered || b.read+b.kept > 0 {
			t.Fatalf("bucket %d: %+v", i, *b)
		}
		for _, it := range b.items() {
			if s.bucket(it.hash) != b {
				t.Fatalf("%v is in bucket %d", it, i)
			}
		}
		all = append(all, b.items()...)
	}
	want := m.sorted()
	if slices.SortFunc(all, byID); !slices.Equal(all, want) || s.len() != len(want) {
		t.Fatalf("%d items %v, want %v", s.len(), all, want)
	}
	if len(want) > 0 && s.first() != want[0].id || len(want) == 0 && s.first() <= 60 {
		t.Fatalf("first is %d of %v", s.first(), want)
	}
	for h := range uint16(9) {
		n, unknown := 0, 0
		for _, v := range m.hashes {
			if v == h {
				n++
			}
			if v == unknownHash {
				unknown++
			}
		}
		if s.hasKnown(h) != (n > 0) || s.hasHash(h) != (n+unknown > 0) || s.hashes != nil && s.hashes[h] != int32(n) {
			t.Fatalf("hash %d counted wrongly: %d of it, %d unknown", h, n, unknown)
		}
	}
}
