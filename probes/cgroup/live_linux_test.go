package cgroup_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/cgroup"
	"github.com/contention-toolkit/contention/probes/cgrouptest"
)

// A process that spins under a quota of a tenth of a CPU is seen to be throttled.
func TestLimitIsMeasured(t *testing.T) {
	dir, version := cgrouptest.New(t, 2*time.Millisecond, 20*time.Millisecond)
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
	cgrouptest.Move(t, dir, cmd.Process.Pid)
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	limits, err := cgroup.Limits("", pid)
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
