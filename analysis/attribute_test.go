package analysis_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/profile"
)

const second = int64(time.Second)

var t0 = time.Unix(1700000000, 0)

// goroutines is a recording of 10 s in which 1,000,000 messages were published.
func goroutines(add func(add func(reason string, blocked, runnable, samples int64, functions ...string))) *profile.Recording {
	p := profile.New(profile.Blocked, profile.Runnable, profile.Samples)
	add(func(reason string, blocked, runnable, samples int64, functions ...string) {
		p.Add(p.InternFrames(stack(functions...)), p.InternLabels(profile.Label{Key: "reason", Value: reason}), blocked, runnable, samples)
	})
	w := profile.Window{Start: t0, End: t0.Add(10 * time.Second), DurationNs: 10 * second}
	counter := func(role string, n float64) profile.WorkCounter {
		return profile.WorkCounter{Role: role, Start: 5, End: 5 + n, StartTime: t0, EndTime: w.End}
	}
	return &profile.Recording{
		Dir: "rec",
		Meta: profile.Meta{
			Targets: []profile.Target{referenceBroker},
			Sources: []profile.SourceInfo{{Source: profile.SourceGoroutines, Window: w}},
			Work:    []profile.WorkCounter{counter(profile.WorkPublished, 1e6), counter(profile.WorkDelivered, 1e6)},
		},
		Profiles: map[profile.Source]*profile.Profile{profile.SourceGoroutines: p},
	}
}

func direct() *profile.Recording {
	return goroutines(func(add func(string, int64, int64, int64, ...string)) {
		add("sync.Mutex.Lock", 300*second, 0, 3000, "sync.(*Mutex).Lock", brokerPkg+"/executor.(*Queue).Offer", brokerPkg+".(*conn).read")
		add("sync.Mutex.Lock", 60*second, 0, 600, "sync.(*Mutex).Lock", brokerPkg+"/executor.(*Queue).Offer", brokerPkg+"/dispatch.(*Dispatcher).Flow")
		add("runnable", 0, 40*second, 400, "sync.(*Mutex).Lock", brokerPkg+"/executor.(*Queue).Offer", brokerPkg+".(*conn).read")
		add("chan receive", 40*second, 0, 400, "runtime.gopark", brokerPkg+".(*conn).unknownWait")
		add("IO wait", 4000*second, 0, 40000, "internal/poll.(*FD).Read", brokerPkg+".(*conn).read")
		add("sync.Mutex.Lock", 10*second, 0, 100, "sync.(*Mutex).Lock", "github.com/prometheus/x.F")
	})
}

func attribute(t *testing.T, rec *profile.Recording) *analysis.Attribution {
	t.Helper()
	a, err := analysis.Attribute(rec, profile.SourceGoroutines, classifier(t, rec.Meta.Targets[0]))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAttribute(t *testing.T) {
	a := attribute(t, direct())
	var got []string
	for _, w := range a.Waits {
		s, ok := a.Share(w)
		got = append(got, fmt.Sprintf("%s|%s|%s|%s %d+%d s %.0f ns/msg %.1f lost share %.3f %.3f %.3f %v", w.Operation, w.Site[strings.LastIndex(w.Site, "/")+1:], w.Class, w.Idle,
			w.BlockedNs/second, w.RunnableNs/second, *a.PerMessage(w.OffCPUNs()), a.ThreadsLost(w.OffCPUNs()), s.Share, s.Low, s.High, ok))
	}
	// Denominator of shares: 360 + 40 lock and runnable, 40 unknown.
	want := []string{
		"network read|broker.(*conn).read|network|yes 4000+0 s 4000000 ns/msg 400.0 lost share 0.000 0.000 0.000 false",
		"executor queue offer|executor.(*Queue).Offer|lock|no 360+0 s 360000 ns/msg 36.0 lost share 0.818 0.818 0.900 true",
		"|broker.(*conn).unknownWait|condition/channel|unknown 40+0 s 40000 ns/msg 4.0 lost share 0.091 0.000 0.091 true",
		"executor queue offer|executor.(*Queue).Offer|scheduler|no 0+40 s 40000 ns/msg 4.0 lost share 0.091 0.091 0.100 true",
		"||lock|no 10+0 s 10000 ns/msg 1.0 lost share 0.000 0.000 0.000 false",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if a.Idle.OffCPUNs() != 4000*second || a.Doubtful.OffCPUNs() != 40*second || a.NoSite.OffCPUNs() != 10*second || a.Total.OffCPUNs() != 4450*second {
		t.Errorf("totals: idle %v doubtful %v no site %v all %v", a.Idle, a.Doubtful, a.NoSite, a.Total)
	}
	if v := a.Operation("executor queue offer", analysis.ClassLock); v.BlockedNs != 360*second || v.RunnableNs != 0 {
		t.Errorf("the operation's lock waits are %+v", v)
	}
	for _, w := range a.Waits {
		if s, ok := a.BlockedShare(w); w.Class == "lock" && w.Site != "" && (!ok || s.Share != 0.9) {
			t.Errorf("blocked share of the queue lock is %v, want 0.9: runnable time counts in neither part", s.Share)
		}
	}
}

func TestSharesNeedSamples(t *testing.T) {
	rec := goroutines(func(add func(string, int64, int64, int64, ...string)) {
		add("sync.Mutex.Lock", second, 0, analysis.MinShareSamples-1, "main.f", brokerPkg+".F")
		add("IO wait", second, 0, 1e6, "internal/poll.(*FD).Read", brokerPkg+".F")
	})
	a := attribute(t, rec)
	for _, w := range a.Waits {
		if _, ok := a.Share(w); ok {
			t.Errorf("a share is given on %d samples", analysis.MinShareSamples-1)
		}
	}
	if a.ShareWarning() == "" {
		t.Error("no warning says why shares are missing")
	}
}

func TestWork(t *testing.T) {
	rec := direct()
	// Read 1 s before and after the window: the rate counts.
	w := rec.Meta.WorkOf(profile.WorkPublished)
	w.StartTime, w.EndTime, w.End = t0.Add(-time.Second), t0.Add(11*time.Second), w.Start+1.2e6
	if a := attribute(t, rec); math.Abs(a.Published-1e6) > 1 || len(a.Warnings) != 0 {
		t.Errorf("%v messages, warnings %q, want 1e6 and none", a.Published, a.Warnings)
	}
	rec.Meta.WorkOf(profile.WorkDelivered).End = 5 + 0.98e6
	if a := attribute(t, rec); len(a.Warnings) != 1 || !strings.Contains(a.Warnings[0], "2.0 %") {
		t.Errorf("warnings %q, want one on delivered messages", a.Warnings)
	}
	w.Reset = true
	if a := attribute(t, rec); a.Published != 0 || a.PerMessage(1) != nil {
		t.Errorf("after a reset %v messages are claimed", a.Published)
	}
	rec.Meta.Work = nil
	if a := attribute(t, rec); a.PerMessage(1) != nil {
		t.Error("figures per message without known work")
	}
}

// Go's own contention profiles: no reason labels, delay instead of blocked.
func TestAttributeBlockProfile(t *testing.T) {
	p := profile.New(profile.ValueType{Type: "contentions", Unit: "count"}, profile.ValueType{Type: "delay", Unit: "nanoseconds"})
	p.Add(p.InternFrames(stack("sync.(*Mutex).Lock", brokerPkg+"/executor.(*Queue).Offer")), p.InternLabels(), 7, 5*second)
	p.Add(p.InternFrames(stack("runtime.selectgo", "example.com/x.F")), p.InternLabels(), 1, second)
	a, err := analysis.AttributeProfile(p, profile.SourceBlock, 10*time.Second, classifier(t, referenceBroker))
	if err != nil {
		t.Fatal(err)
	}
	want := analysis.Wait{
		Key:   analysis.Key{Operation: "executor queue offer", Site: brokerPkg + "/executor.(*Queue).Offer", Class: "lock", Idle: "no"},
		Value: analysis.Value{BlockedNs: 5 * second, Count: 7},
	}
	if d := cmp.Diff(want, a.Waits[0]); d != "" {
		t.Error(d)
	}
	if a.Waits[1].Class != "condition/channel" {
		t.Errorf("a select is of class %q", a.Waits[1].Class)
	}
}

func TestAttributeRefuses(t *testing.T) {
	c := classifier(t, anyGo)
	for _, p := range []*profile.Profile{
		profile.New(profile.ValueType{Type: "cpu", Unit: "nanoseconds"}),
		profile.New(profile.ValueType{Type: "blocked", Unit: "seconds"}),
	} {
		if _, err := analysis.AttributeProfile(p, profile.SourceCPU, time.Second, c); err == nil {
			t.Errorf("sample types %v were accepted", p.SampleTypes)
		}
	}
	if _, err := analysis.Attribute(direct(), profile.SourceThreads, c); err == nil || !strings.Contains(err.Error(), "threads.pb.gz") {
		t.Errorf("a source that is not there: %v", err)
	}
}

// However the time is spread, the rows sum up to the total and to its parts.
func TestAttributionSums(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rec := goroutines(func(add func(string, int64, int64, int64, ...string)) {
			for range rapid.IntRange(0, 20).Draw(rt, "n") {
				add(rapid.SampledFrom([]string{"IO wait", "runnable", "sync.Mutex.Lock", "chan receive", "new"}).Draw(rt, "reason"),
					rapid.Int64Range(0, second).Draw(rt, "blocked"), rapid.Int64Range(0, second).Draw(rt, "runnable"), rapid.Int64Range(1, 300).Draw(rt, "samples"),
					rapid.SliceOfN(rapid.SampledFrom([]string{"internal/poll.(*FD).Read", "sync.(*Mutex).Lock", brokerPkg + ".F", brokerPkg + "/executor.(*Queue).Offer", "x.y/z.F"}), 1, 4).Draw(rt, "stack")...)
			}
		})
		a := attribute(t, rec)
		var all, idle, doubtful, noSite analysis.Value
		sum := func(dst *analysis.Value, v analysis.Value) {
			dst.BlockedNs += v.BlockedNs
			dst.RunnableNs += v.RunnableNs
			dst.Samples += v.Samples
		}
		shares := 0.0
		for _, w := range a.Waits {
			sum(&all, w.Value)
			switch {
			case w.Idle == analysis.IdleYes:
				sum(&idle, w.Value)
			case w.Idle == analysis.IdleUnknown:
				sum(&doubtful, w.Value)
			}
			if w.Idle != analysis.IdleYes && w.Site == "" {
				sum(&noSite, w.Value)
			}
			s, ok := a.Share(w)
			if ok && (s.Low > s.Share+1e-9 || s.Share > s.High+1e-9) {
				rt.Fatalf("share %v is outside its bounds", s)
			}
			shares += s.Share
		}
		if all != a.Total || idle != a.Idle || doubtful != a.Doubtful || noSite != a.NoSite {
			rt.Fatalf("rows sum to %v %v %v %v, totals are %v %v %v %v", all, idle, doubtful, noSite, a.Total, a.Idle, a.Doubtful, a.NoSite)
		}
		if shares > 1e-9 && math.Abs(shares-1) > 1e-9 {
			rt.Fatalf("shares sum to %v", shares)
		}
	})
}

func TestCompare(t *testing.T) {
	batched := goroutines(func(add func(string, int64, int64, int64, ...string)) {
		add("chan receive", 80*second, 0, 800, "runtime.gopark", brokerPkg+".(*conn).unknownWait")
	})
	before := []*analysis.Attribution{attribute(t, direct()), attribute(t, direct())}
	after := []*analysis.Attribution{attribute(t, batched)}
	waits := analysis.Compare(before, after, "executor queue offer")
	offer := waits[0]
	if offer.Operation != "executor queue offer" || offer.Class != "lock" {
		t.Fatalf("the primary operation is not first: %+v", offer)
	}
	if *offer.Before.NsPerMsg != 360000 || *offer.After.NsPerMsg != 0 || *offer.Delta.NsPerMsg != -360000 {
		t.Errorf("per message: %v to %v, delta %v", *offer.Before.NsPerMsg, *offer.After.NsPerMsg, *offer.Delta.NsPerMsg)
	}
	if *offer.Before.Share <= 0.8 || *offer.After.Share != 0 || offer.Before.Samples != 6000+1200 {
		t.Errorf("share %v to %v, samples %d", *offer.Before.Share, *offer.After.Share, offer.Before.Samples)
	}
	for _, w := range waits {
		if w.Verdict != result.Undecided || w.Delta.PHolm != nil {
			t.Errorf("%s: verdict %q", w.Operation, w.Verdict)
		}
	}
	none := analysis.Compare(after, after, "executor queue offer")
	if none[0].Operation != "executor queue offer" || *none[0].Before.NsPerMsg != 0 || none[0].Before.ThreadsLost != 0 {
		t.Errorf("a primary operation that neither side has: first row %+v", none[0])
	}
	if got := analysis.Compare(nil, nil, "x"); got != nil {
		t.Errorf("no runs at all give %v", got)
	}
}

// A run without the wait counts as zero in the mean, not as absent.
func TestCompareMeansOverAllRuns(t *testing.T) {
	empty := goroutines(func(func(string, int64, int64, int64, ...string)) {})
	w := analysis.Compare([]*analysis.Attribution{attribute(t, direct()), attribute(t, empty)}, nil, "executor queue offer")[0]
	if *w.Before.NsPerMsg != 180000 || w.Before.ThreadsLost != 18 {
		t.Errorf("mean is %v ns per message, %v threads lost, want half of one run's", *w.Before.NsPerMsg, w.Before.ThreadsLost)
	}
}
