//go:build !linux

package child

import (
	"fmt"
	"runtime"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

func prepareThread(cpus []int) error {
	if len(cpus) > 0 {
		return fmt.Errorf("pinning to CPUs is not supported on %s", runtime.GOOS)
	}
	return nil
}
