package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft-wal/types"
)

// LogOptions are how a log is kept. The zero value syncs always.
type LogOptions struct {
	// Sync; "" = SyncAlways.
	Sync Sync
	// SyncInterval is the longest that SyncInterval leaves entries unsynced;
	// 0 = 1 s.
	SyncInterval time.Duration
	// SegmentBytes is the size at which a new file is begun, and with it the
	// grain of Trim; 0 = 64 MiB, at most 2 GiB. A file ends at 32,768 blocks,
	// too.
	SegmentBytes int64
	// Cache is shared by the logs that are given it; nil = 4 MiB for this log.
	Cache *Cache
	// Logger; nil = slog.Default().
	Logger *slog.Logger

	fs fileSystem // nil = the operating system's
}

const (
	maxSegmentBytes = 2 << 30
	// The library allocates room for this many at once and would have to grow.
	maxSegmentBlocks = 32 << 10
	// maxLoaded is how many sealed segments a log keeps open for reading.
	maxLoaded = 2
)

// Log is the entries of one ledger on disk. One goroutine at a time may append,
// trim and recover; any may do the rest at any time.
//
// A log that has been written to holds one open file and about 200 KB; reading
// older entries opens up to two more. One that has only been opened holds no
// file until its first Append or Read.
type Log struct {
	dir    string
	o      LogOptions
	cache  *Cache
	found  Recovery
	listed bool // the directory exists and is listed in its parent

	buf []byte // of the block being written
	one [1]types.LogEntry

	mu     sync.Mutex
	segs   []*segmentFile // in order; the last one may be written to
	loaded []*segmentFile // sealed ones that are open, the least recently used first
	next   int64
	index  int64 // of the next message
	size   int64
	failed error
	closed bool
	timer  *time.Timer // runs while something waits for the interval

	syncing sync.Mutex // one Sync at a time; before mu
	loading sync.Mutex // one load at a time; before mu
}

// OpenLog opens the log in dir, which need not exist: nothing is created before
// the first Append. A torn tail is cut off, logged and reported by Recovered.
func OpenLog(dir string, o LogOptions) (*Log, error) {
	if o.Sync == "" {
		o.Sync = SyncAlways
	}
	if !o.Sync.Valid() {
		return nil, fmt.Errorf("opening the log %s: sync mode %q is not known: use one of %v", dir, o.Sync, Syncs())
	}
	if o.SegmentBytes < 0 || o.SegmentBytes > maxSegmentBytes {
		return nil, fmt.Errorf("opening the log %s: segments of %d bytes: use 0 for the default, or up to %d", dir, o.SegmentBytes, maxSegmentBytes)
	}
	if o.SyncInterval < 0 {
		return nil, fmt.Errorf("opening the log %s: sync interval is %v: use 0 for the default, or more", dir, o.SyncInterval)
	}
	if o.SyncInterval == 0 {
		o.SyncInterval = time.Second
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.fs == nil {
		o.fs = osFS{}
	}
	l := &Log{dir: dir, o: o, cache: o.Cache}
	if l.cache == nil {
		l.cache = NewCache(4 << 20)
	}
	if err := l.recover(); err != nil {
		return nil, fmt.Errorf("opening the log %s: %w", dir, err)
	}
	return l, nil
}

// Recovered says what opening found.
func (l *Log) Recovered() Recovery { return l.found }

// First is the number of the first entry stored; it is Next of an empty log.
func (l *Log) First() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segs) == 0 {
		return l.next
	}
	return l.segs[0].first
}

// Next is the number of the next entry.
func (l *Log) Next() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// NextIndex is the index in the topic of the next message.
func (l *Log) NextIndex() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index
}

// Size is the bytes of the log's files.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Close syncs, unless the mode is SyncNever, and closes the log's files. A second
// Close does nothing.
func (l *Log) Close() error {
	var err error
	l.mu.Lock()
	closed, failed := l.closed, l.failed
	l.mu.Unlock()
	if closed {
		return nil
	}
	if l.o.Sync != SyncNever && failed == nil {
		err = l.Sync()
	}
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	for _, s := range l.segs {
		if s.f != nil {
			err = errors.Join(err, s.f.Close())
			s.f, s.writer = nil, nil
		}
	}
	l.loaded, l.buf = nil, nil
	l.cache.forget(func(s *segmentFile) bool { return slices.Contains(l.segs, s) })
	return err
}

// Remove deletes the log in dir, which must not be open.
func Remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the log %s: %w", dir, err)
	}
	return nil
}
