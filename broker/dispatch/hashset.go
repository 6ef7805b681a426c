package dispatch

// hashSet is a set of hashes that is cleared at no cost. The zero value is
// empty; it takes 256 KB from the first add on.
type hashSet struct {
	marks []uint32
	round uint32 // a hash is in the set if its mark is this; 0 = never cleared
}

func (s *hashSet) clear() {
	if s.round++; s.round == 0 { // wrapped: old marks would count again
		clear(s.marks)
		s.round = 1
	}
}

func (s *hashSet) add(h uint16) {
	if s.marks == nil {
		s.marks = make([]uint32, hashRange)
		s.round = max(s.round, 1)
	}
	s.marks[h] = s.round
}

func (s *hashSet) has(h uint16) bool { return s.marks != nil && s.marks[h] == s.round }
