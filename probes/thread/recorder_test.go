//go:build linux && (amd64 || arm64)

package thread

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"go.uber.org/goleak"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

// scratchDir holds what tests build; TestMain makes and removes it.
var scratchDir string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if h := os.Getenv(helperEnv); h != "" {
		if err := helper(strings.Fields(h)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
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
	return recordAll(t, window, o)[0]
}

func recordAll(t *testing.T, window time.Duration, o Options) []*profile.Capture {
	t.Helper()
	r, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-time.After(window):
	case <-r.Done():
	}
	cs, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	checkCapture(t, cs[0])
	return cs
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

// The wait of a known function has its time, its reason and its stack, and only
// the target is recorded.
func TestSleep(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "sleep")
	startTarget(t, "sleep") // must not contribute
	const window = 2200 * time.Millisecond
	c := record(t, window, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
	got := c.Profile.Duration
	if got < window || c.Incomplete {
		t.Errorf("window is %v (incomplete %v), want %v", got, c.Incomplete, window)
	}
	waits := sum(c.Profile, valueWaits, sleeping)
	blocked := sum(c.Profile, valueBlocked, sleeping)
	// One thread cannot sleep more often than this, and a sleep is never short.
	if most := int64(got/(20*time.Millisecond)) + 2; waits < 10 || waits > most {
		t.Errorf("%d waits, want 10 to %d", waits, most)
	}
	if blocked < (waits-2)*int64(20*time.Millisecond) || blocked > int64(got) {
		t.Errorf("blocked for %v in %d waits of 20 ms within %v", time.Duration(blocked), waits, got)
	}
	if c.Profile.Total(valueWaits) < waits {
		t.Errorf("all waits are fewer than one thread's")
	}
	for _, s := range c.Profile.Samples {
		if l := c.Profile.Labels(s.Labels); l.Get(profile.LabelThread) != "target" {
			t.Errorf("labels %v, want the thread's name", l)
		}
		if stack := stackText(c.Profile, s); sleeping(stack, c.Profile.Labels(s.Labels)) && !strings.Contains(stack, ";main.sleep20ms;main.sleepLoop;") {
			t.Errorf("stack %s lacks the caller", stack)
		}
	}
	checkKernelFrames(t, c, sleeping, "nanosleep")
	if c.Cost.CPUNs <= 0 || c.Cost.ProbeHits <= 0 || c.Cost.BPFNs <= 0 || c.Cost.MemBytes <= 0 {
		t.Errorf("cost is %+v", c.Cost)
	}
}

// Without symbols given, the recorder finds them itself, with files and lines.
func TestOwnSymbols(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "sleep")
	c := record(t, 300*time.Millisecond, Options{PIDs: []int{tg.pid}})
	found := false
	for _, s := range c.Profile.Samples {
		for _, f := range c.Profile.Frames(s.Stack) {
			if f.Function == "main.sleep20ms" {
				found = true
				if filepath.Base(f.File) != "main.go" || f.Line <= 0 {
					t.Errorf("frame %+v lacks its line", f)
				}
			}
		}
	}
	if !found {
		t.Errorf("main.sleep20ms is in no stack:\n%v", c.Profile)
	}
}

// Symbols that cannot be had leave addresses, and a warning.
func TestNoSymbols(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "sleep")
	c := record(t, 300*time.Millisecond, Options{PIDs: []int{tg.pid}, Symbols: func(int) (Resolver, error) {
		return nil, errors.New("for the test")
	}})
	if len(c.Warnings) == 0 || !strings.Contains(c.Warnings[0], "are addresses: for the test") {
		t.Errorf("warnings %q", c.Warnings)
	}
	if c.Loss["unsymbolised_frames"] == 0 {
		t.Errorf("loss %v", c.Loss)
	}
}

// checkKernelFrames checks that kernel frames are innermost and name the wait.
func checkKernelFrames(t *testing.T, c *profile.Capture, pick func(string, profile.Labels) bool, want string) {
	t.Helper()
	k, err := symbol.OpenKernel()
	if err != nil || k.Hidden() != nil {
		t.Logf("kernel frames not checked: %v", errors.Join(err, k.Hidden()))
		return
	}
	for _, s := range c.Profile.Samples {
		if !pick(stackText(c.Profile, s), c.Profile.Labels(s.Labels)) {
			continue
		}
		kernel, named, user := 0, false, 0
		for i, f := range c.Profile.Frames(s.Stack) {
			switch {
			case f.Kernel() && i != kernel:
				t.Errorf("kernel frame %s below a user frame: %s", f.Function, stackText(c.Profile, s))
			case f.Kernel():
				kernel++
				named = named || strings.Contains(f.Function, want)
			default:
				user++
			}
		}
		if kernel == 0 || user == 0 || !named {
			t.Errorf("stack does not go from the kernel's %s to the user: %s", want, stackText(c.Profile, s))
		}
	}
}

// A thread that is parked for all of the window counts for all of it, with the
// stack that it has had since before.
func TestParked(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "park")
	settle(t, tg.pid)
	c := record(t, 300*time.Millisecond, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
	blocked := sum(c.Profile, valueBlocked, func(stack string, l profile.Labels) bool {
		return in("main.park")(stack, l) && l.Get(profile.LabelReason) == ReasonInterruptible
	})
	unseen := sum(c.Profile, valueBlocked, in(FrameUnseen))
	switch want := int64(c.Profile.Duration); {
	case !readsRegisters(t) && unseen < want:
		t.Errorf("threads that were not seen blocked for %v of %v", time.Duration(unseen), c.Profile.Duration)
	case readsRegisters(t) && blocked != want:
		t.Errorf("main.park blocked for %v of %v", time.Duration(blocked), c.Profile.Duration)
	}
	if a := c.Accounting; a.BlockedNs < int64(c.Profile.Duration) {
		t.Errorf("all threads blocked for %v in %v", time.Duration(a.BlockedNs), c.Profile.Duration)
	}
}

// readsRegisters says whether the kernel side can tell where a thread that
// sleeps was in user space: from 5.15 on.
func readsRegisters(t *testing.T) bool {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var ids *btf.Enum
	if err := kernel.TypeByName("bpf_func_id", &ids); err != nil {
		t.Fatal(err)
	}
	return runtime.GOARCH == "amd64" && slices.ContainsFunc(ids.Values, func(v btf.EnumValue) bool { return v.Name == "BPF_FUNC_task_pt_regs" })
}

// settle waits until every thread of a process sleeps.
func settle(t *testing.T, pid int) {
	t.Helper()
	testutil.Eventually(t, 10*time.Second, "every thread sleeps", func() bool {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, path := range stats {
			data, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(data), ") S ") {
				return false
			}
		}
		return len(stats) > 0
	})
}

// Two threads that spin on one CPU wait for it, and are not blocked.
func TestSpinning(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "spin")
	c := record(t, 1500*time.Millisecond, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
	window := int64(c.Profile.Duration)
	blocked := sum(c.Profile, valueBlocked, in("main.spin"))
	runnable := sum(c.Profile, valueRunnable, in("main.spin"))
	// One CPU runs one of them at a time at most.
	if least := window*9/10 - c.Accounting.UnknownNs; runnable < least {
		t.Errorf("runnable for %v of %v, want at least %v", time.Duration(runnable), c.Profile.Duration, time.Duration(least))
	}
	if blocked > window/20 {
		t.Errorf("spinning counts as blocked: %v", time.Duration(blocked))
	}
	if len(c.Busiest) < 2 || c.Busiest[0].RunningNs <= 0 || c.Busiest[0].Name != "target" {
		t.Errorf("busiest threads are %+v", c.Busiest)
	}
	for _, s := range c.Profile.Samples {
		l := c.Profile.Labels(s.Labels)
		if r := l.Get(profile.LabelReason); in("main.spin")(stackText(c.Profile, s), l) && r != ReasonPreempted {
			t.Errorf("main.spin waits with reason %q", r)
		}
	}
}

// Several processes are recorded together.
func TestTwoTargets(t *testing.T) {
	testutil.RequireBPF(t, Available())
	parked, spinning := startTarget(t, "sleep"), startTarget(t, "spin")
	c := record(t, 500*time.Millisecond, Options{PIDs: []int{parked.pid, spinning.pid, parked.pid}, Symbols: targetSymbols(t)})
	if sum(c.Profile, valueBlocked, sleeping) == 0 || sum(c.Profile, valueRunnable, in("main.spin")) == 0 {
		t.Errorf("one of two targets is missing:\n%v", c.Profile)
	}
}

// Threads that begin and end within the window are accounted for.
func TestThreadsBeginAndEnd(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "churn")
	c := record(t, 1200*time.Millisecond, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
	started := sum(c.Profile, valueWaits, func(_ string, l profile.Labels) bool { return l.Get(profile.LabelReason) == ReasonStarted })
	if started < 3 {
		t.Errorf("%d threads began, want some", started)
	}
	if sum(c.Profile, valueBlocked, in("main.sleep20ms")) == 0 {
		t.Error("the sleep of short threads is missing")
	}
	if len(c.Busiest) > maxBusiest {
		t.Errorf("%d busiest threads", len(c.Busiest))
	}
}

// A process that does nothing says that nothing matched, and still counts.
func TestNothingMatches(t *testing.T) {
	testutil.RequireBPF(t, Available())
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	settle(t, cmd.Process.Pid)
	c := record(t, 200*time.Millisecond, Options{PIDs: []int{cmd.Process.Pid}})
	if !strings.HasPrefix(strings.Join(c.Warnings, "\n"), "0 of ") {
		t.Errorf("warnings %q", c.Warnings)
	}
	if got := c.Profile.Total(valueBlocked); got != int64(c.Profile.Duration) {
		t.Errorf("one sleeping thread blocked for %v of %v", time.Duration(got), c.Profile.Duration)
	}
}

// Maps that are too small lose nothing silently.
func TestFullMaps(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "churn")
	for _, c := range []struct {
		name    string
		opt     Options
		counter string
		time    string
	}{
		{"stacks", Options{MaxStacks: 1}, "stack_map_full", "stack_map_full_ns"},
		{"waits", Options{MaxWaits: 1}, "agg_map_full", "agg_map_full_ns"},
		{"threads", Options{MaxThreads: 1}, "task_map_full", "task_map_full_ns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opt.PIDs = []int{tg.pid}
			got := record(t, 500*time.Millisecond, c.opt)
			if got.Loss[c.counter] == 0 || got.Loss[c.time] == 0 {
				t.Errorf("%s is %d, %s is %d", c.counter, got.Loss[c.counter], c.time, got.Loss[c.time])
			}
			if c.name != "stacks" && got.Accounting.LostNs == 0 {
				t.Errorf("accounting %+v shows no loss", got.Accounting)
			}
			if !strings.Contains(strings.Join(got.Warnings, "\n"), "full") {
				t.Errorf("warnings %q", got.Warnings)
			}
		})
	}
}

// Short waits can be left out of the profile, and stay in the accounting.
func TestMinBlocked(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "sleep")
	c := record(t, time.Second, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t), MinBlocked: 10 * time.Second})
	if got := sum(c.Profile, valueBlocked, in("main.sleep20ms")); got != 0 {
		t.Errorf("waits of 20 ms hold %v", time.Duration(got))
	}
	if c.Loss["below_min"] < 5 || c.Loss["below_min_ns"] < int64(100*time.Millisecond) {
		t.Errorf("loss %v", c.Loss)
	}
	if c.Settings["min_blocked"] != "10s" {
		t.Errorf("settings %v", c.Settings)
	}
}
