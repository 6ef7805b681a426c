package dispatch

import (
	"cmp"
	"math"
	"slices"
)

// replayItem is an entry that was read and could not be sent, or must be sent
// again.
type replayItem struct {
	id   int64
	hash uint16
}

// replaySet is the ordered set of entries to send again, and how many of them
// each hash has.
type replaySet struct {
	items  []replayItem // ascending
	hashes []int32      // by hash; nil until the first item

	passed, taken hashSet // scratch of pick
}

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

func (s *replaySet) len() int { return len(s.items) }

// first returns the first entry, or one after all others if there is none.
func (s *replaySet) first() int64 {
	if len(s.items) == 0 {
		return math.MaxInt64
	}
	return s.items[0].id
}

func (s *replaySet) clear() {
	s.items = nil
	clear(s.hashes)
}

// removeUpTo removes last and all before it.
func (s *replaySet) removeUpTo(last int64) {
	if s.first() > last {
		return
	}
	n := 0
	for ; n < len(s.items) && s.items[n].id <= last; n++ {
		s.count(s.items[n].hash, -1)
	}
	s.items = slices.Delete(s.items, 0, n)
}

// unknownHash is the hash of entries that were read for another type of
// subscription; any later entry may be of the same key.
const unknownHash = 0

func (s *replaySet) hasHash(h uint16) bool {
	return len(s.items) > 0 && (s.hashes[h] > 0 || s.hashes[unknownHash] > 0)
}

// forgetHashes makes every hash unknown.
func (s *replaySet) forgetHashes() {
	for i := range s.items {
		s.items[i].hash = unknownHash
	}
	clear(s.hashes)
	s.count(unknownHash, len(s.items))
}

// rehash corrects the hash of id.
func (s *replaySet) rehash(id int64, h uint16) {
	if i, found := s.find(id); found && s.items[i].hash != h {
		s.count(s.items[i].hash, -1)
		s.items[i].hash = h
		s.count(h, 1)
	}
}

func (s *replaySet) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(s.items, id, func(it replayItem, id int64) int { return cmp.Compare(it.id, id) })
}

func (s *replaySet) add(id int64, h uint16) {
	if n := len(s.items); n == 0 || s.items[n-1].id < id {
		s.items = append(s.items, replayItem{id, h})
	} else if i, found := s.find(id); !found {
		s.items = slices.Insert(s.items, i, replayItem{id, h})
	} else {
		return
	}
	s.count(h, 1)
}

// addAll adds many at once.
func (s *replaySet) addAll(items []replayItem) {
	s.items = append(s.items, items...)
	slices.SortStableFunc(s.items, func(a, b replayItem) int { return cmp.Compare(a.id, b.id) })
	s.items = slices.CompactFunc(s.items, func(a, b replayItem) bool { return a.id == b.id })
	clear(s.hashes)
	for _, it := range s.items {
		s.count(it.hash, 1)
	}
}

func (s *replaySet) count(h uint16, n int) {
	if s.hashes == nil {
		s.hashes = make([]int32, hashRange)
	}
	s.hashes[h] += int32(n)
}

// pick returns up to n ids, in order, whose hash may is true for; may is asked
// once per hash, since a hash that is passed over must be so altogether.
func (s *replaySet) pick(ids []int64, n int, may func(uint16) bool) []int64 {
	if s.len() == 0 {
		return ids
	}
	s.passed.clear()
	s.taken.clear()
	for _, it := range s.items {
		switch {
		case len(ids) == n:
			return ids
		case s.taken.has(it.hash):
			ids = append(ids, it.id)
		case s.passed.has(it.hash):
		case may(it.hash):
			s.taken.add(it.hash)
			ids = append(ids, it.id)
		default:
			s.passed.add(it.hash)
		}
	}
	return ids
}

// removeAll removes ids, which ascend.
func (s *replaySet) removeAll(ids []int64) {
	if len(ids) == 0 {
		return
	}
	kept := s.items[:0]
	for _, it := range s.items {
		for len(ids) > 0 && ids[0] < it.id {
			ids = ids[1:]
		}
		if len(ids) > 0 && ids[0] == it.id {
			s.count(it.hash, -1)
			continue
		}
		kept = append(kept, it)
	}
	s.items = kept
}
