//go:build !linux

package child

import (
	"fmt"
	"runtime"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

func prepareThread(o Options) error {
	if len(o.CPUs) > 0 {
		return fmt.Errorf("setting a child's CPUs is not supported on %s", runtime.GOOS)
	}
	return nil
}
