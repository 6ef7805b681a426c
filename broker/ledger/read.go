package ledger

import (
	"fmt"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
)

// HasMore reports whether there are confirmed entries after the read position.
func (c *Cursor) HasMore() bool { return c.readPos.Load() <= c.ledger.LastConfirmed() }

// AsyncReadOrWait reads up to maxEntries entries and maxBytes bytes (0 = no
// limit; one entry at least) from the read position up to the last confirmed
// entry, or waits for one. One such read may be pending at a time. After an
// error none is, and nothing will be called.
func (c *Cursor) AsyncReadOrWait(maxEntries int, maxBytes int64) error {
	c.opMu.Lock()
	switch {
	case c.ended:
		c.opMu.Unlock()
		return fmt.Errorf("reading at cursor %s: %w", c.Name, ErrClosed)
	case c.pending:
		c.opMu.Unlock()
		return ErrReadPending
	}
	c.pending = true
	c.op = readOp{most: max(maxEntries, 1), maxBytes: maxBytes}
	c.entries = c.entries[:0]
	c.opMu.Unlock()
	if c.HasMore() {
		return c.submitRead()
	}
	return c.waitForEntries()
}

// submitRead submits the pending read; if the executor rejects it, no read is
// pending any more.
func (c *Cursor) submitRead() error {
	err := c.ledger.executor.Execute(executor.Read, (*readTask)(c))
	if err != nil && c.takeOp() {
		return fmt.Errorf("reading at cursor %s: %w", c.Name, err)
	}
	return nil
}

func (c *Cursor) report(err error) {
	if err != nil {
		c.cb.ReadFailed(err)
	}
}

// waitForEntries looks again after the check delay, and then registers.
func (c *Cursor) waitForEntries() error {
	delay := c.ledger.cfg.NewEntriesCheckDelay
	if delay == 0 {
		return c.checkForNewEntries()
	}
	c.opMu.Lock()
	defer c.opMu.Unlock()
	if c.ended {
		return nil
	}
	c.checking.Add(1)
	if c.recheck == nil {
		c.recheck = time.AfterFunc(delay, func() {
			defer c.checking.Done()
			c.report(c.checkForNewEntries())
		})
	} else if c.recheck.Reset(delay) {
		c.checking.Done() // that of a read which Reset has given up
	}
	return nil
}

func (c *Cursor) checkForNewEntries() error {
	if c.HasMore() {
		return c.submitRead()
	}
	if !c.isPending() {
		return nil
	}
	c.ledger.addWaiting(c)
	// An add that completed between the look and the registration did not see
	// the waiter.
	if (c.HasMore() || !c.isPending()) && c.ledger.removeWaiting(c) {
		return c.submitRead()
	}
	return nil
}

// isPending reports whether a read waits for its entries; none does after the
// cursor's end.
func (c *Cursor) isPending() bool {
	c.opMu.Lock()
	defer c.opMu.Unlock()
	return c.pending
}

// wakeTask tells a waiting cursor that entries have come.
type wakeTask Cursor

func (t *wakeTask) Run() { (*Cursor)(t).notifyEntriesAvailable() }

func (c *Cursor) notifyEntriesAvailable() { c.report(c.submitRead()) }

// takeOp ends the pending read and reports whether there was one.
func (c *Cursor) takeOp() bool {
	c.opMu.Lock()
	defer c.opMu.Unlock()
	was := c.pending
	c.pending = false
	return was
}

// readTask collects a normal read on the executor and hands it on.
type readTask Cursor

func (t *readTask) Run() { (*Cursor)(t).readEntries() }

func (c *Cursor) readEntries() {
	c.opMu.Lock()
	pending, round := c.pending, c.round
	c.opMu.Unlock()
	if !pending {
		return
	}
	had := len(c.entries)
	if from, miss := c.collect(); miss {
		c.readLog(from, round)
		return
	}
	c.collected(had)
}

// collected goes on after a pass that found what lies behind the first had
// entries.
func (c *Cursor) collected(had int) {
	if len(c.entries) == 0 { // all acknowledged already
		c.report(c.waitForEntries())
		return
	}
	// The read is extended as long as it is not full and entries arrive.
	if c.ledger.cfg.ReadCompletion == Extend && len(c.entries) > had && !c.op.full(len(c.entries)) {
		c.report(c.submitRead())
		return
	}
	if c.takeOp() {
		c.cb.EntriesRead(c.entries)
	}
}

func (o *readOp) full(entries int) bool {
	return entries >= o.most || o.maxBytes > 0 && o.bytes >= o.maxBytes
}

// fits takes an entry's bytes, unless they are too many for the read; the first
// entry always fits.
func (o *readOp) fits(bytes, entries int) bool {
	if o.maxBytes > 0 && o.bytes+int64(bytes) > o.maxBytes && entries > 0 {
		o.bytes = o.maxBytes // full
		return false
	}
	o.bytes += int64(bytes)
	return true
}

// collect adds to c.entries what is in memory from the read position on. miss
// means that there is nothing, and that entry from has to come from the log.
func (c *Cursor) collect() (from int64, miss bool) {
	last := c.ledger.LastConfirmed()
	c.mu.RLock()
	defer c.mu.RUnlock()
	id := c.readPos.Load()
	for ; id <= last && len(c.entries) < c.op.most; id++ {
		if c.isAcked(id) {
			continue
		}
		e, ok := c.ledger.entries.at(id)
		if !ok && c.ledger.commits != nil {
			c.readPos.Store(id)
			return id, len(c.entries) == 0
		}
		if !ok {
			continue
		}
		if !c.op.fits(len(e.Data), len(c.entries)) {
			break
		}
		c.entries = append(c.entries, e)
	}
	c.readPos.Store(id)
	return 0, false
}

// isAcked needs mu.
func (c *Cursor) isAcked(id int64) bool {
	return id <= c.markDelete.Load() || c.acked.has(id)
}
