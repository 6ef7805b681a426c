//go:build linux && amd64

package goroutine

import (
	"context"
	"errors"
	"fmt"
	"github.com/contention-toolkit/contention/internal/testutil"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// helperEnv makes the test binary a helper: it tries to sample the process
// named, and prints the error.
const helperEnv = "CONTENTION_TEST_SAMPLE"

func helper(pid string) {
	var o Options
	if _, err := fmt.Sscan(pid, &o.PID); err != nil {
		fmt.Println(err)
		return
	}
	s, err := Start(context.Background(), o)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = s.Stop()
	fmt.Println("sampled", err)
}

// Another user's process is refused, with what is missing.
func TestWithoutPrivileges(t *testing.T) {
	if os.Getuid() != 0 {
		testutil.RequireBPF(t, errors.New("needs root, to become another user"))
	}
	g := start(t, build(t), "waits")
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	// The other user may not enter the folder of the test's own binary.
	dir, err := os.MkdirTemp("", "goroutine")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := dir + "/helper"
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, exe, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", helperEnv, g.pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line := strings.TrimSpace(string(out))
	for _, want := range []string{fmt.Sprint(g.pid), "permission denied", "CAP_SYS_PTRACE"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q; want %q", line, want)
		}
	}
	if strings.Contains(line, "\n") {
		t.Errorf("more than one line: %q", line)
	}
}

// What the kernel answers becomes what the user has to do.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{syscall.ESRCH, "there is no process 7"},
		{syscall.EPERM, "CAP_SYS_PTRACE"},
		{syscall.ENOSYS, "seccomp"},
		{syscall.EFAULT, "bad address"},
	} {
		if got := explain(7, c.err); !strings.Contains(got.Error(), c.want) {
			t.Errorf("%v: %v; want %q", c.err, got, c.want)
		}
	}
}
