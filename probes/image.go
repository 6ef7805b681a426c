package probes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// fate is what became of a process image.
type fate int

const (
	lives    fate = iota
	replaced      // the process runs another program
	gone          // it has ended
)

// image tells the program that a process runs from those before and after it.
// What this user may not read is left out and tells nothing.
type image struct {
	started string // in clock ticks since boot: tells a process from a later one of the same id
	exe     string // device and inode
	auxv    []byte // addresses that the kernel chose for this image
}

func readImage(pid int) image {
	var i image
	if s, err := readStat(pid); err == nil {
		i.started = s.started
	}
	if info, err := os.Stat(filepath.Join(procDir(pid), "exe")); err == nil {
		i.exe = fileID(info)
	}
	// Empty while the process has no memory: between two images, or when it ends.
	if data, err := os.ReadFile(filepath.Join(procDir(pid), "auxv")); err == nil {
		i.auxv = data
	}
	return i
}

// fate compares the image with what the process is now.
func (i image) fate(pid int) fate {
	s, err := readStat(pid)
	if err != nil || s.ended() || s.started != i.started {
		return gone
	}
	now := readImage(pid)
	if now.started != i.started {
		return gone
	}
	if i.exe != "" && now.exe != "" && i.exe != now.exe {
		return replaced
	}
	if len(i.auxv) > 0 && len(now.auxv) > 0 && !bytes.Equal(i.auxv, now.auxv) {
		return replaced
	}
	return lives
}

// stat is what /proc/PID/stat says of a process.
type stat struct {
	pid, parent int
	name        string
	state       string
	started     string
}

// ended says that the process only waits for its parent to take note.
func (s stat) ended() bool { return s.state == "Z" || s.state == "X" }

func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(filepath.Join(procDir(pid), "stat"))
	if errors.Is(err, fs.ErrNotExist) {
		return stat{}, fmt.Errorf("process %d: there is no such process: %w", pid, err)
	} else if err != nil {
		return stat{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return parseStat(string(data))
}

// parseStat reads a line of /proc/PID/stat. The name in parentheses may hold
// anything; the fields follow the last one.
func parseStat(text string) (stat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("stat of a process: no name in %q", text)
	}
	f := strings.Fields(text[end+1:])
	if len(f) < 20 {
		return stat{}, fmt.Errorf("stat of a process: %d fields after the name, want 20 or more", len(f))
	}
	pid, err1 := strconv.Atoi(strings.TrimSpace(text[:open]))
	parent, err2 := strconv.Atoi(f[1])
	if err := errors.Join(err1, err2); err != nil {
		return stat{}, fmt.Errorf("stat of a process: %w", err)
	}
	return stat{pid: pid, parent: parent, name: text[open+1 : end], state: f[0], started: f[19]}, nil
}

// processes lists every process that this user can see.
func processes() ([]stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []stat
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil { // else it has just ended
			out = append(out, s)
		}
	}
	return out, nil
}
