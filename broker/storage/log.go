package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft-wal/types"
)

// Sync is when entries are flushed from the operating system's memory to the
// disk. In every mode they are handed to the operating system before Append
// returns: the mode governs what a power failure can take, not what the death of
// the process can.
type Sync string

const (
	SyncAlways   Sync = "always"   // before Append returns
	SyncInterval Sync = "interval" // at most LogOptions.SyncInterval after
	SyncNever    Sync = "never"    // when the operating system likes to
)

// Syncs are all of them.
func Syncs() []Sync { return []Sync{SyncAlways, SyncInterval, SyncNever} }

// ParseSync returns the mode of that name.
func ParseSync(s string) (Sync, error) {
	if m := Sync(s); m.Valid() {
		return m, nil
	}
	return "", fmt.Errorf("sync mode %q is not known: use one of %v", s, Syncs())
}

// Valid tells whether s is a mode.
func (s Sync) Valid() bool { return s == SyncAlways || s == SyncInterval || s == SyncNever }

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

var (
	// ErrFailed: an earlier write or sync failed, so that it is not known what
	// the disk has. Recover makes the log usable again.
	ErrFailed = errors.New("the log failed earlier and has not recovered")
	// ErrClosed: the log has been closed.
	ErrClosed = errors.New("the log is closed")
)

// CorruptError is a part of a log that cannot be read. What is before and after
// it can.
type CorruptError struct {
	File   string
	Offset int64 // of the first damaged byte
	First  int64 // entry that cannot be read
	Next   int64 // entry after the last one that cannot be read
}

func (e *CorruptError) Error() string {
	if e.First == e.Next {
		return fmt.Sprintf("%s is corrupt at byte %d, before entry %d; no entry is missing", e.File, e.Offset, e.Next)
	}
	return fmt.Sprintf("%s is corrupt at byte %d: entries %d to %d cannot be read, the next good one is %d",
		e.File, e.Offset, e.First, e.Next-1, e.Next)
}

// Recovery is what opening a log found.
type Recovery struct {
	// CutBytes at CutOffset of CutFile were not a whole block and were cut off:
	// a write that its process or the power did not live to end.
	CutBytes  int64
	CutFile   string
	CutOffset int64
	// Damage of the last segment; older segments are looked at when they are
	// read.
	Damage []*CorruptError
}

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

// recover finds the segments and the end of the last one.
func (l *Log) recover() error {
	segs, err := listSegments(l.o.fs, l.dir)
	if err != nil {
		return err
	}
	for len(segs) > 0 {
		last := segs[len(segs)-1]
		if err := l.recoverTail(last); err != nil {
			return err
		}
		if len(last.blocks) > 0 || len(segs) == 1 {
			break
		}
		// Nothing of it had been stored; the one before may have lost its end
		// to the same power failure.
		if err := l.o.fs.Remove(last.path); err != nil {
			return err
		}
		segs = segs[:len(segs)-1]
	}
	l.segs = segs
	for i, s := range segs {
		if i < len(segs)-1 {
			size, err := fileSize(l.o.fs, s.path)
			if err != nil {
				return err
			}
			l.size += size
			continue
		}
		l.next, l.index = s.next, s.nextIndex
		l.size += s.end
		l.found.Damage = s.damage
		for _, d := range s.damage {
			l.o.Logger.Error("log is corrupt", "log", l.dir, "err", d)
		}
	}
	return nil
}

func fileSize(fs fileSystem, path string) (int64, error) {
	f, err := fs.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	size, err := f.Size()
	return size, errors.Join(err, f.Close())
}

// recoverTail finds the whole blocks of the last segment and cuts off the rest.
func (l *Log) recoverTail(s *segmentFile) error {
	f, err := l.o.fs.OpenFile(s.path, os.O_RDWR)
	if err != nil {
		return err
	}
	s.f = f
	size, err := s.scan()
	if cut := size - s.end; err == nil && cut > 0 {
		if err = f.Truncate(s.end); err == nil && l.o.Sync != SyncNever {
			err = f.Sync()
		}
		if err == nil {
			l.found.CutBytes, l.found.CutFile, l.found.CutOffset = l.found.CutBytes+cut, s.path, s.end
			l.o.Logger.Warn("log has a torn tail, cut off", "log", l.dir, "file", s.path, "offset", s.end,
				"bytes", cut, "next_entry", s.next)
		}
	}
	s.f = nil
	return errors.Join(err, f.Close())
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

// Append stores entries, at most MaxBlockBytes, as one block: all of them or
// none. When it returns they survive the process, with SyncAlways the power, too.
// After an error it is not known what the disk has: until Recover succeeds every
// Append fails with ErrFailed, and no reader sees what failed.
func (l *Log) Append(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if err := l.check(entries); err != nil {
		return fmt.Errorf("appending to the log %s: %w", l.dir, err)
	}
	if err := l.append(entries); err != nil {
		err = fmt.Errorf("appending entries %d to %d to the log %s: %w", entries[0].ID, entries[len(entries)-1].ID, l.dir, err)
		l.fail(err)
		return err
	}
	return nil
}

// check finds what must not be appended, before anything has happened.
func (l *Log) check(entries []Entry) error {
	l.mu.Lock()
	next, index := l.next, l.index
	failed, closed := l.failed, l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case failed != nil:
		return fmt.Errorf("%w: %w", ErrFailed, failed)
	}
	for i := range entries {
		e := &entries[i]
		index += int64(e.Messages)
		if e.ID != next+int64(i) || e.Messages < 0 || e.Index != index-1 {
			return fmt.Errorf("entry %d with %d messages up to index %d does not follow entry %d, whose next index is %d",
				e.ID, e.Messages, e.Index, next+int64(i)-1, index-int64(e.Messages))
		}
	}
	if n := blockBytes(entries); n > MaxBlockBytes {
		return fmt.Errorf("%d entries of up to %d bytes are more than the %d that one append can store: append fewer", len(entries), n, MaxBlockBytes)
	}
	return nil
}

func (l *Log) append(entries []Entry) error {
	l.buf = appendBlock(l.buf[:0], entries)
	length := int64(len(l.buf))
	s, err := l.tail(length)
	if err != nil {
		return err
	}
	l.mu.Lock()
	w, f, unlisted := s.writer, s.f, s.unlisted
	l.mu.Unlock()
	if w == nil {
		return ErrClosed
	}
	l.one[0] = types.LogEntry{Index: uint64(s.first) + 1 + uint64(len(s.blocks)), Data: l.buf}
	if err := w.Append(l.one[:]); err != nil {
		return err
	}
	l.one[0].Data = nil
	if l.o.Sync == SyncAlways {
		if err := l.syncFile(f, unlisted); err != nil {
			return err
		}
	}
	if cap(l.buf) > 1<<20 {
		l.buf = nil // many logs may have had one large block each
	}
	e := entries[len(entries)-1]
	l.mu.Lock()
	defer l.mu.Unlock()
	before := s.end
	s.add(length, e.ID+1, e.Index+1)
	l.next, l.index = s.next, s.nextIndex
	l.size += s.end - before
	if l.o.Sync == SyncAlways {
		s.unlisted = false
		return nil
	}
	s.unsynced = true
	if l.o.Sync == SyncInterval && l.timer == nil && !l.closed {
		l.timer = time.AfterFunc(l.o.SyncInterval, l.syncLater)
	}
	return nil
}

func (l *Log) syncFile(f file, unlisted bool) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if unlisted {
		return l.o.fs.SyncDir(l.dir)
	}
	return nil
}

// tail returns the segment to append length bytes to.
func (l *Log) tail(length int64) (*segmentFile, error) {
	l.mu.Lock()
	s := l.last()
	writing := s != nil && s.writer != nil
	l.mu.Unlock()
	if s != nil && len(s.damage) == 0 && len(s.blocks) < maxSegmentBlocks &&
		(len(s.blocks) == 0 || blockEnd(s.nextAt(), length) <= l.o.SegmentBytes) {
		if writing {
			return s, nil
		}
		if ok, err := l.reopen(s); ok || err != nil {
			return s, err
		}
		l.o.Logger.Warn("log goes on in a new file: the library sees the last one differently", "log", l.dir, "file", s.path)
	}
	return l.newSegment(s)
}

// last is the segment that may be written to, or nil; l.mu is held.
func (l *Log) last() *segmentFile {
	if len(l.segs) == 0 {
		return nil
	}
	return l.segs[len(l.segs)-1]
}

// reopen makes a segment from before ready for appends, if it can be.
func (l *Log) reopen(s *segmentFile) (bool, error) {
	f, err := l.o.fs.OpenFile(s.path, os.O_RDWR)
	if err != nil {
		return false, err
	}
	w := &segmentFile{path: s.path, first: s.first, index: s.index, blocks: s.blocks, f: f}
	if err := w.startWriting(false); err != nil || w.writer == nil {
		return false, errors.Join(err, f.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, errors.Join(ErrClosed, f.Close())
	}
	old := s.f
	s.f, s.writer = f, w.writer
	if old != nil {
		return true, old.Close() // readers that have it look again
	}
	return true, nil
}

// newSegment begins a file after s, which may be nil.
func (l *Log) newSegment(old *segmentFile) (*segmentFile, error) {
	if !l.listed {
		if err := l.makeDir(); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	next, index := l.next, l.index
	l.mu.Unlock()
	s := &segmentFile{path: filepath.Join(l.dir, segmentName(next, index)), first: next, index: index,
		next: next, nextIndex: index, loaded: true, unlisted: true}
	f, err := l.o.fs.OpenFile(s.path, os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	s.f = f
	if err := s.startWriting(true); err != nil {
		return nil, errors.Join(err, f.Close(), l.o.fs.Remove(s.path))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.Join(ErrClosed, f.Close(), l.o.fs.Remove(s.path))
	}
	l.segs = append(l.segs, s)
	if old != nil {
		old.writer = nil
		if old.f != nil {
			l.loaded = append(l.loaded, old)
			l.evict(nil)
		}
	}
	return s, nil
}

// makeDir makes the log's directory.
func (l *Log) makeDir() error {
	if err := l.o.fs.MkdirAll(l.dir); err != nil {
		return err
	}
	if l.o.Sync != SyncNever {
		if err := l.o.fs.SyncDir(filepath.Dir(l.dir)); err != nil {
			return err
		}
	}
	l.listed = true
	return nil
}

// evict closes what is open beyond maxLoaded, except keep; l.mu is held.
func (l *Log) evict(keep *segmentFile) {
	for i := 0; len(l.loaded) > maxLoaded && i < len(l.loaded); {
		s := l.loaded[i]
		if s == keep {
			i++
			continue
		}
		l.loaded = slices.Delete(l.loaded, i, i+1)
		l.unload(s)
	}
}

// unload forgets a segment's blocks and closes its file, which nothing is
// written to; l.mu is held.
func (l *Log) unload(s *segmentFile) {
	if s.f != nil {
		if err := s.f.Close(); err != nil {
			l.o.Logger.Warn("closing a file of a log failed", "file", s.path, "err", err)
		}
	}
	s.f, s.writer, s.loaded, s.blocks, s.damage = nil, nil, false, nil, nil
}

// fail makes the log refuse appends.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil && !l.closed {
		l.failed = err
		l.o.Logger.Error("log failed, it takes nothing until it has recovered", "log", l.dir, "err", err)
	}
}

// Recover makes the log usable after a failure, without what failed: the file is
// cut to what had been stored, read again and checked.
func (l *Log) Recover() error {
	l.mu.Lock()
	failed, closed, s := l.failed, l.closed, l.last()
	l.mu.Unlock()
	if closed {
		return fmt.Errorf("recovering the log %s: %w", l.dir, ErrClosed)
	}
	if failed == nil {
		return nil
	}
	if s != nil {
		if err := l.recoverSegment(s); err != nil {
			return fmt.Errorf("recovering the log %s: %w", l.dir, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = nil
	l.o.Logger.Info("log recovered", "log", l.dir, "next_entry", l.next)
	return nil
}

func (l *Log) recoverSegment(s *segmentFile) error {
	f, err := l.o.fs.OpenFile(s.path, os.O_RDWR)
	if err != nil {
		return err
	}
	check := &segmentFile{path: s.path, first: s.first, index: s.index, f: f}
	if err = f.Truncate(s.end); err == nil && l.o.Sync != SyncNever {
		err = l.syncFile(f, true)
	}
	if err == nil {
		_, err = check.scan()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if check.next != s.next {
		return &CorruptError{File: s.path, Offset: check.end, First: check.next, Next: s.next}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := s.f
	s.f, s.writer = nil, nil
	if l.o.Sync != SyncNever {
		s.unsynced, s.unlisted = false, false
	}
	if old != nil {
		return old.Close()
	}
	return nil
}

// Trim drops the files all of whose entries are before entry before; the last
// file with entries stays.
func (l *Log) Trim(before int64) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return fmt.Errorf("trimming the log %s: %w", l.dir, ErrClosed)
	}
	n := 0
	for n+1 < len(l.segs) && l.segs[n+1].first <= min(before, l.next-1) {
		n++
	}
	gone := slices.Clone(l.segs[:n])
	l.mu.Unlock()
	for _, s := range gone {
		if err := l.remove(s); err != nil {
			return fmt.Errorf("trimming the log %s: %w", l.dir, err)
		}
	}
	if n > 0 {
		l.cache.forget(func(s *segmentFile) bool { return slices.Contains(gone, s) })
	}
	return nil
}

// remove forgets the first segment and deletes its file. One that cannot be
// deleted is back when the log is opened again.
func (l *Log) remove(s *segmentFile) error {
	size, err := fileSize(l.o.fs, s.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l.mu.Lock()
	l.segs = slices.Delete(l.segs, 0, 1)
	l.size -= size
	if i := slices.Index(l.loaded, s); i >= 0 {
		l.loaded = slices.Delete(l.loaded, i, i+1)
	}
	l.unload(s)
	l.mu.Unlock()
	if err := l.o.fs.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Sync flushes everything appended before to the disk.
func (l *Log) Sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.closed {
		l.mu.Unlock()
		return fmt.Errorf("syncing the log %s: %w", l.dir, ErrClosed)
	}
	var dirty []*segmentFile
	for _, s := range l.segs {
		if s.unsynced {
			s.unsynced = false
			dirty = append(dirty, s)
		}
	}
	l.mu.Unlock()
	for i, s := range dirty {
		if err := l.syncSegment(s); err != nil {
			err = fmt.Errorf("syncing the log %s: %w", l.dir, err)
			l.fail(err)
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, s := range dirty[i:] {
				s.unsynced, s.unlisted = true, true
			}
			return err
		}
	}
	return nil
}

// syncSegment syncs through a file of its own, so that nothing needs to be kept
// open for it.
func (l *Log) syncSegment(s *segmentFile) error {
	f, err := l.o.fs.OpenFile(s.path, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return nil // trimmed
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	unlisted := s.unlisted
	s.unlisted = false
	l.mu.Unlock()
	return errors.Join(l.syncFile(f, unlisted), f.Close())
}

func (l *Log) syncLater() {
	if err := l.Sync(); err != nil && !errors.Is(err, ErrClosed) {
		l.o.Logger.Error("syncing a log failed", "log", l.dir, "err", err)
	}
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
