//go:build linux && (amd64 || arm64)

package thread

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/profile"
)

// start begins to record and stops at the test's end.
func start(t *testing.T, o Options) *Recorder {
	t.Helper()
	r, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Stop() })
	return r
}

// finish stops a recorder and checks what it hands over.
func finish(t *testing.T, r *Recorder) []*profile.Capture {
	t.Helper()
	cs, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	checkCapture(t, cs[0])
	return cs
}

// Totals are those that the program measured around its calls, within 1 %, also
// while its thread moves from CPU to CPU. Of two recorders at once each sees what
// the other's programs take at a switch besides.
func TestKnownTimes(t *testing.T) {
	testutil.RequireBPF(t, Available())
	for _, c := range []struct {
		name      string
		args      []string
		recorders int
		more      bool // wakers and samples on CPU: they take time of the target's own
	}{
		{"alone", []string{"known"}, 1, false},
		{"moved", []string{"known", "moved"}, 1, false},
		{"wakers and samples", []string{"known"}, 1, true},
		{"two recorders", []string{"known"}, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) { testKnown(t, c.recorders, c.more, c.args) })
	}
}

func testKnown(t *testing.T, recorders int, more bool, args []string) {
	tg := startTarget(t, args...)
	opt := Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)}
	if more {
		opt.Wakers, opt.OnCPU = true, 997
	}
	var rs []*Recorder
	for range recorders {
		rs = append(rs, start(t, opt))
	}
	tg.tell(t)
	line := tg.said(t)
	var tid int64
	var wall, cpu [4]int64
	if _, err := fmt.Sscan(line, &tid, &wall[0], &cpu[0], &wall[1], &cpu[1], &wall[2], &cpu[2], &wall[3], &cpu[3]); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	for _, r := range rs {
		cs := finish(t, r)
		for i, function := range []string{"main.sleepKnown", "main.waitKnown", "main.syncKnown"} {
			got, waits := offCPUOf(cs[0], function)
			// What the recorder says that it does not know may be of any wait. And
			// the programs that run at a switch, such as those of another package's
			// tests, and what moves the thread are on one side of it or the other.
			allowed := cs[0].Loss["missed_switch_ns"] + waits*int64(50*time.Microsecond)
			if function == "main.syncKnown" {
				// Interrupts and a hypervisor stop a thread that is on a CPU: its own
				// clock stands still, and no switch is seen.
				allowed += max(0, runningOf(cs[0], tid)-(cpu[0]+cpu[1]+cpu[2]+cpu[3]))
			}
			if len(args) > 1 && function == "main.syncKnown" {
				t.Logf("%s while it is moved: %v, measured by the program %v", function, time.Duration(got), time.Duration(wall[i]-cpu[i]))
				continue // it mixes running and waiting, and is moved while it runs
			}
			checkKnown(t, function, got, wall[i]-cpu[i], allowed)
		}
		checkRunning(t, cs[0], tid, cpu)
		if more {
			checkWaker(t, cs[1])
			checkSamples(t, cs[2], cpu[3])
		}
	}
}

// offCPUOf is the off-CPU time and the number of waits in a function of the
// thread that measures. Its helper sleeps too, and does not count.
func offCPUOf(c *profile.Capture, function string) (ns, waits int64) {
	pick := func(stack string, l profile.Labels) bool {
		return in(function)(stack, l) && !in("main.futexKnown.func1")(stack, l)
	}
	return sum(c.Profile, valueBlocked, pick) + sum(c.Profile, valueRunnable, pick), sum(c.Profile, valueWaits, pick)
}

func checkKnown(t *testing.T, what string, got, want, allowed int64) {
	t.Helper()
	off := got - want
	t.Logf("%s: %v, measured by the program %v (%+.3f %%)", what, time.Duration(got), time.Duration(want), 100*float64(off)/float64(want))
	if want <= 0 || max(off, -off) > want/100+allowed {
		t.Errorf("%s: %v off-CPU, the program measured %v", what, time.Duration(got), time.Duration(want))
	}
}

// runningOf is how long a thread ran by switches, 0 where it is not listed.
func runningOf(c *profile.Capture, tid int64) int64 {
	for _, b := range c.Busiest {
		if b.ID == tid {
			return b.RunningNs
		}
	}
	return 0
}

// slack is what may be seen beside the measured calls.
const slack = time.Millisecond

// checkRunning compares running time by switches with the thread's own CPU clock.
func checkRunning(t *testing.T, c *profile.Capture, tid int64, cpu [4]int64) {
	t.Helper()
	all := cpu[0] + cpu[1] + cpu[2] + cpu[3]
	found := false
	for _, b := range c.Busiest {
		if b.ID != tid {
			continue
		}
		found = true
		t.Logf("running: %v by switches, %v by its own clock around the calls", time.Duration(b.RunningNs), time.Duration(all))
		// What it does between the calls is not in its own sum.
		if b.RunningNs < all-all/100-c.Loss["missed_switch_ns"] || b.RunningNs > all+all/20+int64(slack) {
			t.Errorf("thread %d ran for %v, by its own clock %v", tid, time.Duration(b.RunningNs), time.Duration(all))
		}
	}
	if !found {
		t.Errorf("thread %d is not among the busiest: %+v", tid, c.Busiest)
	}
}

// checkSamples compares samples on CPU with the clock of the thread that spins.
func checkSamples(t *testing.T, oncpu *profile.Capture, cpu int64) {
	t.Helper()
	if oncpu.Source != profile.SourceOnCPU || oncpu.Source.Plane() != profile.PlaneOnCPU {
		t.Fatalf("third capture is %s", oncpu.Source)
	}
	if err := oncpu.Profile.CheckValid(); err != nil {
		t.Error(err)
	}
	spun := sum(oncpu.Profile, 0, in("main.spinKnown"))
	t.Logf("spinning: %v by samples, %v by its own clock", time.Duration(spun), time.Duration(cpu))
	if d := spun - cpu; max(d, -d) > cpu/10 {
		t.Errorf("samples say that it spun for %v, its clock %v", time.Duration(spun), time.Duration(cpu))
	}
}

// checkWaker wants the futex wait under the thread that ended it.
func checkWaker(t *testing.T, c *profile.Capture) {
	t.Helper()
	if c.Source != profile.SourceThreadWakers {
		t.Fatalf("second capture is %s", c.Source)
	}
	if err := c.Profile.CheckValid(); err != nil {
		t.Error(err)
	}
	var both, waits int64
	for _, s := range c.Profile.Samples {
		stack := stackText(c.Profile, s)
		if !in("main.waitKnown")(stack, profile.Labels{}) {
			continue
		}
		waits += s.Values[valueWaits]
		waker, waiter, ok := cutFrames(stack)
		if ok && in("main.wakeKnown")(waker, profile.Labels{}) && in("main.waitKnown")(waiter, profile.Labels{}) {
			both += s.Values[valueWaits]
		}
	}
	if both < 18 {
		t.Errorf("%d of %d futex waits were ended by main.wakeKnown, want 20 but for the ones that did not wait:\n%v", both, waits, c.Profile)
	}
	slept, interrupted := int64(0), int64(0)
	for _, s := range c.Profile.Samples {
		waker, waiter, _ := cutFrames(stackText(c.Profile, s))
		if in("main.sleepKnown")(waiter, profile.Labels{}) {
			slept += s.Values[valueWaits]
			if in(FrameInterrupt)(waker, profile.Labels{}) {
				interrupted += s.Values[valueWaits]
			}
		}
	}
	if slept < 20 || interrupted < slept*9/10 {
		t.Errorf("%d of %d sleeps were ended by an interrupt", interrupted, slept)
	}
}
