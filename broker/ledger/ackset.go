package ledger

import "math/bits"

// ackSet is the set of entries acknowledged above a mark: a bitmap that slides
// with the mark.
type ackSet struct {
	base  int64 // the entry of bit 0, a multiple of 64
	words []uint64
}

// reset empties the set and starts it at mark+1.
func (s *ackSet) reset(mark int64) {
	s.base = (mark + 1) &^ 63
	s.words = s.words[:0]
}

func (s *ackSet) has(n int64) bool {
	i := n - s.base
	return i >= 0 && i/64 < int64(len(s.words)) && s.words[i/64]&(1<<(i%64)) != 0
}

// add reports whether n was not in the set. n must not lie below base.
func (s *ackSet) add(n int64) bool {
	i := n - s.base
	for i/64 >= int64(len(s.words)) {
		s.words = append(s.words, 0)
	}
	bit := uint64(1) << (i % 64)
	if s.words[i/64]&bit != 0 {
		return false
	}
	s.words[i/64] |= bit
	return true
}

// advance returns the largest m such that mark+1…m are all in the set, or mark,
// and forgets most of what lies below.
func (s *ackSet) advance(mark int64) int64 {
	for {
		i := mark + 1 - s.base
		if i/64 >= int64(len(s.words)) {
			break
		}
		run := bits.TrailingZeros64(^(s.words[i/64] >> (i % 64)))
		mark += int64(run)
		if run == 0 || int64(run) < 64-i%64 {
			break
		}
	}
	if done := (mark + 1 - s.base) / 64; done > 64 && done > int64(len(s.words))/2 {
		// Half at least is done with: moving the rest is paid for by it.
		n := copy(s.words, s.words[min(done, int64(len(s.words))):])
		s.words = s.words[:n]
		s.base += done * 64
	}
	return mark
}

// ranges returns the runs of entries in the set from entry from on.
func (s *ackSet) ranges(from int64) [][2]int64 {
	var out [][2]int64
	end := s.base + 64*int64(len(s.words))
	for n := max(from, s.base); n < end; n++ {
		w := s.words[(n-s.base)/64] >> ((n - s.base) % 64)
		if w == 0 { // nothing more in this word
			n = (n | 63)
			continue
		}
		n += int64(bits.TrailingZeros64(w))
		first := n
		for n+1 < end && s.has(n+1) {
			n++
		}
		out = append(out, [2]int64{first, n})
	}
	return out
}
