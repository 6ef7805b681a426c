package dispatch

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/wire"
)

// ConsumerOptions say who connects.
type ConsumerOptions struct {
	ID   uint64 // the client's number for it
	Name string
	Type wire.SubType
	Sink Sink
	// Priority: the smaller number is served first. Failover sends to the first
	// consumer of the best priority, Shared to those of the best that can be
	// sent anything.
	Priority int32
	// KeyShared is the policy of a Key_Shared consumer; nil = auto-split, in
	// order.
	KeyShared *wire.KeySharedMeta
}

// Consumer is one member of a subscription. Its methods may be called from any
// goroutine; after Close, or once Reset has returned it, they change nothing
// for other consumers.
type Consumer struct {
	ConsumerOptions
	d      *Dispatcher
	number uint64 // of joining

	permits atomic.Int64 // messages it may still be sent
	// credited is the part of the dispatcher's total that is this consumer's;
	// closedCredit once it was removed. Permits that Flow has granted and not
	// yet credited are in permits only.
	credited  atomic.Int64
	unacked   atomic.Int64 // messages
	delivered atomic.Uint64
	full      atomic.Bool // stopped by the unacked limit
	active    atomic.Bool // Failover, Exclusive: gets everything
	pending   pendingAcks

	// ackMu is held while the consumer acknowledges, so that no acknowledgement
	// of before a Reset reaches the cursor after it.
	ackMu sync.Mutex
	reset bool

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
	// A worker may reject the task when its queue is full. The permits then
	// stay out of the total, which is made up for by reads that ask for what
	// the first consumer has.
	if c.d.cfg.Workers.Choose(c.number<<1).Execute(executor.Other, &flowTask{c, n}) != nil {
		c.d.readMoreAsync()
	}
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

// WritabilityChanged tells the dispatcher that the consumer's connection can
// take more.
func (c *Consumer) WritabilityChanged() { c.d.readMoreAsync() }

// Dispatcher returns the subscription's.
func (c *Consumer) Dispatcher() *Dispatcher { return c.d }

// Active reports whether the consumer is the one that Failover or Exclusive
// sends to.
func (c *Consumer) Active() bool { return c.active.Load() }

// Close disconnects the consumer; what it has not acknowledged goes to others,
// in order.
func (c *Consumer) Close() { c.d.removeConsumer(c) }

// available reports whether the consumer can be sent something now, beside what
// the send loop has collected for it. It needs mu.
func (c *Consumer) available() bool {
	var collected int64
	if c.group != nil {
		collected = c.group.messages
		if limit := c.d.cfg.MaxUnackedPerConsumer; limit >= 0 && c.limited() && c.unacked.Load()+collected >= limit {
			return false
		}
	}
	return c.permits.Load() > collected && !c.full.Load() && c.Sink.Writable()
}

// room returns how many entries the consumer can be sent now, at most.
func (c *Consumer) room() int {
	if !c.available() {
		return 0
	}
	return int(min(c.permits.Load(), math.MaxInt32))
}

// limited reports whether the subscription's type has limits on what is
// unacknowledged.
func (c *Consumer) limited() bool { return c.Type == wire.Shared || c.Type == wire.KeyShared }

// charge counts n messages that the send loop has collected. Until then only
// that loop takes them into account, which is enough: others add permits and
// take off acknowledgements, and what looks at the counts to take a decision
// holds mu. It needs mu.
func (c *Consumer) charge(n int64) {
	c.permits.Add(-n)
	c.credited.Add(-n)
	c.delivered.Add(uint64(n))
	c.addUnacked(n)
}

// addUnacked counts n messages sent.
func (c *Consumer) addUnacked(n int64) {
	limit := c.d.cfg.MaxUnackedPerConsumer
	if c.unacked.Add(n) < limit || limit < 0 || !c.limited() {
		return
	}
	c.full.Store(true)
	if c.unacked.Load() <= limit/2 { // acknowledged in between, so nobody else resumes
		c.full.Store(false)
	}
}
