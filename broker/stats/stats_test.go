package stats

import (
	"sort"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestObserveFindsTheBucketOfALinearSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SliceOfNDistinct(rapid.Int64Range(-100, 1000), 1, 40, rapid.ID[int64]).Draw(t, "bounds")
		sort.Slice(set, func(i, j int) bool { return set[i] < set[j] })
		h := NewHistogram(set)
		want := make([]uint64, len(set)+1)
		var sum int64
		for _, v := range rapid.SliceOf(rapid.Int64Range(-200, 1200)).Draw(t, "values") {
			h.Observe(v)
			sum += v
			i := 0
			for i < len(set) && v > set[i] {
				i++
			}
			want[i]++
		}
		got := h.Snapshot()
		for i := range want {
			if got.Counts[i] != want[i] {
				t.Fatalf("bounds %v: counts %v, want %v", set, got.Counts, want)
			}
		}
		if got.Sum != sum {
			t.Fatalf("sum %d, want %d", got.Sum, sum)
		}
	})
}

func TestExponentialReachesLastAndAscends(t *testing.T) {
	b := Exponential(1_000, 10_000_000_000, 1.5)
	if b[0] != 1_000 || b[len(b)-1] < 10_000_000_000 || b[len(b)-2] >= 10_000_000_000 {
		t.Fatalf("bounds run from %d over %d to %d", b[0], b[len(b)-2], b[len(b)-1])
	}
	for i := 1; i < len(b); i++ {
		if r := float64(b[i]) / float64(b[i-1]); r < 1.49 || r > 1.51 {
			t.Errorf("bound %d is %g times the one before", b[i], r)
		}
	}
	if got := Exponential(1, 4, 1.1); len(got) != 4 {
		t.Errorf("small bounds must still differ: %v", got)
	}
}

func TestConcurrentObservationsAreAllCounted(t *testing.T) {
	h := NewHistogram(Exponential(1, 1000, 2))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				h.Observe(int64(g*i) % 900)
			}
		})
	}
	wg.Wait()
	var total Snapshot
	total.Merge(h.Snapshot())
	total.Merge(h.Snapshot())
	if got := total.Count(); got != 8000 {
		t.Fatalf("merged twice: %d observations, want 8000", got)
	}
}

func TestNowDoesNotGoBack(t *testing.T) {
	last := Now()
	for range 1000 {
		n := Now()
		if n < last {
			t.Fatalf("clock went from %d to %d", last, n)
		}
		last = n
	}
}
