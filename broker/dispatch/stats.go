package dispatch

import "github.com/contention-toolkit/contention/broker/wire"

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

// Stats reads a subscription's figures.
func (d *Dispatcher) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
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

// ConsumerStats of one consumer.
type ConsumerStats struct {
	ID        uint64
	Name      string
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
		ID: c.ID, Name: c.Name, Priority: c.Priority, Active: c.Active(), Permits: c.permits.Load(),
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
