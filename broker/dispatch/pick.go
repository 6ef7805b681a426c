package dispatch

// head is what pick has not looked at yet of a bucket. Heads are a heap, the
// one with the first item on top.
type head struct {
	rest []replayItem // not empty
	room int          // how many may be taken yet, > 0
}

// pick appends up to n items to picked, which is empty, in order: for each
// owner no more than it has permits, and only hashes that may is true for; nil
// means all. may is not asked again about a hash that was passed over, since it
// must be so altogether, and never about an unknown one: the send loop tells.
func (s *replaySet) pick(picked []replayItem, n int, may func(uint16) bool) []replayItem {
	if s.n == 0 {
		return picked
	}
	s.passed.clear()
	s.taken.clear()
	s.collectHeads(n)
	for len(s.heads) > 0 && len(picked) < n {
		h := &s.heads[0]
		if it := h.rest[0]; may == nil || s.takes(it.hash, may) {
			picked = append(picked, it)
			h.room--
		}
		if h.rest = h.rest[1:]; len(h.rest) == 0 || h.room == 0 {
			last := len(s.heads) - 1
			s.heads[0] = s.heads[last]
			s.heads = s.heads[:last]
		}
		siftDown(s.heads, 0)
	}
	clear(s.heads[:cap(s.heads)]) // they hold on to items
	return picked
}

// collectHeads finds the buckets that something can be taken from.
func (s *replaySet) collectHeads(n int) {
	s.heads = s.heads[:0]
	for i := range s.buckets {
		items := s.buckets[i].items()
		if len(items) == 0 {
			continue
		}
		room := n
		if i > 0 {
			room = 0
			if i <= len(s.owners.owners) {
				room = min(n, s.owners.owners[i-1].room())
			}
		}
		if room > 0 {
			s.heads = append(s.heads, head{items, room})
		}
	}
	for i := len(s.heads)/2 - 1; i >= 0; i-- {
		siftDown(s.heads, i)
	}
}

// takes asks may, about each hash once.
func (s *replaySet) takes(h uint16, may func(uint16) bool) bool {
	switch {
	case h == unknownHash || s.taken.has(h):
		return true
	case s.passed.has(h):
		return false
	case may(h):
		s.taken.add(h)
		return true
	}
	s.passed.add(h)
	return false
}

// siftDown moves heads[i] to its place in the heap.
func siftDown(heads []head, i int) {
	for {
		c := 2*i + 1
		if c >= len(heads) {
			return
		}
		if c+1 < len(heads) && heads[c+1].rest[0].id < heads[c].rest[0].id {
			c++
		}
		if heads[i].rest[0].id < heads[c].rest[0].id {
			return
		}
		heads[i], heads[c] = heads[c], heads[i]
		i = c
	}
}
