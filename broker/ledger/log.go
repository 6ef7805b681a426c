package ledger

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/stats"
)

// Log stores a ledger's entries where they survive the process. One goroutine
// at a time appends, recovers and trims; any may read meanwhile.
type Log interface {
	// First and Next are the numbers of the first entry stored and of the next
	// one; NextIndex is the index of the next message.
	First() int64
	Next() int64
	NextIndex() int64
	// Size is the bytes stored.
	Size() int64
	// Append stores entries as one commit: all of them or none. When it returns
	// they survive the process. After an error nothing can be appended until
	// Recover succeeds.
	Append(entries []Entry) error
	// Read appends to into up to most entries and maxBytes bytes (0 = no limit)
	// from entry from on, at least one.
	Read(from int64, most int, maxBytes int64, into []Entry) ([]Entry, error)
	// TrimKeeping may drop entries before entry before, as long as about keep bytes of
	// them stay; keep < 0 drops nothing.
	TrimKeeping(before, keep int64) error
	// Recover makes the log usable after a failed Append, without what failed.
	Recover() error
	Close() error
}

// Reasons an add to a log fails.
var (
	// ErrThrottled: the write cache stayed full.
	ErrThrottled = errors.New("write cache is full")
	// ErrPersistence: the log could not store the entry.
	ErrPersistence = errors.New("entry could not be stored")
)

// StorageStats are what logs cost, over all ledgers that share them.
type StorageStats struct {
	Throttles      atomic.Uint64    // times an executor waited for room in the write cache
	ThrottledNanos atomic.Int64     // that it waited
	Commits        *stats.Histogram // entries of each group commit
	CommitTime     *stats.Histogram // ns that each took
	CommitBytes    atomic.Uint64
	Skipped        atomic.Uint64 // damaged entries passed over, once per cursor
	Failures       atomic.Uint64 // group commits that failed
	CacheMisses    atomic.Uint64 // reads that had to go to the log
	Pending        atomic.Int64  // bytes in write caches
}

// NewStorageStats returns empty ones.
func NewStorageStats() *StorageStats {
	return &StorageStats{
		Commits:    stats.NewHistogram(stats.Exponential(1, 1<<16, 2)),
		CommitTime: stats.NewHistogram(stats.Exponential(1_000, 10_000_000_000, 1.5)),
	}
}

// Throttled returns the total time that executors waited.
func (s *StorageStats) Throttled() time.Duration { return time.Duration(s.ThrottledNanos.Load()) }
