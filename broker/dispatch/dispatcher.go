// Package dispatch sends a ledger's entries to the consumers of one
// subscription.
//
//	Flow → permits → readMoreEntries → Cursor read (ledger executor) → send
//	loop: key hash, owner, permits, pending acknowledgement → Sink.Deliver
//	Ack → pending acknowledgement removed → cursor
//
// One lock, the dispatcher's monitor, guards the set of consumers, the decision
// to read, redelivery and the whole send loop. In flow mode [Monitor] a Flow
// takes it too, on one of the broker's workers, so it waits for a running send
// loop; in mode [Atomic] a Flow only adds to counters and asks the ledger
// executor to read more. An acknowledgement never takes it.
//
// # Order
//
// With Key_Shared, and with Exclusive and Failover whose every entry counts as
// one key, an entry is sent only if no earlier entry of its key hash waits to
// be sent and no other consumer has one unacknowledged. What cannot be sent
// goes to the replay set and blocks its hash; so does what a closing consumer
// leaves unacknowledged. Shared keeps no order, but sends the chunks of one
// message to one consumer in theirs.
//
// How far it reads past what waits is bounded by the look-ahead limits, and
// what is sent and not acknowledged by the permits and the unacked limits, so a
// consumer that stands still holds a bounded number of entries.
package dispatch

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// Reasons a consumer is refused; see also ErrKeyRanges and ErrOtherPolicy.
var (
	ErrClosed       = errors.New("subscription is closed")
	ErrConsumerBusy = errors.New("an exclusive consumer is connected already")
	ErrOtherType    = errors.New("subscription has consumers of another type")
)

// Dispatcher serves one subscription. Use New.
type Dispatcher struct {
	Name string

	cfg      Config
	ledgerID uint64
	cursor   *ledger.Cursor
	executor *executor.Executor

	total     atomic.Int64  // permits of all consumers, in messages
	unacked   atomic.Int64  // messages
	requested atomic.Bool   // a dispatch task is queued
	retrying  atomic.Bool   // a retry is due
	unwritten atomic.Uint64 // send loop of which no delivery is written; 0 = none
	members   atomic.Pointer[[]*Consumer]
	draining  draining
	redeliver redeliveries
	counters  counters

	mu          sync.Mutex // the monitor
	closed      bool
	subType     wire.SubType
	policy      keyPolicy
	consumers   []*Consumer // by priority, then by joining; replaced as a whole
	active      *Consumer   // Exclusive, Failover
	selector    *selector   // Key_Shared
	chunks      chunkOwners // Shared
	next        int         // Shared: whose turn it is
	turnLeft    int         // Shared: entries left in the turn
	nextNumber  uint64
	loops       uint64 // send loops that a read waited for
	replay      replaySet
	readBatch   int
	readPending bool
	readFirst   int64        // first entry of the replay set when that read began
	replayIDs   []int64      // asked for and not returned yet; empty = none
	picked      []replayItem // what replayIDs are, as they are in the replay set
	replayStale bool         // an entry before the last of them came to the set
	unackedFull bool
	failing     bool // nothing is read: the last read failed
	failures    backoff
	retries     backoff

	// Scratch of the send loop.
	md      wire.Metadata
	key     []byte
	blocked hashSet
	leaving []replayItem
	moved   []replayItem
	gone    []int64
}

// New opens a cursor on l for subscription name and returns its dispatcher. A
// durable cursor outlives the broker where the ledger has a log. Reads run on
// e, the ledger's executor.
func New(l *ledger.Ledger, e *executor.Executor, name string, at ledger.Position, durable bool, cfg Config) (*Dispatcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("subscription %s: %w", name, err)
	}
	cfg.setDefaults()
	if cfg.Flow == Monitor && cfg.Workers == nil {
		return nil, fmt.Errorf("subscription %s: flow mode %q needs workers", name, Monitor)
	}
	d := &Dispatcher{
		Name: name, ledgerID: l.ID, cfg: cfg, executor: e, readBatch: cfg.MaxReadBatchSize,
		failures: backoff{first: cfg.ReadFailureBackoff, most: cfg.ReadFailureBackoffMax},
		retries:  backoff{first: time.Millisecond, most: 10 * time.Millisecond},
	}
	d.members.Store(new([]*Consumer))
	c, err := l.OpenCursor(name, at, durable, callbacks{d})
	if err != nil {
		return nil, err
	}
	d.cursor = c
	return d, nil
}

// Cursor returns the subscription's cursor.
func (d *Dispatcher) Cursor() *ledger.Cursor { return d.cursor }

// Members returns the consumers connected; the slice must not be changed.
func (d *Dispatcher) Members() []*Consumer { return *d.members.Load() }

// Consumers returns the number of consumers connected.
func (d *Dispatcher) Consumers() int { return len(*d.members.Load()) }

// Close ends the subscription: its cursor is closed and nothing more is sent.
// Consumers need not be closed first.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cursor.Close() // outside the lock: it waits for callbacks that take it
}

// SetReadLimits changes the most entries and bytes of reads to come, with the
// meaning that they have in Config: 0 entries = 500, 0 bytes = no limit;
// negative ones count as 0.
func (d *Dispatcher) SetReadLimits(entries int, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries = max(entries, 0)
	orDefault(&entries, defaultReadBatch)
	d.cfg.MaxReadBatchSize, d.cfg.MaxReadSizeBytes = entries, max(bytes, 0)
	d.readBatch = entries
}

// Reset moves the subscription to entry next: it is sent next, whatever was
// acknowledged. All consumers are removed and returned; nothing is sent to them
// any more, and what they acknowledge has no effect. It waits for the executor,
// on which it must not be called.
func (d *Dispatcher) Reset(next int64) ([]*Consumer, error) {
	var removed []*Consumer
	var err error
	done := make(chan struct{})
	task := executor.Func(func() {
		defer close(done)
		removed, err = d.resetTo(next)
	})
	if err := d.executor.Execute(executor.Other, task); err != nil {
		return nil, fmt.Errorf("subscription %s: moving to entry %d: %w", d.Name, next, err)
	}
	select {
	case <-done:
	case <-d.executor.Done(): // the task may still have run
		select {
		case <-done:
		default:
			return nil, fmt.Errorf("subscription %s: moving to entry %d: %w", d.Name, next, executor.ErrRejected)
		}
	}
	return removed, err
}

// resetTo runs on the executor, so no send loop is under way.
func (d *Dispatcher) resetTo(next int64) ([]*Consumer, error) {
	for _, c := range *d.members.Load() {
		c.endAcks() // not under mu, though nothing that holds ackMu waits for it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("subscription %s: %w", d.Name, ErrClosed)
	}
	removed := d.consumers
	for _, c := range removed {
		c.endAcks() // one may have joined since
		d.detach(c)
	}
	d.setConsumers(nil)
	d.replay.clear()
	d.redeliver.forgetUpTo(math.MaxInt64)
	d.updateUnackedFull()
	d.unwritten.Store(0)
	d.cursor.Reset(next)
	d.readPending, d.replayIDs, d.replayStale = false, d.replayIDs[:0], false
	return removed, nil
}

// endAcks makes later acknowledgements void and waits for one under way.
func (c *Consumer) endAcks() {
	c.ackMu.Lock()
	c.reset = true
	c.ackMu.Unlock()
}
