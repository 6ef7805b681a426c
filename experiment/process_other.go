//go:build !linux

package experiment

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

var interruptSignal = os.Interrupt

func childAttributes() *syscall.SysProcAttr { return nil }

func onCPUs(cpus []int, start func() error) error {
	if len(cpus) > 0 {
		return errors.New("CPU sets are not supported on " + runtime.GOOS)
	}
	return start()
}

func pinSelf(cpus []int) error {
	return errors.New("CPU sets are not supported on " + runtime.GOOS)
}
