// Command target does one thing that a recorder of threads has to see. Its
// argument says what; it prints a line when it has begun, and ends when its
// standard input does.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// told is closed when a line of input has come.
var told = make(chan struct{})

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: target sleep|park|spin|pingpong|idle|churn|known|storm|again|fork|named")
		os.Exit(2)
	}
	begun := make(chan struct{})
	switch os.Args[1] {
	case "sleep": // 20 ms at a time, in one thread
		go locked(begun, sleepLoop)
	case "park": // for ever
		go locked(begun, park)
	case "spin": // two threads on one CPU
		go locked(make(chan struct{}), func() { pin(); spin() })
		go locked(begun, func() { pin(); spin() })
	case "churn": // threads that begin and end
		go churn(begun)
	case "pingpong": // two threads that wake each other as fast as they can
		pingpong(begun)
	case "known": // what it measures itself, once a line comes
		known(begun)
	case "storm": // short threads, once a line comes
		storm(begun)
	case "again": // a thread that is not the first runs the program again, once a line comes
		go again(begun)
	case "fork": // starts another process that sleeps
		fork(begun)
	case "named": // a thread that takes a name beside one that does not
		go locked(make(chan struct{}), sleepLoop)
		go locked(begun, func() { name("named"); namedLoop() })
	case "idle":
		close(begun)
	}
	<-begun
	fmt.Println("begun")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err == nil {
		close(told)
	}
	io.Copy(io.Discard, in)
}

func locked(begun chan struct{}, f func()) {
	runtime.LockOSThread()
	close(begun)
	f()
}

//go:noinline
func sleepLoop() {
	for {
		sleep20ms()
	}
}

//go:noinline
func sleep20ms() {
	ts := syscall.Timespec{Nsec: 20_000_000}
	if _, _, err := syscall.Syscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0); err != 0 {
		fmt.Fprintln(os.Stderr, "nanosleep:", err)
	}
}

//go:noinline
func park() {
	var word uint32
	for {
		syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), 0, 0, 0, 0, 0)
	}
}

// pin lets the calling thread run on the first CPU that it may run on only.
func pin() {
	var set [128]byte
	n, _, err := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, uintptr(len(set)), uintptr(unsafe.Pointer(&set)))
	if err != 0 {
		fmt.Fprintln(os.Stderr, "sched_getaffinity:", err)
		os.Exit(1)
	}
	for i := range set {
		if set[i] != 0 {
			first := set[i] & -set[i]
			set = [128]byte{}
			set[i] = first
			break
		}
	}
	if _, _, err := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, n, uintptr(unsafe.Pointer(&set))); err != 0 {
		fmt.Fprintln(os.Stderr, "sched_setaffinity:", err)
		os.Exit(1)
	}
}

var sink uint64

//go:noinline
func spin() {
	for {
		sink++
	}
}

// churn starts threads that sleep and end: a goroutine that ends while it is
// locked to its thread ends the thread.
func churn(begun chan struct{}) {
	close(begun)
	for {
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			sleep20ms()
			close(done)
		}()
		<-done
	}
}

// pingpong passes a byte between two threads by two pipes.
func pingpong(begun chan struct{}) {
	var there, back [2]int
	for _, p := range []*[2]int{&there, &back} {
		if err := syscall.Pipe(p[:]); err != nil {
			fmt.Fprintln(os.Stderr, "pipe:", err)
			os.Exit(1)
		}
	}
	go locked(make(chan struct{}), func() { echo(there[0], back[1]) })
	go locked(begun, func() {
		if _, err := syscall.Write(there[1], []byte{1}); err != nil {
			fmt.Fprintln(os.Stderr, "write:", err)
		}
		echo(back[0], there[1])
	})
}

//go:noinline
func echo(from, to int) {
	var b [1]byte
	for {
		if n, err := syscall.Read(from, b[:]); err != nil || n != 1 {
			return
		}
		if _, err := syscall.Write(to, b[:]); err != nil {
			return
		}
	}
}
