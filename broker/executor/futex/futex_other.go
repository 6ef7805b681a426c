//go:build !linux

package futex

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// Supported says that this system has no futexes.
func Supported() error {
	return fmt.Errorf("blocking the thread on a futex is not supported on %s: use another queue", runtime.GOOS)
}

// wait and wake keep the lock correct where a caller did not ask Supported.
func wait(*atomic.Uint32, uint32) { runtime.Gosched() }

func wake(*atomic.Uint32, uint32) {}
