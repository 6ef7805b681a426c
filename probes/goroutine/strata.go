package goroutine

import (
	"math/rand/v2"
	"slices"
)

// A stratum is the goroutines of one state and wait reason whose states are read
// with one probability. The stacks that are not known from an earlier tick are
// read of a random choice of each stratum, and those chosen carry the time of
// all, so that the stratum's time is kept whole. Lock waits come first: a few of
// them must not drown in idle ones.
type stratum struct {
	status uint32
	reason uint8
	lock   bool
	cold   bool    // of goroutines of which a tick reads the states of some
	rate   float64 // probability that a goroutine of it is chosen at this tick
	phase  float64 // of the systematic choice, in [0, 1) before each goroutine
	count  int     // goroutines at this tick whose stack is not known
	taken  int     // of these chosen
	given  int     // of the chosen, how many have got their part
	quota  int     // how many to choose at the next tick
	seen   int     // goroutines at this tick, with those whose stack is known
	owed   int64   // time of goroutines of which none was chosen yet
}

// strata are those met so far. Each tick chooses by what the last one counted.
type strata struct {
	list  []stratum
	index [numStatus << 9]int32 // number in list + 1
	order []int
}

// begin opens a tick.
func (s *strata) begin(r *rand.Rand) {
	for i := range s.list {
		x := &s.list[i]
		x.count, x.taken, x.given, x.seen = 0, 0, 0, 0
		x.phase = r.Float64()
	}
}

// of returns the number of a goroutine's stratum in the list.
func (s *strata) of(status uint32, reason uint8, lock, cold bool) int {
	k := status<<9 | uint32(reason)<<1
	if cold {
		k |= 1
	}
	at := &s.index[k]
	if *at == 0 {
		s.list = append(s.list, stratum{status: status, reason: reason, lock: lock, cold: cold, rate: 1})
		*at = int32(len(s.list))
	}
	return int(*at - 1)
}

// choose counts a goroutine whose stack is not known and says whether it is to be
// read. Each is with the probability rate, and their number differs from rate
// times count by less than one.
func (x *stratum) choose() bool {
	x.count++
	x.phase += x.rate
	if x.phase < 1 {
		return false
	}
	x.phase--
	x.taken++
	return true
}

// next sets the rates of the next tick, which may read total stacks, and says
// whether it will read all.
func (s *strata) next(total int) (all bool) {
	s.allot(total)
	all = true
	for i := range s.list {
		x := &s.list[i]
		x.rate = 1
		if x.quota < x.count {
			x.rate, all = float64(x.quota)/float64(x.count), false
		}
	}
	return all
}

// allot shares total stacks out. Every stratum gets at least some while it has
// them; none gets more than it has. Lock waits get up to three quarters, and
// small strata are served whole before large ones.
func (s *strata) allot(total int) {
	rest := s.share(true, total-total/4)
	s.share(false, total/4+rest)
}

// leastOf is how many stacks of a stratum are read at least.
const leastOf = 4

// share shares out among the strata of one kind and returns what is left.
func (s *strata) share(lock bool, total int) int {
	s.order = s.order[:0]
	for i := range s.list {
		if s.list[i].lock == lock {
			s.order = append(s.order, i)
		}
	}
	slices.SortFunc(s.order, func(a, b int) int { return s.list[a].count - s.list[b].count })
	for k, i := range s.order {
		x := &s.list[i]
		x.quota = min(x.count, max(total/(len(s.order)-k), leastOf))
		total = max(total-x.quota, 0)
	}
	return total
}

// part is the k-th of n parts of total, in whole numbers that sum up to it.
func part(total int64, k, n int) int64 {
	q, r := total/int64(n), total%int64(n)
	if int64(k) < r {
		q++
	}
	return q
}
