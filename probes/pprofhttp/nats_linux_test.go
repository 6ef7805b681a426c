package pprofhttp

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/natstest"
	"github.com/contention-toolkit/contention/probes/discover"
	"github.com/contention-toolkit/contention/probes/work"
	"github.com/contention-toolkit/contention/profile"
)

// TestLiveBroker records a live broker that is not ours, knowing only its PID:
// its ports, its counters and its profiles are found from outside.
func TestLiveBroker(t *testing.T) {
	if testing.Short() {
		t.Skip("builds nats-server")
	}
	// More Ps than CPUs: a lock's holder is then preempted while others want it.
	s := natstest.Start(t, natstest.Options{BlockRate: 1, Env: []string{"GOMAXPROCS=8"}})
	load := s.Publish(t, natstest.Load{Subscribers: 2})
	found, err := discover.Find(t.Context(), s.PID)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Pprof) != 1 || found.Pprof[0] != s.PprofURL || len(found.Varz) != 1 || found.Varz[0] != s.VarzURL {
		t.Fatalf("found %+v, want %s and %s", found, s.PprofURL, s.VarzURL)
	}
	counters, err := work.Find(t.Context(), work.Hints{Metrics: found.Metrics, Varz: found.Varz})
	if err != nil || len(counters) != 1 || counters[0].Role != profile.WorkPublished {
		t.Fatalf("counters %+v, %v; want what the stream stored, and no delivery without a consumer", counters, err)
	}
	before := load.Counts()
	w, err := work.Watch(t.Context(), counters)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	opened := load.Counts()
	r := start(t, Options{BaseURL: found.Pprof[0]})
	waitUntil(t, "100,000 messages in the window", func() bool { return load.Counts().Acked-opened.Acked >= 100_000 })
	captures, absent := stop(t, r)
	published := w.Stop()
	after := load.Stop(t)

	// What is acknowledged after the first read may have been stored before it:
	// all that was in flight, 64 messages on each of 100 connections.
	const inFlight = 100 * 64
	if len(published) != 1 || published[0].Delta() < 100_000-inFlight || published[0].Delta() > float64(after.Sent-before.Acked) {
		t.Errorf("published %+v, though %d to %d were acknowledged", published, 100_000-inFlight, after.Sent-before.Acked)
	}
	// nats-server never turns the mutex profile on.
	if len(absent) != 1 || absent[0].Source != profile.SourceMutex || !strings.Contains(absent[0].Reason, "profiling is off in the target") {
		t.Errorf("absent %+v, want the mutex profile", absent)
	}
	if len(captures) != 1 || captures[0].Source != profile.SourceBlock {
		t.Fatalf("captures %v, want the block profile", captures)
	}
	const locks = "sync.(*Mutex).Lock"
	sites := lockSites(captures[0].Profile, locks)
	if len(sites) == 0 {
		t.Fatal("no wait for a mutex under nats-server's own packages")
	}
	c := captures[0]
	t.Logf("%.0f messages/s over %s; %d stacks", published[0].Delta()/published[0].EndTime.Sub(published[0].StartTime).Seconds(), c.Profile.Duration.Round(time.Millisecond), len(c.Profile.Samples))
	for _, x := range sites[:min(5, len(sites))] {
		t.Logf("%8.1f ms %7d waits  %s", float64(x.delay)/1e6, x.count, x.name)
	}
}

// site is where nats-server's own code waits for a lock.
type site struct {
	name         string
	count, delay int64
}

// lockSites sums the waits in a lock function by the nearest frame of
// nats-server and its caller, most delay first.
func lockSites(p *profile.Profile, lock string) []site {
	sums := map[string]*site{}
	for _, s := range p.Samples {
		frames := p.Frames(s.Stack)
		i := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Function == lock })
		j := slices.IndexFunc(frames, func(f profile.Frame) bool { return strings.HasPrefix(f.Function, "github.com/nats-io/nats-server") })
		if i < 0 || j < i {
			continue
		}
		name := stackName(frames[j:])
		if sums[name] == nil {
			sums[name] = &site{name: name}
		}
		sums[name].count += s.Values[0]
		sums[name].delay += s.Values[1]
	}
	out := make([]site, 0, len(sums))
	for _, s := range sums {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b site) int { return cmp.Compare(b.delay, a.delay) })
	return out
}
