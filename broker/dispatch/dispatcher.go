// Package dispatch sends a ledger's entries to the consumers of one
// subscription.
//
//	Flow → permits → readMoreEntries → Cursor read (ledger executor) → send
//	loop: key hash, owner, permits, pending acknowledgement → Sink.Deliver
//	Ack → pending acknowledgement removed → cursor
//
// One lock, the dispatcher's monitor, guards the set of consumers, the decision
// to read and the whole send loop. In flow mode [Monitor] a Flow takes it too,
// on one of the broker's workers, so it waits for a running send loop; in mode
// [Atomic] a Flow only adds to counters and asks the ledger executor to read
// more.
//
// # Order
//
// With Key_Shared, and with Exclusive and Failover whose every entry counts as
// one key, an entry is sent only if no earlier entry of its key hash waits to
// be sent and no other consumer has one unacknowledged. What cannot be sent
// goes to the replay set and blocks its hash; so does what a closing consumer
// leaves unacknowledged.
package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// FlowMode is how a consumer's permits reach the dispatcher.
type FlowMode string

const (
	Monitor FlowMode = "monitor" // under the dispatcher's lock
	Atomic  FlowMode = "atomic"  // without it
)

// Config is captured when a dispatcher is made. The zero value of a limit means
// the default given with it.
type Config struct {
	// Flow; "" = Atomic.
	Flow FlowMode
	// MaxReadBatchSize is the most entries of one read; 0 = 500.
	MaxReadBatchSize int
	// MaxReadSizeBytes bounds the bytes of one read, which has at least one
	// entry; 0 = no limit.
	MaxReadSizeBytes int64
	// MaxRoundRobinBatch is the most entries a Shared consumer gets in a row;
	// 0 = 20.
	MaxRoundRobinBatch int
	// MaxUnackedPerConsumer and MaxUnackedPerSubscription bound the messages
	// sent and not acknowledged with Shared and Key_Shared; sending resumes at
	// half. 0 = 50,000 and 200,000, negative = no limit.
	MaxUnackedPerConsumer     int64
	MaxUnackedPerSubscription int64
	// LookAheadPerConsumer and LookAheadPerSubscription bound the entries read
	// ahead that cannot be sent: the smaller of consumers × the first and the
	// second. 0 = 4,000 and 40,000.
	LookAheadPerConsumer     int
	LookAheadPerSubscription int
	// Workers run Flow in mode Monitor, where they are required.
	Workers *executor.Ordered
	// Delivered, when set, counts messages handed to consumers' connections.
	Delivered *atomic.Uint64
	// Acked, when set, counts messages acknowledged.
	Acked *atomic.Uint64
	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// Validate returns what is wrong with c, or nil.
func (c Config) Validate() error {
	switch {
	case c.Flow != "" && c.Flow != Monitor && c.Flow != Atomic:
		return fmt.Errorf("flow mode %q is not known: use %q or %q", c.Flow, Monitor, Atomic)
	case c.MaxReadBatchSize < 0 || c.MaxReadSizeBytes < 0 || c.MaxRoundRobinBatch < 0:
		return fmt.Errorf("read limits are %d entries, %d bytes, %d in a row: none may be negative",
			c.MaxReadBatchSize, c.MaxReadSizeBytes, c.MaxRoundRobinBatch)
	case c.LookAheadPerConsumer < 0 || c.LookAheadPerSubscription < 0:
		return fmt.Errorf("look-ahead limits are %d and %d: none may be negative", c.LookAheadPerConsumer, c.LookAheadPerSubscription)
	}
	return nil
}

func orDefault[T int | int64](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func (c *Config) setDefaults() {
	if c.Flow == "" {
		c.Flow = Atomic
	}
	orDefault(&c.MaxReadBatchSize, 500)
	orDefault(&c.MaxRoundRobinBatch, 20)
	orDefault(&c.MaxUnackedPerConsumer, 50_000)
	orDefault(&c.MaxUnackedPerSubscription, 200_000)
	orDefault(&c.LookAheadPerConsumer, 4_000)
	orDefault(&c.LookAheadPerSubscription, 40_000)
	if c.Delivered == nil {
		c.Delivered = new(atomic.Uint64)
	}
	if c.Acked == nil {
		c.Acked = new(atomic.Uint64)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// Reasons a consumer is refused.
var (
	ErrClosed       = errors.New("subscription is closed")
	ErrConsumerBusy = errors.New("an exclusive consumer is connected already")
	ErrOtherType    = errors.New("subscription has consumers of another type")
)

// readRetryDelay is how long a rejected read waits before it is tried again.
const readRetryDelay = 100 * time.Millisecond

// Dispatcher serves one subscription. Use New.
type Dispatcher struct {
	Name string

	cfg      Config
	ledgerID uint64
	cursor   *ledger.Cursor
	executor *executor.Executor

	total     atomic.Int64 // permits of all consumers, in messages
	unacked   atomic.Int64 // messages
	requested atomic.Bool  // a dispatch task is queued
	retrying  atomic.Bool  // a retry is due
	draining  draining
	redeliver redeliveries

	mu          sync.Mutex // the monitor
	closed      bool
	subType     wire.SubType
	consumers   []*Consumer
	ring        *ring // Key_Shared
	next        int   // Shared: whose turn it is
	turnLeft    int   // Shared: entries left in the turn
	nextNumber  uint64
	replay      replaySet
	readBatch   int
	readPending bool
	replayIDs   []int64 // asked for and not returned yet; nil = none
	replayStale bool    // the replay set changed below what was asked for
	unackedFull bool

	// Scratch of the send loop.
	md      wire.Metadata
	key     []byte
	blocked hashSet
	sent    []int64
}

// New opens a cursor on l for subscription name and returns its dispatcher.
// Reads run on e, the ledger's executor.
func New(l *ledger.Ledger, e *executor.Executor, name string, at ledger.Position, cfg Config) (*Dispatcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("subscription %s: %w", name, err)
	}
	cfg.setDefaults()
	if cfg.Flow == Monitor && cfg.Workers == nil {
		return nil, fmt.Errorf("subscription %s: flow mode %q needs workers", name, Monitor)
	}
	d := &Dispatcher{Name: name, ledgerID: l.ID, cfg: cfg, executor: e, readBatch: cfg.MaxReadBatchSize}
	c, err := l.OpenCursor(name, at, callbacks{d})
	if err != nil {
		return nil, err
	}
	d.cursor = c
	return d, nil
}

// Cursor returns the subscription's cursor.
func (d *Dispatcher) Cursor() *ledger.Cursor { return d.cursor }

// AddConsumer connects a consumer. A subscription without consumers takes the
// type of the first one.
func (d *Dispatcher) AddConsumer(o ConsumerOptions) (*Consumer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, fmt.Errorf("subscription %s: %w", d.Name, ErrClosed)
	case len(d.consumers) > 0 && d.subType != o.Type:
		return nil, fmt.Errorf("subscription %s is %v, consumer %s wants %v: %w", d.Name, d.subType, o.Name, o.Type, ErrOtherType)
	case len(d.consumers) > 0 && o.Type == wire.Exclusive:
		return nil, fmt.Errorf("subscription %s: %w", d.Name, ErrConsumerBusy)
	}
	if d.subType != o.Type {
		d.subType = o.Type
		d.replay.forgetHashes()
	}
	d.nextNumber++
	c := &Consumer{ConsumerOptions: o, d: d, number: d.nextNumber}
	d.consumers = append(d.consumers, c)
	d.membersChanged()
	return c, nil
}

// membersChanged needs mu.
func (d *Dispatcher) membersChanged() {
	d.ring = nil
	if d.subType == wire.KeyShared {
		d.ring = newRing(d.consumers)
	}
	if d.ring != nil {
		d.draining.recompute(d.consumers, d.ring.owner)
	}
	// With Failover a standby becomes active only when the active consumer has
	// gone, and its entries to the replay set: nothing drains.
}

// removeConsumer sends what c has not acknowledged to the replay set.
func (d *Dispatcher) removeConsumer(c *Consumer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := false
	for i, o := range d.consumers {
		if o == c {
			d.consumers = append(d.consumers[:i:i], d.consumers[i+1:]...)
			found = true
			break
		}
	}
	if !found {
		return
	}
	// Only what Flow has credited to the total may be debited: permits that
	// the consumer has and the dispatcher has not seen yet are not part of it.
	d.total.Add(-c.closeCredit())
	left := c.pending.close()
	d.unacked.Add(-c.unacked.Swap(0))
	d.updateUnackedFull()
	d.toReplay(left, true)
	d.membersChanged()
	if !d.closed {
		d.readMoreAsync()
	}
}

// toReplay needs mu.
func (d *Dispatcher) toReplay(items []replayItem, countDelivery bool) {
	if len(items) == 0 {
		return
	}
	d.replay.addAll(items)
	d.replayStale = true
	if countDelivery {
		d.redeliver.count(items)
	}
}

// Consumers returns the number of consumers connected.
func (d *Dispatcher) Consumers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.consumers)
}

// Close ends the subscription: its cursor is closed and nothing more is sent.
// Consumers need not be closed first.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cursor.Close() // outside the lock: it waits for callbacks that take it
}

// Stats of a subscription.
type Stats struct {
	Consumers int
	Permits   int64 // messages
	Unacked   int64 // messages
	Replay    int   // entries
	Backlog   int64 // entries
}

// Stats reads a subscription's figures.
func (d *Dispatcher) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Stats{
		Consumers: len(d.consumers), Permits: d.total.Load(), Unacked: d.unacked.Load(),
		Replay: d.replay.len(), Backlog: d.cursor.Backlog(),
	}
}
