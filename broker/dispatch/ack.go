package dispatch

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/wire"
)

// Ack acknowledges entries and returns how many were not acknowledged before.
func (c *Consumer) Ack(ids []int64) int {
	c.ackMu.Lock()
	defer c.ackMu.Unlock()
	if c.reset {
		return 0
	}
	taken, found := c.pending.take(ids)
	resume := c.settle(taken)
	if found < len(ids) { // as after a redelivery to another consumer
		resume = c.d.ackElsewhere(c, func(*Consumer) []int64 { return ids }) || resume
	}
	fresh := c.d.cursor.Delete(ids)
	c.d.redeliver.forget(ids)
	if resume {
		c.d.readMoreAsync()
	}
	return fresh
}

// AckCumulative acknowledges id and everything before it. Only Exclusive and
// Failover have it; with other types it is ignored.
func (c *Consumer) AckCumulative(id int64) int {
	if c.Type != wire.Exclusive && c.Type != wire.Failover {
		return 0
	}
	c.ackMu.Lock()
	defer c.ackMu.Unlock()
	if c.reset {
		return 0
	}
	taken, _ := c.pending.take(c.pending.upTo(id))
	resume := c.settle(taken)
	// A consumer that is active no more acknowledges what it was sent while it
	// was, which the active one has been sent since.
	resume = c.d.ackElsewhere(c, func(o *Consumer) []int64 { return o.pending.upTo(id) }) || resume
	fresh := c.d.cursor.MarkDelete(id)
	c.d.redeliver.forgetUpTo(id)
	if resume {
		c.d.readMoreAsync()
	}
	return fresh
}

// ackElsewhere removes entries that c acknowledges and other consumers have
// pending.
func (d *Dispatcher) ackElsewhere(c *Consumer, ids func(*Consumer) []int64) (resume bool) {
	for _, o := range *d.members.Load() { // not under mu, for which an Ack never waits
		if o != c {
			taken, _ := o.pending.take(ids(o))
			resume = o.settle(taken) || resume
		}
	}
	return resume
}

// settle takes acknowledged entries off the counts of what is unacknowledged
// and reports whether sending may resume because of it.
func (c *Consumer) settle(t takenAcks) (resume bool) {
	if t.messages == 0 {
		return false
	}
	c.d.cfg.Acked.Add(uint64(t.messages))
	c.d.counters.acked.Add(uint64(t.messages))
	resume = c.d.draining.settle(t.draining)
	left := c.unacked.Add(-t.messages)
	all := c.d.unacked.Add(-t.messages)
	if c.full.Load() && left <= c.d.cfg.MaxUnackedPerConsumer/2 && c.full.CompareAndSwap(true, false) {
		resume = true
	}
	half := c.d.cfg.MaxUnackedPerSubscription / 2
	return resume || c.limited() && all <= half && all+t.messages > half
}

// Redeliver sends entries again that the consumer has not acknowledged: those
// in ids, or all of them if ids is nil.
func (c *Consumer) Redeliver(ids []int64) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if ids == nil {
		ids = c.pending.all()
	}
	d.withdraw(c, ids)
	d.readMoreAsync()
}

// withdraw moves entries that c has unacknowledged to the replay set. It needs
// mu.
func (d *Dispatcher) withdraw(c *Consumer, ids []int64) {
	items, taken := c.pending.withdraw(ids)
	left := c.unacked.Add(-taken.messages)
	d.unacked.Add(-taken.messages)
	if c.full.Load() && left <= d.cfg.MaxUnackedPerConsumer/2 {
		c.full.Store(false) // under mu nothing is sent that could make it full
	}
	d.updateUnackedFull()
	d.toReplay(items)
	d.draining.settle(taken.draining)
}

// toReplay needs mu. It counts a redelivery of each item.
func (d *Dispatcher) toReplay(items []replayItem) {
	if len(items) == 0 {
		return
	}
	d.replay.add(items...)
	d.redeliver.count(items)
	d.counters.redelivered.Add(uint64(len(items)))
	if n := len(d.replayIDs); n > 0 {
		last := d.replayIDs[n-1]
		d.replayStale = d.replayStale || slices.ContainsFunc(items, func(it replayItem) bool { return it.id < last })
	}
}

// redeliveries counts how often entries were sent again.
type redeliveries struct {
	any    atomic.Bool // false: no counts, and the lock is not needed
	mu     sync.Mutex
	counts map[int64]uint32
}

func (r *redeliveries) count(items []replayItem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[int64]uint32)
	}
	for _, it := range items {
		r.counts[it.id]++
	}
	r.any.Store(len(r.counts) > 0)
}

func (r *redeliveries) of(id int64) uint32 {
	if !r.any.Load() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[id]
}

func (r *redeliveries) forget(ids []int64) {
	if !r.any.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.counts, id)
	}
	r.any.Store(len(r.counts) > 0)
}

// forgetUpTo forgets id and all before it.
func (r *redeliveries) forgetUpTo(last int64) {
	if !r.any.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.counts {
		if id <= last {
			delete(r.counts, id)
		}
	}
	r.any.Store(len(r.counts) > 0)
}
