package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/internal/natstest"
	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/profile"
)

const natsPackage = "github.com/nats-io/nats-server/v2/"

// A live broker that is not ours: an unmodified nats-server with JetStream is
// recorded from outside while 100 connections publish to it.
func TestLiveNATS(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs nats-server")
	}
	testutil.RequireBPF(t, thread.Available())
	srv := natstest.Start(t, natstest.Options{BlockRate: 1, Env: []string{"GOMAXPROCS=8"}})
	pub := srv.Publish(t, natstest.Load{Conns: 100, Subscribers: 2})
	dir := filepath.Join(t.TempDir(), "rec")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"record", "--pid", fmt.Sprint(srv.PID), "--duration", "8s", "--source", "goroutines", "--source", "threads", "--source", "block", "-o", dir, "--json",
	}, strings.NewReader(""), &stdout, &stderr)
	counts := pub.Stop(t)
	if code != 0 {
		t.Fatalf("record ends with %d:\n%s", code, &stderr)
	}
	var view topView
	if err := json.Unmarshal(stdout.Bytes(), &view); err != nil {
		t.Fatalf("--json prints no JSON: %v\n%s", err, &stdout)
	}
	rec, err := profile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Meta.Incomplete || len(rec.Meta.Absent) > 0 {
		t.Errorf("incomplete %v (%s), absent %v", rec.Meta.Incomplete, rec.Meta.Why, rec.Meta.Absent)
	}
	// The server's own counters were found without being named.
	if w := rec.Meta.WorkOf(profile.WorkPublished); w == nil || w.Delta() <= 0 || w.Delta() > float64(counts.Acked) {
		t.Errorf("work counter %+v, %d messages were acknowledged over the whole load", w, counts.Acked)
	}
	attrs, err := attributeAll(rec, "", 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	bySource := map[profile.Source]*analysis.Attribution{}
	for _, a := range attrs {
		bySource[a.Source] = a
	}
	sampled, block := lockSites(bySource[profile.SourceGoroutines]), lockSites(bySource[profile.SourceBlock])
	t.Logf("%.0f msg/s acknowledged; lock sites by sampler %v, by block profile %v", counts.PerSecond(), sampled, block)
	if len(sampled) == 0 || !strings.HasPrefix(sampled[0].name, natsPackage) {
		t.Fatalf("lock waits from outside: %v, want the largest in nats-server's own packages", sampled)
	}
	sitesAgree(t, sampled, block)
	readLoopsAreIdle(t, bySource[profile.SourceGoroutines])
	if a := bySource[profile.SourceGoroutines].Accounting; a == nil || a.Residual() != 0 {
		t.Errorf("the accounting of goroutines does not close: %+v", a)
	}
	if a := bySource[profile.SourceThreads].Accounting; a == nil || abs(a.Residual()) > a.TotalNs/20 {
		t.Errorf("the accounting of threads does not close: %+v", a)
	}
}

func abs(n int64) int64 { return max(n, -n) }

type site struct {
	name string
	time time.Duration
}

func (s site) String() string {
	return s.name[strings.LastIndexByte(s.name, '/')+1:] + " " + s.time.String()
}

// lockSites sums blocked time of class lock per wait site, largest first.
func lockSites(a *analysis.Attribution) []site {
	sum := map[string]time.Duration{}
	for _, w := range a.Waits {
		if w.Class == analysis.ClassLock && w.Site != "" {
			sum[w.Site] += time.Duration(w.BlockedNs)
		}
	}
	var out []site
	for n, d := range sum {
		out = append(out, site{n, d})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].time > out[j].time })
	return out
}

// sitesAgree wants each of the block profile's three largest lock sites among
// the sampler's. A site whose waits the sampler's ticks can hardly meet (fewer
// than some ten expected samples) is too small to ask for.
func sitesAgree(t *testing.T, sampled, block []site) {
	t.Helper()
	if len(block) < 3 {
		t.Fatalf("the block profile has %d lock sites", len(block))
	}
	const least = 20 * time.Second / 99
	asked := 0
	for _, b := range block[:3] {
		if b.time < least {
			continue
		}
		asked++
		found := false
		for _, s := range sampled[:min(len(sampled), 10)] {
			found = found || s.name == b.name
		}
		if !found {
			t.Errorf("%v is among the three largest lock sites of the block profile, and not among the sampler's %v", b, sampled[:min(len(sampled), 10)])
		}
	}
	if asked == 0 {
		t.Errorf("no lock site is large enough to compare: %v", block[:3])
	}
	// The largest of each is near the top of the other.
	if rank(block, sampled[0].name) > 2 {
		t.Errorf("the sampler's largest site %v ranks %d in the block profile %v", sampled[0], rank(block, sampled[0].name)+1, block[:3])
	}
}

func rank(sites []site, name string) int {
	for i, s := range sites {
		if s.name == name {
			return i
		}
	}
	return len(sites)
}

func readLoopsAreIdle(t *testing.T, a *analysis.Attribution) {
	t.Helper()
	var reads analysis.Wait
	for _, w := range a.Waits {
		if w.Operation == "connection read" && w.Class == analysis.ClassNetwork {
			reads = w
		}
	}
	if reads.BlockedNs == 0 || reads.Idle != analysis.IdleYes || !strings.HasSuffix(reads.Site, ".(*client).readLoop") {
		t.Errorf("read loops are %+v, want idle network waits", reads)
	}
}
