//go:build linux && amd64

package suite

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// targetEnv makes this program the target of its own tests, so that a machine
// needs one file only.
const targetEnv = "CONTENTION_KERNELTEST_TARGET"

func TestMain(m *testing.M) {
	if os.Getenv(targetEnv) != "" {
		serve()
		return
	}
	os.Exit(m.Run())
}

// serve reads commands, one a line: what to wait with, how often and how long.
// It answers with the number of waits and the nanoseconds that they took.
func serve() {
	for range parked {
		go parkForever()
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var what string
		var n int
		var d time.Duration
		if _, err := fmt.Sscan(in.Text(), &what, &n, (*int64)(&d)); err != nil {
			fmt.Println("failed", err)
			return
		}
		took := map[string]func(int, time.Duration) time.Duration{"nanosleep": repeat(nanosleep), "futex": repeat(futexWait), "mutex": handOver}[what](n, d)
		fmt.Println("done", took.Nanoseconds())
	}
}

// parked is how many goroutines wait for ever.
const parked = 7

//go:noinline
func parkForever() { select {} }

// repeat makes a thread of its own wait, and measures that.
func repeat(wait func(time.Duration)) func(int, time.Duration) time.Duration {
	return func(n int, d time.Duration) (took time.Duration) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for range n {
				began := time.Now()
				wait(d)
				took += time.Since(began)
			}
		}()
		<-done
		return took
	}
}

//go:noinline
func nanosleep(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	if _, _, err := syscall.Syscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0); err != 0 {
		fmt.Fprintln(os.Stderr, "nanosleep:", err)
	}
}

//go:noinline
func futexWait(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	var word uint32
	if _, _, err := syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), 0, 0, uintptr(unsafe.Pointer(&ts)), 0, 0); err != syscall.ETIMEDOUT {
		fmt.Fprintln(os.Stderr, "futex:", err)
	}
}

// handOver makes a goroutine wait n times for a lock that another one holds
// until the runtime says that it waits, and d longer.
func handOver(n int, d time.Duration) (took time.Duration) {
	var mu sync.Mutex
	locked, waited := make(chan struct{}), make(chan struct{})
	go func() {
		stacks := make([]byte, 1<<16)
		for range n {
			mu.Lock()
			locked <- struct{}{}
			for !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("[sync.Mutex.Lock")) {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(d)
			release(&mu)
			<-waited
		}
	}()
	for range n {
		<-locked
		began := time.Now()
		acquire(&mu)
		took += time.Since(began)
		waited <- struct{}{}
	}
	return took
}

//go:noinline
func acquire(mu *sync.Mutex) {
	mu.Lock()
	mu.Unlock()
}

//go:noinline
func release(mu *sync.Mutex) { mu.Unlock() }

// target is a running target.
type target struct {
	t   testing.TB
	pid int
	in  io.Writer
	out *bufio.Scanner
}

func startTarget(t testing.TB) *target {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	// Go's preemption signals would interrupt the raw system calls.
	cmd.Env = append(os.Environ(), targetEnv+"=1", "GODEBUG=asyncpreemptoff=1")
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	tg := &target{t, cmd.Process.Pid, in, bufio.NewScanner(out)}
	if got := tg.line(); got != "ready" {
		t.Fatalf("the target said %q", got)
	}
	return tg
}

func (tg *target) line() string {
	tg.t.Helper()
	if !tg.out.Scan() {
		tg.t.Fatalf("the target ended: %v", tg.out.Err())
	}
	return tg.out.Text()
}

// wait makes the target wait, and returns how long its waits took as it measured them.
func (tg *target) wait(what string, n int, d time.Duration) time.Duration {
	tg.t.Helper()
	if _, err := fmt.Fprintln(tg.in, what, n, int64(d)); err != nil {
		tg.t.Fatal(err)
	}
	var took int64
	if got := tg.line(); !strings.HasPrefix(got, "done ") {
		tg.t.Fatalf("the target said %q", got)
	} else if _, err := fmt.Sscanf(got, "done %d", &took); err != nil {
		tg.t.Fatalf("the target said %q: %v", got, err)
	}
	return time.Duration(took)
}

// gives says for the table of kernels what this one gives. See kerneltest/run.
func gives(t *testing.T, what, format string, args ...any) {
	t.Helper()
	t.Logf("gives %s: %s", what, fmt.Sprintf(format, args...))
}

func TestKernel(t *testing.T) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	gives(t, "kernel", "%s", unix.ByteSliceToString(u.Release[:]))
}
