package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

func TestTopByWaker(t *testing.T) {
	start := time.Unix(1700000000, 0)
	p := profile.New(profile.Blocked, profile.Runnable, profile.Waits)
	p.Start, p.Duration = start, 2*time.Second
	frames := func(names ...string) (out []profile.Frame) {
		for _, n := range names {
			out = append(out, profile.Frame{Function: n})
		}
		return out
	}
	p.Add(p.InternFrames(frames("main.main", "example.com/x/q.(*Queue).\x1b[31mTake", "sync.(*Mutex).Unlock", "--", "sync.(*Mutex).Lock", offer)),
		p.InternLabels(profile.Label{Key: profile.LabelReason, Value: "sync.Mutex.Lock"}), 900_000, 100_000, 40)
	dir := filepath.Join(t.TempDir(), "rec")
	w, err := profile.Create(dir, profile.Meta{
		Targets:  []profile.Target{{PID: 1, Arguments: []string{"broker"}}},
		Work:     []profile.WorkCounter{{Role: profile.WorkPublished, End: 1000, StartTime: start, EndTime: start.Add(2 * time.Second)}},
		Warnings: []string{},
	})
	if err == nil {
		err = w.Capture(&profile.Capture{Source: profile.SourceWakers, Profile: p, Start: start, End: start.Add(2 * time.Second)})
	}
	if err == nil {
		err = w.Finish(func(*profile.Meta) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{
		"text": "executor.(*Queue).Offer", "markdown": "| lock |", "csv": ",40,900000,100000,", "json": `"ns_per_msg": 1000`,
	} {
		code, out, stderr := contention(t, "top", dir, "--by", "waker", "--format", format)
		if code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "mTake") && format != "json" {
			t.Errorf("--format %s ends with %d, %s, and prints no %q:\n%s", format, code, stderr, want, out)
		}
		if format == "text" && strings.Contains(out, "\x1b[31m") {
			t.Error("a target's name reaches the terminal")
		}
	}
	if code, _, stderr := contention(t, "top", recording(t, 1), "--by", "waker"); code != 1 || !strings.Contains(stderr, "record with --exact") {
		t.Errorf("without wakers: %d, %s", code, stderr)
	}
	if code, _, _ := contention(t, "top", dir, "--by", "waker", "--from", "1s"); code != 2 {
		t.Errorf("--from with --by waker ends with %d", code)
	}
}
