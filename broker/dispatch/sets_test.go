package dispatch

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

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
