package executor

import (
	"sync/atomic"
	"time"
)

// busyClock adds up the time between start and stop, one addition each, and can
// be read at any moment, also between them. While it runs, the word holds the
// sum so far minus the time of the start: that is negative, since nothing is
// busy for longer than its clock has run.
type busyClock struct {
	word atomic.Int64
	seen atomic.Int64 // the largest value that read returned
}

// start, stop and read take the time in nanoseconds on one monotonic clock.
func (c *busyClock) start(now int64) { c.word.Add(-now) }
func (c *busyClock) stop(now int64)  { c.word.Add(now) }

// read never goes back, although now may be a little before or after the
// moment at which the word is read.
func (c *busyClock) read(now int64) time.Duration {
	w := c.word.Load()
	if w < 0 {
		w += now
	}
	for {
		seen := c.seen.Load()
		if w <= seen {
			return time.Duration(seen)
		}
		if c.seen.CompareAndSwap(seen, w) {
			return time.Duration(w)
		}
	}
}
