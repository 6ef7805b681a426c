//go:build linux && amd64

package exact

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/profile"
)

func TestMain(m *testing.M) {
	if pid := os.Getenv(killedEnv); pid != "" {
		recordForever(pid)
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.RemoveAll(built.dir)
	os.Exit(code)
}

// built is the target, built once.
var built struct {
	sync.Once
	dir, path string
	err       error
}

func targetPath(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "exact"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "target")
		out, err := exec.Command("go", "build", "-o", built.path, "./testdata/target").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("build the target: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// subject is a target that runs, and answers commands.
type subject struct {
	pid int
	t   testing.TB
	in  io.Writer
	out *bufio.Scanner
}

func startTarget(t testing.TB) *subject { return startAt(t, targetPath(t)) }

func startAt(t testing.TB, path string) *subject {
	t.Helper()
	return startSubject(t, exec.Command(path))
}

func startSubject(t testing.TB, cmd *exec.Cmd) *subject {
	t.Helper()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // it ends
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &subject{pid: cmd.Process.Pid, t: t, in: in, out: bufio.NewScanner(out)}
	if !s.out.Scan() || !strings.HasPrefix(s.out.Text(), "ready") {
		t.Fatalf("the target said %q", s.out.Text())
	}
	return s
}

// begin gives a command, whose answer is read by end.
func (s *subject) begin(format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *subject) end() (waits, ns int64) {
	s.t.Helper()
	if !s.out.Scan() {
		s.t.Fatalf("the target ended: %v", s.out.Err())
	}
	if _, err := fmt.Sscanf(s.out.Text(), "done %d %d", &waits, &ns); err != nil {
		s.t.Fatalf("the target said %q", s.out.Text())
	}
	return waits, ns
}

func (s *subject) do(format string, args ...any) (waits, ns int64) {
	s.t.Helper()
	s.begin(format, args...)
	return s.end()
}

func startCommand(t testing.TB, name string, args ...string) int {
	t.Helper()
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// record starts recording, or skips the test where this user may not.
func record(t testing.TB, o Options) *Recorder {
	t.Helper()
	r, err := Start(context.Background(), o)
	if err != nil && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) {
		testutil.RequireBPF(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func stop(t testing.TB, r *Recorder) map[profile.Source]*profile.Capture {
	t.Helper()
	captures, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	out := map[profile.Source]*profile.Capture{}
	for _, c := range captures {
		if err := c.Profile.CheckValid(); err != nil {
			t.Fatal(err)
		}
		out[c.Source] = c
	}
	return out
}

// sum adds up the samples of a profile that have a reason, "" for any, and a
// function on their stack.
func sum(c *profile.Capture, reason, function string) (blocked, runnable, waits int64) {
	for _, s := range c.Profile.Samples {
		if reason != "" && c.Profile.Labels(s.Labels).Get(profile.LabelReason) != reason {
			continue
		}
		for _, f := range c.Profile.Frames(s.Stack) {
			if f.Function == function {
				blocked, runnable, waits = blocked+s.Values[0], runnable+s.Values[1], waits+s.Values[2]
				break
			}
		}
	}
	return blocked, runnable, waits
}

// lateness is how long the target's threads were ready to run and had no CPU: a
// goroutine that is kept from running by that is not parked, and a waiter that
// measures itself counts it all the same.
func (s *subject) lateness() int64 {
	s.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.pid))
	if err != nil || len(files) == 0 {
		s.t.Fatalf("no thread of the target: %v", err)
	}
	var all int64
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		var ran, waited int64
		if _, err := fmt.Sscan(string(data), &ran, &waited); err != nil {
			s.t.Fatalf("%s: %v", name, err)
		}
		all += waited
	}
	return all
}

// near holds the time that was recorded against what the waiter measured: less
// by 2 %, and by what the target's threads were late, at most.
func near(t testing.TB, what string, recorded, measured, late int64) {
	t.Helper()
	if recorded > measured || float64(measured-recorded) > 0.02*float64(measured)+float64(late) {
		t.Errorf("%s: off-CPU for %d ns, of %d that the waiter measured; threads were late by %d", what, recorded, measured, late)
	}
}
