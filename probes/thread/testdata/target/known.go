package main

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// truth is what a thread measured around its own calls, in nanoseconds.
type truth struct{ wall, cpu int64 }

// begin and end take the clocks. What is measured is all in functions without a
// stack check, and in raw system calls: at a check, and when leaving other system
// calls, Go may let the thread wait on another stack.
//
//go:nosplit
func (t *truth) begin() {
	t.wall -= clock(1) // CLOCK_MONOTONIC
	t.cpu -= clock(3)  // CLOCK_THREAD_CPUTIME_ID
}

//go:nosplit
func (t *truth) end() {
	t.cpu += clock(3)
	t.wall += clock(1)
}

//go:nosplit
func clock(id uintptr) int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Sec*1e9 + ts.Nsec
}

// known waits in ways that it measures: after a line of input, it sleeps, waits
// for a futex, syncs a file and spins, and prints the thread's id, and name, wall
// time and CPU time of each. With a second argument, another thread moves it
// from CPU to CPU meanwhile.
func known(begun chan struct{}) {
	f, err := os.CreateTemp("", "known")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer os.Remove(f.Name())
	go func() {
		runtime.LockOSThread()
		stop := make(chan struct{})
		close(begun)
		<-told
		if len(os.Args) > 2 {
			go move(syscall.Gettid(), stop)
		}
		var sleep, futex, sync, spin truth
		for range 20 {
			sleepKnown(&sleep)
			futexKnown(&futex)
			syncKnown(&sync, f.Fd())
			spinKnown(&spin)
		}
		close(stop)
		fmt.Println(syscall.Gettid(), sleep.wall, sleep.cpu, futex.wall, futex.cpu, sync.wall, sync.cpu, spin.wall, spin.cpu)
		os.Remove(f.Name())
	}()
}

//go:nosplit
//go:noinline
func sleepKnown(t *truth) {
	ts := syscall.Timespec{Nsec: 12_000_000}
	t.begin()
	syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
	t.end()
}

// futexKnown waits until another thread of its own wakes it.
func futexKnown(t *truth) {
	var word uint32
	woken := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		var other truth
		sleepKnown(&other)
		wakeKnown(&word)
		runtime.UnlockOSThread()
		close(woken)
	}()
	waitKnown(t, &word)
	<-woken
}

//go:nosplit
//go:noinline
func waitKnown(t *truth, word *uint32) {
	t.begin()
	for atomic.LoadUint32(word) == 0 {
		syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 0, 0, 0, 0, 0)
	}
	t.end()
}

//go:noinline
func wakeKnown(word *uint32) {
	atomic.StoreUint32(word, 1)
	syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 1, 1, 0, 0, 0)
}

// block is so large that syncing it takes longer than what surrounds a wait.
var block = make([]byte, 2<<20)

//go:nosplit
//go:noinline
func syncKnown(t *truth, fd uintptr) {
	t.begin()
	n, _, err := syscall.RawSyscall6(syscall.SYS_PWRITE64, fd, uintptr(unsafe.Pointer(&block[0])), uintptr(len(block)), 0, 0, 0)
	if err == 0 && int(n) == len(block) {
		_, _, err = syscall.RawSyscall(syscall.SYS_FSYNC, fd, 0, 0)
	}
	t.end()
	if err != 0 || int(n) != len(block) {
		t.wall = 0 // the recorder's test then fails
	}
}

//go:noinline
func spinKnown(t *truth) {
	t.begin()
	for end := clock(3) + 25_000_000; clock(3) < end; {
		for range 1000 {
			sink++
		}
	}
	t.end()
}

// move lets a thread run on one CPU after the other.
func move(tid int, stop chan struct{}) {
	runtime.LockOSThread()
	var may [128]byte
	n, _, err := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, uintptr(len(may)), uintptr(unsafe.Pointer(&may)))
	if err != 0 {
		fmt.Fprintln(os.Stderr, "sched_getaffinity:", err)
		return
	}
	for {
		for cpu := range 8 * int(n) {
			if may[cpu/8]>>(cpu%8)&1 == 0 {
				continue
			}
			select {
			case <-stop:
				return
			default:
			}
			var one [128]byte
			one[cpu/8] = 1 << (cpu % 8)
			syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(tid), n, uintptr(unsafe.Pointer(&one)))
			ts := syscall.Timespec{Nsec: 700_000}
			syscall.Syscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
		}
	}
}
