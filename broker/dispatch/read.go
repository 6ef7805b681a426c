package dispatch

import (
	"errors"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// readMoreAsync asks the ledger executor to read more; requests made before the
// task starts are one.
func (d *Dispatcher) readMoreAsync() {
	if d.requested.CompareAndSwap(false, true) {
		if d.executor.Execute(executor.Dispatch, (*readMoreTask)(d)) != nil {
			d.requested.Store(false)
			d.retryLater()
		}
	}
}

type readMoreTask Dispatcher

func (t *readMoreTask) Run() {
	d := (*Dispatcher)(t)
	d.requested.Store(false)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readMoreEntries()
}

// retryLater asks again after a while, since what asked was rejected and nobody
// else may. It does not need mu: the timer's function takes it.
func (d *Dispatcher) retryLater() {
	if !d.retrying.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(readRetryDelay, func() {
		d.retrying.Store(false)
		d.mu.Lock()
		closed := d.closed || len(d.consumers) == 0
		d.mu.Unlock()
		if !closed {
			d.readMoreAsync()
		}
	})
}

// readMoreEntries starts the next read if one is due. It needs mu.
func (d *Dispatcher) readMoreEntries() {
	first := d.firstAvailable()
	if d.closed || first == nil {
		return
	}
	n := int(min(max(d.total.Load(), first.permits.Load()), int64(d.readBatch)))
	if d.replayIDs != nil {
		return
	}
	d.updateUnackedFull()
	if d.unackedFull {
		return
	}
	if d.readReplay(n) || d.readPending || d.replay.len() >= d.lookAhead() {
		return
	}
	err := d.cursor.AsyncReadOrWait(n, d.cfg.MaxReadSizeBytes)
	switch {
	case err == nil:
		d.readPending = true
	case !errors.Is(err, ledger.ErrClosed):
		d.readFailed(err)
	}
}

// readReplay starts a replay read of what can be sent now, if there is any.
func (d *Dispatcher) readReplay(n int) bool {
	ids := d.replay.pick(nil, n, func(h uint16) bool {
		if h == unknownHash {
			return true // the send loop will tell
		}
		c := d.owner(h)
		return c != nil && c.available() && !d.draining.blocks(h, c)
	})
	if len(ids) == 0 {
		return false
	}
	if err := d.cursor.AsyncReplay(ids, d.cfg.MaxReadSizeBytes); err != nil {
		d.readFailed(err)
		return true
	}
	d.replayIDs, d.replayStale = ids, false
	return true
}

// readFailed makes the next read small and later. It needs mu.
func (d *Dispatcher) readFailed(err error) {
	d.readBatch = 1
	if !d.closed {
		d.cfg.Logger.Warn("read failed, will retry", "subscription", d.Name, "err", err, "after", readRetryDelay)
		d.retryLater()
	}
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

// single reports whether one consumer gets everything: the first.
func (d *Dispatcher) single() bool {
	return d.subType == wire.Exclusive || d.subType == wire.Failover
}

// ordered reports whether entries of one hash must stay in order.
func (d *Dispatcher) ordered() bool { return d.subType != wire.Shared }

// owner returns the consumer of a hash, or nil; for Shared, the one whose turn
// it is.
func (d *Dispatcher) owner(h uint16) *Consumer {
	switch {
	case len(d.consumers) == 0:
		return nil
	case d.ring != nil:
		return d.ring.owner(h)
	case d.single():
		return d.consumers[0]
	}
	return d.turn()
}

// turn returns the Shared consumer to send to next, or nil if none can be sent
// anything. One keeps its turn for MaxRoundRobinBatch entries.
func (d *Dispatcher) turn() *Consumer {
	n := len(d.consumers)
	if c := d.consumers[d.next%n]; d.turnLeft > 0 && c.available() {
		return c
	}
	for range n {
		d.next++
		if c := d.consumers[d.next%n]; c.available() {
			d.turnLeft = d.cfg.MaxRoundRobinBatch
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

// callbacks are the dispatcher as its cursor sees it.
type callbacks struct{ d *Dispatcher }

func (cb callbacks) EntriesRead(entries []ledger.Entry) {
	d := cb.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readPending = false
	d.readBatch = min(2*d.readBatch, d.cfg.MaxReadBatchSize)
	if d.closed {
		return
	}
	d.sendMessagesToConsumers(entries, false)
	d.readMoreEntries()
}

func (cb callbacks) EntriesReplayed(entries []ledger.Entry) {
	d := cb.d
	d.mu.Lock()
	defer d.mu.Unlock()
	ids, stale := d.replayIDs, d.replayStale
	d.replayIDs = nil
	if d.closed {
		return
	}
	d.dropGone(ids, entries)
	// An entry before these may have come meanwhile, of the same hash: then all
	// are picked again, that one first.
	if !stale {
		d.sendMessagesToConsumers(entries, true)
		if len(entries) > 0 && len(d.sent) == 0 {
			d.retryLater() // at once would go round in circles
			return
		}
	}
	d.readMoreEntries()
}

// dropGone forgets entries that were asked for and no longer exist. Those after
// the last one returned may just not have fitted into the read.
func (d *Dispatcher) dropGone(ids []int64, got []ledger.Entry) {
	var gone []int64
	for _, id := range ids {
		switch {
		case len(got) > 0 && got[0].ID == id:
			if got = got[1:]; len(got) == 0 {
				d.replay.removeAll(gone)
				return
			}
		default:
			gone = append(gone, id)
		}
	}
	d.replay.removeAll(gone)
}

func (cb callbacks) ReplayFailed(err error) {
	cb.d.mu.Lock()
	defer cb.d.mu.Unlock()
	cb.d.replayIDs = nil // they stay in the replay set
	cb.d.readFailed(err)
}

func (cb callbacks) ReadFailed(err error) {
	cb.d.mu.Lock()
	defer cb.d.mu.Unlock()
	cb.d.readPending = false
	cb.d.readFailed(err)
}

// sendMessagesToConsumers is the send loop. Entries that cannot be sent now are
// in the replay set afterwards. It needs mu.
func (d *Dispatcher) sendMessagesToConsumers(entries []ledger.Entry, replayed bool) {
	d.blocked.clear()
	d.sent = d.sent[:0]
	for i := range entries {
		e := &entries[i]
		h := d.hash(e)
		if d.ordered() && d.mustWait(h, replayed) || !d.send(e, h) {
			if replayed {
				d.blocked.add(h)
				d.replay.rehash(e.ID, h)
			} else {
				d.replay.add(e.ID, h)
			}
		} else if replayed {
			d.sent = append(d.sent, e.ID)
		}
	}
	if replayed {
		d.replay.removeAll(d.sent)
	}
	d.deliver()
}

// mustWait reports whether an earlier entry of the hash waits to be sent.
func (d *Dispatcher) mustWait(h uint16, replayed bool) bool {
	if replayed { // then the set still holds the hash, because of this entry
		return d.blocked.has(h)
	}
	return d.replay.hasHash(h)
}

func (d *Dispatcher) hash(e *ledger.Entry) (h uint16) {
	if d.subType != wire.KeyShared {
		return 1
	}
	h, d.key = entryHash(e.Data, &d.md, d.key)
	return h
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

// deliver hands each consumer what the send loop collected for it.
func (d *Dispatcher) deliver() {
	for _, c := range d.consumers {
		if v := c.group; v != nil {
			c.group = nil
			d.cfg.Delivered.Add(uint64(v.messages))
			c.Sink.Deliver(v)
		}
	}
}
