package child

import (
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// prepareThread keeps the goroutine on its thread and pins that, for a child
// to inherit.
func prepareThread(cpus []int) error {
	runtime.LockOSThread()
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPUs %v: %w", cpus, err)
	}
	return nil
}
