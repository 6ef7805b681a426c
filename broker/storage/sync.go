package storage

import (
	"errors"
	"fmt"
	"os"
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
