//go:build linux && (amd64 || arm64)

package thread

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/cgroup"
	"github.com/contention-toolkit/contention/profile"
)

// cutFrames splits a stack of wakers.
func cutFrames(stack string) (waker, waiter string, ok bool) {
	return strings.Cut(stack, ";"+FrameBetween+";")
}

// Ten thousand threads that come and go are all there, and forgotten.
func TestThreadStorm(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "storm")
	r := start(t, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
	tg.tell(t)
	var threads int64
	if _, err := fmt.Sscan(tg.said(t), &threads); err != nil {
		t.Fatal(err)
	}
	c := finish(t, r)[0]
	started := sum(c.Profile, valueWaits, in(FrameNewThread))
	slept := sum(c.Profile, valueWaits, in("main.stormThread"))
	// Go's runtime starts some for itself.
	if lost := c.Loss["task_map_full"] + c.Loss["agg_map_full"]; lost != 0 || started < threads || started > threads+threads/50+20 {
		t.Errorf("%d threads began, %d lost; the program started %d", started, lost, threads)
	}
	if slept < threads*99/100 {
		t.Errorf("%d sleeps of %d threads", slept, threads)
	}
	if c.Accounting.UnknownNs > c.Accounting.TotalNs/1000 {
		t.Errorf("unknown time: %+v", c.Accounting)
	}
	if c.Loss["stale_threads"] != 0 || c.Loss["ends_map_full"] != 0 {
		t.Errorf("loss %v", c.Loss)
	}
}

// A thread that is not the first and runs another program is still one thread.
func TestExec(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "again")
	r := start(t, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
	tg.tell(t)
	if line := tg.said(t); line != "begun\n" {
		t.Fatalf("the program said %q after exec", line)
	}
	before := len(tasksOf(t, tg.pid))
	time.Sleep(300 * time.Millisecond) // part of the window, after the exec
	c := finish(t, r)[0]
	if sum(c.Profile, valueWaits, in("main.sleep20ms")) < 3 {
		t.Errorf("the sleep after exec is missing:\n%v", c.Profile)
	}
	first := 0
	for _, b := range c.Busiest {
		if b.ID == int64(tg.pid) {
			first++
		}
	}
	// The first thread ended at the exec, and the one that ran it took its id.
	if first > 2 {
		t.Errorf("thread %d is there %d times: %+v", tg.pid, first, c.Busiest)
	}
	if now := len(tasksOf(t, tg.pid)); before > 0 && c.Accounting.TotalNs > int64(c.Profile.Duration)*int64(now+before+8) {
		t.Errorf("%d threads have %v in a window of %v", now, time.Duration(c.Accounting.TotalNs), c.Profile.Duration)
	}
	if c.Loss["stale_threads"] != 0 || c.Loss["missed_switch_ins"]+c.Loss["missed_switch_outs"] > 0 {
		t.Errorf("loss %v", c.Loss)
	}
}

func tasksOf(t *testing.T, pid int) []os.DirEntry {
	t.Helper()
	d, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A process that the target starts is not the target.
func TestFork(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "fork")
	c := record(t, 400*time.Millisecond, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
	if n := sum(c.Profile, valueWaits, in("main.sleep20ms")); n != 0 {
		t.Errorf("%d waits of the child", n)
	}
	if sum(c.Profile, valueWaits, in("main.sleepNamed")) < 20 {
		t.Errorf("the target's own waits are missing:\n%v", c.Profile)
	}
}

// A process that is given the id of a target that has ended is not the target.
func TestProcessIDReuse(t *testing.T) {
	testutil.RequireBPF(t, Available())
	stays, ends := startTarget(t, "idle"), startTarget(t, "sleep")
	r := start(t, Options{PIDs: []int{stays.pid, ends.pid}, Symbols: targetSymbols(t)})
	ends.stop()
	again := false
	for range 200 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(ends.pid-1)), 0); err != nil {
			t.Skipf("this kernel lets nobody choose process ids: %v", err)
		}
		tg := startTarget(t, "fork")
		if again = tg.pid == ends.pid; again {
			break
		}
		tg.stop()
	}
	if !again {
		t.Fatalf("process id %d was not given out again", ends.pid)
	}
	time.Sleep(200 * time.Millisecond) // part of the window
	c := finish(t, r)[0]
	if n := sum(c.Profile, valueWaits, in("main.sleepNamed")); n != 0 {
		t.Errorf("%d waits of another process with the id of one that ended", n)
	}
}

// Threads are told apart by id and by name, also by one that they take.
func TestThreadFilter(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "named")
	settleNamed(t, tg.pid)
	named := record(t, 400*time.Millisecond, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t), Names: []string{"named"}})
	byID := record(t, 400*time.Millisecond, Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t), TIDs: []int{settleNamed(t, tg.pid)}})
	for how, c := range map[string]*profile.Capture{"name": named, "id": byID} {
		if a := c.Accounting; a.TotalNs != int64(c.Profile.Duration) {
			t.Errorf("by %s: %v of threads in a window of %v, want one thread", how, time.Duration(a.TotalNs), c.Profile.Duration)
		}
		if n := sum(c.Profile, valueWaits, in("main.sleepNamed")); n < 20 {
			t.Errorf("by %s: %d waits", how, n)
		}
	}
	none := record(t, 200*time.Millisecond, Options{PIDs: []int{tg.pid}, Names: []string{"nobody"}})
	if none.Accounting.TotalNs != 0 || len(none.Profile.Samples) != 0 {
		t.Errorf("a name that no thread has: %+v", none.Accounting)
	}
}

// settleNamed returns the id of the thread that is called named.
func settleNamed(t *testing.T, pid int) int {
	t.Helper()
	id := 0
	testutil.Eventually(t, 10*time.Second, "a thread is called named", func() bool {
		for _, e := range tasksOf(t, pid) {
			if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/comm", pid, e.Name())); err == nil && string(data) == "named\n" {
				id, _ = strconv.Atoi(e.Name())
			}
		}
		return id != 0
	})
	return id
}

// Threads are told apart by their cgroup, groups within it included; without
// processes, all of the cgroup are recorded, those that come to it later too.
func TestCgroupFilter(t *testing.T) {
	testutil.RequireBPF(t, Available())
	dir := makeCgroup(t)
	inside, outside := startTarget(t, "sleep"), startTarget(t, "fork")
	later := startTarget(t, "known")
	enter(t, dir, inside.pid)
	c := record(t, 400*time.Millisecond, Options{PIDs: []int{inside.pid, outside.pid}, Cgroup: filepath.Dir(dir), Symbols: targetSymbols(t)})
	if sum(c.Profile, valueWaits, in("main.sleep20ms")) < 3 || sum(c.Profile, valueWaits, in("main.sleepNamed")) != 0 {
		t.Errorf("filtered by cgroup:\n%v", c.Profile)
	}
	r := start(t, Options{Cgroup: filepath.Dir(dir), Symbols: targetSymbols(t)})
	enter(t, dir, later.pid)
	later.tell(t)
	later.said(t)
	c = finish(t, r)[0]
	for function, want := range map[string]int64{"main.sleep20ms": 3, "main.sleepKnown": 20} {
		if n := sum(c.Profile, valueWaits, in(function)); n < want {
			t.Errorf("all of the cgroup: %d waits in %s, want %d or more", n, function, want)
		}
	}
	if n := sum(c.Profile, valueWaits, in("main.sleepNamed")); n != 0 {
		t.Errorf("%d waits of a process outside", n)
	}
	if _, err := Start(context.Background(), Options{Cgroup: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no directory of a cgroup") {
		t.Errorf("a directory that is no cgroup gives %v", err)
	}
}

// makeCgroup makes a group within a group, of version 2 or of the CPU controller.
func makeCgroup(t *testing.T) string {
	t.Helper()
	mounts, err := cgroup.Mounts("")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if !m.Has("cpu") && !m.Has("") {
			continue
		}
		outer := filepath.Join(m.Point, fmt.Sprintf("contention-test-%d", os.Getpid()))
		inner := filepath.Join(outer, "inner")
		if err := os.MkdirAll(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			testutil.Eventually(t, 10*time.Second, "the cgroups are gone", func() bool {
				_ = os.Remove(inner)
				_ = os.Remove(outer)
				_, err := os.Stat(outer)
				return os.IsNotExist(err)
			})
		})
		return inner
	}
	t.Fatal("no hierarchy of cgroups is mounted")
	return ""
}

func enter(t *testing.T, dir string, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
}

// Waits kept in proportion to their length give the sums that all of them have.
func TestAdmissionLive(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "named") // waits of 5 and of 20 ms
	const bound = 100 * time.Millisecond
	opt := Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t), Names: []string{"named"}}
	all := start(t, opt)
	opt.AdmitAll = bound
	some := start(t, opt)
	time.Sleep(5 * time.Second) // the window: enough waits to tell a bias
	kept, err := some.Stop()
	if err != nil {
		t.Fatal(err)
	}
	want := finish(t, all)[0]
	got, truth := sum(kept[0].Profile, valueBlocked, in("main.sleepNamed"))+sum(kept[0].Profile, valueRunnable, in("main.sleepNamed")),
		sum(want.Profile, valueBlocked, in("main.sleepNamed"))+sum(want.Profile, valueRunnable, in("main.sleepNamed"))
	var n int64
	fmt.Sscan(kept[0].Settings["short_waits_kept"], &n)
	t.Logf("%v from %d waits kept and %d left out, all hold %v: %v", time.Duration(got), n, kept[0].Loss["left_out"], time.Duration(truth), kept[0].Settings["admission"])
	// A thousand waits with a probability of 1/20: 5 standard deviations.
	if d := got - truth; n == 0 || kept[0].Loss["left_out"] == 0 || float64(max(d, -d)) > 5*float64(bound)*math.Sqrt(float64(n)) {
		t.Errorf("%v, all waits hold %v", time.Duration(got), time.Duration(truth))
	}
}

var attaches = flag.Int("attaches", 20, "how often to attach and detach")

// Attaching and detaching again and again under load leaves no descriptor, map,
// program or link. On demand: -run TestAttachDetach -attaches 1000 -timeout 30m.
func TestAttachDetach(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "pingpong")
	before := descriptors(t)
	first, last := ids{}, ids{}
	for i := range *attaches {
		r, err := Start(context.Background(), Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t), OnCPU: 99, Wakers: true, MaxStacks: 256, MaxWaits: 256, MaxThreads: 256})
		if err != nil {
			t.Fatal(err)
		}
		last = idsOf(t, r.session)
		if i == 0 {
			first = last
		}
		if _, err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		if after := descriptors(t); after > before {
			t.Fatalf("%d descriptors open after %d times, were %d", after, i+1, before)
		}
	}
	for _, i := range []ids{first, last} {
		// The kernel lets go of them a grace period after the last descriptor.
		testutil.Eventually(t, 20*time.Second, "programs, maps and links are gone", func() bool { return i.gone(t) })
	}
}

// ids are the kernel's numbers of what a session has.
type ids struct {
	program ebpf.ProgramID
	m       ebpf.MapID
	link    link.ID
}

func idsOf(t *testing.T, s *session) ids {
	t.Helper()
	var out ids
	if info, err := s.objs.OffcpuSwitch.Info(); err == nil {
		out.program, _ = info.ID()
	}
	if info, err := s.objs.Waits.Info(); err == nil {
		out.m, _ = info.ID()
	}
	if info, err := s.links[0].Info(); err == nil {
		out.link = info.ID
	}
	if out.program == 0 || out.m == 0 || out.link == 0 {
		t.Fatalf("a session's ids are %+v", out)
	}
	return out
}

func (i ids) gone(t *testing.T) bool {
	t.Helper()
	p, errP := ebpf.NewProgramFromID(i.program)
	if errP == nil {
		p.Close()
	}
	m, errM := ebpf.NewMapFromID(i.m)
	if errM == nil {
		m.Close()
	}
	l, errL := link.NewFromID(i.link)
	if errL == nil {
		l.Close()
	}
	return errP != nil && errM != nil && errL != nil
}
