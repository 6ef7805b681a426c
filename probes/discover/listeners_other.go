//go:build !linux

package discover

import (
	"fmt"
	"runtime"
)

// Listeners is not supported here.
func Listeners(pid int) ([]Listener, error) {
	return nil, fmt.Errorf("find ports of process %d: not supported on %s; give the addresses", pid, runtime.GOOS)
}
