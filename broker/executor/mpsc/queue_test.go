package mpsc

import (
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

func TestAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New[int](rapid.SampledFrom([]int{1, 2, 3, 8}).Draw(t, "chunk"))
		var model []int
		next := 0
		check := func(v *int) {
			switch {
			case len(model) == 0:
				if v != nil {
					t.Fatalf("took %d from an empty queue", *v)
				}
			case v == nil:
				t.Fatalf("took nothing, want %d", model[0])
			case *v != model[0]:
				t.Fatalf("took %d, want %d", *v, model[0])
			default:
				model = model[1:]
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				for range rapid.IntRange(1, 9).Draw(t, "n") {
					v := next
					next++
					q.Offer(&v)
					model = append(model, v)
				}
			},
			"poll":    func(*rapid.T) { check(q.Poll()) },
			"relaxed": func(*rapid.T) { check(q.PollRelaxed()) },
			"": func(t *rapid.T) {
				if q.Len() != len(model) || q.Empty() != (len(model) == 0) {
					t.Fatalf("Len %d, Empty %v with %d elements", q.Len(), q.Empty(), len(model))
				}
			},
		})
	})
}

func TestProducersKeepTheirOrder(t *testing.T) {
	const producers, each = 8, 10_000
	type element struct{ producer, n int }
	q := New[element](16)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for n := range each {
				q.Offer(&element{p, n})
			}
		})
	}
	var next [producers]int
	for range producers * each {
		var e *element
		for e == nil {
			e = q.Poll()
		}
		if e.n != next[e.producer] {
			t.Fatalf("producer %d: element %d came where %d was due", e.producer, e.n, next[e.producer])
		}
		next[e.producer]++
	}
	wg.Wait()
	if !q.Empty() || q.Poll() != nil {
		t.Fatal("elements left over")
	}
}

// The batching wrapper passes the consumer's role on by an atomic flag; the
// race detector must find that enough.
func TestConsumerRoleMayMove(t *testing.T) {
	const total = 20_000
	q := New[int](8)
	var role atomic.Bool
	var got, last atomic.Int64
	last.Store(-1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range total {
			q.Offer(&i)
		}
	})
	for range 3 {
		wg.Go(func() {
			for got.Load() < total {
				if !role.CompareAndSwap(false, true) {
					continue
				}
				if v := q.PollRelaxed(); v != nil {
					if int64(*v) != last.Load()+1 {
						t.Errorf("took %d after %d", *v, last.Load())
					}
					last.Store(int64(*v))
					got.Add(1)
				}
				role.Store(false)
			}
		})
	}
	wg.Wait()
}

func TestEmptiedChunkServesAgain(t *testing.T) {
	q := New[int](64)
	v := 1
	cycle := func() {
		for range 64 {
			q.Offer(&v)
		}
		for q.Poll() != nil {
		}
	}
	cycle()
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n > 0 {
		t.Errorf("%g allocations per 64 elements in steady state, want none", n)
	}
}

// TestSpareChunkIsClean: chunks that serve again, under producers that race to
// link them, carry nothing over.
func TestSpareChunkIsClean(t *testing.T) {
	q := New[int](2)
	var wg sync.WaitGroup
	const producers, each = 4, 20_000
	for p := range producers {
		wg.Go(func() {
			for n := range each {
				v := p*each + n
				q.Offer(&v)
			}
		})
	}
	seen := make([]bool, producers*each)
	for range producers * each {
		var v *int
		for v == nil {
			v = q.Poll()
		}
		if seen[*v] {
			t.Fatalf("%d came twice", *v)
		}
		seen[*v] = true
	}
	wg.Wait()
	if v := q.Poll(); v != nil || !q.Empty() {
		t.Fatalf("%v left over", v)
	}
	for i := range q.headChunk.slots {
		if q.headChunk.slots[i].Load() != nil {
			t.Fatal("an empty queue keeps an element alive")
		}
	}
}

func BenchmarkOfferPoll(b *testing.B) {
	q := New[int](0)
	v := 1
	b.ReportAllocs()
	for b.Loop() {
		q.Offer(&v)
		q.PollRelaxed()
	}
}

func BenchmarkOfferContended(b *testing.B) {
	q := New[int](0)
	v := 1
	done := make(chan struct{})
	go func() {
		defer close(done)
		for taken := 0; taken < b.N; {
			if q.Poll() != nil {
				taken++
			}
		}
	}()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			q.Offer(&v)
		}
	})
	<-done
}
