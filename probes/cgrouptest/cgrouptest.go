// Package cgrouptest makes cgroups with a CPU limit for tests.
package cgrouptest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/cgroup"
)

var made atomic.Int64

// New makes a cgroup that may use that much CPU time per period, and removes it
// when the test ends; its processes must have ended by then. It returns its
// directory and the version of cgroups. Without privileges the test is skipped.
func New(t testing.TB, quota, period time.Duration) (dir string, version int) {
	t.Helper()
	mounts, err := cgroup.Mounts("")
	if err != nil {
		t.Fatal(err)
	}
	err = errors.New("no cgroup hierarchy with the CPU controller is mounted")
	for _, m := range mounts {
		if !m.Has("cpu") && !m.Has("") {
			continue
		}
		dir := filepath.Join(m.Point, fmt.Sprintf("contention-test-%d-%d", os.Getpid(), made.Add(1)))
		if failed := os.Mkdir(dir, 0o755); failed != nil {
			err = failed
			continue
		}
		t.Cleanup(func() {
			// A killed process leaves it a little later.
			testutil.Eventually(t, time.Minute, "an empty cgroup", func() bool { return os.Remove(dir) == nil })
		})
		if m.Version == 1 {
			put(t, filepath.Join(dir, "cpu.cfs_period_us"), strconv.FormatInt(period.Microseconds(), 10))
			put(t, filepath.Join(dir, "cpu.cfs_quota_us"), strconv.FormatInt(quota.Microseconds(), 10))
			return dir, 1
		}
		if _, missing := os.Stat(filepath.Join(dir, "cpu.max")); missing == nil {
			put(t, filepath.Join(dir, "cpu.max"), fmt.Sprintf("%d %d", quota.Microseconds(), period.Microseconds()))
			return dir, 2
		}
	}
	testutil.RequireBPF(t, err)
	return "", 0
}

// Move puts a process into the cgroup.
func Move(t testing.TB, dir string, pid int) {
	t.Helper()
	put(t, filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
}

func put(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
