// Package futex is a lock and a condition whose waiters block their operating
// system thread, as they do on a JVM. A goroutine that waits for a sync.Mutex
// frees its thread for other goroutines; one that waits here does not, so its
// wait is one of the thread plane (in the kernel's futex), not of the goroutine
// plane, and every waiter costs a thread.
//
// [Mutex] does not spin: it tries once, then announces itself and sleeps. That
// is what java.util.concurrent's ReentrantLock does in its default, unfair
// form: it tries a few times while it enlists itself and then parks, and a
// thread that arrives may take the lock before one that was woken. (A Java
// monitor spins for longer before it parks.)
//
// What differs from a JVM: a woken thread still has to get one of Go's
// processors (GOMAXPROCS) before it runs on; without one its goroutine is
// runnable and the thread sleeps in the scheduler.
package futex

import "sync/atomic"

const (
	free      uint32 = iota
	held             // and nobody waits
	contended        // held, and somebody may wait
)

// Mutex is a mutual exclusion lock, free in its zero value. It must not be
// copied.
type Mutex struct{ state atomic.Uint32 }

// Lock takes the lock and blocks the thread until it can.
func (m *Mutex) Lock() {
	if !m.state.CompareAndSwap(free, held) {
		m.lockSlow()
	}
}

// lockSlow takes the lock as contended even if nobody else waits: it cannot
// know. The next Unlock then wakes once for nothing.
func (m *Mutex) lockSlow() {
	for m.state.Swap(contended) != free {
		wait(&m.state, contended)
	}
}

// Unlock frees the lock and wakes one waiter, which then competes for it.
func (m *Mutex) Unlock() {
	switch m.state.Swap(free) {
	case free:
		panic("futex: unlock of an unlocked mutex")
	case contended:
		wake(&m.state, 1)
	}
}

// Cond is a condition of what a [Mutex] guards. The zero value is ready. It
// must not be copied.
type Cond struct {
	seq     atomic.Uint32 // grows with every signal
	waiters atomic.Int32
}

// Wait frees m, blocks the thread until it is signalled and takes m again. m
// must be held. It may return without a signal: check the condition in a loop.
func (c *Cond) Wait(m *Mutex) {
	c.waiters.Add(1)
	seq := c.seq.Load()
	m.Unlock()
	wait(&c.seq, seq)
	c.waiters.Add(-1)
	m.Lock()
}

// Signal wakes at least one goroutine in Wait, if there is any. m need not be
// held, but the change of the condition must have been made under it.
func (c *Cond) Signal() { c.wake(1) }

// Broadcast wakes every goroutine in Wait.
func (c *Cond) Broadcast() { c.wake(1<<31 - 1) }

func (c *Cond) wake(n uint32) {
	c.seq.Add(1)
	if c.waiters.Load() > 0 {
		wake(&c.seq, n)
	}
}
