// Package goroutine samples what the goroutines of a live Go program wait for,
// from outside: it reads the target's memory and changes nothing in it.
//
// A tick goes like this:
//
//  1. The runtime's list of goroutines is read, then the goroutines in groups.
//  2. The stacks of those that wait, are runnable or are in a system call are
//     read and followed by frame pointers.
//  3. The goroutines are read again. The stack of one that changed meanwhile may
//     be torn: it is dropped and counted as racy, and the time keeps its reason.
//  4. Every goroutine gets the real time since the last tick, by its state.
//
// The sampler's own CPU time is bounded. Where reading everything costs more
// than the budget, a tick reads the states of all goroutines, or of a random
// part of them, and the stacks of a random choice within every state and wait
// reason, lock waits first; those chosen carry the time of the others. Where
// even that is too much there are fewer ticks.
//
// Addresses become frames when the window has ended, inlined calls included.
package goroutine

import (
	"time"

	"github.com/contention-toolkit/contention/probes/symbol"
)

// Options says what to sample.
type Options struct {
	PID int
	// Hz is the number of ticks per second; 0 means 99.
	Hz int
	// MaxDepth bounds the physical frames of a stack; 0 means 128.
	MaxDepth int
	// Budget is the share of one CPU that sampling may use on average; 0 means 0.10.
	Budget float64
	// Process names the target's code; nil opens and closes one. It must stay
	// open until Stop has returned.
	Process *symbol.Process
}

const (
	defaultHz       = 99
	maxHz           = 10000
	defaultMaxDepth = 128
	defaultBudget   = 0.10
	// maxStacks bounds the distinct stacks that are kept.
	maxStacks = 1 << 16
	// maxGoroutines bounds what a tick reads.
	maxGoroutines = 1 << 22
)

// sampleTypes of the profile; their order is that of counts.
const (
	blockedValue = iota
	runnableValue
	samplesValue
	syscallValue
	numValues
)

func (o Options) withDefaults() Options {
	if o.Hz <= 0 {
		o.Hz = defaultHz
	}
	o.Hz = min(o.Hz, maxHz)
	if o.MaxDepth <= 0 {
		o.MaxDepth = defaultMaxDepth
	}
	if o.Budget <= 0 {
		o.Budget = defaultBudget
	}
	return o
}

func (o Options) period() time.Duration { return time.Second / time.Duration(o.Hz) }
