package probes

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// describe reads what /proc and the executable say of a process.
func describe(pid int) (profile.Target, error) {
	t, err := identify(pid)
	if err != nil {
		return t, err
	}
	if info, err := buildinfo.ReadFile(filepath.Join(procDir(pid), "exe")); err == nil {
		t.GoVersion, t.Module, t.Version = info.GoVersion, info.Main.Path, info.Main.Version
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				t.Revision = s.Value + t.Revision
			case s.Key == "vcs.modified" && s.Value == "true":
				t.Revision += "+dirty"
			}
		}
	}
	return t, nil
}

// identify reads a process's executable and arguments.
func identify(pid int) (profile.Target, error) {
	t := profile.Target{PID: pid}
	if pid <= 0 {
		return t, fmt.Errorf("record process %d: not a process id; name a running process with --pid", pid)
	}
	dir := procDir(pid)
	cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t, fmt.Errorf("record process %d: there is no such process", pid)
	case err != nil:
		return t, fmt.Errorf("record process %d: %w", pid, err)
	}
	for _, a := range bytes.Split(bytes.TrimRight(cmdline, "\x00"), []byte{0}) {
		t.Arguments = append(t.Arguments, string(a))
	}
	// Reading the link needs the same access as reading memory; without it
	// the sources say what is missing.
	if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
		t.Executable = exe
	}
	return t, nil
}

func procDir(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid)) }

// edge is what is read of the target and of the recorder at one edge of the window.
type edge struct {
	at          time.Time
	targetCPU   time.Duration
	targetKnown bool
	selfCPU     time.Duration
}

// clockTick is the unit of CPU times in /proc, USER_HZ, which is 100 on every
// architecture that Go runs on.
const clockTick = 10 * time.Millisecond

func readEdge(pid int) edge {
	e := edge{at: time.Now(), selfCPU: ownCPU()}
	if cpu, err := ProcessCPU(pid); err == nil {
		e.targetCPU, e.targetKnown = cpu, true
	}
	return e
}

// ProcessCPU is the CPU time that a process has used, user and system, with its
// ended threads.
func ProcessCPU(pid int) (time.Duration, error) {
	data, err := os.ReadFile(filepath.Join(procDir(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	// The name in parentheses may hold anything; the fields follow the last one.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("CPU time of process %d: its stat has %d fields", pid, len(fields))
	}
	var sum time.Duration
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		sum += time.Duration(ticks) * clockTick
	}
	return sum, nil
}

// KernelRelease is the running kernel's release, or the system's name where
// there is no /proc.
func KernelRelease() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return strings.TrimSpace(string(data))
}
