package dispatch

import (
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// sendMessagesToConsumers is the send loop. Entries that cannot be sent now are
// in the replay set afterwards. It needs mu.
func (d *Dispatcher) sendMessagesToConsumers(entries []ledger.Entry, replayed bool) {
	d.blocked.clear()
	d.sent = d.sent[:0]
	for i := range entries {
		e := &entries[i]
		h := d.hash(e)
		switch {
		case !d.mustWait(h, replayed) && d.send(e, h):
			if replayed {
				d.sent = append(d.sent, e.ID)
			}
		case replayed:
			d.blocked.add(h)
			d.replay.rehash(e.ID, h)
		default:
			d.replay.add(e.ID, h)
		}
	}
	if replayed {
		d.replay.removeAll(d.sent)
	}
	d.deliver()
}

// putAside sends nothing of a normal read: what came to the replay set since it
// began has to be sent first. It needs mu.
func (d *Dispatcher) putAside(entries []ledger.Entry) {
	for i := range entries {
		d.replay.add(entries[i].ID, d.hash(&entries[i]))
	}
}

// hash returns what entries that must stay in order have in common.
func (d *Dispatcher) hash(e *ledger.Entry) (h uint16) {
	switch d.subType {
	case wire.KeyShared:
		h, d.key = entryHash(e.Data, &d.md, d.key)
		return h
	case wire.Shared:
		return chunkHash(e.Data, &d.md)
	}
	return 1
}

// mustWait reports whether an earlier entry of the hash waits to be sent.
func (d *Dispatcher) mustWait(h uint16, replayed bool) bool {
	switch {
	case d.subType == wire.Shared && h == sharedHash, d.policy.anyOrder:
		return false
	case replayed: // then the set still holds the hash, because of this entry
		return d.blocked.has(h)
	}
	return d.replay.hasHash(h)
}

// send adds e to its consumer's delivery, or reports that it cannot be sent.
func (d *Dispatcher) send(e *ledger.Entry, h uint16) bool {
	c := d.owner(h)
	if c == nil || !c.available() || d.draining.blocks(h, c) {
		return false
	}
	n := int64(max(e.Messages, 1))
	if !c.pending.add(pendingAck{id: e.ID, hash: h, messages: int32(n)}) {
		return false
	}
	if d.subType == wire.Shared && h != sharedHash {
		d.chunks.sent(h, c, &d.md)
	}
	if c.group == nil {
		c.group = deliveries.Get().(*Delivery)
		c.group.ConsumerID, c.group.LedgerID = c.ID, d.ledgerID
	}
	c.group.Messages = append(c.group.Messages, Message{Entry: *e, Redeliveries: d.redeliver.of(e.ID)})
	c.group.Bytes += int64(len(e.Data))
	c.group.messages += n
	d.turnLeft--
	c.permits.Add(-n)
	c.credited.Add(-n)
	d.total.Add(-n)
	d.unacked.Add(n)
	c.addUnacked(n)
	return true
}

// single reports whether one consumer gets everything: the first.
func (d *Dispatcher) single() bool {
	return d.subType == wire.Exclusive || d.subType == wire.Failover
}

// ordered reports whether entries of one hash must stay in order, whoever gets
// them.
func (d *Dispatcher) ordered() bool { return d.subType != wire.Shared && !d.policy.anyOrder }

// owner returns the consumer of a hash, or nil; for Shared, the one whose turn
// it is.
func (d *Dispatcher) owner(h uint16) *Consumer {
	switch {
	case len(d.consumers) == 0:
		return nil
	case d.selector != nil:
		return d.selector.owner(h)
	case d.single():
		return d.consumers[0]
	case h != sharedHash:
		if c := d.chunks.of(h); c != nil {
			return c
		}
	}
	return d.turn()
}

// turn returns the Shared consumer to send to next, or nil if none can be sent
// anything: the consumers of the best priority that can, one after the other.
// One keeps its turn for MaxRoundRobinBatch entries.
func (d *Dispatcher) turn() *Consumer {
	n := len(d.consumers)
	if c := d.consumers[d.next%n]; d.turnLeft > 0 && c.available() {
		return c
	}
	var best *Consumer
	at := d.next
	for i := 1; i <= n; i++ {
		c := d.consumers[(d.next+i)%n]
		if (best == nil || c.Priority < best.Priority) && c.available() {
			best, at = c, d.next+i
		}
	}
	if best != nil {
		d.next, d.turnLeft = at%n, d.cfg.MaxRoundRobinBatch
	}
	return best
}

// firstAvailable returns a consumer that can be sent something, or nil.
func (d *Dispatcher) firstAvailable() *Consumer {
	members := d.consumers
	if d.single() {
		members = members[:min(1, len(members))]
	}
	for _, c := range members {
		if c.available() {
			return c
		}
	}
	return nil
}

func (d *Dispatcher) lookAhead() int {
	return min(d.cfg.LookAheadPerConsumer*len(d.consumers), d.cfg.LookAheadPerSubscription)
}

func (d *Dispatcher) updateUnackedFull() {
	limit := d.cfg.MaxUnackedPerSubscription
	limited := limit > 0 && (d.subType == wire.Shared || d.subType == wire.KeyShared)
	if now := d.unacked.Load(); !limited || now <= limit/2 {
		d.unackedFull = false
	} else if now >= limit {
		d.unackedFull = true
	}
}
