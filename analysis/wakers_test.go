package analysis_test

import (
	"testing"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/profile"
)

func TestAttributeWakers(t *testing.T) {
	rec := direct()
	rules, err := analysis.BuiltinRules()
	if err != nil {
		t.Fatal(err)
	}
	c := rules.For(profile.Target{})
	if _, err := analysis.AttributeWakers(rec, c); err == nil {
		t.Error("a recording without wakers is attributed")
	}
	p := profile.New(profile.Blocked, profile.Runnable, profile.Waits)
	add := func(blocked, runnable, waits int64, reason string, functions ...string) {
		p.Add(p.InternFrames(stack(functions...)), p.InternLabels(profile.Label{Key: profile.LabelReason, Value: reason}), blocked, runnable, waits)
	}
	// The waker's stack has its outermost frame first.
	add(7, 1, 2, "sync.Mutex.Lock", "main.main", "main.flow", "sync.(*Mutex).Unlock", "--", "sync.(*Mutex).Lock", "main.offer", "main.work")
	add(3, 0, 1, "sync.Mutex.Lock", "main.other", "main.flow", "sync.(*Mutex).Unlock", "--", "sync.(*Mutex).Lock", "main.offer", "main.work")
	add(90, 0, 1, "sleep", "runtime.mstart", "runtime.goready", "--", "time.Sleep", "main.doze")
	add(1, 0, 1, "chan receive") // neither stack
	rec.Profiles[profile.SourceWakers] = p
	rec.Meta.Sources = append(rec.Meta.Sources, profile.SourceInfo{Source: profile.SourceWakers, Window: rec.Meta.Sources[0].Window})
	w, err := analysis.AttributeWakers(rec, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Rows) != 3 || w.Total.OffCPUNs() != 102 || w.Total.Count != 5 {
		t.Fatalf("%+v", w)
	}
	if r := w.Rows[0]; r.Waker != "runtime.goready" || r.Site != "main.doze" || r.BlockedNs != 90 {
		t.Errorf("the sleeper: %+v", r)
	}
	if r := w.Rows[1]; r.Waker != "main.flow" || r.Site != "main.offer" || r.BlockedNs != 10 || r.RunnableNs != 1 || r.Count != 3 || r.Class != "lock" {
		t.Errorf("the lock: %+v", r)
	}
	if r := w.Rows[2]; r.Waker != "" || r.Site != "" {
		t.Errorf("no stack: %+v", r)
	}
}
