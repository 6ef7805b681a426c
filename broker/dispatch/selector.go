package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/contention-toolkit/contention/broker/wire"
)

// pointsPerConsumer is how often a consumer stands on the ring.
const pointsPerConsumer = 100

// selector says which consumer of a Key_Shared subscription has a hash. It does
// not change: consumers that come or go make a new one.
type selector struct {
	owners []*Consumer
	table  []uint16 // hash → 1 + index in owners; 0 = nobody
}

// owner returns the consumer of h, or nil if nobody has it.
func (s *selector) owner(h uint16) *Consumer {
	if i := s.table[h]; i > 0 {
		return s.owners[i-1]
	}
	return nil
}

func newSelector(consumers []*Consumer) *selector {
	return &selector{owners: slices.Clone(consumers), table: make([]uint16, hashRange)}
}

// autoSplit divides the hashes by consistent hashing: each consumer stands at
// 100 points of a ring given by its name, and a hash belongs to the next point
// at or after it, around the end. The division depends on the set of names
// only, and a consumer that joins or leaves moves only its own share.
func autoSplit(consumers []*Consumer) *selector {
	s := newSelector(consumers)
	if len(consumers) == 0 {
		return s
	}
	// Where points coincide, the smaller name wins, whoever came first; of one
	// name, the first.
	slices.SortFunc(s.owners, func(a, b *Consumer) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.number, b.number))
	})
	type point struct {
		hash  uint16
		owner uint16 // 1 + index in owners
	}
	points := make([]point, 0, len(consumers)*pointsPerConsumer)
	for i, c := range s.owners {
		name := []byte(c.Name)
		for n := range pointsPerConsumer {
			points = append(points, point{keyHash(strconv.AppendInt(name, int64(n), 10)), uint16(i + 1)})
		}
	}
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.hash, b.hash) })
	h := 0
	for _, p := range points {
		for ; h <= int(p.hash); h++ {
			s.table[h] = p.owner
		}
	}
	for ; h < hashRange; h++ {
		s.table[h] = points[0].owner
	}
	return s
}

// sticky gives each consumer the ranges that it declared.
func sticky(consumers []*Consumer) *selector {
	s := newSelector(consumers)
	for i, c := range s.owners {
		for _, r := range c.KeyShared.Ranges {
			for h := r.Start; h <= r.End; h++ {
				s.table[h] = uint16(i + 1)
			}
		}
	}
	return s
}

// Reasons a Key_Shared consumer is refused.
var (
	ErrKeyRanges   = errors.New("hash ranges cannot be served")
	ErrOtherPolicy = errors.New("subscription has consumers of another Key_Shared policy")
)

// maxConsumers is how many consumers a selector can tell apart.
const maxConsumers = 1<<16 - 1

// keyPolicy is what the consumers of a Key_Shared subscription must agree on.
type keyPolicy struct {
	sticky   bool
	anyOrder bool // entries of one key need not stay in order
}

func (p keyPolicy) String() string {
	s := "auto-split"
	if p.sticky {
		s = "sticky"
	}
	if p.anyOrder {
		s += ", out of order"
	}
	return s
}

func policyOf(o *ConsumerOptions) keyPolicy {
	if o.Type != wire.KeyShared || o.KeyShared == nil {
		return keyPolicy{}
	}
	return keyPolicy{sticky: o.KeyShared.Mode == wire.Sticky, anyOrder: o.KeyShared.AllowOutOfOrder}
}

// checkRanges returns what is wrong with the ranges of a consumer that joins
// others, or nil.
func checkRanges(o *ConsumerOptions, others []*Consumer) error {
	ranges := o.KeyShared.Ranges
	if len(ranges) == 0 {
		return fmt.Errorf("consumer %s is sticky and declares no hash range: %w", o.Name, ErrKeyRanges)
	}
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b wire.HashRange) int { return cmp.Compare(a.Start, b.Start) })
	for i, r := range ranges {
		switch {
		case r.Start < 0 || r.End >= hashRange || r.Start > r.End:
			return fmt.Errorf("consumer %s declares hashes %d to %d, which are not within 0 to %d: %w",
				o.Name, r.Start, r.End, hashRange-1, ErrKeyRanges)
		case i > 0 && r.Start <= ranges[i-1].End:
			return fmt.Errorf("consumer %s declares hash %d twice: %w", o.Name, r.Start, ErrKeyRanges)
		}
	}
	for _, c := range others {
		for _, r := range c.KeyShared.Ranges {
			i, _ := slices.BinarySearchFunc(ranges, r.Start, func(m wire.HashRange, start int32) int { return cmp.Compare(m.End, start) })
			if i < len(ranges) && ranges[i].Start <= r.End {
				return fmt.Errorf("consumer %s declares hash %d, which consumer %s has: %w",
					o.Name, max(r.Start, ranges[i].Start), c.Name, ErrKeyRanges)
			}
		}
	}
	return nil
}
