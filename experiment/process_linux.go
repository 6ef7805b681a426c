package experiment

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const interruptSignal = syscall.SIGTERM

func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// onCPUs runs start on the calling thread, which must be locked, with its CPU
// set narrowed to cpus: a child inherits the set of the thread that forks it.
func onCPUs(cpus []int, start func() error) error {
	if len(cpus) == 0 {
		return start()
	}
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return fmt.Errorf("read CPU set: %w", err)
	}
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("set CPU set %v: %w", cpus, err)
	}
	err := start()
	if e := unix.SchedSetaffinity(0, &old); err == nil && e != nil {
		err = fmt.Errorf("restore CPU set: %w", e)
	}
	return err
}

// pinSelf narrows this process to a CPU set, for the recorder; children get
// their own.
func pinSelf(cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("set the recorder's CPU set: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("set the recorder's CPU set %v: %w", cpus, err)
		}
	}
	return nil
}
