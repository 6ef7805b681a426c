package goroutine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAllot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s strata
		n := rapid.IntRange(1, 20).Draw(t, "strata")
		sum, locks, lockMax := 0, 0, 0
		for i := range n {
			lock := rapid.Bool().Draw(t, "lock")
			x := &s.list
			*x = append(*x, stratum{reason: uint8(i), lock: lock, count: rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(0, 100000)).Draw(t, "count")})
			sum += (*x)[i].count
			if lock {
				locks += (*x)[i].count
				lockMax = max(lockMax, (*x)[i].count)
			}
		}
		total := rapid.IntRange(leastStacks, 5000).Draw(t, "total")
		all := s.choose(total)
		got, whole := 0, true
		for _, x := range s.list {
			if x.quota > x.count || x.quota < min(x.count, leastOf) {
				t.Fatalf("%d of %d", x.quota, x.count)
			}
			if x.rate <= 0 || x.rate > 1 || (x.rate == 1) != (x.quota >= x.count) {
				t.Fatalf("rate %v for %d of %d", x.rate, x.quota, x.count)
			}
			whole = whole && x.quota == x.count
			got += x.quota
		}
		if got > total+leastOf*n {
			t.Fatalf("%d stacks, %d are affordable", got, total)
		}
		if all != whole {
			t.Fatalf("all is %v", all)
		}
		// What is affordable is used, and locks are not crowded out.
		if sum <= total/4 && !all {
			t.Fatalf("%d goroutines, %d stacks, and not all are read", sum, total)
		}
		if locks <= total-total/4 && lockMax > 0 {
			for _, x := range s.list {
				if x.lock && x.quota != x.count {
					t.Fatalf("%d of %d lock waiters are read, %d stacks are affordable", x.quota, x.count, total)
				}
			}
		}
	})
}

func TestPartsSumUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(0, 1<<60).Draw(t, "total")
		n := rapid.IntRange(1, 1000).Draw(t, "n")
		var sum int64
		for k := range n {
			p := part(total, k, n)
			if p < total/int64(n) || p > total/int64(n)+1 {
				t.Fatalf("part %d of %d: %d of %d", k, n, p, total)
			}
			sum += p
		}
		if sum != total {
			t.Fatalf("%d parts sum up to %d, not %d", n, sum, total)
		}
	})
}

// The plan settles where a tick takes its budget, whatever reading costs.
func TestPlanSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const perTick = time.Millisecond
		goroutines := rapid.IntRange(1, 1<<20).Draw(t, "goroutines")
		state := float64(rapid.IntRange(50, 2000).Draw(t, "state"))
		stack := float64(rapid.IntRange(200, 5000).Draw(t, "stack"))
		p := newPlan(perTick)
		quota := goroutines
		var took time.Duration
		for range 200 {
			p.begin()
			stride := p.stride(goroutines)
			p.states = (goroutines + stride - 1) / stride
			p.stacks = min(quota, p.states)
			p.statesTook, p.stacksTook = time.Duration(float64(p.states)*state), time.Duration(float64(p.stacks)*stack)
			took = p.statesTook + p.stacksTook
			p.end()
			quota = p.quota()
		}
		least := time.Duration(leastStacks * stack)
		if took > perTick*12/10 && took > perTick/2+least+perTick/10 {
			t.Fatalf("a tick takes %v: %d states of %v ns, %d stacks of %v ns", took, p.states, state, p.stacks, stack)
		}
		// Reading every second state may be half of what all would take.
		if took < perTick/5 && p.stacks < goroutines {
			t.Fatalf("a tick takes %v only: %d states, %d stacks of %d", took, p.states, p.stacks, goroutines)
		}
	})
}

func TestRunningReasons(t *testing.T) {
	k := newKinds([]string{"", "select", "GC worker (active)", "sync.Mutex.Lock", "sync.RWMutex.RLock", "chan receive"}, nil)
	for reason, want := range []bool{false, false, true, false, false, false} {
		x := g{status: statusWaiting, reason: uint8(reason)}
		if k.running(&x) != want {
			t.Errorf("reason %d runs: %v", reason, !want)
		}
	}
	if x := (g{status: statusRunning}); !k.running(&x) {
		t.Error("a goroutine that runs does not run")
	}
	if k.lock[1] || !k.lock[3] || !k.lock[4] || k.lock[5] {
		t.Errorf("lock reasons %v", k.lock[:6])
	}
}
