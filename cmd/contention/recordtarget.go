package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/contention-toolkit/contention/probes/cgroup"
)

// command is a child that record started itself.
type command struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// target finds the processes to record, or starts the command given.
func (f *recordFlags) target(args []string) ([]int, *command, error) {
	given := 0
	for _, b := range []bool{len(f.pids) > 0, f.name != "", f.container != "", len(args) > 0} {
		if b {
			given++
		}
	}
	if given != 1 {
		return nil, nil, usageError("name one target: --pid PID (or several), --name NAME, --container ID or -- COMMAND; %d are given", given)
	}
	switch {
	case len(f.pids) > 0:
		return f.pids, nil, nil
	case f.name != "":
		pid, err := byName(f.name)
		return []int{pid}, nil, err
	case f.container != "":
		pids, err := cgroup.Container("", f.container)
		if err != nil {
			return nil, nil, fmt.Errorf("record: %w", err)
		}
		return pids, nil, nil
	}
	c := &command{cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})}
	// Standard output may be the recording's.
	c.cmd.Stdout, c.cmd.Stderr = os.Stderr, os.Stderr
	if err := c.cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // its exit status is not ours
	}()
	return []int{c.cmd.Process.Pid}, c, nil
}

// successor says which processes may take the place of a target that has ended,
// nil for those that run the same command.
func (f *recordFlags) successor() func() []int {
	switch {
	case f.name != "":
		return func() []int { return withName(f.name) }
	case f.container != "":
		return func() []int {
			pids, err := cgroup.Container("", f.container)
			if err != nil {
				return nil // it is down
			}
			return pids
		}
	}
	return nil
}

// stop ends the command that record started.
func (c *command) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.done:
	case <-time.After(5 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// byName finds the one process whose executable has this base name.
func byName(name string) (int, error) {
	pids := withName(name)
	switch len(pids) {
	case 0:
		return 0, fmt.Errorf("record --name %s: no process that this user can see has an executable of that name; use --pid", name)
	case 1:
		return pids[0], nil
	}
	var list []string
	for _, pid := range pids {
		list = append(list, strconv.Itoa(pid))
	}
	return 0, usageError("record --name %s: %d processes match: %s; name one with --pid, or several", name, len(pids), strings.Join(list, ", "))
}

// withName lists the processes whose executable has this base name, but for this one.
func withName(name string) []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil // the pattern is good
	}
	var pids []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == os.Getpid() {
			continue
		}
		exe, err := os.Readlink(filepath.Join(d, "exe"))
		if err == nil && filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == name {
			pids = append(pids, pid)
		}
	}
	return pids
}
