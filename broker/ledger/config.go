package ledger

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/contention-toolkit/contention/broker/stats"
)

// Handover is how adds reach the executor.
type Handover string

const (
	Direct  Handover = "direct"  // one executor task per add
	Parking Handover = "parking" // the same; the executor's queue has a lock that blocks the thread
	Channel Handover = "channel" // the same; the executor's queue is a Go channel
	Batched Handover = "batched" // one executor task per batch of adds
)

// Handovers are all of them.
func Handovers() []Handover { return []Handover{Direct, Parking, Channel, Batched} }

// ReadCompletion is when a read that found fewer entries than asked for ends.
type ReadCompletion string

const (
	// LastConfirmed ends it with what was confirmed when it ran.
	LastConfirmed ReadCompletion = "last-confirmed"
	// Extend submits another read task, behind whatever the executor has, until
	// the read is full or a task finds nothing new. The model asks whether the
	// cursor has more before it submits; here entries are confirmed on the same
	// executor that reads, so only a later task can tell.
	Extend ReadCompletion = "extend"
)

// QueueCreate is when the queue of batched adds is made.
type QueueCreate string

const (
	Lazy  QueueCreate = "lazy"  // by the first add
	Eager QueueCreate = "eager" // when the ledger opens
)

// Config is captured when a ledger opens: changing it later has no effect on
// that ledger.
type Config struct {
	// Handover; "" = Batched. Parking and Channel need an executor of that kind.
	Handover Handover
	// MaxBatchItems is the most adds of a batch; 0 or 1 turns batching off.
	MaxBatchItems int
	// MaxBatchBytes ends a batch once its entries add up to this many bytes;
	// 0 = no limit.
	MaxBatchBytes int64
	// QueueChunk is the number of adds per chunk of the batched queue; 0 = 512.
	QueueChunk int
	// QueueCreate; "" = Lazy.
	QueueCreate QueueCreate
	// NewEntriesCheckDelay is how long a read that finds nothing waits before
	// it looks again and then registers to be woken; 0 = register at once.
	NewEntriesCheckDelay time.Duration
	// ReadCompletion; "" = LastConfirmed.
	ReadCompletion ReadCompletion
	// RetentionBytes is how much of what every cursor has acknowledged is kept;
	// 0 = nothing, negative = all.
	RetentionBytes int64
	// Timestamps keeps when each entry was taken.
	Timestamps bool

	// Log, when set, stores the entries; they are acknowledged once it has them.
	// The ledger owns it from OpenLedger to CloseLog.
	Log Log
	// WriteCacheBytes bounds the entries handed to the log and not yet in it;
	// 0 = 64 MiB. Beyond it the executor waits for room, up to
	// WriteCacheTimeout (0 = 10 s), and then fails the add.
	WriteCacheBytes   int64
	WriteCacheTimeout time.Duration
	// ReadCacheBytes is how much of the newest entries stays in memory for
	// readers when there is a log; 0 = 64 MiB.
	ReadCacheBytes int64
	// SkipCorrupt passes over entries that the log has damaged, as if they were
	// acknowledged; otherwise reads fail there until somebody decides.
	SkipCorrupt bool
	// OnLogFailure, when set, is told of a failed commit: the ledger is fenced
	// by then. It runs on a goroutine of the ledger's and must not block.
	OnLogFailure func(error)

	// BatchSizes, when set, receives the number of adds of each batch.
	BatchSizes *stats.Histogram
	// Storage, when set, receives what the log costs.
	Storage *StorageStats
	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// Validate returns what is wrong with c, or nil.
func (c Config) Validate() error {
	switch {
	case c.Handover != "" && c.Handover != Direct && c.Handover != Parking && c.Handover != Channel && c.Handover != Batched:
		return fmt.Errorf("hand-over mode %q is not known: use one of %v", c.Handover, Handovers())
	case c.MaxBatchItems < 0:
		return fmt.Errorf("hand-over batch items are %d: use 0 or 1 for no batching, or more", c.MaxBatchItems)
	case c.MaxBatchBytes < 0:
		return fmt.Errorf("hand-over batch bytes are %d: use 0 for no limit, or more", c.MaxBatchBytes)
	case c.QueueChunk < 0:
		return fmt.Errorf("hand-over queue chunk is %d: use 0 for the default, or more", c.QueueChunk)
	case c.QueueCreate != "" && c.QueueCreate != Lazy && c.QueueCreate != Eager:
		return fmt.Errorf("hand-over queue creation %q is not known: use %q or %q", c.QueueCreate, Lazy, Eager)
	case c.NewEntriesCheckDelay < 0:
		return fmt.Errorf("new-entries check delay is %v: use 0 for none, or more", c.NewEntriesCheckDelay)
	case c.ReadCompletion != "" && c.ReadCompletion != LastConfirmed && c.ReadCompletion != Extend:
		return fmt.Errorf("read completion %q is not known: use %q or %q", c.ReadCompletion, LastConfirmed, Extend)
	case c.WriteCacheBytes < 0 || c.ReadCacheBytes < 0 || c.WriteCacheTimeout < 0:
		return fmt.Errorf("caches are %d and %d bytes, the write cache's timeout %v: none may be negative",
			c.WriteCacheBytes, c.ReadCacheBytes, c.WriteCacheTimeout)
	}
	return nil
}

// EffectiveHandover is the mode a ledger opens with: batching with a limit of
// one item is direct.
func (c Config) EffectiveHandover() Handover {
	switch {
	case c.Handover != "" && c.Handover != Batched:
		return c.Handover
	case c.MaxBatchItems > 1:
		return Batched
	}
	return Direct
}

func (c Config) batches() bool { return c.EffectiveHandover() == Batched }

func (c *Config) setDefaults() {
	if c.WriteCacheBytes == 0 {
		c.WriteCacheBytes = 64 << 20
	}
	if c.WriteCacheTimeout == 0 {
		c.WriteCacheTimeout = 10 * time.Second
	}
	if c.ReadCacheBytes == 0 {
		c.ReadCacheBytes = 64 << 20
	}
	if c.Storage == nil {
		c.Storage = NewStorageStats()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}
