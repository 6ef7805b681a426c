package ledger

import (
	"testing"

	"pgregory.net/rapid"
)

func TestStoreAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s store
		s.startAt(0, 0)
		var model [][]byte
		var trimmed int64
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 500).Draw(t, "n") {
					b := make([]byte, len(model)%5)
					if id := s.append(b, int32(len(model)%3+1), 0); id != int64(len(model)) {
						t.Fatalf("appended as %d, want %d", id, len(model))
					}
					model = append(model, b)
				}
			},
			"trim": func(t *rapid.T) {
				n := rapid.Int64Range(0, int64(len(model))).Draw(t, "before")
				s.trim(n)
				trimmed = max(trimmed, n)
			},
			"": func(t *rapid.T) {
				if s.base != trimmed || s.next != int64(len(model)) {
					t.Fatalf("base %d, next %d; want %d and %d", s.base, s.next, trimmed, len(model))
				}
				var bytes int64
				for i := trimmed; i < int64(len(model)); i++ {
					bytes += int64(len(model[i]))
				}
				if len(model) > 0 {
					i := rapid.Int64Range(0, int64(len(model))-1).Draw(t, "look at")
					e, ok := s.at(i)
					if ok != (i >= trimmed) || ok && (len(e.Data) != len(model[i]) || e.Messages != int32(i%3+1) || e.Index != indexOf(i)) {
						t.Fatalf("entry %d is %v, %v", i, e, ok)
					}
				}
				_, before := s.at(trimmed - 1)
				_, after := s.at(s.next)
				if bytes != s.bytes || before || after {
					t.Fatalf("bytes %d, want %d; entries outside: %v, %v", s.bytes, bytes, before, after)
				}
			},
		})
	})
}

// indexOf is the index of entry i's last message, where entry k has k%3+1.
func indexOf(i int64) int64 {
	n := (i + 1) / 3 * 6
	for k := (i + 1) / 3 * 3; k <= i; k++ {
		n += k%3 + 1
	}
	return n - 1
}

func TestCursorAgainstASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Int64Range(0, 200).Draw(t, "first")
		l := &Ledger{}
		l.trimming.Store(true) // nobody runs tasks here
		c := &Cursor{ledger: l, start: first}
		c.markDelete.Store(first - 1)
		c.acked.reset(first - 1)
		last := first - 1
		l.lastConfirmed.Store(last)
		acked := map[int64]bool{}
		marked := first - 1
		mark := func() int64 {
			for acked[marked+1] {
				marked++
			}
			return marked
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				last += rapid.Int64Range(1, 300).Draw(t, "n")
				l.lastConfirmed.Store(last)
			},
			"ack": func(t *rapid.T) {
				ids := rapid.SliceOfN(rapid.Int64Range(first-5, last+5), 1, 50).Draw(t, "ids")
				want := 0
				for _, id := range ids {
					if id >= first && id <= last && !acked[id] {
						acked[id] = true
						want++
					}
				}
				if got := c.Delete(ids); got != want {
					t.Fatalf("%d acknowledged, want %d", got, want)
				}
			},
			"ack a run": func(t *rapid.T) {
				from := rapid.Int64Range(first, max(first, last)).Draw(t, "from")
				var ids []int64
				for id := from; id <= min(last, from+300); id++ {
					ids = append(ids, id)
					acked[id] = true
				}
				c.Delete(ids)
			},
			"cumulative": func(t *rapid.T) {
				id := min(rapid.Int64Range(first-5, last+5).Draw(t, "id"), mark()+500)
				want := 0
				for n := first; n <= min(id, last); n++ {
					if !acked[n] {
						acked[n] = true
						want++
					}
				}
				if got := c.MarkDelete(id); got != want {
					t.Fatalf("%d acknowledged, want %d", got, want)
				}
			},
			"": func(t *rapid.T) {
				if c.MarkDeletePosition() != mark() {
					t.Fatalf("mark %d, want %d", c.MarkDeletePosition(), mark())
				}
				if got, want := c.Backlog(), last-first+1-int64(len(acked)); got != want {
					t.Fatalf("backlog %d, want %d", got, want)
				}
				for id := max(first, mark()-10); id <= min(last, mark()+70); id++ {
					if c.isAcked(id) != acked[id] {
						t.Fatalf("entry %d acknowledged: %v, want %v", id, c.isAcked(id), acked[id])
					}
				}
			},
		})
	})
}

func TestAckSetSlidesWithTheMark(t *testing.T) {
	var s ackSet
	const first, total, window = 1000, 200_000, 640
	s.reset(first - 1)
	mark := int64(first - 1)
	for n := int64(first); n < first+total; n += window {
		for i := int64(window - 1); i >= 0; i-- { // each window back to front
			if !s.add(n + i) {
				t.Fatalf("%d was in the set already", n+i)
			}
			if i > 0 && s.advance(mark) != mark {
				t.Fatalf("mark moved past %d, which is missing", mark+1)
			}
		}
		if mark = s.advance(mark); mark != n+window-1 {
			t.Fatalf("mark %d, want %d", mark, n+window-1)
		}
		if len(s.words) > 200 {
			t.Fatalf("%d words for a window of %d entries", len(s.words), window)
		}
	}
}
