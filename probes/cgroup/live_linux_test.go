package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
)

// A process that spins under a quota of a tenth of a CPU is seen to be throttled.
func TestLimitIsMeasured(t *testing.T) {
	dir, version := ownGroup(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read go; while :; do :; done")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	pid := strconv.Itoa(cmd.Process.Pid)
	put(t, filepath.Join(dir, "cgroup.procs"), pid)
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	limits, err := Limits("", pid)
	if err != nil || len(limits) == 0 {
		t.Fatalf("limits %+v, %v", limits, err)
	}
	l := limits[0]
	if l.CPUs() != 0.1 || l.Version != version || filepath.Base(l.Path) != filepath.Base(dir) {
		t.Fatalf("%+v is not the quota of %s", l, dir)
	}
	testutil.Eventually(t, time.Minute, "throttling", func() bool {
		s, err := l.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return s.Throttled >= 3 && s.Lost >= l.Period && s.Periods >= s.Throttled
	})
}

// ownGroup makes a cgroup with a quota of 0.1 CPUs, which the test removes.
func ownGroup(t *testing.T) (dir string, version int) {
	t.Helper()
	mounts, err := Mounts("")
	if err != nil {
		t.Fatal(err)
	}
	why := "no cgroup hierarchy with the CPU controller is mounted"
	for _, m := range mounts {
		if !m.Has("cpu") && !m.Has("") {
			continue
		}
		dir := filepath.Join(m.Point, "contention-test-"+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			why = err.Error()
			continue
		}
		t.Cleanup(func() {
			// The killed process leaves it a little later.
			testutil.Eventually(t, time.Minute, "an empty cgroup", func() bool { return os.Remove(dir) == nil })
		})
		if m.Version == 1 {
			put(t, filepath.Join(dir, "cpu.cfs_period_us"), "20000")
			put(t, filepath.Join(dir, "cpu.cfs_quota_us"), "2000")
			return dir, 1
		}
		if _, err := os.Stat(filepath.Join(dir, "cpu.max")); err == nil {
			put(t, filepath.Join(dir, "cpu.max"), "2000 20000")
			return dir, 2
		}
	}
	testutil.RequireBPF(t, errors.New(why))
	return "", 0
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
