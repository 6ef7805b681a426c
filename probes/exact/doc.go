// Package exact records every wait of the goroutines of a live Go program, by
// uprobes on the runtime: how often and how long each stack was blocked and then
// runnable, who made the waiters runnable, and which locks they waited for.
//
//  1. The probe points are looked up in the target and verified: gopark, ready
//     and execute, and for locks semacquire1 and semrelease1. For locks alone
//     they are calls within the last two, which only contended locks come to.
//  2. They are attached, then the goroutines that are parked already are read
//     from the target's memory, and the window begins.
//  3. The kernel side sums up. The recorder reads how often the probes fire, and
//     detaches them where that is more than the budget.
//  4. When the window ends, waits that are still open are counted up to there.
//
// Each hit costs the target about a microsecond: this is for paced loads. The
// sampler (package goroutine) costs the target nothing, and counts nothing.
//
// What is not seen: goroutines that the network poller wakes become runnable
// without a probed function; their waits are of their own kind (wake-up not
// seen), and all blocked. Time that a goroutine is runnable after it was created
// or preempted, or after a system call, is not here. An uncontended lock makes
// no wait; from release to release is an upper bound on how long it was held.
package exact

import (
	"errors"

	"github.com/contention-toolkit/contention/probes/symbol"
)

// ErrUnavailable says that this machine, user or target cannot be recorded this way.
var ErrUnavailable = errors.New("the exact mode is not available")

// Options says what to record. At least one of Waits and Locks must be set.
type Options struct {
	PID   int
	Waits bool // every wait: the sources goroutines-exact and wakers
	Locks bool // waits for locks, by lock: the source locks
	// Budget is how many hits of probes per second the target may pay for;
	// above it the probes are detached. 0 means 200,000.
	Budget int
	// MaxStacks, MaxWaits and MaxLocks bound the distinct stacks, kinds of wait
	// and locks; 0 means 16384, 8192 and 8192.
	MaxStacks, MaxWaits, MaxLocks int
	// Notify is told at once when the probes are detached for more hits than the
	// budget; it may be nil.
	Notify func(string)
	// Process names the target's code; nil opens and closes one. It must stay
	// open until Stop has returned.
	Process *symbol.Process
}

const defaultBudget = 200_000

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		v   *int
		def int
	}{{&o.Budget, defaultBudget}, {&o.MaxStacks, 16384}, {&o.MaxWaits, 8192}, {&o.MaxLocks, 8192}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return o
}

// Frames that stand for what is not known.
const (
	FrameFailed    = "[no stack]"
	FrameFull      = "[stack lost: map full]"
	FrameCollision = "[stack lost: hash collision]"
	FrameDisturbed = "[stack lost: interrupted]"
	// FrameBetween stands between a waiter's stack and the waker's.
	FrameBetween = "--"
)

// WakeupNotSeen is the value of the label profile.LabelWakeup.
const WakeupNotSeen = "not seen"
