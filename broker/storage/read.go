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
// Next. Their data are valid for as long as anything refers to them.
//
// The error is a *CorruptError where the next entry cannot be read; Read goes on
// from its Next.
func (l *Log) Read(from int64, most int, maxBytes int64, into []Entry) ([]Entry, error) {
	left, room := noLimit(int64(most)), noLimit(maxBytes)
	got := len(into)
	for left > 0 {
		r, err := l.runOf(from)
		if err != nil {
			if len(into) > got {
				return into, nil // the next call meets it
			}
			return into, fmt.Errorf("reading entry %d of the log %s: %w", from, l.dir, err)
		}
		if len(r.entries) == 0 {
			return into, nil
		}
		from = max(from, r.entries[0].ID)
		start, taken, full := len(into), int64(0), false
		for _, e := range r.entries[from-r.entries[0].ID:] {
			if full = left == 0 || (len(into) > got && room < int64(len(e.Data))); full {
				break
			}
			into = append(into, e)
			left--
			room -= int64(len(e.Data))
			taken += int64(len(e.Data))
			from++
		}
		if taken < r.bytes/4 {
			copyData(into[start:], taken)
		}
		if full {
			break
		}
	}
	return into, nil
}

// copyData gives entries, a small part of what was read for them, memory of their
// own, lest they keep the rest.
func copyData(entries []Entry, bytes int64) {
	b := make([]byte, 0, bytes)
	for i := range entries {
		n := len(b)
		b = append(b, entries[i].Data...)
		entries[i].Data = b[n:len(b):len(b)]
	}
}

// run is the entries of blocks that were read together, one after the other;
// bytes of the file hold their data.
type run struct {
	entries []Entry
	bytes   int64
}

// holds tells whether entry id is in the run.
func (r run) holds(id int64) bool {
	return len(r.entries) > 0 && id >= r.entries[0].ID && id-r.entries[0].ID < int64(len(r.entries))
}

// runBits: blocks that begin in the same 128 KiB of a file are read together.
const runBits = 17

// runOf returns a run that holds entry from, or the first one if from has been
// trimmed; none at the end of the log.
func (l *Log) runOf(from int64) (run, error) {
	for range 100 { // files may be closed while they are read
		p, err := l.locate(from)
		if err != nil || p.seg == nil {
			return run{}, err
		}
		if p.f == nil {
			if err := l.load(p.seg); err != nil {
				return run{}, err
			}
			continue
		}
		if p.cached.entries != nil {
			return p.cached, nil
		}
		r, err := p.read(p.blocks)
		if errors.Is(err, errBlock) { // others may be right
			i := slices.Index(p.blocks, p.block)
			r, err = p.read(p.blocks[i : i+1])
		} else if err == nil {
			l.cache.put(p.key, r)
		}
		switch {
		case err == nil && (r.holds(from) || from < r.entries[0].ID):
			return r, nil
		case err == nil: // fewer entries than there were
			return run{}, l.corrupt(p)
		case errors.Is(err, os.ErrClosed):
		case errors.Is(err, errBlock):
			return run{}, fmt.Errorf("%w (%w)", l.corrupt(p), err)
		default:
			return run{}, fmt.Errorf("%s at byte %d: %w", p.seg.path, p.block.at, err)
		}
	}
	return run{}, errors.New("its file is closed again and again")
}

// place is where an entry is.
type place struct {
	seg    *segmentFile // nil = the end of the log
	f      file         // nil = the segment has to be loaded
	key    cacheKey
	cached run
	block  blockRef   // that holds it
	blocks []blockRef // to be read together; nil = cached
}

// read returns the entries of blocks that follow each other.
func (p place) read(blocks []blockRef) (run, error) {
	at, last := blocks[0].at, blocks[len(blocks)-1]
	b := make([]byte, last.at+last.length-at)
	if _, err := p.f.ReadAt(b, int64(at)); err != nil && !errors.Is(err, io.EOF) {
		return run{}, err
	}
	n := int(last.first-blocks[0].first) + 1
	if h, err := parseHeader(b[last.at-at:]); err == nil {
		n += int(h.count)
	}
	entries := make([]Entry, 0, min(n, len(b)/minEntryBytes))
	for _, ref := range blocks {
		n := len(entries)
		var err error
		if entries, err = decodeBlock(b[ref.at-at:][:ref.length:ref.length], entries); err != nil {
			return run{}, err
		}
		if first := p.seg.first + int64(ref.first); entries[n].ID != first {
			return run{}, fmt.Errorf("%w: it begins with entry %d instead of %d", errBlock, entries[n].ID, first)
		}
	}
	return run{entries, int64(len(b))}, nil
}

// locate finds entry from.
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
	k, ok := s.find(from)
	if !ok || from >= s.next {
		return place{}, &CorruptError{File: s.path, Offset: s.end, First: from, Next: l.endOf(s)}
	}
	p := place{seg: s, f: s.f, block: s.blocks[k], key: cacheKey{s, s.blocks[k].at >> runBits}}
	if r := l.cache.get(p.key); r.holds(from) {
		p.cached = r
		return p, nil
	}
	lo, hi := k, k+1
	for len(s.damage) == 0 && lo > 0 && s.blocks[lo-1].at>>runBits == p.key.at {
		lo--
	}
	for len(s.damage) == 0 && hi < len(s.blocks) && s.blocks[hi].at>>runBits == p.key.at {
		hi++
	}
	p.blocks = slices.Clone(s.blocks[lo:hi])
	return p, nil
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
	e := &CorruptError{File: p.seg.path, Offset: int64(p.block.at), First: p.seg.first + int64(p.block.first), Next: l.endOf(p.seg)}
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
