package child

import (
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// prepareThread keeps the goroutine on its thread and gives that what a child
// is to inherit.
func prepareThread(o Options) error {
	runtime.LockOSThread()
	if len(o.CPUs) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range o.CPUs {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPUs %v: %w", o.CPUs, err)
	}
	return nil
}
