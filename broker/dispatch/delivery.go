package dispatch

import (
	"sync"

	"github.com/contention-toolkit/contention/broker/ledger"
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

	messages int64       // batch entries count all of theirs
	waits    *Dispatcher // its next read waits for this; nil = none does
	loop     uint64      // number of the send loop, with waits
}

var deliveries = sync.Pool{New: func() any { return new(Delivery) }}

// Release gives the delivery back for reuse.
func (v *Delivery) Release() {
	d, loop := v.waits, v.loop
	clear(v.Messages)
	*v = Delivery{Messages: v.Messages[:0]}
	deliveries.Put(v)
	if d != nil && d.unwritten.CompareAndSwap(loop, 0) {
		d.readMoreAsync()
	}
}

// Sink is a consumer's connection. Its methods are called under the
// dispatcher's lock: they must neither block nor call back.
type Sink interface {
	// Deliver queues d for writing.
	Deliver(d *Delivery)
	// Writable is false while too much is queued; the connection calls
	// Consumer.WritabilityChanged when it turns true again.
	Writable() bool
	// ActiveChanged says whether the consumer is the one that Failover sends
	// to. Every consumer of the subscription is told when that changes, and one
	// that joins inside AddConsumer: a client that ignores what comes before
	// the answer to its SUBSCRIBE is to be told Consumer.Active again after it.
	ActiveChanged(consumerID uint64, active bool)
}

// deliver hands each consumer what the send loop collected for it. It needs mu.
func (d *Dispatcher) deliver() {
	d.countCollected()
	waits := d.cfg.NextRead == NextReadAnyWritten
	if waits {
		d.loops++
	}
	first := true
	for _, c := range d.consumers {
		v := c.group
		if v == nil {
			continue
		}
		c.group = nil
		if waits {
			// Before Deliver, inside which it may be released.
			v.waits, v.loop = d, d.loops
			if first {
				d.unwritten.Store(d.loops)
			}
			first = false
		}
		c.Sink.Deliver(v)
	}
}

// countCollected counts what the send loop collected: before any of it is
// delivered and thus acknowledged. It needs mu.
func (d *Dispatcher) countCollected() {
	var messages, bytes int64
	for _, c := range d.consumers {
		if c.group != nil {
			messages += c.group.messages
			bytes += c.group.Bytes
			c.charge(c.group.messages)
		}
	}
	if messages == 0 {
		return
	}
	d.total.Add(-messages)
	d.unacked.Add(messages)
	d.cfg.Delivered.Add(uint64(messages))
	d.counters.delivered.Add(uint64(messages))
	d.counters.bytes.Add(uint64(bytes))
}
