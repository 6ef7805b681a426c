package executor

import (
	"fmt"
	"sync"
	"testing"
)

type nop struct{}

func (*nop) Run() {}

// BenchmarkHandover is what handing one add to the executor costs its producer,
// by way of hand-over and number of producers, with the executor running
// beside. For a fair comparison run it several times over with -count 1: with
// a larger count, the variants are not interleaved.
func BenchmarkHandover(b *testing.B) {
	for _, producers := range []int{1, 8, 64} {
		for _, k := range queueKinds {
			b.Run(fmt.Sprintf("%s/producers=%d", modeName(k.kind), producers), func(b *testing.B) {
				if err := k.kind.Validate(); err != nil {
					b.Skip(err)
				}
				e := New(Options{Queue: k.kind})
				n := &nop{}
				handOver(b, e, producers, func() error { return e.Execute(Add, n) })
			})
		}
		b.Run(fmt.Sprintf("batched/producers=%d", producers), func(b *testing.B) {
			e := New(Options{})
			s, err := NewBatching(e, BatchOptions[nop]{MaxItems: 1024, Run: (*nop).Run, Rejected: func(*nop, error) {}})
			if err != nil {
				b.Fatal(err)
			}
			n := &nop{}
			handOver(b, e, producers, func() error { return s.Submit(n) })
		})
	}
}

func modeName(k QueueKind) string {
	if k == QueueLock {
		return "direct"
	}
	return string(k)
}

func handOver(b *testing.B, e *Executor, producers int, submit func() error) {
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for p := range producers {
		n := b.N / producers
		if p < b.N%producers {
			n++
		}
		wg.Go(func() {
			for range n {
				if err := submit(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if err := e.Shutdown(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// TestHandoverAllocatesNothing: in steady state, neither handing a task over
// nor running it allocates, in any mode.
func TestHandoverAllocatesNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		e := New(Options{Queue: kind})
		s, err := NewBatching(e, BatchOptions[nop]{MaxItems: 64, Run: (*nop).Run, Rejected: func(*nop, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		n, done := &nop{}, &signal{make(chan struct{}, 1)}
		round := func() {
			for range 500 {
				if e.Execute(Add, n) != nil || e.Execute(Wake, n) != nil || s.Submit(n) != nil {
					t.Error("rejected")
				}
			}
			if err := e.Execute(Other, done); err != nil {
				t.Error(err)
			}
			<-done.c
		}
		round()
		round()
		if allocs := testing.AllocsPerRun(50, round); allocs > 1 { // of 1,500 tasks
			t.Errorf("%g allocations per round", allocs)
		}
		if err := e.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

type signal struct{ c chan struct{} }

func (s *signal) Run() { s.c <- struct{}{} }
