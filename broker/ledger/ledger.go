// Package ledger is the managed ledger: an append-only log, its cursors, and
// the hand-over of adds to the one executor that owns it.
//
//	AsyncAddEntry (any goroutine)
//	   │ direct, parking, channel: one executor task per add
//	   │ batched: executor.Batching
//	   ▼
//	executor: state check under the ledger's lock
//	   │ in memory: append → last confirmed → AddCallback (receipt)
//	   │ with a log: write cache → commit goroutine: group commit → one
//	   │    executor task: last confirmed, all the group's AddCallbacks
//	   ▼
//	one wake task per waiting cursor
//
//	Cursor.AsyncReadOrWait → executor: read task → ReadCallback (dispatch);
//	   what is only in the log is read by a goroutine of the ledger's first
//
// The executor's goroutine alone changes the entries. The ledger's lock guards
// the state and the list of cursors, as the model's does, and is taken once per
// add. Reads, wake-ups and completions all pass through the executor's queue,
// behind whatever waits there.
//
// Entries are kept until every cursor has acknowledged them, or, with no cursor,
// about 1,024 of them, and beyond that as Config.RetentionBytes says. A cursor
// that does not move therefore keeps everything published after its position:
// in memory, or with a log on disk, of which the newest Config.ReadCacheBytes
// are in memory as well.
package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	// Epoch is the ledger's when the producer got to know it.
	Epoch uint32
	// Failed, when set, fails the add if it is true when the add runs: an
	// earlier one of its producer has failed, and order would break.
	Failed *atomic.Bool
	Done   AddCallback

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

	commits *committer     // nil: entries are in memory only
	reading sync.WaitGroup // of the log, by goroutines of ours

	lastConfirmed atomic.Int64
	trimming      atomic.Bool
	trimmed       atomic.Int64 // the least mark when last trimmed
	averageSize   atomic.Int64 // bytes of an entry, about
	epoch         atomic.Uint32

	waitMu  sync.Mutex
	waiting []*Cursor
	waiters atomic.Int32
}

// OpenLedger returns an empty ledger whose work runs on e.
func OpenLedger(id uint64, name string, e *executor.Executor, cfg Config) (*Ledger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("opening ledger %s: %w", name, err)
	}
	cfg.setDefaults()
	l := &Ledger{ID: id, Name: name, cfg: cfg, executor: e, log: cfg.Logger}
	l.lastConfirmed.Store(-1)
	l.entries.startAt(0, 0)
	l.entries.timed = cfg.Timestamps
	if cfg.Log != nil {
		l.entries.startAt(cfg.Log.Next(), cfg.Log.NextIndex())
		l.lastConfirmed.Store(cfg.Log.Next() - 1)
		l.commits = startCommitter(l)
	}
	if !cfg.batches() {
		return l, nil
	}
	b, err := executor.NewBatching(e, executor.BatchOptions[Add]{
		Run:      l.runHandedOver,
		Rejected: func(a *Add, err error) { a.Done.AddFailed(l.rejected(err)) },
		Failed:   l.addPanicked,
		Weight:   func(a *Add) int64 { return int64(len(a.Data)) },
		MaxItems: cfg.MaxBatchItems, MaxWeight: cfg.MaxBatchBytes, Chunk: cfg.QueueChunk, Eager: cfg.QueueCreate == Eager,
		Sizes: cfg.BatchSizes,
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
		return l.cfg.EffectiveHandover(), 0, 0
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
	err := l.state.err()
	if err == nil && (a.Epoch != l.epoch.Load() || a.Failed != nil && a.Failed.Load()) {
		err = ErrFenced
	}
	if err != nil {
		l.mu.Unlock()
		a.Done.AddFailed(l.rejected(err))
		return
	}
	if l.commits != nil {
		l.mu.Unlock()
		l.commits.add(a)
		return
	}
	entry := l.entries.append(a.Data, max(a.Messages, 1), l.now())
	if len(l.cursors) == 0 && (entry+1)%segmentSize == 0 {
		l.entries.trimKeeping(entry+1, l.cfg.RetentionBytes)
	}
	if entry&63 == 0 {
		l.averageSize.Store(l.entries.bytes / (l.entries.next - l.entries.base))
	}
	l.mu.Unlock()
	l.lastConfirmed.Store(entry)
	a.Done.AddCompleted(entry)
	if l.waiters.Load() > 0 {
		l.notifyCursors()
	}
}

// now returns the time of an add, or 0 where nobody wants it.
func (l *Ledger) now() int64 {
	if !l.cfg.Timestamps {
		return 0
	}
	return time.Now().UnixMilli()
}

// notifyCursors submits one wake task per waiting cursor.
func (l *Ledger) notifyCursors() {
	l.waitMu.Lock()
	waiting := l.waiting
	l.waiting = nil
	l.waiters.Store(0)
	l.waitMu.Unlock()
	for _, c := range waiting {
		err := l.executor.Execute(executor.Wake, (*wakeTask)(c))
		if err != nil && c.takeOp() { // there may be no later add to try again
			c.report(fmt.Errorf("waking cursor %s: %w", c.Name, err))
		}
	}
}

func (l *Ledger) addWaiting(c *Cursor) {
	l.waitMu.Lock()
	if !slices.Contains(l.waiting, c) { // one that Reset gave up may still be there
		l.waiting = append(l.waiting, c)
	}
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

// State returns the state.
func (l *Ledger) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// SetState changes the state: adds that run from then on fail with its error.
func (l *Ledger) SetState(s State) {
	l.mu.Lock()
	l.state = s
	l.mu.Unlock()
}

// Close fails later adds and ends every cursor; no read completes after it.
// Adds handed over before may still complete while the executor runs. The log
// is not closed: see CloseLog.
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
