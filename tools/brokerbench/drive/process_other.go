//go:build !linux

package drive

import (
	"fmt"
	"runtime"
	"time"
)

type processTimes struct {
	user, system, waited time.Duration
	peakRSS              int64
}

func readProcess(int) (processTimes, error) {
	return processTimes{}, fmt.Errorf("reading a process's CPU time is not supported on %s", runtime.GOOS)
}
