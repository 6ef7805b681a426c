package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft-wal/types"
)

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
		old.writer, old.bytes = nil, old.end
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
