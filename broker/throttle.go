package broker

import (
	"sync"
	"sync/atomic"
)

// throttleCause is why connections are not read. A connection is read again
// once no cause holds.
type throttleCause int

const (
	throttlePending throttleCause = iota // its own sends without a receipt written
	throttleBytes                        // the bytes of all connections' sends
	numThrottleCauses
)

var throttleNames = [numThrottleCauses]string{"pending_publishes", "bytes_in_flight"}

func (t throttleCause) String() string { return throttleNames[t] }

// throttleCounts are of all connections.
type throttleCounts [numThrottleCauses]struct {
	times atomic.Uint64 // a connection was held back
	now   atomic.Int64  // connections held back
}

func (t *throttleCounts) total() (n uint64) {
	for i := range t {
		n += t[i].times.Load()
	}
	return n
}

// byteBudget bounds what all connections have in flight: at its limit it stops
// them, and lets them go on at half.
type byteBudget struct {
	limit int64 // 0 = none
	used  atomic.Int64
	over  atomic.Bool // changed under mu

	mu    sync.Mutex
	clear chan struct{} // closed when over ends
}

// add counts n bytes, which may be negative.
func (b *byteBudget) add(n int64) {
	switch used := b.used.Add(n); {
	case used >= b.limit && !b.over.Load():
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.over.Load() && b.used.Load() >= b.limit {
			b.clear = make(chan struct{})
			b.over.Store(true)
			b.settleLocked() // what was taken off meanwhile saw no over
		}
	case used <= b.limit/2 && b.over.Load():
		b.mu.Lock()
		defer b.mu.Unlock()
		b.settleLocked()
	}
}

func (b *byteBudget) settleLocked() {
	if b.over.Load() && b.used.Load() <= b.limit/2 {
		b.over.Store(false)
		close(b.clear)
	}
}

// stopped returns what is closed when reading may go on; nil = now.
func (b *byteBudget) stopped() <-chan struct{} {
	if b.limit == 0 || !b.over.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over.Load() {
		return nil
	}
	return b.clear
}

// flightStep is how many bytes a connection sends before it counts them against
// the budget, so that small messages do not all touch one counter.
const flightStep = 4 << 10

// flight is one connection's part of the budget.
type flight struct {
	uncounted int64 // the reader's: sent, not counted yet
	counted   int64 // the reader's
	settled   int64 // the writer's: receipts written
}

// sent counts a send of n bytes; the reader's.
func (c *conn) sent(n int) {
	b := &c.server.flight
	if b.limit == 0 {
		return
	}
	f := &c.flight
	if f.uncounted += int64(n); f.uncounted >= flightStep {
		b.add(f.uncounted)
		f.counted += f.uncounted
		f.uncounted = 0
	}
}

// receipted takes the bytes of sends whose receipts are written off the budget;
// the writer's.
func (c *conn) receipted(n int64) {
	if n != 0 && c.server.flight.limit != 0 {
		c.flight.settled += n
		c.server.flight.add(-n)
	}
}

// endFlight takes off what a connection that has ended still had in flight.
func (c *conn) endFlight() {
	if left := c.flight.counted - c.flight.settled; left != 0 {
		c.server.flight.add(-left)
	}
}

// mayRead reports whether no cause holds the connection back.
func (c *conn) mayRead() bool {
	return c.owed.Load() < int64(c.server.cfg.MaxPendingPublishes) && (!c.server.flight.over.Load() || len(c.producers) == 0)
}

// waitForWriter is publish back-pressure: the socket is not read until every
// cause is clear. It returns false when the connection ends.
func (c *conn) waitForWriter() bool {
	for !c.mayRead() {
		cause := throttleBytes
		if c.owed.Load() >= int64(c.server.cfg.MaxPendingPublishes) {
			cause = throttlePending
		}
		count := &c.server.throttled[cause]
		count.times.Add(1)
		count.now.Add(1)
		alive := true
		if cause == throttlePending {
			alive = c.waitForOwed(int64(c.server.cfg.MaxPendingPublishes) / 2)
		} else if clear := c.server.flight.stopped(); clear != nil {
			c.held.Add(1)
			select {
			case <-clear:
			case <-c.done:
				alive = false
			}
			c.held.Add(-1)
		}
		count.now.Add(-1)
		if !alive {
			return false
		}
	}
	return true
}

// waitForOwed waits until the writer owes at most so many frames; false = the
// connection ends.
func (c *conn) waitForOwed(atMost int64) bool {
	c.held.Add(1)
	defer c.held.Add(-1)
	c.resumeAt.Store(atMost)
	for {
		c.throttled.Store(true)
		if c.owed.Load() <= atMost {
			c.throttled.Store(false)
			return true
		}
		select {
		case <-c.resume:
		case <-c.done:
			return false
		}
	}
}

// settle takes n written frames off what the writer owes.
func (c *conn) settle(n int64) {
	if n == 0 {
		return
	}
	left := c.owed.Add(-n)
	if left <= c.resumeAt.Load() && c.throttled.CompareAndSwap(true, false) {
		select {
		case c.resume <- struct{}{}:
		default:
		}
	}
}
