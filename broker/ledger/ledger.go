// Package ledger is the managed ledger: an append-only log in memory, its
// cursors, and the hand-over of adds to the one executor that owns it.
//
//	AsyncAddEntry (any goroutine)
//	   │ direct: one executor task per add      batched: executor.Batching
//	   ▼
//	executor: state check under the ledger's lock → append → last confirmed
//	   → AddCallback (receipt) → one wake task per waiting cursor
//
//	Cursor.AsyncReadOrWait → executor: read task → ReadCallback (dispatch)
//
// The executor's goroutine alone touches the entries. The ledger's lock guards
// the state and the list of cursors, as the model's does, and is taken once per
// add. Reads, wake-ups and completions all pass through the executor's queue,
// behind whatever waits there.
//
// An entry's bytes are kept until every cursor has acknowledged it, or, with
// no cursor, until its segment of 1,024 entries is full. A cursor that does not
// move therefore keeps everything published after its position.
package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/stats"
)

// Reasons an add fails.
var (
	ErrClosed     = errors.New("ledger is closed")
	ErrFenced     = errors.New("ledger is fenced")
	ErrTerminated = errors.New("ledger is terminated")
)

// Handover is how adds reach the executor.
type Handover string

const (
	Direct  Handover = "direct"  // one executor task per add
	Batched Handover = "batched" // one executor task per batch of adds
)

// Config is captured when a ledger opens: changing it later has no effect on
// that ledger.
type Config struct {
	// Handover; "" = Batched.
	Handover Handover
	// MaxBatchItems is the most adds of a batch; 0 or 1 turns batching off.
	MaxBatchItems int
	// MaxBatchBytes ends a batch once its entries add up to this many bytes;
	// 0 = no limit.
	MaxBatchBytes int64
	// QueueChunk is the number of adds per chunk of the batched queue; 0 = 512.
	QueueChunk int
	// NewEntriesCheckDelay is how long a read that finds nothing waits before
	// it looks again and then registers to be woken; 0 = register at once.
	NewEntriesCheckDelay time.Duration
	// BatchSizes, when set, receives the number of adds of each batch.
	BatchSizes *stats.Histogram
	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// Validate returns what is wrong with c, or nil.
func (c Config) Validate() error {
	switch {
	case c.Handover != "" && c.Handover != Direct && c.Handover != Batched:
		return fmt.Errorf("hand-over mode %q is not known: use %q or %q", c.Handover, Direct, Batched)
	case c.MaxBatchItems < 0:
		return fmt.Errorf("hand-over batch items are %d: use 0 or 1 for no batching, or more", c.MaxBatchItems)
	case c.MaxBatchBytes < 0:
		return fmt.Errorf("hand-over batch bytes are %d: use 0 for no limit, or more", c.MaxBatchBytes)
	case c.QueueChunk < 0:
		return fmt.Errorf("hand-over queue chunk is %d: use 0 for the default, or more", c.QueueChunk)
	case c.NewEntriesCheckDelay < 0:
		return fmt.Errorf("new-entries check delay is %v: use 0 for none, or more", c.NewEntriesCheckDelay)
	}
	return nil
}

func (c Config) batches() bool { return c.Handover != Direct && c.MaxBatchItems > 1 }

// AddCallback learns the end of one add: exactly one of its methods is called,
// once, unless AsyncAddEntry returned an error.
type AddCallback interface {
	// AddCompleted runs on the ledger's executor and must not block.
	AddCompleted(entry int64)
	// AddFailed may run on any goroutine that hands adds over.
	AddFailed(err error)
}

// Add is one entry to append. It belongs to the ledger from AsyncAddEntry
// until its callback has been called; then it may be reused.
type Add struct {
	// Data is the entry. The ledger keeps it and hands it to readers: it must
	// never change again, even after the Add is reused.
	Data []byte
	// Messages is the number of messages in the entry.
	Messages int32
	Done     AddCallback

	ledger *Ledger
	at     int64
}

// addTask is an Add as the executor sees it in direct mode.
type addTask Add

func (t *addTask) Run() { t.ledger.internalAsyncAddEntry((*Add)(t)) }

// State of a ledger.
type State int32

const (
	Open State = iota
	Fenced
	Terminated
	Closed
)

func (s State) err() error {
	switch s {
	case Open:
		return nil
	case Fenced:
		return ErrFenced
	case Terminated:
		return ErrTerminated
	}
	return ErrClosed
}

// Ledger is one topic's log. Use OpenLedger.
type Ledger struct {
	ID   uint64
	Name string

	cfg      Config
	executor *executor.Executor
	batching *executor.Batching[Add] // nil: adds go to the executor one by one
	log      *slog.Logger

	mu      sync.Mutex
	state   State
	cursors []*Cursor
	entries store // written under mu on the executor, so read there without

	lastConfirmed atomic.Int64
	trimming      atomic.Bool

	waitMu  sync.Mutex
	waiting []*Cursor
	waiters atomic.Int32
}

// OpenLedger returns an empty ledger whose work runs on e.
func OpenLedger(id uint64, name string, e *executor.Executor, cfg Config) (*Ledger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("opening ledger %s: %w", name, err)
	}
	l := &Ledger{ID: id, Name: name, cfg: cfg, executor: e, log: cfg.Logger}
	if l.log == nil {
		l.log = slog.Default()
	}
	l.lastConfirmed.Store(-1)
	if !cfg.batches() {
		return l, nil
	}
	b, err := executor.NewBatching(e, executor.BatchOptions[Add]{
		Run:      l.runHandedOver,
		Rejected: func(a *Add, err error) { a.Done.AddFailed(l.rejected(err)) },
		Failed:   l.addPanicked,
		Weight:   func(a *Add) int64 { return int64(len(a.Data)) },
		MaxItems: cfg.MaxBatchItems, MaxWeight: cfg.MaxBatchBytes, Chunk: cfg.QueueChunk, Sizes: cfg.BatchSizes,
	})
	if err != nil {
		return nil, fmt.Errorf("opening ledger %s: %w", name, err)
	}
	l.batching = b
	return l, nil
}

// Handover returns how adds are handed over and the limits captured at open;
// items is 0 when adds are not batched, bytes 0 when they have no byte limit.
func (l *Ledger) Handover() (mode Handover, items int, bytes int64) {
	if l.batching == nil {
		return Direct, 0, 0
	}
	items, bytes = l.batching.Limits()
	return Batched, items, bytes
}

// AsyncAddEntry hands a over to the executor. An error means that a was not and
// will not be added and that its callback will not be called. Adds handed over
// by one goroutine are appended in that order. Any goroutine may call it.
func (l *Ledger) AsyncAddEntry(a *Add) error {
	a.ledger = l
	var err error
	if l.batching != nil {
		a.at = stats.Now()
		err = l.batching.Submit(a)
	} else {
		err = l.executor.Execute(executor.Add, (*addTask)(a))
	}
	if err != nil {
		return l.rejected(err)
	}
	return nil
}

func (l *Ledger) rejected(err error) error {
	return fmt.Errorf("adding to ledger %s: %w", l.Name, err)
}

// runHandedOver runs one add of a batch; its time in queue runs from the append
// to the batched queue.
func (l *Ledger) runHandedOver(a *Add) {
	l.executor.Observe(executor.Add, stats.Now()-a.at)
	l.internalAsyncAddEntry(a)
}

func (l *Ledger) addPanicked(_ *Add, p any) {
	l.log.Error("add panicked", "ledger", l.Name, "panic", p)
}

func (l *Ledger) internalAsyncAddEntry(a *Add) {
	l.mu.Lock()
	if err := l.state.err(); err != nil {
		l.mu.Unlock()
		a.Done.AddFailed(l.rejected(err))
		return
	}
	entry := l.entries.append(a.Data, a.Messages)
	if len(l.cursors) == 0 {
		l.entries.trim(entry + 1 - (entry+1)%segmentSize)
	}
	l.mu.Unlock()
	l.lastConfirmed.Store(entry)
	a.Done.AddCompleted(entry)
	if l.waiters.Load() > 0 {
		l.notifyCursors()
	}
}

// notifyCursors submits one wake task per waiting cursor.
func (l *Ledger) notifyCursors() {
	l.waitMu.Lock()
	waiting := l.waiting
	l.waiting = nil
	l.waiters.Store(0)
	l.waitMu.Unlock()
	for _, c := range waiting {
		if err := l.executor.Execute(executor.Wake, (*wakeTask)(c)); err != nil {
			l.addWaiting(c) // the next add tries again
		}
	}
}

func (l *Ledger) addWaiting(c *Cursor) {
	l.waitMu.Lock()
	l.waiting = append(l.waiting, c)
	l.waiters.Store(int32(len(l.waiting)))
	l.waitMu.Unlock()
}

// removeWaiting reports whether c was waiting, that is, whether the caller and
// not a wake task goes on with c's read.
func (l *Ledger) removeWaiting(c *Cursor) bool {
	l.waitMu.Lock()
	defer l.waitMu.Unlock()
	for i, w := range l.waiting {
		if w == c {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			l.waiters.Store(int32(len(l.waiting)))
			return true
		}
	}
	return false
}

// LastConfirmed returns the last entry appended, −1 for none.
func (l *Ledger) LastConfirmed() int64 { return l.lastConfirmed.Load() }

// SetState changes the state: adds that run from then on fail with its error.
func (l *Ledger) SetState(s State) {
	l.mu.Lock()
	l.state = s
	l.mu.Unlock()
}

// Close fails later adds and ends every cursor; no read completes after it.
func (l *Ledger) Close() {
	l.mu.Lock()
	l.state = Closed
	cursors := l.cursors
	l.cursors = nil
	l.mu.Unlock()
	for _, c := range cursors {
		c.end()
	}
}

// requestTrim has the executor drop what every cursor has acknowledged.
func (l *Ledger) requestTrim() {
	if l.trimming.CompareAndSwap(false, true) {
		if l.executor.Execute(executor.Other, (*trimTask)(l)) != nil {
			l.trimming.Store(false) // the next acknowledgement tries again
		}
	}
}

type trimTask Ledger

func (t *trimTask) Run() {
	l := (*Ledger)(t)
	l.trimming.Store(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.entries.next
	for _, c := range l.cursors {
		before = min(before, c.markDelete.Load()+1)
	}
	l.entries.trim(before)
}

// Stats of a ledger.
type Stats struct {
	Entries int64 // ever appended
	Kept    int64 // of these, still in memory
	Bytes   int64 // of the kept ones
	Cursors int
}

// Stats reads a ledger's figures.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Entries: l.entries.next, Kept: l.entries.next - l.entries.base, Bytes: l.entries.bytes, Cursors: len(l.cursors)}
}
