//go:build linux && amd64

package exact

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

// planted counts the probes that are in a process's code: where a probe is, the
// kernel has put a breakpoint in the place of the push.
func planted(t testing.TB, pid int) int {
	t.Helper()
	p, err := symbol.OpenProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	points, err := findPoints(p, []string{funcPark, funcReady, funcExecute, funcAcquire, funcRelease})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for name, at := range points {
		var b [1]byte
		if err := readOne(pid, at.function.Addr+at.at, b[:]); err != nil {
			t.Fatal(err)
		}
		switch b[0] {
		case 0xcc:
			n++
		case 0x55:
		default:
			t.Fatalf("%s: byte %#x", name, b[0])
		}
	}
	return n
}

func openFiles(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// Probes come and go while the target works; it loses nothing, and nothing stays.
func TestAttachAndDetach(t *testing.T) {
	times := 50
	if testing.Short() {
		times = 5
	}
	s := startTarget(t)
	record(t, Options{PID: s.pid, Waits: true, Locks: true}).mustStop(t) // what is opened once
	before := openFiles(t)
	s.do("flow")
	for i := range times {
		r := record(t, Options{PID: s.pid, Waits: true, Locks: true, Budget: 1 << 30})
		if n := planted(t, s.pid); n != 5 {
			t.Fatalf("%d probes are in the target, want 5", n)
		}
		c := stop(t, r)[profile.SourceExact]
		if n := planted(t, s.pid); n != 0 {
			t.Fatalf("round %d: %d probes stay in the target", i, n)
		}
		if c.Cost.ProbeHits == 0 {
			t.Errorf("round %d: no probe was hit", i)
		}
	}
	n, _ := s.do("ebb")
	if n <= 0 {
		t.Error("a message was lost, came twice or out of order")
	}
	t.Logf("%d rounds, %d messages", times, n)
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were", after, before)
	}
}

func (r *Recorder) mustStop(t testing.TB) {
	t.Helper()
	if _, err := r.Stop(); err != nil {
		t.Fatal(err)
	}
}

const killedEnv = "CONTENTION_TEST_EXACT_RECORDER_OF"

// recordForever is the recorder that TestKilledRecorder kills.
func recordForever(pid string) {
	n, _ := strconv.Atoi(pid)
	if _, err := Start(context.Background(), Options{PID: n, Waits: true, Locks: true}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("recording")
	time.Sleep(time.Minute)
	os.Exit(1)
}

func TestKilledRecorder(t *testing.T) {
	s := startTarget(t)
	record(t, Options{PID: s.pid, Waits: true}).mustStop(t) // or skip
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedEnv+"="+strconv.Itoa(s.pid))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	if string(line[:n]) != "recording\n" {
		t.Fatalf("the recorder said %q, %v", line[:n], err)
	}
	if n := planted(t, s.pid); n != 5 {
		t.Errorf("%d probes are in the target, want 5", n)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	testutil.Eventually(t, 10*time.Second, "the killed recorder's probes are gone", func() bool { return planted(t, s.pid) == 0 })
	if n, _ := s.do("load 20000"); n != 20000 {
		t.Errorf("%d messages arrived", n)
	}
}

// Above the budget the probes go, and what was seen until then is kept.
func TestStepsBack(t *testing.T) {
	s := startTarget(t)
	told := make(chan string, 1)
	r := record(t, Options{PID: s.pid, Waits: true, Budget: 1000, Notify: func(why string) { told <- why }})
	s.begin("storm 3s")
	testutil.Eventually(t, 20*time.Second, "the probes are detached", func() bool { return planted(t, s.pid) == 0 })
	select {
	case <-r.over:
		t.Error("the recorder has ended by itself")
	default:
	}
	why := <-told // while it records
	s.end()
	c := stop(t, r)[profile.SourceExact]
	if c.Settings["stepped_back"] != why || why == "" || len(c.Warnings) != 1 || c.Warnings[0] != c.Settings["stepped_back"] {
		t.Errorf("it does not say that it stepped back: %v, %v", c.Settings, c.Warnings)
	}
	if c.Incomplete {
		t.Error("the capture is called incomplete: its window is what it is")
	}
	blocked, _, waits := sum(c, "chan receive", "main.storm")
	if waits == 0 || blocked > int64(c.Profile.Duration) {
		t.Errorf("%d waits of %d ns in a window of %v", waits, blocked, c.Profile.Duration)
	}
	if c.Cost.ProbeHits == 0 || c.Cost.ProbeNs == 0 {
		t.Errorf("cost: %+v", c.Cost)
	}
}

// A target that ends ends the window.
func TestTargetEnds(t *testing.T) {
	s := startTarget(t)
	r := record(t, Options{PID: s.pid, Waits: true})
	s.do("channel 5 1ms")
	s.in.(interface{ Close() error }).Close()
	select {
	case <-r.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the end of the target was not seen")
	}
	c := stop(t, r)[profile.SourceExact]
	if _, _, n := sum(c, "chan receive", "main.takeFrom"); n != 5 || !c.Incomplete {
		t.Errorf("%d waits, incomplete: %v", n, c.Incomplete)
	}
}

// A target in a PID namespace of its own has another number there.
func TestPIDNamespace(t *testing.T) {
	record(t, Options{PID: startTarget(t).pid, Waits: true}).mustStop(t) // or skip
	cmd := exec.Command(targetPath(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	s := startSubject(t, cmd)
	if !strings.HasSuffix(s.out.Text(), " 1") {
		t.Fatalf("the target says %q, want process 1", s.out.Text())
	}
	r := record(t, Options{PID: s.pid, Waits: true})
	s.do("channel 5 1ms")
	if _, _, n := sum(stop(t, r)[profile.SourceExact], "chan receive", "main.takeFrom"); n != 5 {
		t.Errorf("%d waits, want 5", n)
	}
}
