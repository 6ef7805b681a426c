// Package thread records where the threads of a process spend the time in which
// they do not run, by eBPF on the scheduler:
//
//  1. The programs of probes/bpf follow every thread of the targets from its
//     switch-out (stacks, reason) over its waking to its switch-in, and sum
//     blocked and runnable time per kind of wait in the kernel.
//  2. Once a second, and at the end, the recorder reads those sums and the
//     waits that are still open (series), which gives the one-second slices.
//  3. At the end it detaches, resolves the addresses to frames, and hands over a
//     profile.Capture (build), and one of wakers and one of samples on CPU where
//     those were asked for.
//
// The unit is the operating system's thread. For a program written in Go that
// is right for system calls, page faults and run-queue delay, and wrong for its
// mutexes and channels, which block goroutines and not threads.
//
// A thread that is off-CPU as the window begins counts from the window's start:
// its kernel stack is known, its user stack is read from outside where that is
// allowed, and otherwise is FrameUnseen. A wait that is open at the window's end
// counts up to it.
package thread

import (
	"errors"
	"fmt"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// ErrUnavailable says that this machine or this user cannot record threads; the
// error that wraps it names what is missing and the remedy.
var ErrUnavailable = errors.New("the thread plane is not available")

// Resolver turns an address of a process into frames, innermost first, the last
// of them not inlined; never none. ret says that addr is a return address.
type Resolver interface {
	Frames(addr uint64, ret bool) []profile.Frame
}

// Options says what to record. The zero value of each field is a good default,
// except for PIDs.
type Options struct {
	PIDs []int // processes, in the PID namespace of the recorder
	// Cgroup is the directory of a control group, of version 2 or of a
	// controller of version 1: only threads in it, or in groups within it, are
	// recorded. Without PIDs all of its processes are, those that it gets later
	// included.
	Cgroup string
	// TIDs and Names choose threads of the targets: those with one of the ids,
	// and those that have one of the names or take it. A thread that is recorded
	// stays so when its name changes. Without both, all threads are.
	TIDs  []int
	Names []string
	// MinBlocked leaves out of the profile the waits that blocked for less;
	// they stay in the accounting. Default 0: all waits.
	MinBlocked time.Duration
	// AdmitAll keeps all waits of at least so long, and of the shorter ones some,
	// in proportion to their length and weighted, so that sums stay unbiased: the
	// standard error of a sum is at most AdmitAll times the root of the number of
	// short waits that were kept. Up to a second. Default 0: all waits are kept.
	AdmitAll time.Duration
	// Wakers records who woke the threads, as a capture of its own: a stack walk
	// more for each wait.
	Wakers bool
	// OnCPU records where the threads run, as a capture of its own, by samples of
	// the CPU clock at this rate per second and CPU. Default 0: no samples.
	OnCPU int
	// MaxStacks bounds the distinct stacks, MaxWaits the distinct kinds of wait
	// (stacks, reason, thread name) and MaxThreads the threads followed at a
	// time. What finds no room is counted. The kernel holds about 1 kB for each
	// stack, 120 B for each kind of wait and 250 B for each thread, from the
	// start on. Defaults 16384, 32768, 16384.
	MaxStacks, MaxWaits, MaxThreads int
	// Symbols gives the symbols of a process; it is asked once for each, before
	// the window, and they are used until Stop returns. Its error does not keep
	// from recording: frames are then addresses. Where it is nil, the recorder
	// opens the symbols itself.
	Symbols func(pid int) (Resolver, error)
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		v   *int
		def int
	}{{&o.MaxStacks, 16384}, {&o.MaxWaits, 32768}, {&o.MaxThreads, 16384}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	o.MinBlocked, o.AdmitAll = max(0, o.MinBlocked), max(0, o.AdmitAll)
	return o
}

// Bounds of options.
const (
	maxAdmitAll = time.Second
	maxOnCPU    = 10000
)

// Check says what is wrong with options, but for the targets.
func (o Options) Check() error {
	if o.AdmitAll > maxAdmitAll {
		return fmt.Errorf("record threads: keep all waits of %v or longer: more than %v is not possible", o.AdmitAll, maxAdmitAll)
	}
	if o.OnCPU < 0 || o.OnCPU > maxOnCPU {
		return fmt.Errorf("record threads: %d samples on CPU per second: want 0 to %d", o.OnCPU, maxOnCPU)
	}
	for _, name := range o.Names {
		// The kernel cuts names.
		if name == "" || len(name) > 15 {
			return fmt.Errorf("record threads named %q: thread names have 1 to 15 bytes", name)
		}
	}
	for _, tid := range o.TIDs {
		if tid <= 0 {
			return fmt.Errorf("record thread %d: not a thread id", tid)
		}
	}
	return nil
}

// The values of the label reason.
const (
	ReasonInterruptible   = "interruptible"   // a sleep that signals interrupt: futex, network, timer
	ReasonUninterruptible = "uninterruptible" // disk, page fault, a lock of the kernel
	ReasonIdle            = "idle"            // a kernel worker of the process without work
	ReasonStopped         = "stopped"         // by a signal or a debugger
	ReasonPreempted       = "preempted"       // runnable: another thread was given the CPU
	ReasonYielded         = "yielded"         // runnable: it gave up the CPU itself
	ReasonStarted         = "started"         // runnable: a new thread that waits for its first CPU
	ReasonMissedWakeup    = "missed wake-up"  // it ran again, and no wake-up was seen: all blocked
)

// Frames that stand for what is not known.
const (
	FrameUnseen       = "[waiting since before the window]" // the user stack was not seen
	FrameNewThread    = "[new thread]"                      // it has not run yet
	FrameUserFailed   = "[no user stack]"                   // the kernel gave none
	FrameKernelFailed = "[no kernel stack]"
	FrameStacksFull   = "[stack lost: map full]"
	FrameCollision    = "[stack lost: hash collision]"
	FrameBetween      = "--"                     // between the waker's stack and the waiter's
	FrameInterrupt    = "[interrupt]"            // the waker is no thread
	FrameOtherProcess = "[process not recorded]" // the waker's user stack is not taken
)
