package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// storm starts 10,000 threads after a line of input, prints how many, and goes
// on: a goroutine that ends while it is locked to its thread ends the thread.
func storm(begun chan struct{}) {
	close(begun)
	const threads, atOnce = 10000, 50
	go func() {
		<-told
		for range threads / atOnce {
			var ended sync.WaitGroup
			ended.Add(atOnce)
			for range atOnce {
				go func() {
					runtime.LockOSThread()
					stormThread()
					ended.Done()
				}()
			}
			ended.Wait()
		}
		fmt.Println(threads)
	}()
}

//go:noinline
func stormThread() {
	ts := syscall.Timespec{Nsec: 100_000}
	syscall.Syscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// again runs this program once more from a thread that is not the first.
func again(begun chan struct{}) {
	runtime.LockOSThread()
	// The first thread is taken by the main goroutine, which waits in a read.
	close(begun)
	<-told
	if syscall.Gettid() == syscall.Getpid() {
		fmt.Fprintln(os.Stderr, "this is the first thread")
		os.Exit(1)
	}
	err := syscall.Exec("/proc/self/exe", []string{os.Args[0], "sleep"}, os.Environ())
	fmt.Fprintln(os.Stderr, "exec:", err)
	os.Exit(1)
}

func init() {
	if len(os.Args) > 1 && os.Args[1] == "again" {
		runtime.LockOSThread()
	}
}

// fork starts a process that sleeps, with this one's input.
func fork(begun chan struct{}) {
	cmd := exec.Command(os.Args[0], "sleep")
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bufio.NewReader(out).ReadString('\n')
	go locked(begun, namedLoop)
}

// name gives the calling thread a name.
func name(s string) {
	b := append([]byte(s), 0)
	syscall.RawSyscall(syscall.SYS_PRCTL, 15, uintptr(unsafe.Pointer(&b[0])), 0)
}

//go:noinline
func namedLoop() {
	for {
		sleepNamed()
	}
}

//go:noinline
func sleepNamed() {
	ts := syscall.Timespec{Nsec: 5_000_000}
	syscall.Syscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
