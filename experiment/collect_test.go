package experiment

import (
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/profile"
)

func attribution(blocked time.Duration, published, delivered float64) recorded {
	return recorded{
		rec: &profile.Recording{Meta: profile.Meta{Sources: []profile.SourceInfo{{
			Source: profile.SourceGoroutines, Window: profile.Window{DurationNs: int64(10 * time.Second)},
			Cost: profile.Cost{CPUNs: int64(time.Second)}, Loss: map[string]int64{"racy": 3},
		}}}},
		Attribution: &analysis.Attribution{
			Window: 10 * time.Second, Published: published, Delivered: delivered,
			Accounting: &profile.Accounting{TotalNs: int64(100 * time.Second), BlockedNs: int64(90 * time.Second), RunningNs: int64(8 * time.Second)},
			Waits: []analysis.Wait{
				{Key: analysis.Key{Operation: "offer", Class: analysis.ClassLock}, Value: analysis.Value{BlockedNs: int64(blocked)}},
				{Key: analysis.Key{Operation: "offer", Class: analysis.ClassScheduler}, Value: analysis.Value{RunnableNs: int64(time.Minute)}},
			},
		},
	}
}

// Only blocked time on the lock counts as waiting for it.
func TestQueueLock(t *testing.T) {
	q := queueLock([]recorded{attribution(20*time.Second, 1, 1), attribution(60*time.Second, 1, 1)}, "offer")
	if q != (result.QueueLock{Mean: 4, Min: 2, Max: 6, Runs: 2}) {
		t.Errorf("queue lock is %+v, want 2 to 6, mean 4", q)
	}
	if q := queueLock(nil, "offer"); q != (result.QueueLock{}) {
		t.Errorf("no runs give %+v", q)
	}
}

func TestAccountingAndOverheadAreMeans(t *testing.T) {
	runs := []recorded{attribution(0, 1, 1), attribution(0, 1, 1)}
	if a := accounting(runs); a.GoroutineSeconds != 100 || a.Blocked != 90 || a.Running != 8 || a.Residual != 2 {
		t.Errorf("accounting of two equal runs is %+v", a)
	}
	if o := overhead(runs, profile.SourceGoroutines); o.CPUShare != 0.1 || o.Loss["racy"] != 6 {
		t.Errorf("overhead of two equal runs is %+v", o)
	}
}

func TestWorkWarning(t *testing.T) {
	if w := workWarning("before", attributions([]recorded{attribution(0, 1000, 995)})); w != "" {
		t.Errorf("half a percent: %q", w)
	}
	if w := workWarning("before", attributions([]recorded{attribution(0, 1000, 20), attribution(0, 1000, 20)})); !strings.Contains(w, "98.0 % apart") {
		t.Errorf("98 percent: %q", w)
	}
	if w := workWarning("before", attributions([]recorded{attribution(0, 0, 20)})); w != "" {
		t.Errorf("unknown work: %q", w)
	}
}
