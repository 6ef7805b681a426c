package storage

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// faultFS is the operating system's file system until it is told to fail.
type faultFS struct {
	osFS

	mu       sync.Mutex
	limited  bool
	room     int // bytes that may still be written, if limited
	syncErr  error
	dirErr   error
	openErr  error
	cutErr   error
	syncs    int
	dirSyncs int
}

type faultFile struct {
	file
	fs *faultFS
}

func (v *faultFS) with(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
}

func (v *faultFS) heal() {
	v.with(func() { v.limited, v.syncErr, v.dirErr, v.openErr, v.cutErr = false, nil, nil, nil, nil })
}

func (v *faultFS) counts() (files, dirs int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.syncs, v.dirSyncs
}

func (v *faultFS) OpenFile(name string, flag int) (file, error) {
	v.mu.Lock()
	err := v.openErr
	v.mu.Unlock()
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f, err := v.osFS.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return faultFile{f, v}, nil
}

func (v *faultFS) SyncDir(string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dirSyncs++
	return v.dirErr
}

// WriteAt writes what there is room for, as a full disk does.
func (f faultFile) WriteAt(b []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	n, short := len(b), false
	if f.fs.limited {
		if n > f.fs.room {
			n, short = f.fs.room, true
		}
		f.fs.room -= n
	}
	f.fs.mu.Unlock()
	k, err := f.file.WriteAt(b[:n], at)
	if err == nil && short {
		err = syscall.ENOSPC
	}
	return k, err
}

func (f faultFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.syncs++
	return f.fs.syncErr
}

func (f faultFile) Truncate(n int64) error {
	f.fs.mu.Lock()
	err := f.fs.cutErr
	f.fs.mu.Unlock()
	if err != nil {
		return err
	}
	return f.file.Truncate(n)
}

func TestLogFailedAppend(t *testing.T) {
	disk := &faultFS{}
	dir := filepath.Join(t.TempDir(), "log")
	l := mustOpen(t, dir, LogOptions{fs: disk})
	want := mustAppend(t, l, 5, 100)
	try := func() error { return l.Append(makeEntries(l.Next(), l.NextIndex(), 4, 100)) }

	for name, harm := range map[string]func(){
		"no room":            func() { disk.limited, disk.room = true, 0 },
		"room for a part":    func() { disk.limited, disk.room = true, 100 },
		"sync":               func() { disk.syncErr = syscall.EIO },
		"nothing to open":    func() { disk.openErr = syscall.EMFILE },
		"directory not sync": func() { disk.dirErr = syscall.EIO },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "nothing to open" || name == "directory not sync" {
				l.mu.Lock()
				l.o.SegmentBytes = 1 // a new file
				l.mu.Unlock()
			}
			next, index := l.Next(), l.NextIndex()
			disk.with(harm)
			if err := try(); err == nil || errors.Is(err, ErrFailed) {
				t.Fatalf("the append says %v", err)
			}
			disk.heal()
			if err := try(); !errors.Is(err, ErrFailed) {
				t.Fatalf("the append after it says %v", err)
			}
			if l.Next() != next || l.NextIndex() != index {
				t.Fatalf("next is %d, %d", l.Next(), l.NextIndex())
			}
			same(t, readAll(t, l, 0, 2), want)
			if err := l.Recover(); err != nil {
				t.Fatal(err)
			}
			same(t, readAll(t, l, 0, 2), want)
			want = append(want, mustAppend(t, l, 3, 100)...)
			same(t, readAll(t, l, 0, 2), want)
			l.mu.Lock()
			l.o.SegmentBytes = 64 << 20
			l.mu.Unlock()
		})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, readAll(t, mustOpen(t, dir, LogOptions{}), 0, 100), want)
}

func TestLogRecoverFails(t *testing.T) {
	disk := &faultFS{}
	l := mustOpen(t, t.TempDir(), LogOptions{fs: disk})
	want := mustAppend(t, l, 5, 100)
	disk.with(func() { disk.limited, disk.room, disk.cutErr = true, 50, syscall.EROFS })
	if err := l.Append(makeEntries(5, l.NextIndex(), 1, 100)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := l.Recover(); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("Recover says %v", err)
	}
	if err := l.Append(makeEntries(5, l.NextIndex(), 1, 100)); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("after it an append says %v", err)
	}
	same(t, readAll(t, l, 0, 2), want)
	// What had been stored is gone from under the log: it must not go on.
	disk.heal()
	if err := os.Truncate(l.segs[0].path, 100); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if err := l.Recover(); !errors.As(err, &corrupt) || corrupt.First != 0 || corrupt.Next != 5 {
		t.Fatalf("Recover of a log that has lost entries says %v", err)
	}
}

func TestLogSyncs(t *testing.T) {
	soon := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not in 10 s: %s", what)
			}
		}
	}
	always, interval, never := &faultFS{}, &faultFS{}, &faultFS{}

	l := mustOpen(t, filepath.Join(t.TempDir(), "log"), LogOptions{fs: always})
	for i := range 5 {
		mustAppend(t, l, 1, 10)
		if files, dirs := always.counts(); files != i+1 || dirs != 2 {
			t.Errorf("always: %d syncs of files and %d of directories after %d appends", files, dirs, i+1)
		}
	}

	l = mustOpen(t, filepath.Join(t.TempDir(), "log"), LogOptions{fs: interval, Sync: SyncInterval, SyncInterval: 20 * time.Millisecond})
	for round := range 3 {
		mustAppend(t, l, 1, 10)
		soon("the interval's sync", func() bool { files, _ := interval.counts(); return files == round+1 })
	}
	if _, dirs := interval.counts(); dirs != 2 {
		t.Errorf("interval: %d syncs of directories", dirs)
	}
	interval.with(func() { interval.syncErr = syscall.EIO })
	mustAppend(t, l, 1, 10)
	soon("an append to fail", func() bool {
		return errors.Is(l.Append(makeEntries(l.Next(), l.NextIndex(), 1, 10)), ErrFailed)
	})
	if err := l.Recover(); !errors.Is(err, syscall.EIO) {
		t.Errorf("Recover beside a disk that still fails says %v", err)
	}
	interval.heal()
	if err := l.Recover(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, 1, 10)

	l = mustOpen(t, filepath.Join(t.TempDir(), "log"), LogOptions{fs: never, Sync: SyncNever})
	mustAppend(t, l, 1, 10)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if files, dirs := never.counts(); files != 0 || dirs != 0 {
		t.Errorf("never: %d syncs of files and %d of directories", files, dirs)
	}
}

// What a failed sync did not reach is synced by the next.
func TestLogSyncAgain(t *testing.T) {
	disk := &faultFS{}
	l := mustOpen(t, t.TempDir(), LogOptions{fs: disk, Sync: SyncInterval, SyncInterval: time.Hour, SegmentBytes: 1})
	for range 4 {
		mustAppend(t, l, 1, 10)
	}
	disk.with(func() { disk.syncErr = syscall.EIO })
	if err := l.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	disk.heal()
	before, dirs := disk.counts()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if after, dirsAfter := disk.counts(); after-before != 4 || dirsAfter-dirs != 4 {
		t.Errorf("%d files and %d names were synced, 4 had not been", after-before, dirsAfter-dirs)
	}
	before, _ = disk.counts()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if after, _ := disk.counts(); after != before {
		t.Error("what was synced is synced again")
	}
}

// Random appends, failures, recoveries, restarts and trims: what Append took is
// there, in order, once; what it refused is not, except that a block that was
// whole on the disk may be found after a crash.
func TestLogModel(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "log")
		if err != nil {
			t.Fatal(err)
		}
		disk := &faultFS{}
		o := LogOptions{fs: disk, Logger: quiet(), Sync: rapid.SampledFrom(Syncs()).Draw(t, "sync"),
			SyncInterval: time.Hour, SegmentBytes: int64(rapid.IntRange(1, 3000).Draw(t, "segment"))}
		open := func() *Log {
			l, err := OpenLog(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l := open()
		defer func() { _ = l.Close() }()
		var want, doubtful []Entry // acknowledged; of the append that failed
		check := func() {
			if first := l.First(); first < int64(len(want)) || len(want) == 0 {
				es, err := l.Read(first, 0, 0, nil)
				if err != nil || len(es) != len(want)-int(first) {
					t.Fatalf("%d entries from %d, want %d: %v", len(es), first, len(want), err)
				}
				for i, e := range es {
					if w := want[int(first)+i]; e.ID != w.ID || string(e.Data) != string(w.Data) || e.Index != w.Index || e.Timestamp != w.Timestamp || e.Messages != w.Messages {
						t.Fatalf("entry %d is %+v, want %+v", first+int64(i), e, w)
					}
				}
			}
			if l.Next() != int64(len(want)) {
				t.Fatalf("next is %d of %d", l.Next(), len(want))
			}
		}
		appendSome := func(t *rapid.T) error {
			es := makeEntries(l.Next(), l.NextIndex(), rapid.IntRange(1, 20).Draw(t, "entries"), rapid.IntRange(0, 60).Draw(t, "bytes"))
			err := l.Append(es)
			if err == nil {
				want = append(want, es...)
			} else if !errors.Is(err, ErrFailed) {
				doubtful = es
			}
			return err
		}
		failed := false
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				if err := appendSome(t); (err != nil) != failed {
					t.Fatalf("failed before: %v; an append says %v", failed, err)
				}
			},
			"fail": func(t *rapid.T) {
				disk.with(func() {
					switch rapid.IntRange(0, 2).Draw(t, "how") {
					case 0:
						disk.limited, disk.room = true, rapid.IntRange(0, 500).Draw(t, "room")
					case 1:
						disk.syncErr = syscall.EIO
					case 2:
						disk.dirErr = syscall.EIO
					}
				})
				if err := appendSome(t); err != nil {
					failed = true
				}
				disk.heal()
			},
			"recover": func(t *rapid.T) {
				if err := l.Recover(); err != nil {
					t.Fatal(err)
				}
				failed, doubtful = false, nil
			},
			"trim": func(t *rapid.T) {
				if err := l.Trim(int64(rapid.IntRange(0, len(want)+1).Draw(t, "before"))); err != nil {
					t.Fatal(err)
				}
			},
			"crash": func(t *rapid.T) {
				old := l
				l = open() // the old one's files are as a killed process would leave them
				if err := old.Close(); err != nil {
					t.Fatal(err)
				}
				if n := len(doubtful); n > 0 && l.Next() == int64(len(want)+n) {
					want = append(want, doubtful...)
				}
				failed, doubtful = false, nil
			},
			"": func(*rapid.T) { check() },
		})
	})
}
