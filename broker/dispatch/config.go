package dispatch

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
)

// FlowMode is how a consumer's permits reach the dispatcher.
type FlowMode string

const (
	Monitor FlowMode = "monitor" // under the dispatcher's lock
	Atomic  FlowMode = "atomic"  // without it
)

// What the next normal read waits for, after entries were sent.
const (
	NextReadNone       = "none"        // nothing
	NextReadAnyWritten = "any-written" // until one consumer's delivery was released by its connection
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
	// NextRead is NextReadNone or NextReadAnyWritten; "" = NextReadNone.
	NextRead string
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
	// ReadFailureBackoff is how long nothing is read after a read failed; it
	// doubles with each further failure in a row, up to ReadFailureBackoffMax.
	// 0 = 15 s and 60 s.
	ReadFailureBackoff    time.Duration
	ReadFailureBackoffMax time.Duration
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
	case c.NextRead != "" && c.NextRead != NextReadNone && c.NextRead != NextReadAnyWritten:
		return fmt.Errorf("next-read mode %q is not known: use %q or %q", c.NextRead, NextReadNone, NextReadAnyWritten)
	case c.MaxReadBatchSize < 0 || c.MaxReadSizeBytes < 0 || c.MaxRoundRobinBatch < 0:
		return fmt.Errorf("read limits are %d entries, %d bytes, %d in a row: none may be negative",
			c.MaxReadBatchSize, c.MaxReadSizeBytes, c.MaxRoundRobinBatch)
	case c.LookAheadPerConsumer < 0 || c.LookAheadPerSubscription < 0:
		return fmt.Errorf("look-ahead limits are %d and %d: none may be negative", c.LookAheadPerConsumer, c.LookAheadPerSubscription)
	case c.ReadFailureBackoff < 0 || c.ReadFailureBackoffMax < 0:
		return fmt.Errorf("back-off after a failed read is %v to %v: neither may be negative", c.ReadFailureBackoff, c.ReadFailureBackoffMax)
	}
	return nil
}

const defaultReadBatch = 500

func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func (c *Config) setDefaults() {
	if c.Flow == "" {
		c.Flow = Atomic
	}
	orDefault(&c.MaxReadBatchSize, defaultReadBatch)
	orDefault(&c.MaxRoundRobinBatch, 20)
	orDefault(&c.MaxUnackedPerConsumer, 50_000)
	orDefault(&c.MaxUnackedPerSubscription, 200_000)
	orDefault(&c.LookAheadPerConsumer, 4_000)
	orDefault(&c.LookAheadPerSubscription, 40_000)
	orDefault(&c.ReadFailureBackoff, 15*time.Second)
	orDefault(&c.ReadFailureBackoffMax, max(60*time.Second, c.ReadFailureBackoff))
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
