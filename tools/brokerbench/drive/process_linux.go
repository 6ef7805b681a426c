package drive

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// clockTick is USER_HZ, which is 100 on every architecture that Go runs on.
const clockTick = time.Second / 100

type processTimes struct {
	user, system time.Duration
	waited       time.Duration // of threads that were there at both ends: runnable, without a CPU
	peakRSS      int64         // bytes
}

var peakRSS = regexp.MustCompile(`(?m)^VmHWM:\s+([0-9]+) kB$`)

// readProcess reads a process's CPU time, of all its threads, in clock ticks.
func readProcess(pid int) (p processTimes, err error) {
	file := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(file)
	if err != nil {
		return p, fmt.Errorf("read the server's CPU time: %w", err)
	}
	// The name, in parentheses, may hold anything; utime and stime are fields
	// 14 and 15 of the line, 12 and 13 behind it.
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 13 {
		return p, fmt.Errorf("%s has %d fields behind the name, want more than 12", file, len(f))
	}
	for i, d := range []*time.Duration{&p.user, &p.system} {
		n, err := strconv.ParseInt(string(f[11+i]), 10, 64)
		if err != nil {
			return p, fmt.Errorf("%s: %w", file, err)
		}
		*d = time.Duration(n) * clockTick
	}
	if p.waited, err = runDelay(pid); err != nil {
		return p, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return p, fmt.Errorf("read the server's memory: %w", err)
	}
	if m := peakRSS.FindSubmatch(status); m != nil {
		kB, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			return p, err
		}
		p.peakRSS = kB << 10
	}
	return p, nil
}

// runDelay adds up how long the threads of a process waited for a CPU. One that
// ends takes its time with it; a Go program keeps its threads.
func runDelay(pid int) (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		f := bytes.Fields(text)
		if len(f) < 2 {
			return 0, fmt.Errorf("%s: %q", file, text)
		}
		n, err := strconv.ParseInt(string(f[1]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(n)
	}
	return sum, nil
}
