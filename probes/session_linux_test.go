package probes_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes"
	"github.com/contention-toolkit/contention/probes/cgrouptest"
	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/probes/work"
	"github.com/contention-toolkit/contention/profile"
)

const (
	roleEnv   = "CONTENTION_PROBES_TEST_ROLE"
	listenEnv = "CONTENTION_PROBES_TEST_LISTEN" // address to serve pprof and a counter at
)

// The test binary is its own target.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		targetMain(role)
		return
	}
	goleak.VerifyTestMain(m)
}

// targetMain waits where its role says, and does what its input says.
func targetMain(role string) {
	block := make(chan struct{})
	wait := map[string]func(chan struct{}){"first": waitsFirst, "second": waitsSecond, "late": waitsFirst}[role]
	go wait(block)
	if addr := os.Getenv(listenEnv); addr != "" && role != "late" {
		serve(addr)
	}
	fmt.Println("ready")
	self := func() (string, []string, []string) {
		env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, roleEnv) })
		return "/proc/self/exe", os.Args, append(env, roleEnv+"=second")
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		path, args, env := self()
		switch in.Text() {
		case "serve":
			serve(os.Getenv(listenEnv))
			fmt.Println("served")
		case "spin":
			go func() {
				for {
					sink++
				}
			}()
		case "exec":
			fmt.Println(syscall.Exec(path, args, env))
		case "fork":
			cmd := exec.Command(path, args[1:]...)
			cmd.Env = env
			if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
				fmt.Println(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				fmt.Println(err)
			}
			if err := cmd.Start(); err != nil {
				fmt.Println(err)
			}
			line, _ := bufio.NewReader(out).ReadString('\n') // "" fails the test
			fmt.Print("child ", cmd.Process.Pid, " ", line)
		}
	}
}

var sink int

// serve serves pprof, and a counter that goes up with time.
func serve(addr string) {
	began := time.Now()
	runtime.SetMutexProfileFraction(1)
	http.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "work_total %d\n", time.Since(began).Milliseconds())
	})
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { fmt.Println(http.Serve(l, nil)) }()
}

//go:noinline
func waitsFirst(c chan struct{}) { <-c }

//go:noinline
func waitsSecond(c chan struct{}) { <-c }

// victim is a target under way.
type victim struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, role string, env ...string) *victim {
	t.Helper()
	v := &victim{t: t, cmd: exec.Command("/proc/self/exe")}
	v.cmd.Env = append(append(os.Environ(), env...), roleEnv+"="+role)
	v.cmd.Stderr = os.Stderr
	in, err := v.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	v.in, v.out = in, bufio.NewReader(out)
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.end)
	v.expect("ready")
	return v
}

func (v *victim) pid() int { return v.cmd.Process.Pid }

func (v *victim) say(line string) {
	v.t.Helper()
	if _, err := io.WriteString(v.in, line+"\n"); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) expect(prefix string) string {
	v.t.Helper()
	line, err := v.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, prefix) {
		v.t.Fatalf("the target says %q, %v; want %s", line, err, prefix)
	}
	return strings.TrimSpace(line)
}

// end ends the target and takes note of it.
func (v *victim) end() {
	if v.cmd.ProcessState != nil {
		return
	}
	_ = v.in.Close() // it ends at the end of its input
	_ = v.cmd.Wait() // its exit status is not ours
}

// record starts a recording of goroutines and threads.
func record(t *testing.T, change func(*probes.Options), pids ...int) (*probes.Session, string) {
	t.Helper()
	testutil.RequireBPF(t, thread.Available())
	o := probes.Options{PIDs: pids, Dir: filepath.Join(t.TempDir(), "rec"), NoDiscover: true, Sources: probes.DefaultSources()}
	if change != nil {
		change(&o)
	}
	s, err := probes.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.Stop() }) // again
	return s, o.Dir
}

// await waits until the session has n targets.
func await(t *testing.T, s *probes.Session, n int) []profile.Target {
	t.Helper()
	testutil.Eventually(t, 20*time.Second, fmt.Sprintf("%d targets", n), func() bool { return len(s.Targets()) >= n })
	return s.Targets()
}

// settle lets a target be sampled for a while: until its part is longer than that.
func settle() { time.Sleep(300 * time.Millisecond) }

// stop ends the recording and reads it.
func stop(t *testing.T, s *probes.Session, dir string) *profile.Recording {
	t.Helper()
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	rec, err := profile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// blockedIn is the time that goroutines of a target are seen blocked in a function.
func blockedIn(rec *profile.Recording, target, function string) time.Duration {
	p := rec.Profiles[profile.SourceGoroutines]
	at, ok := p.Value(profile.Blocked.Type)
	if !ok {
		return 0
	}
	var sum int64
	for _, s := range p.Samples {
		in := slices.ContainsFunc(p.Frames(s.Stack), func(f profile.Frame) bool { return strings.HasSuffix(f.Function, "."+function) })
		if in && p.Labels(s.Labels).Get(profile.LabelTarget) == target {
			sum += s.Values[at]
		}
	}
	return time.Duration(sum)
}

// Each of several processes is a target, and their samples stay apart.
func TestSeveralProcesses(t *testing.T) {
	a, b := start(t, "first"), start(t, "second")
	s, dir := record(t, nil, a.pid(), b.pid())
	settle()
	rec := stop(t, s, dir)
	ida, idb := strconv.Itoa(a.pid()), strconv.Itoa(b.pid())
	if len(rec.Meta.Targets) != 2 || rec.Meta.Target(ida) == nil || rec.Meta.Target(idb) == nil {
		t.Fatalf("targets %+v, want %s and %s", rec.Meta.Targets, ida, idb)
	}
	if blockedIn(rec, ida, "waitsFirst") == 0 || blockedIn(rec, idb, "waitsSecond") == 0 {
		t.Error("a process's own wait is missing")
	}
	if blockedIn(rec, ida, "waitsSecond") != 0 || blockedIn(rec, idb, "waitsFirst") != 0 || blockedIn(rec, "", "waitsFirst") != 0 {
		t.Error("a wait is told of another process")
	}
	if rec.Meta.Incomplete {
		t.Errorf("incomplete: %s", rec.Meta.Why)
	}
}

// One process alone has no labels of its own.
func TestOneProcess(t *testing.T) {
	v := start(t, "first")
	s, dir := record(t, nil, v.pid())
	settle()
	rec := stop(t, s, dir)
	if len(rec.Meta.Targets) != 1 || rec.Meta.Targets[0].ID != "" || blockedIn(rec, "", "waitsFirst") == 0 {
		t.Errorf("targets %+v", rec.Meta.Targets)
	}
	if why := s.Why(); why != "" {
		t.Errorf("the window ended early: %s", why)
	}
}

// A process that runs another program splits the window, without --follow too.
func TestExecSplitsTheWindow(t *testing.T) {
	v := start(t, "first")
	s, dir := record(t, nil, v.pid())
	settle()
	v.say("exec")
	v.expect("ready")
	await(t, s, 2)
	settle()
	rec := stop(t, s, dir)
	first, second := strconv.Itoa(v.pid()), strconv.Itoa(v.pid())+".2"
	a, b := rec.Meta.Target(first), rec.Meta.Target(second)
	if a == nil || b == nil || a.Ended != profile.EndedExec || b.Began != profile.BeganExec || b.Before != first {
		t.Fatalf("targets %+v", rec.Meta.Targets)
	}
	if a.Part.End.After(b.Part.Start) || a.Part.DurationNs == 0 || b.Part.DurationNs == 0 {
		t.Errorf("parts %v and %v", a.Part, b.Part)
	}
	if blockedIn(rec, first, "waitsFirst") == 0 || blockedIn(rec, second, "waitsSecond") == 0 || blockedIn(rec, first, "waitsSecond") != 0 {
		t.Error("the waits are not told of the program that waited")
	}
	if rec.Meta.Incomplete {
		t.Errorf("incomplete, though the window goes on: %s", rec.Meta.Why)
	}
	select {
	case <-s.Done():
		t.Errorf("the session ended: %s", s.Why())
	default:
	}
}

// The process that takes the place of one that ended is followed where that is
// asked for.
func TestRestart(t *testing.T) {
	v := start(t, "first")
	s, dir := record(t, func(o *probes.Options) { o.Follow = true }, v.pid())
	settle()
	v.end()
	w := start(t, "first")
	await(t, s, 2)
	settle()
	rec := stop(t, s, dir)
	a, b := rec.Meta.Target(strconv.Itoa(v.pid())), rec.Meta.Target(strconv.Itoa(w.pid()))
	if a == nil || b == nil || a.Ended != profile.EndedExit || b.Began != profile.BeganRestart || b.Before != a.ID {
		t.Fatalf("targets %+v", rec.Meta.Targets)
	}
	if blockedIn(rec, a.ID, "waitsFirst") == 0 || blockedIn(rec, b.ID, "waitsFirst") == 0 {
		t.Error("a part without its wait")
	}
	if !strings.Contains(strings.Join(rec.Meta.Warnings, "\n"), "took the place of "+a.ID) {
		t.Errorf("warnings %q do not tell of the restart", rec.Meta.Warnings)
	}
}

// A process that takes another's place is asked for its profiles and its work
// once it serves them.
func TestRestartServesLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	counter, err := work.Parse("http://"+addr+"/metrics#work_total", profile.WorkPublished)
	if err != nil {
		t.Fatal(err)
	}
	v := start(t, "first", listenEnv+"="+addr)
	s, dir := record(t, func(o *probes.Options) {
		o.Follow, o.PprofURL, o.Work = true, "http://"+addr+"/debug/pprof", []work.Counter{counter}
		o.Sources = []profile.Source{profile.SourceGoroutines, profile.SourceMutex}
	}, v.pid())
	settle()
	v.end()
	w := start(t, "late", listenEnv+"="+addr)
	await(t, s, 2)
	// The first one's profile went with it, for want of a read at its end.
	missing := func() bool {
		return slices.ContainsFunc(s.Absent(), func(a profile.Absent) bool { return strings.HasPrefix(a.Reason, "process "+strconv.Itoa(w.pid())+":") })
	}
	if !missing() {
		t.Fatalf("the second process is said to serve before it does: %+v", s.Absent())
	}
	w.say("serve")
	w.expect("served")
	testutil.Eventually(t, 10*time.Second, "the mutex profile of the second process", func() bool { return !missing() })
	settle()
	rec := stop(t, s, dir)
	if rec.Profiles[profile.SourceMutex] == nil || rec.Profiles[profile.SourceCPU] != nil {
		t.Errorf("sources %+v, want mutex and not cpu", rec.Meta.Sources)
	}
	// So did its count, which is said.
	warnings := strings.Join(rec.Meta.Warnings, "\n")
	if len(rec.Meta.Work) != 1 || rec.Meta.Work[0].Delta() <= 0 || !strings.Contains(warnings, "left out") {
		t.Errorf("work %+v, want that of the second process, and to be told of the first; warnings %s", rec.Meta.Work, warnings)
	}
	if strings.Contains(warnings, "not counted") || strings.Contains(warnings, "work counters:") {
		t.Errorf("the second one's work is counted, and warnings say %s", warnings)
	}
}

// Without --follow the session ends with its target, and what was recorded is kept.
func TestTargetEnds(t *testing.T) {
	v := start(t, "first")
	s, dir := record(t, nil, v.pid())
	settle()
	v.end()
	<-s.Done()
	if why := s.Why(); !strings.Contains(why, "target ended") {
		t.Errorf("it ended because %q", why)
	}
	rec := stop(t, s, dir)
	if !rec.Meta.Incomplete || blockedIn(rec, "", "waitsFirst") == 0 || rec.Meta.Targets[0].Ended != profile.EndedExit {
		t.Errorf("incomplete %v, targets %+v", rec.Meta.Incomplete, rec.Meta.Targets)
	}
}

func TestFork(t *testing.T) {
	for _, follow := range []bool{true, false} {
		v := start(t, "first")
		s, dir := record(t, func(o *probes.Options) { o.Follow = follow }, v.pid())
		v.say("fork")
		f := strings.Fields(v.expect("child"))
		child := f[1]
		if follow {
			await(t, s, 2)
		} else {
			// The second scan surely saw what was there at the first.
			time.Sleep(2100 * time.Millisecond)
		}
		settle()
		rec := stop(t, s, dir)
		warnings := strings.Join(rec.Meta.Warnings, "\n")
		c := rec.Meta.Target(child)
		switch {
		case follow && (c == nil || c.Began != profile.BeganFork || c.Before != strconv.Itoa(v.pid()) || blockedIn(rec, child, "waitsSecond") == 0):
			t.Errorf("targets %+v, want child %s among them", rec.Meta.Targets, child)
		case !follow && (c != nil || !strings.Contains(warnings, "not recorded") || !strings.Contains(warnings, "--follow")):
			t.Errorf("a child that is not followed: %q", warnings)
		}
		v.end()
	}
}

// A successor whose work cannot be counted makes figures per message wrong: that
// is said.
func TestRestartWithoutCounter(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	counter, err := work.Parse("http://"+addr+"/metrics#work_total", profile.WorkPublished)
	if err != nil {
		t.Fatal(err)
	}
	v := start(t, "first", listenEnv+"="+addr)
	s, dir := record(t, func(o *probes.Options) { o.Follow, o.Work = true, []work.Counter{counter} }, v.pid())
	v.end()
	w := start(t, "late", listenEnv+"="+addr)
	await(t, s, 2)
	rec := stop(t, s, dir)
	if want := fmt.Sprintf("target %d: its work is not counted", w.pid()); !strings.Contains(strings.Join(rec.Meta.Warnings, "\n"), want) {
		t.Errorf("warnings %q, want %s", rec.Meta.Warnings, want)
	}
}

// What a CPU quota takes from a target is recorded, and when.
func TestThrottling(t *testing.T) {
	v := start(t, "first")
	group, version := cgrouptest.New(t, 10*time.Millisecond, 50*time.Millisecond)
	t.Cleanup(v.end) // before the cgroup is removed
	cgrouptest.Move(t, group, v.pid())
	s, dir := record(t, nil, v.pid())
	v.say("spin")
	time.Sleep(2300 * time.Millisecond) // the window: two full seconds and a part
	rec := stop(t, s, dir)
	limits := rec.Meta.Targets[0].CPULimits
	if len(limits) == 0 {
		t.Fatal("no limit is recorded")
	}
	l := limits[0]
	var sum int64
	for _, ns := range l.PerSecond {
		sum += ns
	}
	if l.Version != version || l.QuotaNs*5 != l.PeriodNs || !strings.HasSuffix(group, l.Cgroup) {
		t.Errorf("the limit is %+v, want a fifth of a CPU in %s", l, group)
	}
	if l.Throttled < 5 || l.NanosLost == 0 || len(l.PerSecond) < 3 || sum != l.NanosLost || rec.Meta.Host.ThrottledNs != l.NanosLost {
		t.Errorf("%+v, %d ns of the host, does not add up", l, rec.Meta.Host.ThrottledNs)
	}
	if !strings.Contains(strings.Join(rec.Meta.Warnings, "\n"), "CPU quota of cgroup") {
		t.Errorf("warnings %q do not tell", rec.Meta.Warnings)
	}
}

// A recording as a stream reads as a directory does.
func TestStream(t *testing.T) {
	v := start(t, "first")
	var out bytes.Buffer
	s, _ := record(t, func(o *probes.Options) { o.Dir, o.Out = "", &out }, v.pid())
	settle()
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	rec, err := profile.OpenStream(&out, "stream")
	if err != nil {
		t.Fatal(err)
	}
	if blockedIn(rec, "", "waitsFirst") == 0 {
		t.Error("the stream holds no wait")
	}
}

// A recorder that uses more than it may ends its window, and says so.
func TestBounds(t *testing.T) {
	for name, change := range map[string]func(*probes.Options){
		"CPUs":   func(o *probes.Options) { o.MaxCPU = 1e-9 },
		"memory": func(o *probes.Options) { o.MaxMemory = 1 },
	} {
		v := start(t, "first")
		s, dir := record(t, change, v.pid())
		<-s.Done()
		rec := stop(t, s, dir)
		if warnings := strings.Join(rec.Meta.Warnings, "\n"); !strings.Contains(warnings, name) || !strings.Contains(warnings, "ended early") || !strings.Contains(s.Why(), "bound") {
			t.Errorf("%s: %q, warnings %q", name, s.Why(), warnings)
		}
		if rec.Profiles[profile.SourceGoroutines] == nil {
			t.Errorf("%s: what was recorded is lost", name)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	me := os.Getpid()
	many := make([]int, 17)
	for i := range many {
		many[i] = i + 1
	}
	for want, o := range map[string]probes.Options{
		"no process is named": {},
		"named twice":         {PIDs: []int{me, me}},
		"at most 16":          {PIDs: many},
		"one pprof URL":       {PIDs: []int{me, me + 1}, PprofURL: "http://127.0.0.1:1"},
		"not a process id":    {PIDs: []int{-4}},
		"no such process":     {PIDs: []int{1 << 30}},
	} {
		o.Dir = filepath.Join(t.TempDir(), "rec")
		if _, err := probes.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", o, err, want)
		}
		if _, err := os.Stat(o.Dir); err == nil {
			t.Errorf("%s: a recording is left", want)
		}
	}
}
