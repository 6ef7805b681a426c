//go:build linux

// Command init is the first and only program of a test kernel: it mounts what
// tests read, runs one command, says on the console how that ended, and turns
// the machine off. What to run is in /config.json, so that nothing has to be
// quoted for the kernel's command line.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/kerneltest/guest"
)

func main() {
	code := 255
	if err := prepare(); err != nil {
		fmt.Println("init:", err)
	} else if code, err = run(); err != nil {
		fmt.Println("init:", err)
	}
	fmt.Printf("\n%s%d\n", guest.LastLine, code)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // nothing is left to do where it fails
}

// prepare mounts the file systems and takes the console. Those that an old
// kernel lacks are left out: the tests say what they miss.
func prepare() error {
	for _, m := range []struct {
		path, kind string
		needed     bool
	}{
		{"/proc", "proc", true}, {"/sys", "sysfs", true}, {"/dev", "devtmpfs", true}, {"/tmp", "tmpfs", true},
		{"/sys/fs/bpf", "bpf", false}, {"/sys/kernel/tracing", "tracefs", false},
		{"/sys/kernel/debug", "debugfs", false}, {"/sys/kernel/security", "securityfs", false}, {"/sys/fs/cgroup", "cgroup2", false},
	} {
		_ = os.MkdirAll(m.path, 0o755) // mounting says what is wrong
		if err := unix.Mount(m.kind, m.path, m.kind, 0, ""); err != nil && m.needed {
			return fmt.Errorf("mount %s: %w", m.path, err)
		}
	}
	console, err := os.OpenFile("/dev/console", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(int(console.Fd()), fd, 0); err != nil {
			return fmt.Errorf("dup3: %w", err)
		}
	}
	return nil
}

func run() (int, error) {
	data, err := os.ReadFile("/config.json")
	if err != nil {
		return 255, err
	}
	var c guest.Config
	if err := json.Unmarshal(data, &c); err != nil {
		return 255, fmt.Errorf("/config.json: %w", err)
	}
	if len(c.Args) == 0 {
		return 255, errors.New("/config.json names no command")
	}
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir = c.Env, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 255, err
	}
	return 0, nil
}
