//go:build linux && amd64

package goroutine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

type want struct{ reason, stack, creator string }

// wants are the waits of the target's mode waits: part of the stack, outermost
// first, and the reason.
var wants = []want{
	{"sync.Mutex.Lock", "main.producer;main.(*queue).offer;main.(*queue).add;sync.(*Mutex).Lock;", "main.waits"},
	{"sync.Cond.Wait", "main.consumer;sync.(*Cond).Wait;", "main.waits"},
	{"sync.RWMutex.RLock", "main.waits.func1;sync.(*RWMutex).RLock;", "main.waits"},
	{"sync.WaitGroup.Wait", "sync.(*WaitGroup).Wait;", "main.waits"},
	{"chan receive", "main.receiver;runtime.chanrecv", "main.waits"},
	{"chan send", "main.waits.func2;runtime.chansend", "main.waits"},
	{"select", "main.waits.func3;runtime.selectgo;", "main.waits"},
	{"sleep", "main.waits.func4;time.Sleep;", "main.waits"},
	{"IO wait", "main.reader;io.ReadFull;io.ReadAtLeast;net.(*conn).Read;", "main.waits"},
	{"syscall", "main.caller;syscall.Read;", "main.waits"},
}

// Each kind of wait has its reason, its stack with inlined calls expanded, its
// creator, and the time of one goroutine, whatever the executable.
func TestWaits(t *testing.T) {
	dwarf, table := "DWARF", "table"
	for _, c := range []struct {
		kit    kit
		layout string
	}{
		{kit{}, dwarf},
		{kit{flags: []string{"-buildmode=pie"}}, dwarf},
		{kit{flags: []string{"-ldflags=-w"}}, table},
		{kit{flags: []string{"-ldflags=-s -w", "-trimpath"}}, table},
		{kit{flags: []string{"-ldflags=-s -w", "-buildmode=pie"}}, table},
		{kit{strip: true}, table},
		{kit{cgo: true, flags: []string{"-ldflags=-linkmode=external"}, strip: true}, table},
		{kit{cgo: true, flags: []string{"-ldflags=-linkmode=external -s -w", "-buildmode=pie"}}, table},
		{kit{cgo: true, flags: []string{"-ldflags=-linkmode=external -s -w -extldflags=-static", "-tags=netgo,osusergo"}}, table},
	} {
		t.Run(c.kit.String(), func(t *testing.T) {
			if testing.Short() && (c.kit.cgo || c.kit.strip) {
				t.Skip("builds with a linker of its own")
			}
			checkWaits(t, start(t, c.kit.build(t), "waits"), wants, c.layout)
		})
	}
}

// checkWaits samples the target in its mode waits.
func checkWaits(t *testing.T, g *target, wants []want, layout string) {
	t.Helper()
	settle(t, g.pid, wants)
	c := sample(t, time.Second, Options{PID: g.pid})
	if got := c.Settings["layout_from"]; got != layout {
		t.Errorf("the layout is from %s, want %s", got, layout)
	}
	if c.Incomplete || len(c.Warnings) > 0 {
		t.Errorf("incomplete %v, warnings %v", c.Incomplete, c.Warnings)
	}
	for _, w := range wants {
		checkWait(t, c, w.reason, w.stack, w.creator)
	}
}

// settle waits until the target's goroutines are all where they stay: they are
// started before it says that it is ready.
func settle(t *testing.T, pid int, wants []want) {
	t.Helper()
	var c *profile.Capture
	var missing want
	defer func() {
		if t.Failed() && c != nil && missing.reason != "" {
			t.Logf("no %q at %s in\n%s", missing.reason, missing.stack, c.Profile)
		}
	}()
	testutil.Eventually(t, 20*time.Second, "every goroutine of the target waits", func() bool {
		c = sample(t, 50*time.Millisecond, Options{PID: pid})
		for _, w := range wants {
			if missing = w; find(c, w.reason, w.stack) == nil {
				return false
			}
		}
		missing.reason = ""
		return true
	})
}

func find(c *profile.Capture, reason, stack string) *profile.Sample {
	p := c.Profile
	for i := range p.Samples {
		s := &p.Samples[i]
		if p.Labels(s.Labels).Get(profile.LabelReason) == reason && strings.Contains(text(p.Frames(s.Stack)), stack) {
			return s
		}
	}
	return nil
}

func checkWait(t *testing.T, c *profile.Capture, reason, stack, creator string) {
	t.Helper()
	p := c.Profile
	s := find(c, reason, stack)
	if s == nil {
		t.Errorf("no %q at %s in\n%s", reason, stack, p)
		return
	}
	if got := p.Labels(s.Labels).Get(profile.LabelCreator); got != creator {
		t.Errorf("%s: creator %q, want %q", reason, got, creator)
	}
	value, other := blockedValue, syscallValue
	if reason == "syscall" {
		value, other = other, value
	}
	// The goroutine waits all the time; a tick may find it torn.
	if got, want := s.Values[value], int64(p.Duration); got > want || got < want*9/10 {
		t.Errorf("%s: %d ns of %d", reason, got, want)
	}
	if s.Values[other] != 0 || s.Values[runnableValue] != 0 || s.Values[samplesValue] == 0 {
		t.Errorf("%s: values %v", reason, s.Values)
	}
	for i, f := range p.Frames(s.Stack) {
		if f.Module == "" || strings.HasPrefix(f.Function, "main.") && (f.File == "" || f.Line == 0) {
			t.Errorf("%s: frame %d is %+v", reason, i, f)
		}
		if f.Function == "runtime.goexit" || symbol.Wrapper(f) {
			t.Errorf("%s: frame %d is %s", reason, i, f.Function)
		}
	}
}

// The wait site of the model case is inlined into its caller: the frame says so.
func TestInlinedWaitSite(t *testing.T) {
	g := start(t, build(t), "waits")
	settle(t, g.pid, wants)
	c := sample(t, 300*time.Millisecond, Options{PID: g.pid})
	s := find(c, "sync.Mutex.Lock", "main.(*queue).offer")
	if s == nil {
		t.Fatalf("no main.(*queue).offer in\n%s", c.Profile)
	}
	for _, f := range c.Profile.Frames(s.Stack) {
		if f.Function == "main.(*queue).offer" && !f.Inlined {
			t.Error("main.(*queue).offer is not inlined: this test shows nothing")
		}
		if f.Function == "main.producer" && f.Inlined {
			t.Error("main.producer is inlined")
		}
	}
}

// A stack that does not fit the first read is read on; one deeper than the
// limit is cut at its outer end, and counted.
func TestDeepStack(t *testing.T) {
	g := start(t, build(t), "deep", "100")
	var c *profile.Capture
	testutil.Eventually(t, 20*time.Second, "the deep stack is seen", func() bool {
		c = sample(t, 100*time.Millisecond, Options{PID: g.pid})
		return find(c, "chan receive", "main.deep") != nil
	})
	s := find(c, "chan receive", "main.deep")
	stack := text(c.Profile.Frames(s.Stack))
	if n := strings.Count(stack, "main.deep"); n != 101 {
		t.Errorf("%d calls of main.deep, want 101: %s", n, stack)
	}
	if c.Loss["truncated_stacks"] != 0 {
		t.Errorf("%d stacks are truncated", c.Loss["truncated_stacks"])
	}
	c = sample(t, 100*time.Millisecond, Options{PID: g.pid, MaxDepth: 10})
	s = find(c, "chan receive", "main.deep")
	if s == nil || c.Loss["truncated_stacks"] == 0 {
		t.Fatalf("truncated %d, sample %v", c.Loss["truncated_stacks"], s)
	}
	frames := c.Profile.Frames(s.Stack)
	if frames[0].Function != "runtime.gopark" || len(frames) > 20 {
		t.Errorf("a stack cut at 10 physical frames: %s", text(frames))
	}
}

// Goroutines that want to run are runnable where they were interrupted, with
// their callers, even in a function that has no frame of its own; one runs.
func TestRunnable(t *testing.T) {
	g := start(t, build(t), "busy", "4")
	c := sample(t, 2*time.Second, Options{PID: g.pid})
	var step int64
	p := c.Profile
	for _, s := range p.Samples {
		stack := text(p.Frames(s.Stack))
		if s.Values[runnableValue] == 0 {
			continue
		}
		if r := p.Labels(s.Labels).Get(profile.LabelReason); r != "runnable" && r != "preempted" {
			t.Errorf("runnable time with reason %q", r)
		}
		if strings.HasPrefix(stack, "main.spin;main.step") {
			step += s.Values[runnableValue]
		} else if strings.Contains(stack, "main.step") {
			t.Errorf("main.step without its caller: %s", stack)
		}
	}
	// Three of four wait for the only processor.
	if got, want := step, 3*int64(p.Duration); got < want*8/10 || got > want*12/10 {
		t.Errorf("runnable below main.spin for %d ns, want about %d; in all %d\n%s", got, want, c.Accounting.RunnableNs, p)
	}
	if got, want := c.Accounting.RunningNs, int64(p.Duration); got < want*7/10 || got > want*13/10 {
		t.Errorf("running %d ns of %d", got, want)
	}
	if len(c.Busiest) == 0 || c.Busiest[0].Name != "main.spin" || c.Busiest[0].ID == 0 || c.Busiest[0].RunningNs == 0 {
		t.Errorf("busiest %v", c.Busiest)
	}
}

// With more goroutines than the budget can read, the few that wait for a lock
// are seen, time is kept whole, and the cost stays near the budget.
func TestManyGoroutines(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the speed of a build without the race detector")
	}
	const n = 20000
	g := start(t, build(t), "idle", fmt.Sprint(n))
	testutil.Eventually(t, 30*time.Second, "the lock's waiters wait", func() bool {
		c := sample(t, 100*time.Millisecond, Options{PID: g.pid})
		return c.Accounting.RunnableNs == 0 && find(c, "sync.Mutex.Lock", "main.(*queue).offer") != nil
	})
	c := sample(t, 3*time.Second, Options{PID: g.pid, Budget: 0.10})
	if c.Settings["weighted_ticks"] == "0" {
		t.Error("every stack was read: the test shows nothing")
	}
	d := int64(c.Profile.Duration)
	lock := find(c, "sync.Mutex.Lock", "main.(*queue).offer")
	if lock == nil || lock.Values[blockedValue] < 5*d || lock.Values[blockedValue] > 20*d {
		t.Errorf("ten goroutines wait for the lock; found %v in a window of %d ns", lock, d)
	}
	idle := find(c, "chan receive", "main.receiver")
	if idle == nil || idle.Values[blockedValue] < n*d*8/10 || idle.Values[blockedValue] > n*d*12/10 {
		t.Errorf("%d goroutines wait for the channel; found %v in a window of %d ns", n, idle, d)
	}
	if cost := float64(c.Cost.CPUNs) / float64(d); cost > 0.20 {
		t.Errorf("sampling took %.0f %% of one CPU, the budget is 10 %%; settings %v, loss %v", 100*cost, c.Settings, c.Loss)
	}
}

// Goroutines that come and go, move their stacks and are scanned by the
// collector are read without a torn stack getting through.
func TestChurn(t *testing.T) {
	g := start(t, build(t), "churn", "50")
	c := sample(t, 3*time.Second, Options{PID: g.pid, Budget: 0.5})
	var all, odd int64
	p := c.Profile
	for _, s := range p.Samples {
		all += s.Values[samplesValue]
		frames := p.Frames(s.Stack)
		if last := frames[len(frames)-1].Function; strings.HasPrefix(last, "main.churn.") || strings.HasPrefix(last, "runtime.") || last == unseen {
			continue
		}
		odd += s.Values[samplesValue]
		t.Logf("%v %v %s", s.Values, p.Labels(s.Labels), text(frames))
	}
	t.Logf("%d samples, loss %v", all, c.Loss)
	if odd > c.Loss["truncated_stacks"] || c.Loss["truncated_stacks"] > all/1000 {
		t.Errorf("%d of %d stacks end where no goroutine begins", odd, all)
	}
	if lost := c.Loss["racy"] + c.Loss["truncated_stacks"] + c.Loss["unreadable"]; lost > all/10 {
		t.Errorf("%d of %d stacks are lost: %v", lost, all, c.Loss)
	}
}

func TestRefusals(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		pid  int
		want []string
	}{
		{"not Go", sleep.Process.Pid, []string{"not a Go executable"}},
		{"ended", gone.Process.Pid, []string{"no such process"}},
		{"zero", 0, []string{"no such process"}},
		{"negative", -1, []string{"no such process"}},
	} {
		s, err := Start(context.Background(), Options{PID: c.pid})
		if err == nil {
			_, _ = s.Stop()
			t.Errorf("%s: started", c.name)
			continue
		}
		for _, w := range append(c.want, fmt.Sprint(c.pid)) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v; want %q", c.name, err, w)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", c.name, err)
		}
	}
	if _, err := Start(context.Background(), Options{PID: sleep.Process.Pid}); !errors.Is(err, ErrNotGo) {
		t.Errorf("not Go: %v", err)
	}
}

// Descriptors are given back, after failures too.
func TestDescriptors(t *testing.T) {
	g := start(t, build(t), "waits")
	sample(t, 20*time.Millisecond, Options{PID: g.pid})
	refused := exec.Command("sleep", "60")
	if err := refused.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = refused.Process.Kill(); _ = refused.Wait() }()
	before := descriptors(t)
	for range 5 {
		sample(t, 20*time.Millisecond, Options{PID: g.pid})
		if _, err := Start(context.Background(), Options{PID: refused.Process.Pid}); err == nil {
			t.Fatal("a target that is not Go was started")
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}
