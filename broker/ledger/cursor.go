package ledger

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/storage"
)

// Entry is an entry read. Data may be kept and must not be changed; Timestamp
// is 0 unless Config.Timestamps is set.
type Entry = storage.Entry

// ReadCallback receives what a read found, on the ledger's executor.
type ReadCallback interface {
	// EntriesRead gets at least one entry. The slice is reused by the cursor's
	// next read.
	EntriesRead([]Entry)
	// EntriesReplayed gets what still exists, and is not acknowledged, of the
	// entries asked for; perhaps nothing.
	EntriesReplayed([]Entry)
	// ReplayFailed means that none of the entries asked for could be read. It
	// runs where ReadFailed may.
	ReplayFailed(error)
	// ReadFailed means that the pending read will not complete. It runs on the
	// executor or a goroutine of the ledger's, never inside AsyncReadOrWait.
	ReadFailed(error)
}

// ErrReadPending is returned for a second read while one is pending.
var ErrReadPending = errors.New("cursor has a read pending")

// Cursor is a subscription's place in a ledger: what it reads next, and what it
// has acknowledged.
type Cursor struct {
	Name    string
	Durable bool
	ledger  *Ledger
	cb      ReadCallback

	// mu guards acked and every change of markDelete.
	mu         sync.RWMutex
	acked      ackSet
	markDelete atomic.Int64 // this entry and all before it are acknowledged
	ackedCount int64        // entries acknowledged, marked ones included
	start      int64        // first entry that the cursor covers

	readPos atomic.Int64 // next entry to read
	dirty   atomic.Bool  // acknowledged since the state was last asked for

	// The one normal read: set by AsyncReadOrWait, taken when it completes.
	opMu     sync.Mutex
	op       readOp
	pending  bool
	round    uint64 // a read that began in an earlier one is void
	ended    bool
	recheck  *time.Timer
	checking sync.WaitGroup // rechecks under way

	entries  []Entry // of the normal read, reused
	replayed []Entry
}

type readOp struct {
	most     int
	maxBytes int64
	bytes    int64 // of what was collected
}

// Position is the entry that a new cursor reads first; a number outside what is
// kept means the nearest one that is.
type Position int64

const (
	Latest   Position = -1 // after the last entry
	Earliest Position = -2 // the first entry still kept
)

// OpenCursor adds a cursor that reports to cb. State of a durable one survives
// the broker where the ledger has a log.
func (l *Ledger) OpenCursor(name string, at Position, durable bool, cb ReadCallback) (*Cursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Closed {
		return nil, fmt.Errorf("opening cursor %s of ledger %s: %w", name, l.Name, ErrClosed)
	}
	first, next := l.firstLocked(), l.LastConfirmed()+1
	start := min(max(int64(at), first), next)
	if at == Latest {
		start = next
	}
	c := &Cursor{Name: name, Durable: durable, ledger: l, cb: cb}
	c.startAt(start)
	l.cursors = append(l.cursors, c)
	return c, nil
}

// startAt needs mu, or that nobody else has the cursor.
func (c *Cursor) startAt(next int64) {
	c.start, c.ackedCount = next, 0
	c.markDelete.Store(next - 1)
	c.readPos.Store(next)
	c.acked.reset(next - 1)
}

// Reset moves the cursor: entry next is read next, all before it are
// acknowledged, none from it on is. No read is pending afterwards, and what
// reads under way find is dropped. Only the ledger's executor may call it.
func (c *Cursor) Reset(next int64) {
	c.opMu.Lock()
	c.pending = false
	c.round++
	c.opMu.Unlock()
	c.ledger.removeWaiting(c)
	c.mu.Lock()
	c.startAt(min(max(next, c.ledger.First()), c.ledger.LastConfirmed()+1))
	c.mu.Unlock()
	c.dirty.Store(true)
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
	c.touch(fresh)
	c.moved(now)
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
	c.touch(fresh)
	c.moved(now)
	return fresh
}

// touch notes that the cursor's state changed.
func (c *Cursor) touch(fresh int) {
	if fresh > 0 && !c.dirty.Load() {
		c.dirty.Store(true)
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
