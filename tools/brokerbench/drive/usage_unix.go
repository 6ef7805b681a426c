//go:build unix

package drive

import (
	"time"

	"golang.org/x/sys/unix"
)

// ownCPU is the load's user and system time; 0 where unknown.
func ownCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
