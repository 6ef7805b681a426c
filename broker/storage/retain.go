package storage

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

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
	var past []*segmentFile // all of whose entries are before before
	for i := 0; i+1 < len(l.segs) && l.segs[i+1].first <= before; i++ {
		past = append(past, l.segs[i])
	}
	l.mu.Unlock()
	var held int64
	for i, s := range slices.Backward(past) {
		size, err := fileSize(l.o.fs, s.path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("trimming the log %s: %w", l.dir, err)
		}
		if held >= keep {
			return l.Trim(past[i].first + 1 + s.span(past, i))
		}
		held += size
	}
	return nil
}
