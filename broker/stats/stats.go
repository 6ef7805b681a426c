// Package stats holds what the broker measures about itself on its hot paths:
// a monotonic clock and fixed-bucket histograms. Recording is a few atomic
// operations on memory that nobody else writes; everything that costs
// (labels, merging, encoding) happens when the figures are read.
package stats

import (
	"math"
	"sort"
	"sync/atomic"
	"time"
)

var epoch = time.Now()

// Now returns nanoseconds on a monotonic clock whose zero is the start of the
// process. It is cheaper than time.Now, which reads the wall clock as well.
func Now() int64 { return int64(time.Since(epoch)) }

// Histogram counts observations in fixed buckets. Its methods may be called
// from any goroutine.
type Histogram struct {
	bounds []int64
	counts []atomic.Uint64 // one more than bounds: the last is unbounded
	sum    atomic.Int64
}

// NewHistogram returns a histogram whose buckets have these inclusive upper
// bounds, which must ascend.
func NewHistogram(bounds []int64) *Histogram {
	if !sort.SliceIsSorted(bounds, func(i, j int) bool { return bounds[i] < bounds[j] }) {
		panic("stats: histogram bounds do not ascend")
	}
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Exponential returns bounds from first to at least last, each factor times
// the one before (and at least one more).
func Exponential(first, last int64, factor float64) []int64 {
	bounds := []int64{first}
	for v := float64(first); bounds[len(bounds)-1] < last; {
		v *= factor
		bounds = append(bounds, max(int64(math.Round(v)), bounds[len(bounds)-1]+1))
	}
	return bounds
}

// Observe counts v.
func (h *Histogram) Observe(v int64) {
	lo, hi := 0, len(h.bounds)
	for lo < hi {
		if mid := (lo + hi) / 2; h.bounds[mid] < v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	h.counts[lo].Add(1)
	h.sum.Add(v)
}

// Snapshot is a histogram's content at one time. Counts has one element more
// than Bounds, for what lay above the last bound; it is not cumulative.
type Snapshot struct {
	Bounds []int64
	Counts []uint64
	Sum    int64
}

// Snapshot reads the histogram. Observations made meanwhile may be in Counts
// and not yet in Sum.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Bounds: h.bounds, Counts: make([]uint64, len(h.counts)), Sum: h.sum.Load()}
	for i := range h.counts {
		s.Counts[i] = h.counts[i].Load()
	}
	return s
}

// Count returns the number of observations.
func (s *Snapshot) Count() uint64 {
	var n uint64
	for _, c := range s.Counts {
		n += c
	}
	return n
}

// Merge adds o, which must have the same bounds; merging into a zero Snapshot
// copies.
func (s *Snapshot) Merge(o Snapshot) {
	if s.Counts == nil {
		s.Bounds, s.Counts = o.Bounds, make([]uint64, len(o.Counts))
	}
	for i, c := range o.Counts {
		s.Counts[i] += c
	}
	s.Sum += o.Sum
}
