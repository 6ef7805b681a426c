//go:build linux && (amd64 || arm64)

package thread

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/profile"
)

// scratchDir holds what tests build; TestMain makes and removes it.
var scratchDir string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "thread")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	scratchDir = dir
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

// record records targets for a while and checks what holds for every capture.
func record(t *testing.T, window time.Duration, o Options) *profile.Capture {
	t.Helper()
	r, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-time.After(window):
	case <-r.Done():
	}
	c, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	checkCapture(t, c)
	return c
}

// checkCapture checks what holds for every capture.
func checkCapture(t *testing.T, c *profile.Capture) {
	t.Helper()
	if err := c.Profile.CheckValid(); err != nil {
		t.Error(err)
	}
	a := c.Accounting
	t.Logf("window %v, accounting %+v residual %d, settings %v, loss %v, cost %+v, warnings %q", c.Profile.Duration, *a, a.Residual(), c.Settings, c.Loss, c.Cost, c.Warnings)
	if r := a.Residual(); r < -a.TotalNs/50 || r > a.TotalNs/50 {
		t.Errorf("accounting does not close: residual %d of %d", r, a.TotalNs)
	}
	below := c.Loss["below_min_ns"]
	off := c.Profile.Total(valueBlocked) + c.Profile.Total(valueRunnable) + below
	if d := off - a.BlockedNs - a.RunnableNs; d < -a.TotalNs/1000-1000 || d > a.TotalNs/1000+1000 {
		t.Errorf("profile holds %d ns off-CPU, the threads' sums %d", off, a.BlockedNs+a.RunnableNs)
	}
	sums := make([]int64, len(c.Profile.SampleTypes)*len(c.Profile.Samples))
	for _, e := range c.Slices.Entries {
		for i, v := range e.Values {
			sums[int(e.Sample)*len(e.Values)+i] += v
		}
		if end := time.Duration(e.Slice) * c.Slices.Width; end > c.Profile.Duration {
			t.Errorf("slice %d begins after the window's %v", e.Slice, c.Profile.Duration)
		}
	}
	for i, s := range c.Profile.Samples {
		for j, v := range s.Values {
			if got := sums[i*len(s.Values)+j]; got != v {
				t.Errorf("sample %d: slices of value %d sum up to %d, want %d", i, j, got, v)
			}
		}
	}
}

func TestSleep(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "sleep")
	other := startTarget(t, "sleep")
	c := record(t, 2200*time.Millisecond, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
	t.Log(c.Profile)
	_ = other
}
