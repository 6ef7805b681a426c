package storage

import (
	"errors"
	"fmt"
	"os"
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
			if s.bytes, err = fileSize(l.o.fs, s.path); err != nil {
				return err
			}
			l.size += s.bytes
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
