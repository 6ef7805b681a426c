//go:build linux && amd64

package suite

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/exact"
	"github.com/contention-toolkit/contention/probes/goroutine"
	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/profile"
)

const (
	rounds = 15
	span   = 20 * time.Millisecond
)

// sum adds up the values of the samples that have a reason, "" for any, and a
// function of this package on their stack.
func sum(c *profile.Capture, reason, function string) []int64 {
	out := make([]int64, len(c.Profile.SampleTypes))
	for _, s := range c.Profile.Samples {
		if reason != "" && c.Profile.Labels(s.Labels).Get(profile.LabelReason) != reason {
			continue
		}
		for _, f := range c.Profile.Frames(s.Stack) {
			if strings.HasSuffix(f.Function, "/suite."+function) {
				for i, v := range s.Values {
					out[i] += v
				}
				break
			}
		}
	}
	return out
}

// threadTotals records a target that sleeps and waits for a futex, and holds the
// totals against what the target measured: each wait is counted once; all of
// them are never shorter than asked for, nor longer than the calls took.
func threadTotals(t *testing.T, o thread.Options) *profile.Capture {
	t.Helper()
	tg := startTarget(t)
	o.PIDs = []int{tg.pid}
	r, err := thread.Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	took := map[string]time.Duration{}
	calls := map[string]string{"nanosleep": "nanosleep", "futex": "futexWait"}
	for what := range calls {
		took[what] = tg.wait(what, rounds, span)
	}
	captures, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(captures, func(c *profile.Capture) bool { return c.Source == profile.SourceThreads })
	if at < 0 {
		t.Fatalf("no capture of threads among %d", len(captures))
	}
	c := captures[at]
	if err := c.Profile.CheckValid(); err != nil {
		t.Error(err)
	}
	for what, function := range calls {
		v := sum(c, thread.ReasonInterruptible, function)
		off := time.Duration(v[0] + v[1])
		t.Logf("%s: %d waits, off-CPU for %v of %v", what, v[2], off, took[what])
		if v[2] != rounds || off < rounds*span || off > took[what] {
			t.Errorf("%s: %d waits, off-CPU for %v; want %d, and %v to %v", what, v[2], off, rounds, rounds*span, took[what])
		}
	}
	if a := c.Accounting; a.Residual() > a.TotalNs/50 || a.Residual() < -a.TotalNs/50 {
		t.Errorf("accounting %+v does not close: residual %d", a, a.Residual())
	}
	for _, name := range []string{"task_map_full", "agg_map_full", "stack_map_full", "missed_switch_in", "missed_switch_out"} {
		if n := c.Loss[name]; n != 0 {
			t.Errorf("loss counter %s is %d", name, n)
		}
	}
	return c
}

func TestThreads(t *testing.T) {
	if err := thread.Available(); errors.Is(err, os.ErrPermission) {
		testutil.RequireBPF(t, err)
	} else if err != nil {
		t.Fatalf("%+v", err) // with the verifier's log
	}
	c := threadTotals(t, thread.Options{})
	gives(t, "threads", "yes")
	seen := "yes"
	if sum(c, "", "serve")[0] == 0 { // it has waited for input since before
		seen = "no"
	}
	gives(t, "seeded user stacks", "%s", seen)
}

func TestExact(t *testing.T) {
	tg := startTarget(t)
	r, err := exact.Start(context.Background(), exact.Options{PID: tg.pid, Waits: true, Locks: true})
	if err != nil {
		testutil.RequireBPF(t, err)
	}
	took := tg.wait("mutex", rounds, span)
	captures, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	bySource := map[profile.Source]*profile.Capture{}
	for _, c := range captures {
		bySource[c.Source] = c
	}
	c := bySource[profile.SourceExact]
	v := sum(c, "sync.Mutex.Lock", "acquire")
	off := time.Duration(v[0] + v[1])
	t.Logf("mutex: %d waits, off-CPU for %v of %v; loss %v", v[2], off, took, c.Loss)
	if v[2] != rounds || off < rounds*span || off > took {
		t.Errorf("mutex: %d waits, off-CPU for %v; want %d, and %v to %v", v[2], off, rounds, rounds*span, took)
	}
	v = sum(c, "", "parkForever")
	if want := parked * int64(c.Profile.Duration); v[2] != parked || v[0] != want {
		t.Errorf("goroutines parked since before: %d, blocked for %d ns; want %d, %d", v[2], v[0], parked, want)
	}
	if woken := sum(bySource[profile.SourceWakers], "sync.Mutex.Lock", "release")[2]; woken != rounds {
		t.Errorf("the holder woke the waiter %d times, want %d", woken, rounds)
	}
	if parks := sum(bySource[profile.SourceLocks], "", "acquire")[2]; parks != rounds {
		t.Errorf("the lock has %d parks of its waiter, want %d", parks, rounds)
	}
	for _, name := range []string{"ends_not_seen", "state_map_full", "agg_map_full", "stack_map_full", "stack_failed", "skipped_probes"} {
		if n := c.Loss[name]; n != 0 {
			t.Errorf("loss counter %s is %d", name, n)
		}
	}
	gives(t, "exact", "yes")
}

func TestSampler(t *testing.T) {
	tg := startTarget(t)
	s, err := goroutine.Start(context.Background(), goroutine.Options{PID: tg.pid, Hz: 50, Budget: 1})
	if err != nil {
		testutil.RequireBPF(t, err)
	}
	tg.wait("mutex", rounds, span)
	c, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	blocked, want := sum(c, "", "parkForever")[0], parked*int64(c.Profile.Duration)
	if blocked < want*9/10 || blocked > want*11/10 {
		t.Errorf("%d goroutines blocked for %v, want %v", parked, time.Duration(blocked), time.Duration(want))
	}
	if sum(c, "sync.Mutex.Lock", "acquire")[0] == 0 {
		t.Errorf("the waiter for the lock is in no sample")
	}
	gives(t, "sampler", "yes")
}

// On demand: kernels have died where probes come and go while threads sleep.
func TestAttachAndDetach(t *testing.T) {
	if os.Getenv("CONTENTION_STRESS") != "1" {
		t.Skip("set CONTENTION_STRESS=1, or give -stress to kerneltest/run")
	}
	tg := startTarget(t)
	for range 100 {
		threads, err := thread.Start(context.Background(), thread.Options{PIDs: []int{tg.pid}})
		if err != nil {
			t.Fatal(err)
		}
		waits, err := exact.Start(context.Background(), exact.Options{PID: tg.pid, Waits: true, Locks: true})
		if err != nil {
			t.Fatal(err)
		}
		tg.wait("mutex", 2, time.Millisecond)
		if _, err := threads.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := waits.Stop(); err != nil {
			t.Error(err)
		}
	}
}
