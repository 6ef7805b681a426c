package dispatch

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// Message is one entry on its way to a consumer.
type Message struct {
	Entry        ledger.Entry
	Redeliveries uint32
}

// Delivery is what one send loop sends to one consumer, in order. The receiver
// calls Release when it has written it.
type Delivery struct {
	ConsumerID uint64
	LedgerID   uint64
	Messages   []Message
	Bytes      int64

	messages int64 // batch entries count all of theirs
}

var deliveries = sync.Pool{New: func() any { return new(Delivery) }}

// Release gives the delivery back for reuse.
func (v *Delivery) Release() {
	clear(v.Messages)
	v.Messages, v.Bytes, v.messages = v.Messages[:0], 0, 0
	deliveries.Put(v)
}

// Sink is a consumer's connection.
type Sink interface {
	// Deliver queues d for writing. It must not block nor call back.
	Deliver(d *Delivery)
	// Writable is false while too much is queued; the connection calls
	// Consumer.WritabilityChanged when it turns true again.
	Writable() bool
}

// ConsumerOptions say who connects.
type ConsumerOptions struct {
	ID   uint64 // the client's number for it
	Name string
	Type wire.SubType
	Sink Sink
}

// Consumer is one member of a subscription. Its methods may be called from any
// goroutine, none after Close.
type Consumer struct {
	ConsumerOptions
	d      *Dispatcher
	number uint64 // of joining

	permits atomic.Int64 // messages it may still be sent
	// credited is the part of the dispatcher's total that is this consumer's;
	// closedCredit once it was removed. Permits that Flow has granted and not
	// yet credited are in permits only.
	credited atomic.Int64
	unacked  atomic.Int64 // messages
	full     atomic.Bool  // stopped by the unacked limit
	pending  pendingAcks

	group *Delivery // being filled by the send loop, under the monitor
}

const closedCredit = math.MinInt64

// addCredit adds n permits to the consumer's part and the total, unless the
// consumer was removed.
func (c *Consumer) addCredit(n int64) bool {
	for {
		v := c.credited.Load()
		if v == closedCredit {
			return false
		}
		if c.credited.CompareAndSwap(v, v+n) {
			c.d.total.Add(n)
			return true
		}
	}
}

// closeCredit takes the consumer's part out of reach of later Flows and returns
// it.
func (c *Consumer) closeCredit() int64 {
	if v := c.credited.Swap(closedCredit); v != closedCredit {
		return v
	}
	return 0
}

// Flow grants permits, in messages.
func (c *Consumer) Flow(permits uint32) {
	n := int64(permits)
	c.permits.Add(n)
	if c.d.cfg.Flow == Atomic {
		if c.addCredit(n) {
			c.d.readMoreAsync()
		}
		return
	}
	// The task may be rejected only after shutdown, when nobody reads on.
	_ = c.d.cfg.Workers.Choose(c.number<<1).Execute(executor.Other, &flowTask{c, n})
}

type flowTask struct {
	c *Consumer
	n int64
}

func (t *flowTask) Run() { t.c.d.internalConsumerFlow(t.c, t.n) }

// internalConsumerFlow credits permits under the monitor.
func (d *Dispatcher) internalConsumerFlow(c *Consumer, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.addCredit(n) {
		d.readMoreEntries()
	}
}

// Ack acknowledges entries and returns how many were not acknowledged before.
func (c *Consumer) Ack(ids []int64) int {
	taken, found := c.pending.take(ids)
	resume := c.settle(taken)
	if found < len(ids) {
		resume = c.d.ackElsewhere(c, ids) || resume
	}
	fresh := c.d.cursor.Delete(ids)
	c.d.redeliver.forget(ids)
	if resume {
		c.d.readMoreAsync()
	}
	return fresh
}

// ackElsewhere removes entries that c acknowledges and another consumer has
// pending, as after a redelivery.
func (d *Dispatcher) ackElsewhere(c *Consumer, ids []int64) (resume bool) {
	d.mu.Lock()
	others := slices.Clone(d.consumers)
	d.mu.Unlock()
	for _, o := range others {
		if o != c {
			taken, _ := o.pending.take(ids)
			resume = o.settle(taken) || resume
		}
	}
	return resume
}

// AckCumulative acknowledges id and everything before it. Only Exclusive and
// Failover have it; with other types it is ignored.
func (c *Consumer) AckCumulative(id int64) int {
	if c.Type != wire.Exclusive && c.Type != wire.Failover {
		return 0
	}
	ids := c.pending.upTo(id)
	taken, _ := c.pending.take(ids)
	fresh := c.d.cursor.MarkDelete(id)
	c.d.redeliver.forget(ids)
	if c.settle(taken) {
		c.d.readMoreAsync()
	}
	return fresh
}

// settle takes acknowledged entries off the counts of what is unacknowledged
// and reports whether sending may resume because of it.
func (c *Consumer) settle(t takenAcks) (resume bool) {
	if t.messages == 0 {
		return false
	}
	for _, a := range t.draining { // not under the pending lock: recompute takes them the other way round
		resume = c.d.draining.acked(a) || resume
	}
	c.d.cfg.Acked.Add(uint64(t.messages))
	left := c.unacked.Add(-t.messages)
	all := c.d.unacked.Add(-t.messages)
	if c.full.Load() && left <= c.d.cfg.MaxUnackedPerConsumer/2 && c.full.CompareAndSwap(true, false) {
		resume = true
	}
	half := c.d.cfg.MaxUnackedPerSubscription / 2
	return resume || c.limited() && all <= half && all+t.messages > half
}

// limited reports whether the subscription's type has limits on what is
// unacknowledged.
func (c *Consumer) limited() bool { return c.Type == wire.Shared || c.Type == wire.KeyShared }

// Redeliver sends entries again that the consumer has not acknowledged: those
// in ids, or all of them if ids is nil.
func (c *Consumer) Redeliver(ids []int64) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if ids == nil {
		ids = c.pending.upTo(math.MaxInt64)
	}
	items, messages := c.pending.withdraw(ids)
	c.unacked.Add(-messages)
	d.unacked.Add(-messages)
	c.full.CompareAndSwap(true, c.unacked.Load() > d.cfg.MaxUnackedPerConsumer/2)
	d.updateUnackedFull()
	d.toReplay(items, true)
	if d.ring != nil {
		d.draining.recompute(d.consumers, d.ring.owner)
	}
	d.readMoreAsync()
}

// WritabilityChanged tells the dispatcher that the consumer's connection can
// take more.
func (c *Consumer) WritabilityChanged() { c.d.readMoreAsync() }

// Dispatcher returns the subscription's.
func (c *Consumer) Dispatcher() *Dispatcher { return c.d }

// Close disconnects the consumer; what it has not acknowledged goes to others,
// in order.
func (c *Consumer) Close() { c.d.removeConsumer(c) }

// available reports whether the consumer can be sent something now.
func (c *Consumer) available() bool {
	return c.permits.Load() > 0 && !c.full.Load() && c.Sink.Writable()
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
