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

func byID(a, b replayItem) int { return cmp.Compare(a.id, b.id) }

// unknownHash is the hash of entries that were read for another type of
// subscription; any later entry may be of the same key.
const unknownHash = 0

// replaySet is the ordered set of entries to send again, and how many of them
// each hash has. They lie in one bucket per owner, so that what waits for
// consumers that can be sent nothing is not looked at, however much it is.
// assign comes first, and again whenever the owners change.
type replaySet struct {
	owners *selector // nil = the subscription's type gives hashes no owners
	// buckets are, with owners: one for unknown hashes, one per owner in the
	// selector's numbering, one for what nobody owns. Without: one.
	buckets []bucket
	n       int
	hashes  []int32 // by hash; nil until the first item

	// Scratch of pick.
	passed, taken hashSet
	heads         []head
}

// assign moves everything to the buckets of other owners.
func (s *replaySet) assign(owners *selector) {
	old := s.buckets
	s.owners, s.buckets = owners, make([]bucket, 1)
	if owners != nil {
		s.buckets = make([]bucket, len(owners.owners)+2)
	}
	for i := range old {
		for _, it := range old[i].items() {
			s.bucket(it.hash).push(it)
		}
	}
	s.order()
}

func (s *replaySet) bucket(h uint16) *bucket {
	if s.owners == nil || h == unknownHash {
		return &s.buckets[0]
	}
	if i := s.owners.table[h]; i > 0 {
		return &s.buckets[i]
	}
	return &s.buckets[len(s.buckets)-1]
}

func (s *replaySet) len() int { return s.n }

// first returns the first entry, or one after all others if there is none.
func (s *replaySet) first() int64 {
	first := int64(math.MaxInt64)
	for i := range s.buckets {
		if items := s.buckets[i].items(); len(items) > 0 {
			first = min(first, items[0].id)
		}
	}
	return first
}

func (s *replaySet) clear() {
	clear(s.buckets)
	clear(s.hashes)
	s.n = 0
}

// count notes n more items of the hash.
func (s *replaySet) count(h uint16, n int) {
	if s.hashes == nil {
		s.hashes = make([]int32, hashRange)
	}
	s.hashes[h] += int32(n)
	s.n += n
}

// hasHash reports whether an item may be of the hash.
func (s *replaySet) hasHash(h uint16) bool {
	return s.n > 0 && (s.hashes[h] > 0 || s.hashes[unknownHash] > 0)
}

// hasKnown reports whether an item is known to be of the hash.
func (s *replaySet) hasKnown(h uint16) bool { return s.hashes != nil && s.hashes[h] > 0 }

// forgetHashes makes every hash unknown.
func (s *replaySet) forgetHashes() {
	for i := range s.buckets {
		items := s.buckets[i].items()
		for j := range items {
			s.count(items[j].hash, -1)
			items[j].hash = unknownHash
			s.count(unknownHash, 1)
		}
	}
	s.assign(s.owners)
}

// add adds what is not in the set yet.
func (s *replaySet) add(items ...replayItem) {
	unordered := false
	for _, it := range items {
		b := s.bucket(it.hash)
		b.push(it)
		unordered = unordered || b.unordered
		s.count(it.hash, 1)
	}
	if unordered {
		s.order()
	}
}

// order restores the order of buckets that lost it, and drops what is in one
// twice.
func (s *replaySet) order() {
	for i := range s.buckets {
		b := &s.buckets[i]
		if !b.unordered {
			continue
		}
		items := b.items()
		slices.SortStableFunc(items, byID)
		kept := items[:1]
		for _, it := range items[1:] {
			if it.id == kept[len(kept)-1].id {
				s.count(it.hash, -1)
				continue
			}
			kept = append(kept, it)
		}
		b.all, b.unordered = b.all[:b.first+len(kept)], false
	}
}

// removeUpTo removes last and all before it.
func (s *replaySet) removeUpTo(last int64) {
	for i := range s.buckets {
		b := &s.buckets[i]
		n := 0
		for _, it := range b.items() {
			if it.id > last {
				break
			}
			s.count(it.hash, -1)
			n++
		}
		b.drop(n)
	}
}

// remove removes items, which ascend. It looks at nothing behind the last of
// each bucket.
func (s *replaySet) remove(items []replayItem) {
	for _, it := range items {
		if s.bucket(it.hash).remove(it.id) {
			s.count(it.hash, -1)
		}
	}
	for i := range s.buckets {
		s.buckets[i].removed()
	}
}

// bucket is a list of items that are mostly added behind the last and removed
// near the first.
type bucket struct {
	all       []replayItem
	first     int // of all; those before are free
	unordered bool

	read, kept int // of items, while some are removed
}

// items ascend, but for an unordered bucket.
func (b *bucket) items() []replayItem { return b.all[b.first:] }

func (b *bucket) push(it replayItem) {
	n := len(b.all)
	if n > b.first && b.all[n-1].id >= it.id {
		b.unordered = true
	}
	if n == cap(b.all) && b.first > n/2 { // rather than to grow
		b.all = b.all[:copy(b.all, b.items())]
		b.first = 0
	}
	b.all = append(b.all, it)
}

// drop removes the first n items.
func (b *bucket) drop(n int) {
	if b.first += n; b.first == len(b.all) {
		b.all, b.first = b.all[:0], 0
	}
}

// remove removes id, which is after all that were removed since removed.
func (b *bucket) remove(id int64) bool {
	items := b.items()
	for ; b.read < len(items) && items[b.read].id < id; b.read++ {
		items[b.kept] = items[b.read]
		b.kept++
	}
	if b.read == len(items) || items[b.read].id != id {
		return false
	}
	b.read++
	return true
}

// removed closes the gap that remove left.
func (b *bucket) removed() {
	if b.read == 0 {
		return
	}
	items, gap := b.items(), b.read-b.kept
	copy(items[gap:b.read], items[:b.kept])
	b.read, b.kept = 0, 0
	b.drop(gap)
}
