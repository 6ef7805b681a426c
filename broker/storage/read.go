package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"
)

// Read appends to into up to most entries and about maxBytes bytes (0 = no limit
// for either) of them, beginning with entry from or, where that has been
// trimmed, with the first one stored. There is at least one if from is before
// Next. Their data are valid for as long as anything refers to them, and keep
// the block they are in in memory.
//
// The error is a *CorruptError where the next entry cannot be read; Read goes on
// from its Next.
func (l *Log) Read(from int64, most int, maxBytes int64, into []Entry) ([]Entry, error) {
	left := noLimit(int64(most))
	room := noLimit(maxBytes)
	got := len(into)
	for left > 0 {
		block, err := l.blockOf(from)
		if err != nil {
			if len(into) > got {
				return into, nil // the next call meets it
			}
			return into, fmt.Errorf("reading entry %d of the log %s: %w", from, l.dir, err)
		}
		if len(block) == 0 {
			return into, nil
		}
		from = max(from, block[0].ID)
		for _, e := range block[from-block[0].ID:] {
			if left == 0 || (len(into) > got && room < int64(len(e.Data))) {
				return into, nil
			}
			into = append(into, e)
			left--
			room -= int64(len(e.Data))
			from++
		}
	}
	return into, nil
}

// blockOf returns the entries of the block that holds entry from, or the first
// block if from has been trimmed; none at the end of the log.
func (l *Log) blockOf(from int64) ([]Entry, error) {
	for range 100 { // files may be closed while they are read
		p, err := l.locate(from)
		if err != nil || p.seg == nil {
			return nil, err
		}
		if p.f == nil {
			if err := l.load(p.seg); err != nil {
				return nil, err
			}
			continue
		}
		if entries := l.cache.get(p.key()); entries != nil {
			return entries, nil
		}
		entries, bytes, err := p.read()
		switch {
		case errors.Is(err, os.ErrClosed):
			continue
		case errors.Is(err, errBlock):
			return nil, fmt.Errorf("%w (%w)", l.corrupt(p), err)
		case err != nil:
			return nil, fmt.Errorf("%s at byte %d: %w", p.seg.path, p.ref.at, err)
		}
		l.cache.put(p.key(), entries, bytes)
		return entries, nil
	}
	return nil, errors.New("its file is closed again and again")
}

// place is where a block is.
type place struct {
	seg *segmentFile // nil = the end of the log
	f   file         // nil = the segment has to be loaded
	ref blockRef
}

func (p place) key() cacheKey { return cacheKey{p.seg, p.ref.at} }

// read returns the entries of the block and about what they take in memory.
func (p place) read() ([]Entry, int64, error) {
	b := make([]byte, p.ref.length)
	if _, err := p.f.ReadAt(b, int64(p.ref.at)); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	h, err := parseHeader(b)
	if err != nil {
		return nil, 0, err
	}
	entries, err := decodeBlock(b, make([]Entry, 0, min(int(h.count), len(b)/minEntryBytes)))
	if err == nil && h.first != p.seg.first+int64(p.ref.first) {
		err = fmt.Errorf("%w: it begins with entry %d", errBlock, h.first)
	}
	return entries, int64(len(b)) + int64(len(entries))*64, err
}

// locate finds the block with entry from.
func (l *Log) locate(from int64) (place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return place{}, ErrClosed
	}
	if len(l.segs) == 0 || from >= l.next {
		return place{}, nil
	}
	from = max(from, l.segs[0].first)
	i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].first > from }) - 1
	s := l.segs[i]
	if !s.loaded || s.f == nil {
		return place{seg: s}, nil
	}
	if k := slices.Index(l.loaded, s); k >= 0 {
		l.loaded = append(slices.Delete(l.loaded, k, k+1), s)
	}
	for _, d := range s.damage {
		if from >= d.First && from < d.Next {
			return place{}, d
		}
	}
	if k, ok := s.find(from); ok {
		return place{s, s.f, s.blocks[k]}, nil
	}
	return place{}, &CorruptError{File: s.path, Offset: s.end, First: from, Next: l.endOf(s)}
}

// endOf is the entry after a segment; l.mu is held.
func (l *Log) endOf(s *segmentFile) int64 {
	if i := slices.Index(l.segs, s); i+1 < len(l.segs) {
		return l.segs[i+1].first
	}
	return l.next
}

// load opens a segment for reading and finds its blocks. Only other loads wait
// for that.
func (l *Log) load(s *segmentFile) error {
	l.loading.Lock()
	defer l.loading.Unlock()
	l.mu.Lock()
	done := s.f != nil && s.loaded || l.closed || !slices.Contains(l.segs, s)
	loaded := s.loaded
	end := l.endOf(s)
	l.mu.Unlock()
	if done {
		return nil
	}
	f, err := l.o.fs.OpenFile(s.path, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) && !l.has(s) {
		return nil // trimmed meanwhile
	}
	if err != nil {
		return err
	}
	found := &segmentFile{path: s.path, first: s.first, index: s.index, f: f}
	if !loaded {
		if _, err := found.scan(); err != nil {
			return errors.Join(err, f.Close())
		}
		if found.next < end {
			found.damage = append(found.damage, &CorruptError{File: s.path, Offset: found.end, First: found.next, Next: end})
		}
		for _, d := range found.damage {
			l.o.Logger.Error("log is corrupt", "log", l.dir, "err", d)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.f != nil || l.closed || !slices.Contains(l.segs, s) {
		return f.Close()
	}
	s.f = f
	if !loaded {
		s.blocks, s.damage, s.end, s.next, s.nextIndex, s.loaded = found.blocks, found.damage, found.end, found.next, found.nextIndex, true
	}
	if s != l.last() {
		l.loaded = append(l.loaded, s)
		l.evict(s)
	}
	return nil
}

func (l *Log) has(s *segmentFile) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.segs, s)
}

// corrupt is the error for a block that was whole once.
func (l *Log) corrupt(p place) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &CorruptError{File: p.seg.path, Offset: int64(p.ref.at), First: p.seg.first + int64(p.ref.first), Next: l.endOf(p.seg)}
	if i, ok := p.seg.find(e.First); ok && i+1 < len(p.seg.blocks) {
		e.Next = p.seg.first + int64(p.seg.blocks[i+1].first)
	}
	return e
}

// noLimit is what 0 means.
func noLimit(n int64) int64 {
	if n <= 0 {
		return math.MaxInt64
	}
	return n
}
