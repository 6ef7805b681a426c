//go:build linux && amd64

package exact

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// Every wait is counted, and its time is what the waiter measured, less the
// moments in which it ran.
func TestKnownWaits(t *testing.T) {
	s := startTarget(t)
	s.do("park 7")
	r := record(t, Options{PID: s.pid, Waits: true})
	cases := []struct{ command, reason, function string }{
		{"mutex 20 50ms", "sync.Mutex.Lock", "main.lockAndUnlock"},
		{"channel 20 50ms", "chan receive", "main.takeFrom"},
		{"cond 20 50ms", "sync.Cond.Wait", "main.waitFor"},
		{"sleep 20 50ms", "sleep", "main.doze"},
		{"group 20 20ms", "sync.WaitGroup.Wait", "main.waitForGroup"},
		{"select 20 20ms", "select", "main.takeEither"},
		{"timer 20 20ms", "chan receive", "main.expire"},
		{"network 20 20ms", "IO wait", "main.readByte"},
	}
	var waits, took, late []int64
	for _, c := range cases {
		before := s.lateness()
		n, ns := s.do("%s", c.command)
		waits, took, late = append(waits, n), append(took, ns), append(late, s.lateness()-before)
	}
	got := stop(t, r)
	c := got[profile.SourceExact]
	for i, k := range cases {
		blocked, runnable, n := sum(c, k.reason, k.function)
		if n != waits[i] {
			t.Errorf("%s: %d waits, want %d", k.command, n, waits[i])
		}
		near(t, k.command, blocked+runnable, took[i], late[i])
		t.Logf("%s: %d waits, %.2f %% of the time that the waiter measured (%.2f %% runnable)", k.command, n,
			100*float64(blocked+runnable)/float64(took[i]), 100*float64(runnable)/float64(took[i]))
	}
	// Those that were parked before, and still are, count for all of the window.
	blocked, runnable, n := sum(c, "select (no cases)", "main.parkForever")
	if want := 7 * int64(c.Profile.Duration); n != 7 || runnable != 0 || blocked != want {
		t.Errorf("parked before the window: %d waits, %d ns blocked, %d runnable; want 7, %d, 0", n, blocked, runnable, want)
	}
	checkDistributions(t, c)
	checkSlices(t, c)
	checkAccounting(t, c)
	// Nobody is seen to make runnable what the network poller does.
	if v := wakeupsNotSeen(c, "main.readByte"); v != 20 {
		t.Errorf("%d network waits without a wake-up that was seen, want 20", v)
	}
	// The wakers' profile has every wait that ended by a wake-up, with both stacks.
	_, _, woken := sum(got[profile.SourceWakers], "sync.Mutex.Lock", "main.unlock")
	if woken != waits[0] {
		t.Errorf("main.unlock woke %d waiters, want %d", woken, waits[0])
	}
	for _, name := range []string{"ends_not_seen", "stale", "unreadable", "state_map_full", "agg_map_full", "stack_map_full", "stack_failed", "skipped_probes"} {
		if v, ok := c.Loss[name]; !ok || v != 0 {
			t.Errorf("loss counter %s is %d (there: %v), want 0", name, v, ok)
		}
	}
}

func wakeupsNotSeen(c *profile.Capture, function string) (waits int64) {
	for _, s := range c.Profile.Samples {
		if c.Profile.Labels(s.Labels).Get(profile.LabelWakeup) != WakeupNotSeen {
			continue
		}
		for _, f := range c.Profile.Frames(s.Stack) {
			if f.Function == function {
				waits += s.Values[2]
				break
			}
		}
	}
	return waits
}

// checkSlices holds the slices against the samples: they sum up to them, and
// what is parked for all of the window is in each for all of its length.
func checkSlices(t *testing.T, c *profile.Capture) {
	t.Helper()
	if c.Slices == nil || len(c.Slices.Entries) == 0 {
		t.Fatal("there are no slices")
	}
	sums := map[uint32][3]int64{}
	perSlice := map[uint32]int64{}
	for _, e := range c.Slices.Entries {
		sum := sums[e.Sample]
		for i, v := range e.Values {
			if v < 0 {
				t.Errorf("slice %d, sample %d: %v", e.Slice, e.Sample, e.Values)
			}
			sum[i] += v
		}
		sums[e.Sample] = sum
		frames := c.Profile.Frames(c.Profile.Samples[e.Sample].Stack)
		for _, f := range frames {
			if f.Function == "main.parkForever" {
				perSlice[e.Slice] += e.Values[0]
				break
			}
		}
	}
	for i, s := range c.Profile.Samples {
		if sum := sums[uint32(i)]; sum != [3]int64(s.Values) {
			t.Errorf("sample %d: slices sum up to %v, want %v", i, sum, s.Values)
		}
	}
	whole := uint32(c.Profile.Duration / profile.SliceWidth)
	if whole < 2 {
		t.Fatalf("a window of %v", c.Profile.Duration)
	}
	for n := range whole - 1 { // the last one's edge is the window's
		if v := time.Duration(perSlice[n]); v < 6*profile.SliceWidth || v > 8*profile.SliceWidth {
			t.Errorf("slice %d: %v parked for ever, want 7 times %v", n, v, profile.SliceWidth)
		}
	}
}

// checkAccounting holds the states against the goroutines that were counted.
func checkAccounting(t *testing.T, c *profile.Capture) {
	t.Helper()
	a := c.Accounting
	if a == nil || a.TotalNs == 0 || a.BlockedNs == 0 || a.SyscallNs == 0 {
		t.Fatalf("accounting: %+v", a)
	}
	residual := float64(a.Residual()) / float64(a.TotalNs)
	if math.Abs(residual) > 0.02 {
		t.Errorf("accounting leaves %.2f %% of %v: %+v", 100*residual, time.Duration(a.TotalNs), a)
	}
	t.Logf("accounting of %.1f goroutine-seconds leaves %.3f %%", time.Duration(a.TotalNs).Seconds(), 100*residual)
}

// The runtime's own block profile counts the same waits, and times them from
// their park to their wake-up.
func TestAgainstBlockProfile(t *testing.T) {
	s := startTarget(t)
	r := record(t, Options{PID: s.pid, Waits: true})
	before := s.lateness()
	for _, command := range []string{"mutex 20 20ms", "channel 20 20ms", "cond 20 20ms", "rwmutex 20 20ms"} {
		s.do("%s", command)
	}
	late := s.lateness() - before
	c := stop(t, r)[profile.SourceExact]
	path := filepath.Join(t.TempDir(), "block")
	if n, _ := s.do("block %s", path); n != 0 {
		t.Fatal("the target wrote no block profile")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	count, ok1 := p.Value("contentions")
	delay, ok2 := p.Value("delay")
	if !ok1 || !ok2 {
		t.Fatalf("sample types %v", p.SampleTypes)
	}
	for _, function := range []string{"main.lockAndUnlock", "main.takeFrom", "main.waitFor", "main.(*table).read", "main.(*table).write"} {
		var n, ns int64
		for _, smp := range p.Samples {
			for _, fr := range p.Frames(smp.Stack) {
				if fr.Function == function {
					n, ns = n+smp.Values[count], ns+smp.Values[delay]
					break
				}
			}
		}
		blocked, _, waits := sum(c, "", function)
		ratio := float64(blocked) / float64(ns)
		if waits != n || n != 20 || math.Abs(float64(blocked-ns)) > 0.02*float64(ns)+float64(late) {
			t.Errorf("%s: %d waits of %d ns; the block profile has %d of %d (%.4f of it)", function, waits, blocked, n, ns, ratio)
		}
		t.Logf("%s: %d waits, %.2f %% of the block profile's delay", function, waits, 100*ratio)
	}
}

// checkDistributions holds the distributions against the sums that they belong to.
func checkDistributions(t *testing.T, c *profile.Capture) {
	t.Helper()
	if len(c.Distributions) != len(c.Profile.Samples) {
		t.Fatalf("%d distributions for %d samples", len(c.Distributions), len(c.Profile.Samples))
	}
	for _, d := range c.Distributions {
		v := c.Profile.Samples[d.Sample].Values
		if n := d.Blocked.Count(); n != v[2] {
			t.Errorf("sample %d: blocked times of %d waits, want %d", d.Sample, n, v[2])
		}
		for i, h := range []profile.Histogram{d.Blocked, d.Runnable} {
			var low, high int64
			for k, n := range h {
				if k > 0 {
					low += n << k
				}
				high += n << (k + 1)
			}
			if v[i] < low || v[i] > high {
				t.Errorf("sample %d: %d ns are not within the buckets' %d to %d", d.Sample, v[i], low, high)
			}
		}
	}
}

func TestLocks(t *testing.T) {
	for _, all := range []bool{false, true} {
		s := startTarget(t)
		r := record(t, Options{PID: s.pid, Locks: true, Waits: all})
		before := s.lateness()
		mutex, took := s.do("mutex 20 20ms")
		late := s.lateness() - before
		s.do("rwmutex 10 20ms")
		s.do("two 10 20ms")
		s.do("global 6 20ms")
		s.do("channel 10 1ms")
		s.do("queue 9")
		got := stop(t, r)
		if _, ok := got[profile.SourceExact]; ok != all {
			t.Errorf("every wait was recorded: %v, asked for: %v", ok, all)
		}
		c := got[profile.SourceLocks]
		byName := map[string]profile.Lock{}
		for _, l := range c.Locks {
			byName[l.Name] = l
		}
		l := byName["main.lockAndUnlock"]
		if l.Kind != "sync.Mutex" || l.Instances != 1 || l.Parks != mutex || l.QueueMax != 1 || l.QueueMean != 1 || l.Releases != mutex || l.Intervals != mutex-1 {
			t.Errorf("the mutex: %+v", l)
		}
		near(t, "the mutex", l.BlockedNs+l.RunnableNs, took, late)
		if len(l.Pairs) != 1 || l.Pairs[0].Waiter != "main.lockAndUnlock" || l.Pairs[0].Releaser != "main.unlock" || l.Pairs[0].Waits != mutex || l.Pairs[0].BlockedNs != l.BlockedNs {
			t.Errorf("waiters and releasers of the mutex: %+v", l.Pairs)
		}
		// Three semaphores, one lock.
		if l := byName["main.table.mu"]; l.Kind != "sync.RWMutex" || l.Instances != 1 || l.Parks != 20 {
			t.Errorf("the RWMutex: %+v", l)
		}
		// A variable of the program, waited for where another lock is as well.
		if l := byName["main.registry.shelves[2].mu"]; l.Kind != "sync.Mutex" || l.Instances != 1 || l.Parks != 6 {
			t.Errorf("the lock in a variable: %+v", l)
		}
		// Two locks that one function waits for stay apart.
		for _, name := range []string{"main.one #1", "main.one #2"} {
			if l := byName[name]; l.Parks != 10 || l.Instances != 1 {
				t.Errorf("%s: %+v", name, l)
			}
		}
		// The first found nobody before it, and the last all others.
		if l := byName["main.inTurn"]; l.Parks < 9 || l.QueueMax != 9 || l.Parks == 9 && l.QueueMean != 5 || len(l.Pairs) == 0 {
			t.Errorf("the lock with a queue: %+v", l)
		}
		var parks int64
		for _, l := range c.Locks {
			parks += l.Parks
		}
		if sums := c.Profile.Total(2); sums != parks {
			t.Errorf("the profile has %d waits, the locks %d", sums, parks)
		}
		// Locks alone are recorded without a hit at every park: three for each
		// wait, and one where a lock came free just before.
		if hits := c.Cost.ProbeHits; !all && (hits < 3*parks || hits > 5*parks) {
			t.Errorf("%d hits of probes for %d waits", hits, parks)
		}
		for _, smp := range c.Profile.Samples {
			if c.Profile.Labels(smp.Labels).Get(profile.LabelLock) == "" {
				t.Error("a sample has no lock")
			}
		}
	}
}
