package storage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// Of raft-wal's file format, version 0: a file header, then frames of 8 bytes and
// a payload padded to a multiple of 8.
const (
	fileHeader  = 32
	frameHeader = 8
	frameEntry  = 1
	frameCommit = 3
	libCodec    = 1 << 20 // ours among the library's codecs: the block
)

// segmentFile is one file of a log. What follows first is guarded by the log.
type segmentFile struct {
	path  string
	first int64 // number of the first entry
	index int64 // of the first message
	bytes int64 // of the file, once it is not written to any more

	f         file // open, or nil
	writer    types.SegmentWriter
	loaded    bool       // the fields below are known
	blocks    []blockRef // whole ones, in order
	end       int64      // of the last whole block
	next      int64      // number of the entry after it
	nextIndex int64
	damage    []*CorruptError
	unsynced  bool
	unlisted  bool // its name may not have reached the disk
}

// blockRef is where a block is.
type blockRef struct {
	at     uint32 // in the file
	length uint32
	first  uint32 // number of its first entry, less the segment's
}

func segmentName(first, index int64) string { return fmt.Sprintf("%020d-%016x.wal", first+1, index) }

func parseSegmentName(name string) (first, index int64, ok bool) {
	if _, err := fmt.Sscanf(name, "%020d-%016x.wal", &first, &index); err != nil || first < 1 || index < 0 {
		return 0, 0, false
	}
	first--
	return first, index, segmentName(first, index) == name
}

// listSegments returns the segments of a directory in order, nothing known but
// their names.
func listSegments(fs fileSystem, dir string) ([]*segmentFile, error) {
	names, err := fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var segs []*segmentFile
	for _, name := range names {
		if first, index, ok := parseSegmentName(name); ok {
			segs = append(segs, &segmentFile{path: filepath.Join(dir, name), first: first, index: index})
		}
	}
	slices.SortFunc(segs, func(a, b *segmentFile) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(segs); i++ {
		if segs[i].first == segs[i-1].first {
			return nil, fmt.Errorf("%s and %s begin with the same entry: one of them is not of this log", segs[i-1].path, segs[i].path)
		}
	}
	return segs, nil
}

func (s *segmentFile) info() types.SegmentInfo {
	base := uint64(s.first) + 1
	return types.SegmentInfo{ID: uint64(s.index), BaseIndex: base, MinIndex: base, Codec: libCodec, SizeLimit: math.MaxUint32}
}

// startWriting makes the segment, whose file is open, take blocks. One that the
// library sees differently stays as it is, which is not an error.
func (s *segmentFile) startWriting(created bool) error {
	filer := segment.NewFiler(filepath.Dir(s.path), oneFile{s.f})
	var w types.SegmentWriter
	var err error
	if created {
		w, err = filer.Create(s.info())
	} else {
		w, err = filer.RecoverTail(s.info())
	}
	if errors.Is(err, types.ErrCorrupt) {
		return nil // the file's header; the blocks say themselves whether they are whole
	}
	if err != nil {
		return err
	}
	want := uint64(0)
	if len(s.blocks) > 0 {
		want = uint64(s.first) + uint64(len(s.blocks))
	}
	if sealed, _, err := w.Sealed(); err != nil || sealed || w.LastIndex() != want {
		return err
	}
	s.writer = w
	return nil
}

// blockEnd is where the frames of a block whose payload is at offset at end.
func blockEnd(at, length int64) int64 {
	return at + (length+frameHeader-1)&^(frameHeader-1) + frameHeader
}

// nextAt is where the payload of the next block will be.
func (s *segmentFile) nextAt() int64 { return max(s.end, fileHeader) + frameHeader }

// add notes a block at the end.
func (s *segmentFile) add(length int64, next, nextIndex int64) {
	at := s.nextAt()
	s.blocks = append(s.blocks, blockRef{at: uint32(at), length: uint32(length), first: uint32(s.next - s.first)})
	s.end = blockEnd(at, length)
	s.next, s.nextIndex = next, nextIndex
}

// find returns the block that holds entry id, or nil.
func (s *segmentFile) find(id int64) (i int, ok bool) {
	i, found := slices.BinarySearchFunc(s.blocks, id-s.first, func(b blockRef, rel int64) int { return cmp.Compare(int64(b.first), rel) })
	if !found {
		i--
	}
	return i, i >= 0 && i < len(s.blocks)
}

// scan reads the whole file, whose size is returned, and notes every whole block.
// Where a block is not whole but a later one is, it notes the damage; what is
// after the last whole block is for the caller to judge.
func (s *segmentFile) scan() (size int64, err error) {
	if size, err = s.f.Size(); err != nil {
		return 0, err
	}
	if size > math.MaxUint32 {
		return 0, fmt.Errorf("%s: %d bytes are more than a segment can have", s.path, size)
	}
	s.blocks, s.damage, s.end, s.next, s.nextIndex = nil, nil, 0, s.first, s.index
	r := &scanner{f: s.f, size: size, budget: 4*size + 1<<20}
	for at := int64(fileHeader); at < size; {
		b, err := r.block(at)
		if err != nil {
			return 0, fmt.Errorf("reading %s at %d: %w", s.path, at, err)
		}
		if b == nil || !s.note(at, b) {
			at += frameHeader // look for the next whole one
			continue
		}
		at = s.end
	}
	s.loaded = true
	return size, nil
}

// note adds the block b, whose entry frame is at at, unless it does not belong
// here.
func (s *segmentFile) note(at int64, b []byte) bool {
	h, err := parseHeader(b)
	if err != nil || h.first < s.next || h.index < s.nextIndex || h.first-s.first > math.MaxUint32-int64(h.count) {
		return false
	}
	index, err := endIndex(b)
	if err != nil {
		return false
	}
	if place := max(s.end, fileHeader); at != place || h.first != s.next {
		s.damage = append(s.damage, &CorruptError{File: s.path, Offset: place, First: s.next, Next: h.first})
	}
	s.blocks = append(s.blocks, blockRef{at: uint32(at + frameHeader), length: uint32(len(b)), first: uint32(h.first - s.first)})
	s.end = blockEnd(at+frameHeader, int64(len(b)))
	s.next, s.nextIndex = h.first+int64(h.count), index
	return true
}

// scanner reads blocks from a file through a window.
type scanner struct {
	f      file
	size   int64
	budget int64 // bytes that may still be checksummed; hostile files could take for ever
	at     int64 // of the window
	window []byte
}

const scanWindow = 1 << 20

// bytes returns n bytes at offset at, which the file must have. They are valid
// until the next call.
func (r *scanner) bytes(at, n int64) ([]byte, error) {
	if at < r.at || at+n > r.at+int64(len(r.window)) {
		want := min(max(n, scanWindow), r.size-at)
		if int64(cap(r.window)) < want {
			r.window = make([]byte, want)
		}
		r.window, r.at = r.window[:want], at
		if k, err := r.f.ReadAt(r.window, at); err != nil && !(errors.Is(err, io.EOF) && int64(k) == want) {
			r.window = r.window[:0]
			return nil, err
		}
	}
	return r.window[at-r.at:][:n], nil
}

// block returns the whole block whose entry frame is at offset at, or nil.
func (r *scanner) block(at int64) ([]byte, error) {
	if at+2*frameHeader+headerBytes > r.size {
		return nil, nil
	}
	b, err := r.bytes(at, frameHeader+headerBytes)
	if err != nil || b[0] != frameEntry {
		return nil, err
	}
	h, err := parseHeader(b[frameHeader:])
	if err != nil {
		return nil, nil
	}
	length := int64(headerBytes) + int64(h.body)
	if int64(binary.LittleEndian.Uint32(b[4:])) != length {
		return nil, nil
	}
	end := blockEnd(at+frameHeader, length)
	if end > r.size {
		return nil, nil
	}
	if r.budget < length {
		return nil, errors.New("too much looks like a block and is none")
	}
	if b, err = r.bytes(at, end-at); err != nil {
		return nil, err
	}
	r.budget -= length
	if b[end-at-frameHeader] != frameCommit {
		return nil, nil
	}
	b = b[frameHeader:][:length]
	if blockChecksum(b) != h.crc {
		return nil, nil
	}
	return b, nil
}
