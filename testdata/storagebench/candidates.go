package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
	tidwall "github.com/tidwall/wal"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// blockLog is what the broker needs of a library: numbered blocks from 1.
type blockLog interface {
	Append(n uint64, block []byte) error
	Read(n uint64) ([]byte, error)
	Last() (uint64, error)
	TrimBefore(n uint64) error
	Close() error
}

type candidate struct {
	name string
	open func(dir string, sync bool) (blockLog, error)
}

var errNotOffered = errors.New("not offered")

var candidates = []candidate{
	{"write(2)", openRaw},
	{"raft-wal", openRaft},
	{"raft-wal segments", openSegments},
	{"tidwall/wal", openTidwall},
	{"pebble", openPebble},
	{"etcd wal", openEtcd},
}

// raw is the yardstick: one file, a length before each block.
type raw struct {
	f    *os.File
	sync bool
	buf  []byte
}

func openRaw(dir string, sync bool) (blockLog, error) {
	f, err := os.OpenFile(filepath.Join(dir, "raw"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	return &raw{f: f, sync: sync}, err
}

func (r *raw) Append(_ uint64, block []byte) error {
	r.buf = binary.LittleEndian.AppendUint32(r.buf[:0], uint32(len(block)))
	r.buf = append(r.buf, block...)
	if _, err := r.f.Write(r.buf); err != nil || !r.sync {
		return err
	}
	return r.f.Sync()
}
func (r *raw) Read(uint64) ([]byte, error) { return nil, errNotOffered }
func (r *raw) Last() (uint64, error)       { return 0, errNotOffered }
func (r *raw) TrimBefore(uint64) error     { return errNotOffered }
func (r *raw) Close() error                { return r.f.Close() }

// raftLog is raft-wal with a file system whose Sync can be turned off and that
// does not preallocate.
type raftLog struct {
	w    *raftwal.WAL
	meta io.Closer // Close of the library leaves it open, and its file locked
}

type raftFS struct {
	*fs.FS
	sync bool
}

type raftFile struct {
	types.WritableFile
	sync bool
}

func (f raftFile) Sync() error {
	if f.sync {
		return f.WritableFile.Sync()
	}
	return nil
}

func (v raftFS) Create(dir, name string, _ uint64) (types.WritableFile, error) {
	f, err := v.FS.Create(dir, name, 0)
	return raftFile{f, v.sync}, err
}

func (v raftFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.FS.OpenWriter(dir, name)
	return raftFile{f, v.sync}, err
}

func openRaft(dir string, sync bool) (blockLog, error) {
	meta := &metadb.BoltMetaDB{}
	opened := false
	defer func() {
		if !opened {
			_ = meta.Close()
		}
	}()
	w, err := raftwal.Open(dir, raftwal.WithSegmentFiler(segment.NewFiler(dir, raftFS{fs.New(), sync})),
		raftwal.WithMetaStore(meta), raftwal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		return nil, err
	}
	opened = true
	return &raftLog{w, meta}, nil
}

func (r *raftLog) Append(n uint64, block []byte) error {
	return r.w.StoreLog(&raft.Log{Index: n, Data: block})
}
func (r *raftLog) Read(n uint64) ([]byte, error) {
	var l raft.Log
	err := r.w.GetLog(n, &l)
	return l.Data, err
}
func (r *raftLog) Last() (uint64, error)     { return r.w.LastIndex() }
func (r *raftLog) TrimBefore(n uint64) error { return r.w.DeleteRange(1, n-1) }
func (r *raftLog) Close() error              { return errors.Join(r.w.Close(), r.meta.Close()) }

// segments is the layer below: raft-wal's segment files, and the list of them kept here.
type segments struct {
	filer *segment.Filer
	sync  bool
	segs  []types.SegmentInfo
	open  []types.SegmentWriter
	size  int64 // of the last
	one   [1]types.LogEntry
}

func openSegments(dir string, sync bool) (blockLog, error) {
	s := &segments{filer: segment.NewFiler(dir, raftFS{fs.New(), sync})}
	list, err := s.filer.List()
	if err != nil {
		return nil, err
	}
	for id, base := range list {
		s.segs = append(s.segs, segmentInfo(base, id))
	}
	slices.SortFunc(s.segs, func(a, b types.SegmentInfo) int { return cmp.Compare(a.BaseIndex, b.BaseIndex) })
	for _, info := range s.segs {
		w, err := s.filer.RecoverTail(info)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.open = append(s.open, w)
	}
	return s, nil
}

func segmentInfo(base, id uint64) types.SegmentInfo {
	return types.SegmentInfo{ID: id, BaseIndex: base, MinIndex: base, Codec: 1, SizeLimit: 1 << 31}
}

func (s *segments) Append(n uint64, block []byte) error {
	if len(s.segs) == 0 || s.size > 64<<20 {
		info := segmentInfo(n, n)
		w, err := s.filer.Create(info)
		if err != nil {
			return err
		}
		s.segs, s.open, s.size = append(s.segs, info), append(s.open, w), 0
	}
	s.one[0] = types.LogEntry{Index: n, Data: block}
	s.size += int64(len(block))
	return s.open[len(s.open)-1].Append(s.one[:])
}

func (s *segments) Read(n uint64) ([]byte, error) {
	for i := len(s.segs) - 1; i >= 0; i-- {
		if n < s.segs[i].BaseIndex {
			continue
		}
		b, err := s.open[i].GetLog(n)
		if err != nil {
			return nil, err
		}
		defer b.Close()
		return append([]byte(nil), b.Bs...), nil
	}
	return nil, types.ErrNotFound
}

func (s *segments) Last() (uint64, error) {
	if len(s.open) == 0 {
		return 0, nil
	}
	return s.open[len(s.open)-1].LastIndex(), nil
}

func (s *segments) TrimBefore(n uint64) error {
	for len(s.segs) > 1 && s.segs[1].BaseIndex <= n {
		if err := errors.Join(s.open[0].Close(), s.filer.Delete(s.segs[0].BaseIndex, s.segs[0].ID)); err != nil {
			return err
		}
		s.segs, s.open = s.segs[1:], s.open[1:]
	}
	return nil
}

func (s *segments) Close() error {
	var err error
	for _, w := range s.open {
		err = errors.Join(err, w.Close())
	}
	return err
}

type tidwallLog struct{ l *tidwall.Log }

func openTidwall(dir string, sync bool) (blockLog, error) {
	o := *tidwall.DefaultOptions
	o.NoSync = !sync
	l, err := tidwall.Open(dir, &o)
	if err != nil {
		return nil, err
	}
	return &tidwallLog{l}, nil
}

func (t *tidwallLog) Append(n uint64, block []byte) error { return t.l.Write(n, block) }
func (t *tidwallLog) Read(n uint64) ([]byte, error)       { return t.l.Read(n) }
func (t *tidwallLog) Last() (uint64, error)               { return t.l.LastIndex() }
func (t *tidwallLog) TrimBefore(n uint64) error           { return t.l.TruncateFront(n) }
func (t *tidwallLog) Close() error                        { return t.l.Close() }

// pebbleLog keeps blocks as keys. Its log buffers in user memory unless a commit
// asks for a sync, so "no sync" is a sync that its file system drops.
type pebbleLog struct{ db *pebble.DB }

type pebbleFS struct{ vfs.FS }

type pebbleFile struct{ vfs.File }

func (pebbleFile) Sync() error                  { return nil }
func (pebbleFile) SyncData() error              { return nil }
func (pebbleFile) SyncTo(int64) (bool, error)   { return true, nil }
func (pebbleFile) Preallocate(_, _ int64) error { return nil }
func (p pebbleFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, c)
	if err == nil && strings.HasSuffix(name, ".log") {
		f = pebbleFile{f}
	}
	return f, err
}
func (p pebbleFS) ReuseForWrite(o, n string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.ReuseForWrite(o, n, c)
	if err == nil && strings.HasSuffix(n, ".log") {
		f = pebbleFile{f}
	}
	return f, err
}
func (p pebbleFS) Unwrap() vfs.FS { return p.FS }

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { fmt.Printf("process ends: "+f+"\n", a...); os.Exit(7) }

func openPebble(dir string, sync bool) (blockLog, error) {
	o := &pebble.Options{Logger: quiet{}, MemTableSize: 64 << 20, FS: vfs.Default}
	if !sync {
		o.FS = pebbleFS{vfs.Default}
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, err
	}
	return &pebbleLog{db}, nil
}

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (p *pebbleLog) Append(n uint64, block []byte) error { return p.db.Set(key(n), block, pebble.Sync) }
func (p *pebbleLog) Read(n uint64) ([]byte, error) {
	v, c, err := p.db.Get(key(n))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return append([]byte(nil), v...), nil
}
func (p *pebbleLog) Last() (uint64, error) {
	it, err := p.db.NewIter(nil)
	if err != nil {
		return 0, err
	}
	defer it.Close()
	if !it.Last() {
		return 0, it.Error()
	}
	return binary.BigEndian.Uint64(it.Key()), nil
}
func (p *pebbleLog) TrimBefore(n uint64) error {
	return p.db.DeleteRange(key(0), key(n), pebble.Sync)
}
func (p *pebbleLog) Close() error { return p.db.Close() }

// etcdLog reads only by replaying everything when it opens.
type etcdLog struct {
	w    *etcdwal.WAL
	ents []*raftpb.Entry
}

func openEtcd(dir string, sync bool) (blockLog, error) {
	l := &etcdLog{}
	var err error
	zero := uint64(0)
	snapshot := walpb.Snapshot{Index: &zero, Term: &zero}
	if sub := filepath.Join(dir, "wal"); etcdwal.Exist(sub) {
		l.w, err = etcdwal.Open(zap.NewNop(), sub, &snapshot)
		if err == nil {
			_, _, l.ents, err = l.w.ReadAll()
		}
	} else if l.w, err = etcdwal.Create(zap.NewNop(), sub, nil); err == nil {
		err = l.w.SaveSnapshot(&snapshot)
	}
	if err != nil {
		return nil, err
	}
	if !sync {
		l.w.SetUnsafeNoFsync()
	}
	return l, nil
}

func (e *etcdLog) Append(n uint64, block []byte) error {
	term := uint64(1)
	return e.w.Save(nil, []*raftpb.Entry{{Index: &n, Term: &term, Data: block}})
}
func (e *etcdLog) Read(n uint64) ([]byte, error) {
	if n == 0 || n > uint64(len(e.ents)) {
		return nil, errNotOffered
	}
	return e.ents[n-1].Data, nil
}
func (e *etcdLog) Last() (uint64, error)     { return uint64(len(e.ents)), nil }
func (e *etcdLog) TrimBefore(n uint64) error { return e.w.ReleaseLockTo(n) }
func (e *etcdLog) Close() error              { return e.w.Close() }
