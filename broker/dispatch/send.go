package dispatch

import (
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// sendMessagesToConsumers is the send loop: of a normal read, or of a replay
// read whose entries are the given items of the replay set. Entries that cannot
// be sent now are in that set afterwards. It returns how many were sent and
// needs mu.
func (d *Dispatcher) sendMessagesToConsumers(entries []ledger.Entry, items []replayItem) (sent int) {
	if items == nil {
		sent = d.sendRead(entries)
	} else {
		sent = d.sendReplayed(entries, items)
	}
	d.deliver()
	return sent
}

// sendRead sends entries of a normal read, each unless an earlier one of its
// hash waits.
func (d *Dispatcher) sendRead(entries []ledger.Entry) (sent int) {
	for i := range entries {
		e := &entries[i]
		h := d.hash(e)
		if d.keepsOrder(h) && d.replay.hasHash(h) || !d.send(e, h) {
			d.replay.add(replayItem{e.ID, h})
			continue
		}
		sent++
	}
	return sent
}

// sendReplayed sends entries of the replay set, each unless an earlier one of
// its hash could not be sent just now.
func (d *Dispatcher) sendReplayed(entries []ledger.Entry, items []replayItem) (sent int) {
	d.blocked.clear()
	d.leaving, d.moved = d.leaving[:0], d.moved[:0]
	for i := range entries {
		e, it := &entries[i], items[i]
		h := it.hash
		if h == unknownHash || d.subType == wire.Shared && h != sharedHash { // chunks need their metadata
			h = d.hash(e)
		}
		// What was unknown has been picked whatever waits before it.
		waits := d.blocked.has(h) || h != it.hash && d.replay.hasKnown(h)
		if !(waits && d.keepsOrder(h)) && d.send(e, h) {
			sent++
			d.leaving = append(d.leaving, it)
			continue
		}
		d.blocked.add(h)
		if h != it.hash {
			d.leaving = append(d.leaving, it)
			d.moved = append(d.moved, replayItem{e.ID, h})
		}
	}
	d.replay.remove(d.leaving)
	d.replay.add(d.moved...)
	return sent
}

// putAside sends nothing of a normal read: what came to the replay set since it
// began has to be sent first. It needs mu.
func (d *Dispatcher) putAside(entries []ledger.Entry) {
	for i := range entries {
		d.replay.add(replayItem{entries[i].ID, d.hash(&entries[i])})
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

// keepsOrder reports whether an entry of the hash must wait for earlier ones.
func (d *Dispatcher) keepsOrder(h uint16) bool {
	return !d.policy.anyOrder && (d.subType != wire.Shared || h != sharedHash)
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
