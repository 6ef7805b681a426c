package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/cgrouptest"
	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/profile"
)

// The processes of a container are those of its cgroup. A recorder that runs in
// there too says that it is held to the same limit.
func TestRecordContainer(t *testing.T) {
	testutil.RequireBPF(t, thread.Available())
	group, _ := cgrouptest.New(t, 400*time.Millisecond, 100*time.Millisecond)
	var pids []string
	for range 2 {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
		cgrouptest.Move(t, group, cmd.Process.Pid)
		pids = append(pids, strconv.Itoa(cmd.Process.Pid))
	}
	rec := func(dir string) *profile.Recording {
		t.Helper()
		r, err := profile.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	args := []string{"--source", "threads", "--duration", "200ms", "--no-discover", "-o"}
	outside := filepath.Join(t.TempDir(), "rec")
	code, _, stderr := contention(t, append([]string{"record", "--container", filepath.Base(group)}, append(args, outside)...)...)
	if code != 0 {
		t.Fatalf("status %d: %s", code, stderr)
	}
	r := rec(outside)
	for _, pid := range pids {
		if r.Meta.Target(pid) == nil {
			t.Errorf("process %s of the container is not recorded: %+v", pid, r.Meta.Targets)
		}
	}
	const inside = "runs inside the cgroup of process"
	if strings.Contains(strings.Join(r.Meta.Warnings, "\n"), inside) {
		t.Errorf("a recorder outside: %q", r.Meta.Warnings)
	}
	within := filepath.Join(t.TempDir(), "rec")
	script := `echo $$ > "$0"/cgroup.procs && exec "$@"`
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, group, os.Args[0], "record", "--pid", pids[0]}, append(args, within)...)...)
	cmd.Env = append(cmd.Environ(), asCommand+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if w := rec(within).Meta.Warnings; !strings.Contains(strings.Join(w, "\n"), inside) {
		t.Errorf("a recorder inside: %q", w)
	}
}
