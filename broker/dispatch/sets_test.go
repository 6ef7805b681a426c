package dispatch

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

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
