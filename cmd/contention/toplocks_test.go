package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// lockRecording is a recording of 2 s and 1000 messages with two locks.
func lockRecording(t *testing.T) string {
	t.Helper()
	start := time.Unix(1700000000, 0)
	p := profile.New(profile.Blocked, profile.Runnable, profile.Waits)
	p.Start, p.Duration = start, 2*time.Second
	p.Add(p.InternFrames([]profile.Frame{{Function: "sync.(*Mutex).Lock"}, {Function: offer}}),
		p.InternLabels(profile.Label{Key: profile.LabelReason, Value: "sync.Mutex.Lock"}, profile.Label{Key: profile.LabelLock, Value: "executor.(*Queue).Offer"}), 900_000, 100_000, 40)
	dir := filepath.Join(t.TempDir(), "rec")
	w, err := profile.Create(dir, profile.Meta{
		Targets:  []profile.Target{{PID: 1, Arguments: []string{"broker", "\x1b[31mred"}}},
		Work:     []profile.WorkCounter{{Role: profile.WorkPublished, End: 1000, StartTime: start, EndTime: start.Add(2 * time.Second)}},
		Warnings: []string{},
	})
	if err == nil {
		err = w.Capture(&profile.Capture{
			Source: profile.SourceLocks, Profile: p, Start: start, End: start.Add(2 * time.Second),
			Cost: profile.Cost{ProbeHits: 4000, ProbeNs: 20_000_000}, Warnings: []string{"probes were hit too often"},
			Locks: []profile.Lock{
				{Name: "executor.(*Queue).Offer", Kind: "sync.Mutex", Instances: 3, Parks: 40, BlockedNs: 900_000, RunnableNs: 100_000, QueueMax: 7, QueueMean: 2.5,
					Releases: 41, Intervals: 40, IntervalNs: 4_000_000, Waits: profile.Histogram{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 39, 1},
					Pairs: []profile.LockPair{{Waiter: "executor.(*Queue).Offer", Releaser: "executor.(*Queue).\x1b[31mTakeAll", Waits: 40, BlockedNs: 900_000}}},
				{Name: "other", Kind: "sync.RWMutex", Instances: 1, Parks: 1, BlockedNs: 5},
			},
		})
	}
	if err == nil {
		err = w.Finish(func(*profile.Meta) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTopByLock(t *testing.T) {
	dir := lockRecording(t)
	for format, wants := range map[string][]string{
		"text": {"executor.(*Queue).Offer", "sync.RWMutex", "2.05µs", "4.1µs", "2.5", "100µs", "1µs", "executor.(*Queue).", "900µs",
			"2,000 hits of probes per second, 5µs each, 1.0 % of one CPU, 20µs per message", "warning: probes were hit too often"},
		"markdown": {"| executor.(*Queue).Offer | sync.Mutex | 3 |"},
		"csv":      {"executor.(*Queue).Offer,sync.Mutex,3,40,900000,100000,2047,4095,2.5,7,41,100000,0.0005,1000"},
		"json":     {`"ns_per_msg": 1000`, `"queue_max": 7`},
	} {
		code, out, stderr := contention(t, "top", dir, "--by", "lock", "--format", format)
		if code != 0 {
			t.Fatalf("%s ends with %d: %s", format, code, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("--format %s prints no %q:\n%s", format, want, out)
			}
		}
		if strings.Contains(out, "\x1b[31m") {
			t.Errorf("--format %s lets a target's name reach the terminal", format)
		}
	}
	_, out, _ := contention(t, "top", dir, "--by", "lock", "--limit", "1", "--json")
	var v lockView
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Locks) != 1 || v.LeftOut != 1 || v.Probes == nil || v.Probes.NsPerMsg == nil {
		t.Errorf("--limit 1 --json: %v, %+v", err, v)
	}
	// By operation the waits for locks are attributed like any others.
	if code, out, _ := contention(t, "top", dir); code != 0 || !strings.Contains(out, "source locks") {
		t.Errorf("top ends with %d:\n%s", code, out)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"top", recording(t, 250), "--by", "lock"}, 1, "record with --locks"},
		{[]string{"top", dir, "--by", "colour"}, 2, "colour"},
		{[]string{"top", dir, "--by", "lock", "--from", "1s"}, 2, "--from"},
		{[]string{"record", "--pid", "1", "--probe-budget", "-1"}, 2, "--probe-budget"},
	} {
		if code, _, stderr := contention(t, c.args...); code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %d, %q; want %d and %q", c.args, code, stderr, c.code, c.want)
		}
	}
}
