package dispatch

import (
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/wire"
)

// Stats of a subscription.
type Stats struct {
	Type           wire.SubType // of its consumers, or of the last ones
	Consumers      int
	Active         string // name of the consumer that Exclusive or Failover sends to; "" = none
	Permits        int64  // messages
	Unacked        int64  // messages
	Blocked        bool   // stopped by the unacked limit
	Replay         int    // entries read that wait to be sent
	DrainingHashes int    // key hashes that wait for their former owner
	Backlog        int64  // entries
	ReadBatch      int    // entries the next read may ask for
}

// Stats reads a subscription's figures. It waits for a running send loop.
func (d *Dispatcher) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats()
}

// TryStats is Stats without the wait: false if a send loop is running.
func (d *Dispatcher) TryStats() (Stats, bool) {
	if !d.mu.TryLock() {
		return Stats{}, false
	}
	defer d.mu.Unlock()
	return d.stats(), true
}

// stats needs mu.
func (d *Dispatcher) stats() Stats {
	s := Stats{
		Type: d.subType, Consumers: len(d.consumers), Permits: d.total.Load(), Unacked: d.unacked.Load(),
		Blocked: d.unackedFull, Replay: d.replay.len(), DrainingHashes: d.draining.len(),
		Backlog: d.cursor.Backlog(), ReadBatch: d.readBatch,
	}
	if d.active != nil {
		s.Active = d.active.Name
	}
	return s
}

// counters of a subscription since it was made.
type counters struct {
	delivered, bytes, redelivered, acked atomic.Uint64
}

// Counters of a subscription since it was made.
type Counters struct {
	Delivered   uint64 // messages handed to connections, redelivered ones each time
	Bytes       uint64 // of their entries
	Redelivered uint64 // entries withdrawn from a consumer to be sent again
	Acked       uint64 // messages
}

// Counters reads a subscription's counters. It takes no lock.
func (d *Dispatcher) Counters() Counters {
	c := &d.counters
	return Counters{Delivered: c.delivered.Load(), Bytes: c.bytes.Load(), Redelivered: c.redelivered.Load(), Acked: c.acked.Load()}
}

// ConsumerStats of one consumer.
type ConsumerStats struct {
	ID        uint64
	Name      string
	Type      wire.SubType
	Priority  int32
	Active    bool   // Exclusive, Failover: gets everything
	Permits   int64  // messages; negative after a batch that was larger than what was left
	Unacked   int64  // messages
	Delivered uint64 // messages, redelivered ones each time
	Blocked   bool   // stopped by the unacked limit
	Writable  bool   // its connection takes more
}

// Stats reads a consumer's figures.
func (c *Consumer) Stats() ConsumerStats {
	return ConsumerStats{
		ID: c.ID, Name: c.Name, Type: c.Type, Priority: c.Priority, Active: c.Active(), Permits: c.permits.Load(),
		Unacked: c.unacked.Load(), Delivered: c.delivered.Load(), Blocked: c.full.Load(), Writable: c.Sink.Writable(),
	}
}

// ConsumerStats reads the figures of every consumer, by priority and then by
// joining. It takes no lock.
func (d *Dispatcher) ConsumerStats() []ConsumerStats {
	members := *d.members.Load()
	all := make([]ConsumerStats, len(members))
	for i, c := range members {
		all[i] = c.Stats()
	}
	return all
}
