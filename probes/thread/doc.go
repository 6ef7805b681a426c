// Package thread records where the threads of a process spend the time in which
// they do not run, by eBPF on the scheduler:
//
//  1. The programs of probes/bpf follow every thread of the targets from its
//     switch-out (stacks, reason) over its waking to its switch-in, and sum
//     blocked and runnable time per kind of wait in the kernel.
//  2. Once a second, and at the end, the recorder reads those sums and the
//     waits that are still open (series), which gives the one-second slices.
//  3. At the end it detaches, resolves the addresses to frames, and hands over a
//     profile.Capture (build).
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
	// MinBlocked leaves out of the profile the waits that blocked for less;
	// they stay in the accounting. Default 0: all waits.
	MinBlocked time.Duration
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
	if o.MinBlocked < 0 {
		o.MinBlocked = 0
	}
	return o
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
)
