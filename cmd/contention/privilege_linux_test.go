package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/privilege"
	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/profile"
)

const nobody = 65534

// A user who is not root, with the binary's capabilities as the documented setcap
// line gives them and no more, records every source of another user's process.
func TestLeastPrivilege(t *testing.T) {
	testutil.RequireBPF(t, thread.Available())
	if os.Geteuid() != 0 {
		testutil.RequireBPF(t, errors.New("only root can give capabilities to a file"))
	}
	_, ready, _ := brokerProcess(t, "--mutex-profile-fraction", "1", "--block-profile-rate", "1000")
	dir := t.TempDir()
	// The directories that tests get are their user's own.
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary, out := filepath.Join(dir, "contention"), filepath.Join(dir, "out")
	copyFile(t, "/proc/self/exe", binary)
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(out, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	asNobody := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Dir = out
		cmd.Env = append(os.Environ(), asCommand+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	record := []string{"record", "--pid", strconv.Itoa(ready.PID), "--exact", "--locks", "--duration", "1s", "-o", "rec", "--pprof", ready.Admin + "/debug/pprof"}
	if text, err := asNobody(record...); err != nil || !strings.Contains(text, "not recorded: threads") || !strings.Contains(text, privilege.Setcap) {
		t.Fatalf("without capabilities: %v\n%s", err, text)
	}
	_, caps, _ := strings.Cut(privilege.Setcap, "setcap ")
	caps, _, _ = strings.Cut(caps, " ")
	rec := recordWith(t, caps, binary, out, asNobody, record)
	for _, s := range []profile.Source{profile.SourceGoroutines, profile.SourceThreads, profile.SourceMutex, profile.SourceBlock} {
		if rec.Profiles[s] == nil {
			t.Errorf("%s: %s is not recorded", caps, s)
		}
	}
	// Since 6.16, and in stable releases from then on, the kernel wants more for
	// uprobes through perf events.
	for _, a := range rec.Meta.Absent {
		if !strings.Contains(a.Reason, "cap_sys_admin") {
			t.Errorf("%s: absent %+v, for another reason than CAP_SYS_ADMIN", caps, a)
		}
	}
	if text, err := asNobody("doctor", "--pid", strconv.Itoa(ready.PID)); err != nil {
		t.Errorf("doctor: %v\n%s", err, text)
	}
	if rec := recordWith(t, "cap_sys_admin,"+caps, binary, out, asNobody, record); len(rec.Meta.Absent) != 0 {
		t.Errorf("with CAP_SYS_ADMIN too: absent %+v", rec.Meta.Absent)
	}
}

// recordWith records after it has given the binary capabilities.
func recordWith(t *testing.T, caps, binary, out string, run func(...string) (string, error), args []string) *profile.Recording {
	t.Helper()
	if text, err := exec.CommandContext(t.Context(), "setcap", caps, binary).CombinedOutput(); err != nil {
		t.Fatalf("setcap %s (Debian package libcap2-bin): %v: %s", caps, err, text)
	}
	if err := os.RemoveAll(filepath.Join(out, "rec")); err != nil {
		t.Fatal(err)
	}
	text, err := run(args...)
	if err != nil {
		t.Fatalf("with %s: %v\n%s", caps, err, text)
	}
	rec, err := profile.Open(filepath.Join(out, "rec"))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err == nil {
		_, err = io.Copy(out, in)
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		t.Fatal(fmt.Errorf("copy %s: %w", from, err))
	}
}
