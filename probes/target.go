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
	if info, err := buildinfo.ReadFile(filepath.Join(dir, "exe")); err == nil {
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

func procDir(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid)) }

// edge is what is read of the target and of the recorder at one edge of the window.
type edge struct {
	at          time.Time
	targetCPU   time.Duration
	targetKnown bool
	throttled   time.Duration
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
	e.throttled = throttled(pid)
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

// throttled is how long the process's cgroup has been kept from running by its
// CPU quota, 0 where it has none.
func throttled(pid int) time.Duration {
	data, err := os.ReadFile(filepath.Join(procDir(pid), "cgroup"))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(data), "\n") {
		path, ok := strings.CutPrefix(line, "0::")
		if !ok {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cpu.stat"))
		if err != nil {
			return 0
		}
		for _, l := range strings.Split(string(stat), "\n") {
			if v, ok := strings.CutPrefix(l, "throttled_usec "); ok {
				us, _ := strconv.ParseInt(v, 10, 64) // 0 when the kernel wrote no number
				return time.Duration(us) * time.Microsecond
			}
		}
	}
	return 0
}

// complete fills in everything that is known when the window has ended.
func (s *Session) complete(m *profile.Meta, after edge, counters []profile.WorkCounter, warnings []string) {
	m.Window = profile.Window{Start: s.before.at, End: after.at, DurationNs: int64(after.at.Sub(s.before.at))}
	m.Absent = s.absent
	m.Warnings = append(m.Warnings, warnings...)
	if counters != nil {
		m.Work = counters
	}
	m.Host = profile.Host{Kernel: KernelRelease(), Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), ThrottledNs: int64(after.throttled - s.before.throttled)}
	if m.Host.ThrottledNs > 0 {
		m.Warnings = append(m.Warnings, fmt.Sprintf("the target's CPU quota kept it from running for %v of the window", time.Duration(m.Host.ThrottledNs)))
	}
	if s.before.targetKnown && after.targetKnown {
		m.Targets[0].CPUNs = int64(after.targetCPU - s.before.targetCPU)
	}
	m.Recorder.CPUNs = int64(after.selfCPU - s.before.selfCPU)
	for _, src := range m.Sources {
		m.Recorder.BPFNs += src.Cost.BPFNs
		m.Recorder.ProbeHits += src.Cost.ProbeHits
		m.Recorder.ProbeNs += src.Cost.ProbeNs
		m.Recorder.MemBytes += src.Cost.MemBytes
	}
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
