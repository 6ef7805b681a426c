//go:build linux && (amd64 || arm64)

package bpf

import (
	"math"
	"testing"

	"github.com/cilium/ebpf/rlimit"
	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/internal/testutil"
)

// Over evenly spread random numbers, what the kernel side keeps of a wait, and
// its weights, add up to the wait itself: the sums are unbiased.
func TestAdmissionIsUnbiased(t *testing.T) {
	if err := rlimit.RemoveMemlock(); err != nil {
		testutil.RequireBPF(t, err)
	}
	var objs AdmitObjects
	if err := LoadAdmitObjects(&objs, nil); err != nil {
		testutil.RequireBPF(t, err)
	}
	defer objs.Close()
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.Uint64Range(1, 400).Draw(t, "bound")
		blocked := rapid.Uint64Range(0, 500).Draw(t, "blocked")
		runnable := rapid.Uint64Range(0, 100).Draw(t, "runnable")
		length := blocked + runnable
		var sumBlocked, sumRunnable, sumWaits float64
		const rounding = 16
		// Every remainder once. How a part of a wait is rounded is another number.
		for random := range bound {
			for second := range uint64(rounding) {
				a := AdmitAdmission{Bound: bound, Random: random, Random2: second<<28 + 1<<27, BlockedNs: blocked, RunnableNs: runnable}
				a = admitOnce(t, &objs, a)
				if a.Admitted == 0 {
					if length >= bound {
						t.Fatalf("a wait of %d with a bound of %d was left out", length, bound)
					}
					continue
				}
				if length > 0 && length < bound && a.BlockedNs+a.RunnableNs != bound {
					t.Fatalf("a wait of %d stands for %d, want the bound %d", length, a.BlockedNs+a.RunnableNs, bound)
				}
				sumBlocked += float64(a.BlockedNs)
				sumRunnable += float64(a.RunnableNs)
				sumWaits += float64(a.Waits)
			}
			if length >= bound {
				break // all are kept whatever the number
			}
		}
		n := float64(bound * rounding)
		if length >= bound {
			n = rounding
		}
		// Whole nanoseconds, and a sixteenth of a wait in each that is kept.
		near := func(what string, got, want, allowed float64) {
			if math.Abs(got/n-want) > allowed {
				t.Fatalf("%s: %v expected of %v (bound %d, blocked %d, runnable %d)", what, got/n, want, bound, blocked, runnable)
			}
		}
		p := math.Min(1, float64(length)/float64(bound))
		near("blocked", sumBlocked, float64(blocked), p+1e-9)
		near("runnable", sumRunnable, float64(runnable), p+1e-9)
		near("waits", sumWaits, 1, p/rounding+1e-9)
	})
}

func admitOnce(t *rapid.T, objs *AdmitObjects, a AdmitAdmission) AdmitAdmission {
	if err := objs.Admissions.Put(uint32(0), a); err != nil {
		t.Fatal(err)
	}
	if _, _, err := objs.AdmitOnce.Test(make([]byte, 14)); err != nil {
		t.Fatal(err)
	}
	if err := objs.Admissions.Lookup(uint32(0), &a); err != nil {
		t.Fatal(err)
	}
	return a
}
