package storage

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

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
	l.mu.Lock()
	l.segs = slices.Delete(l.segs, 0, 1)
	l.size -= s.bytes
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

// TrimKeeping drops files all of whose entries are before entry before, oldest
// first, as long as the rest of such files are at least keep bytes; keep < 0
// drops nothing.
func (l *Log) TrimKeeping(before, keep int64) error {
	if keep < 0 {
		return nil
	}
	if keep == 0 {
		return l.Trim(before)
	}
	l.mu.Lock()
	last := len(l.segs) - 1 // of those before it
	for last > 0 && l.segs[last].first > before {
		last--
	}
	var held int64
	for i := last - 1; i >= 0; i-- {
		if held >= keep {
			before = l.segs[i+1].first
			l.mu.Unlock()
			return l.Trim(before)
		}
		held += l.segs[i].bytes
	}
	l.mu.Unlock()
	return nil
}
