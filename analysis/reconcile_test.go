package analysis_test

import (
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/profile"
)

func TestReconcile(t *testing.T) {
	rec := direct()
	if got := analysis.Reconcile(rec); got != nil {
		t.Errorf("without the exact source: %v", got)
	}
	exact := profile.New(profile.Blocked, profile.Runnable, profile.Waits)
	reason := func(r string) profile.LabelsID {
		return exact.InternLabels(profile.Label{Key: profile.LabelReason, Value: r})
	}
	exact.Add(exact.InternFrames(stack("sync.(*Mutex).Lock", "a")), reason("sync.Mutex.Lock"), 180*second, 20*second, 7)
	exact.Add(exact.InternFrames(stack("sync.(*Mutex).Lock", "b")), reason("sync.Mutex.Lock"), 10*second, 0, 1)
	exact.Add(exact.InternFrames(stack("time.Sleep")), reason("sleep"), 5*second, 0, 1)
	rec.Profiles[profile.SourceExact] = exact
	// Half the window of the sampler.
	window := rec.Meta.Sources[0].Window
	half := window
	half.DurationNs /= 2
	rec.Meta.Sources = append(rec.Meta.Sources, profile.SourceInfo{Source: profile.SourceExact, Window: half})
	block := profile.New(profile.ValueType{Type: "contentions", Unit: "count"}, profile.ValueType{Type: "delay", Unit: "nanoseconds"})
	block.Add(block.InternFrames(stack("sync.(*Mutex).Lock", "a")), block.InternLabels(), 9, 390*second)
	rec.Profiles[profile.SourceBlock] = block
	rec.Meta.Sources = append(rec.Meta.Sources, profile.SourceInfo{Source: profile.SourceBlock, Window: window})

	mutex := profile.New(profile.ValueType{Type: "contentions", Unit: "count"}, profile.ValueType{Type: "delay", Unit: "nanoseconds"})
	mutex.Add(mutex.InternFrames(stack("sync.(*Mutex).Unlock", "b")), mutex.InternLabels(), 9, 200*second)
	mutex.Add(mutex.InternFrames(stack("sync.(*RWMutex).Unlock", "b")), mutex.InternLabels(), 9, 70*second)
	rec.Profiles[profile.SourceMutex] = mutex
	rec.Meta.Sources = append(rec.Meta.Sources, profile.SourceInfo{Source: profile.SourceMutex, Window: window})

	got := analysis.Reconcile(rec)
	if len(got) != 2 {
		t.Fatalf("%d reasons, want 2: %+v", len(got), got)
	}
	lock, sleep := got[0], got[1]
	if lock.Reason != "sync.Mutex.Lock" || lock.Exact != 38 || lock.Sampled == nil || *lock.Sampled != 37 || lock.Block == nil || *lock.Block != 39 {
		t.Errorf("locks: %+v", lock)
	}
	if sleep.Reason != "sleep" || sleep.Exact != 1 || sleep.Sampled == nil || *sleep.Sampled != 0 || sleep.Block != nil {
		t.Errorf("sleep: %+v", sleep)
	}
	// Half of what was waited for is in the mutex profile, which is explained;
	// the others agree within a tenth.
	if lock.Mutex == nil || *lock.Mutex != 20 || len(lock.Why) != 1 || !strings.HasPrefix(lock.Why[0], "mutex profile: ") {
		t.Errorf("the mutex profile of locks: %v, %q", lock.Mutex, lock.Why)
	}
	if sleep.Mutex != nil || len(sleep.Why) != 1 || !strings.HasPrefix(sleep.Why[0], "sampler: ") {
		t.Errorf("sleep: %v, %q", sleep.Mutex, sleep.Why)
	}
	delete(rec.Profiles, profile.SourceBlock)
	delete(rec.Profiles, profile.SourceMutex)
	delete(rec.Profiles, profile.SourceGoroutines)
	if got := analysis.Reconcile(rec); got != nil {
		t.Errorf("with nothing to compare: %v", got)
	}
}
