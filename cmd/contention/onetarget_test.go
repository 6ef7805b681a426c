package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/profile"
)

// twoTargets writes a recording of processes 7 and 8, which wait for different
// locks, 8 in the second half of the window only.
func twoTargets(t *testing.T) string {
	t.Helper()
	start := time.Unix(1700000000, 0)
	end := start.Add(4 * time.Second)
	var parts []*profile.Capture
	for id, site := range map[string]string{"7": "example.com/a.first", "8": "example.com/a.second"} {
		p := profile.New(profile.Blocked, profile.Runnable, profile.Samples)
		p.Start, p.Duration = start, 4*time.Second
		stack := p.InternFrames([]profile.Frame{{Function: "sync.(*Mutex).Lock"}, {Function: site}, {Function: "main.main"}})
		p.Add(stack, p.InternLabels(profile.Label{Key: profile.LabelReason, Value: "sync.Mutex.Lock"}), int64(time.Second), 0, 300)
		c := &profile.Capture{Source: profile.SourceGoroutines, Profile: p, Start: start, End: end}
		c.SetTarget(id)
		parts = append(parts, c)
	}
	c, err := profile.MergeCaptures(parts)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "rec")
	half := profile.Window{Start: start.Add(2 * time.Second), End: end, DurationNs: int64(2 * time.Second)}
	w, err := profile.Create(dir, profile.Meta{
		Targets: []profile.Target{
			{PID: 7, ID: "7", Arguments: []string{"a"}, Part: profile.Window{Start: start, End: end, DurationNs: int64(4 * time.Second)}},
			{PID: 8, ID: "8", Arguments: []string{"b"}, Part: half},
		},
		Work: []profile.WorkCounter{{Role: profile.WorkPublished, End: 1000, StartTime: start, EndTime: end}},
	})
	if err == nil {
		err = w.Capture(c)
	}
	if err == nil {
		err = w.Finish(func(m *profile.Meta) {
			m.Window = profile.Window{Start: start, End: end, DurationNs: int64(4 * time.Second)}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOneTargetOfSeveral(t *testing.T) {
	dir := twoTargets(t)
	code, out, _ := contention(t, "top", dir)
	if code != 0 || !strings.Contains(out, "a.first") || !strings.Contains(out, "a.second") || !strings.Contains(out, "2 targets together") {
		t.Errorf("both: status %d\n%s", code, out)
	}
	code, out, _ = contention(t, "top", dir, "--target", "8", "--format", "csv")
	if code != 0 || strings.Contains(out, "a.first") || !strings.Contains(out, "a.second") {
		t.Errorf("one: status %d\n%s", code, out)
	}
	// A second of waiting in its two seconds, and no messages of its own.
	if !strings.Contains(out, ",1,0,0.5,,") {
		t.Errorf("threads lost is not told of the target's own part:\n%s", out)
	}
	folded := filepath.Join(t.TempDir(), "one.folded")
	if code, _, stderr := contention(t, "flame", dir, "--target", "7", "-o", folded); code != 0 {
		t.Fatalf("flame: %s", stderr)
	}
	if data, err := os.ReadFile(folded); err != nil || !strings.Contains(string(data), "a.first") || strings.Contains(string(data), "a.second") {
		t.Errorf("the flame graph of one: %s, %v", data, err)
	}
	for args, want := range map[string]string{dir + " 9": "it has 7, 8", recording(t, 1) + " 9": "one target only"} {
		rec, id, _ := strings.Cut(args, " ")
		if code, _, stderr := contention(t, "top", rec, "--target", id); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("--target %s: status %d, %q; want %q", id, code, stderr, want)
		}
	}
}

// A recording written to standard output is one that top reads.
func TestRecordToStandardOutput(t *testing.T) {
	testutil.RequireBPF(t, thread.Available())
	code, out, stderr := contention(t, "record", "--source", "threads", "--duration", "300ms", "--no-discover", "-o", "-", "--", "sleep", "20")
	if code != 0 {
		t.Fatalf("status %d: %s", code, stderr)
	}
	file := filepath.Join(t.TempDir(), "rec.tar")
	if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := contention(t, "top", file, "--idle"); code != 0 || !strings.Contains(out, "thread plane") {
		t.Errorf("top: status %d, %s%s", code, out, stderr)
	}
}

func TestRecordRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"record --pid 1 --container abc":                                      "2 are given",
		"record --container nowhere -o x":                                     "no process that this user can see",
		"record --pid 1 --max-cpu -1":                                         "--max-cpu",
		"record --pid 1 --max-memory 5":                                       "max-memory",
		"record --pid 1 --pid 1 -o " + t.TempDir():                            "named twice",
		"record --pid 1 --pid 2 --pprof http://127.0.0.1:1 -o " + t.TempDir(): "one pprof URL",
	} {
		code, _, stderr := contention(t, strings.Fields(args)...)
		if code == 0 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want %q", args, code, stderr, want)
		}
	}
}
