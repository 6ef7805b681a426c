//go:build linux && amd64

package goroutine

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/profile"
)

// copyOf puts a copy of an executable into a folder of its own.
func copyOf(t *testing.T, exe string) string {
	t.Helper()
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

var strippedKit = kit{flags: []string{"-ldflags=-s -w", "-buildmode=pie"}}

// An update replaces the executable of a broker that runs on.
func TestReplacedOnDisk(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(path string) error
	}{
		{"deleted", os.Remove},
		{"replaced", func(path string) error {
			if err := os.WriteFile(path+".new", []byte("#!/bin/false\n"), 0o755); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := copyOf(t, strippedKit.build(t))
			g := start(t, path, "waits")
			if err := c.do(path); err != nil {
				t.Fatal(err)
			}
			checkWaits(t, g, wants, "table")
		})
	}
}

// In a container, the executable has no path that the recorder could open.
func TestOtherMountNamespace(t *testing.T) {
	if os.Getuid() != 0 {
		testutil.RequireBPF(t, errors.New("needs root, for a mount namespace"))
	}
	exe := strippedKit.build(t)
	dir := t.TempDir()
	script := `mount -t tmpfs none "$1" && cp "$2" "$1/hidden" && exec "$1/hidden" waits`
	cmd := exec.Command("unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", dir, exe)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &target{t, cmd.Process.Pid, cmd, in}
	t.Cleanup(g.end)
	said := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(out, said); err != nil {
		t.Fatalf("the target says %q: %v", said, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "hidden")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the executable can be seen from here: %v", err)
	}
	checkWaits(t, g, wants, "table")
}

// Debian's nats-server: Go 1.19, stripped, dynamically linked, no DWARF.
func TestDebianNATS(t *testing.T) {
	exe := "/usr/sbin/nats-server"
	if _, err := os.Stat(exe); err != nil {
		t.Skip("needs Debian's package nats-server")
	}
	dir := t.TempDir()
	cmd := exec.Command(exe, "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var c *profile.Capture
	testutil.Eventually(t, 30*time.Second, "the server accepts connections", func() bool {
		c = sample(t, 200*time.Millisecond, Options{PID: cmd.Process.Pid})
		return find(c, "IO wait", "net.(*TCPListener).Accept;") != nil
	})
	s := find(c, "IO wait", "net.(*TCPListener).Accept;")
	if got := text(c.Profile.Frames(s.Stack)); !strings.Contains(got, "server.(*Server).acceptConnections;net.(*TCPListener).Accept;net.(*TCPListener).accept;net.(*netFD).accept;") {
		t.Errorf("the accepting goroutine stands at %s", got)
	}
	if got := c.Profile.Labels(s.Labels).Get(profile.LabelCreator); !strings.Contains(got, "server.(*Server).AcceptLoop") {
		t.Errorf("it was created by %s", got)
	}
	if c.Settings["go_version"] != "go1.19.8" || c.Settings["layout_from"] != "table" {
		t.Errorf("settings %v", c.Settings)
	}
	for _, k := range []string{"unsymbolised_frames", "truncated_stacks", "no_stack", "unreadable"} {
		if c.Loss[k] != 0 {
			t.Errorf("%s: %d", k, c.Loss[k])
		}
	}
}
