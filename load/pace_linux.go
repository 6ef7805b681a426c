package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleepPrecisely sleeps d to within some 60 µs. The runtime's timers round up
// to a millisecond on an idle process, which would show in paced latencies.
func sleepPrecisely(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	if err := unix.Nanosleep(&ts, nil); err != nil && err != unix.EINTR {
		time.Sleep(d)
	}
}
