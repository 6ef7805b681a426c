package ledger

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
)

// Entry is an entry read. Data may be kept and must not be changed.
type Entry struct {
	ID       int64
	Data     []byte
	Messages int32
}

// ReadCallback receives what a read found, on the ledger's executor.
type ReadCallback interface {
	// EntriesRead gets at least one entry. The slice is reused by the cursor's
	// next read.
	EntriesRead([]Entry)
	// EntriesReplayed gets what still exists, and is not acknowledged, of the
	// entries asked for; perhaps nothing.
	EntriesReplayed([]Entry)
	// ReadFailed means that the pending read will not complete. It runs on the
	// executor or a goroutine of the ledger's, never inside AsyncReadOrWait.
	ReadFailed(error)
}

// ErrReadPending is returned for a second read while one is pending.
var ErrReadPending = errors.New("cursor has a read pending")

// Cursor is a subscription's place in a ledger: what it reads next, and what it
// has acknowledged.
type Cursor struct {
	Name   string
	ledger *Ledger
	cb     ReadCallback

	// mu guards acked and every change of markDelete.
	mu         sync.RWMutex
	acked      ackSet
	markDelete atomic.Int64 // this entry and all before it are acknowledged
	ackedCount int64        // entries acknowledged, marked ones included
	start      int64        // first entry that the cursor covers

	readPos atomic.Int64 // next entry to read

	// The one normal read: set by AsyncReadOrWait, taken when it completes.
	opMu     sync.Mutex
	op       readOp
	pending  bool
	ended    bool
	recheck  *time.Timer
	checking sync.WaitGroup // rechecks under way

	entries  []Entry // of the normal read, reused
	replayed []Entry
}

type readOp struct {
	max      int
	maxBytes int64
}

// Position says where a new cursor starts.
type Position int

const (
	Latest   Position = iota // after the last entry
	Earliest                 // at the first entry still kept
)

// OpenCursor adds a cursor that reports to cb.
func (l *Ledger) OpenCursor(name string, at Position, cb ReadCallback) (*Cursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Closed {
		return nil, fmt.Errorf("opening cursor %s of ledger %s: %w", name, l.Name, ErrClosed)
	}
	c := &Cursor{Name: name, ledger: l, cb: cb, start: l.entries.next}
	if at == Earliest {
		c.start = l.entries.base
	}
	c.markDelete.Store(c.start - 1)
	c.readPos.Store(c.start)
	c.acked.reset(c.start - 1)
	l.cursors = append(l.cursors, c)
	return c, nil
}

// Close removes the cursor from its ledger; no read completes after it returns,
// except one that is running on the executor.
func (c *Cursor) Close() {
	l := c.ledger
	l.mu.Lock()
	for i, o := range l.cursors {
		if o == c {
			l.cursors = append(l.cursors[:i:i], l.cursors[i+1:]...)
			break
		}
	}
	l.mu.Unlock()
	c.end()
	l.requestTrim()
}

func (c *Cursor) end() {
	c.opMu.Lock()
	c.ended, c.pending = true, false
	if c.recheck != nil && c.recheck.Stop() {
		c.checking.Done()
	}
	c.opMu.Unlock()
	c.ledger.removeWaiting(c)
	c.checking.Wait()
}

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
	c.op = readOp{max: max(maxEntries, 1), maxBytes: maxBytes}
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
		return nil
	}
	c.recheck.Reset(delay)
	return nil
}

func (c *Cursor) checkForNewEntries() error {
	if c.HasMore() {
		return c.submitRead()
	}
	c.ledger.addWaiting(c)
	// An add that completed between the look and the registration did not see
	// the waiter.
	if (c.HasMore() || c.isEnded()) && c.ledger.removeWaiting(c) {
		return c.submitRead()
	}
	return nil
}

func (c *Cursor) isEnded() bool {
	c.opMu.Lock()
	defer c.opMu.Unlock()
	return c.ended
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
	pending, op := c.pending, c.op
	c.opMu.Unlock()
	if !pending {
		return
	}
	entries := c.collect(op)
	if len(entries) == 0 { // all acknowledged already
		c.report(c.waitForEntries())
		return
	}
	if c.takeOp() {
		c.cb.EntriesRead(entries)
	}
}

func (c *Cursor) collect(op readOp) []Entry {
	entries := c.entries[:0]
	last := c.ledger.LastConfirmed()
	var bytes int64
	c.mu.RLock()
	id := c.readPos.Load()
	for ; id <= last && len(entries) < op.max; id++ {
		if c.isAcked(id) {
			continue
		}
		e := c.ledger.entries.at(id)
		if e == nil {
			continue
		}
		if bytes += int64(len(e.data)); op.maxBytes > 0 && bytes > op.maxBytes && len(entries) > 0 {
			break
		}
		entries = append(entries, Entry{ID: id, Data: e.data, Messages: e.messages})
	}
	c.mu.RUnlock()
	c.readPos.Store(id)
	c.entries = entries
	return entries
}

// isAcked needs mu.
func (c *Cursor) isAcked(id int64) bool {
	return id <= c.markDelete.Load() || c.acked.has(id)
}

// AsyncReplay reads the given entries again, whatever the read position, up to
// maxBytes bytes (0 = no limit; one entry at least): entries beyond the limit
// are left out and must be asked for again. ids must not change until the
// callback.
func (c *Cursor) AsyncReplay(ids []int64, maxBytes int64) error {
	err := c.ledger.executor.Execute(executor.Read, &replayTask{c, ids, maxBytes})
	if err != nil {
		return fmt.Errorf("replaying at cursor %s: %w", c.Name, err)
	}
	return nil
}

type replayTask struct {
	c        *Cursor
	ids      []int64
	maxBytes int64
}

func (t *replayTask) Run() {
	c := t.c
	if c.isEnded() {
		return
	}
	entries := c.replayed[:0]
	var bytes int64
	c.mu.RLock()
	for _, id := range t.ids {
		e := c.ledger.entries.at(id)
		if e == nil || c.isAcked(id) {
			continue
		}
		if bytes += int64(len(e.data)); t.maxBytes > 0 && bytes > t.maxBytes && len(entries) > 0 {
			break
		}
		entries = append(entries, Entry{ID: id, Data: e.data, Messages: e.messages})
	}
	c.mu.RUnlock()
	c.replayed = entries
	c.cb.EntriesReplayed(entries)
}

// Delete acknowledges entries and returns how many were not acknowledged
// before. Entries that do not exist yet are ignored.
func (c *Cursor) Delete(ids []int64) int {
	last := c.ledger.LastConfirmed()
	fresh := 0
	c.mu.Lock()
	mark := c.markDelete.Load()
	for _, id := range ids {
		if id > mark && id <= last && c.acked.add(id) {
			fresh++
		}
	}
	now := c.acked.advance(mark)
	c.markDelete.Store(now)
	c.ackedCount += int64(fresh)
	c.mu.Unlock()
	c.moved(mark, now)
	return fresh
}

// MarkDelete acknowledges id and everything before it, and returns how many
// entries were not acknowledged before.
func (c *Cursor) MarkDelete(id int64) int {
	id = min(id, c.ledger.LastConfirmed())
	c.mu.Lock()
	mark := c.markDelete.Load()
	if id <= mark {
		c.mu.Unlock()
		return 0
	}
	fresh := 0
	for n := mark + 1; n <= id; n++ {
		if !c.acked.has(n) {
			fresh++
		}
	}
	now := c.acked.advance(id)
	c.markDelete.Store(now)
	c.ackedCount += int64(fresh)
	c.mu.Unlock()
	c.moved(mark, now)
	return fresh
}

// moved asks for trimming when the mark has left a segment.
func (c *Cursor) moved(from, to int64) {
	if (from+1)/segmentSize != (to+1)/segmentSize {
		c.ledger.requestTrim()
	}
}

// MarkDeletePosition returns the last entry up to which all are acknowledged.
func (c *Cursor) MarkDeletePosition() int64 { return c.markDelete.Load() }

// ReadPosition returns the next entry to read.
func (c *Cursor) ReadPosition() int64 { return c.readPos.Load() }

// Backlog returns the number of entries not acknowledged.
func (c *Cursor) Backlog() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ledger.LastConfirmed() + 1 - c.start - c.ackedCount
}
