package futex

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's operations of include/uapi/linux/futex.h, for a word that only
// this process uses.
const (
	private     = 128
	waitPrivate = 0 | private
	wakePrivate = 1 | private
)

// Supported returns nil: Linux has futexes.
func Supported() error { return nil }

// wait sleeps while *word is value. It may return early, for example for a
// signal; the callers look again.
func wait(word *atomic.Uint32, value uint32) {
	_, _, errno := syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), waitPrivate, uintptr(value), 0, 0, 0)
	switch errno {
	case 0, unix.EAGAIN, unix.EINTR: // woken; the value is another; a signal
	default:
		// Going on would turn every wait into a busy loop.
		panic(fmt.Sprintf("futex wait: %v", errno))
	}
}

// wake wakes up to n waiters on word.
func wake(word *atomic.Uint32, n uint32) {
	_, _, errno := syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), wakePrivate, uintptr(n), 0, 0, 0)
	if errno != 0 {
		panic(fmt.Sprintf("futex wake: %v", errno)) // a waiter would sleep for ever
	}
}
