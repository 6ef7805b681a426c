package storage

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk mounts a file system of the given size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		if os.Getenv("CONTENTION_REQUIRE_BPF") == "1" {
			t.Fatalf("mounting a tmpfs: %v", err)
		}
		t.Skip("a tmpfs cannot be mounted:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// On a full disk appends fail, everything stored stays readable, and once there
// is room again the log goes on after Recover.
func TestLogFullDisk(t *testing.T) {
	for _, mode := range Syncs() {
		t.Run(string(mode), func(t *testing.T) {
			disk := smallDisk(t, "1m")
			dir := filepath.Join(disk, "log")
			l := mustOpen(t, dir, LogOptions{Sync: mode, SegmentBytes: 100_000})
			var want []Entry
			var full error
			for full == nil {
				es := makeEntries(l.Next(), l.NextIndex(), 50, 100)
				if full = l.Append(es); full == nil {
					want = append(want, es...)
				}
			}
			if !errors.Is(full, syscall.ENOSPC) {
				t.Fatal(full)
			}
			if err := l.Append(makeEntries(l.Next(), l.NextIndex(), 1, 1)); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("the next append says %v", err)
			}
			same(t, readAll(t, l, 0, 100), want)
			if err := l.Recover(); err != nil {
				t.Fatal(err)
			}
			// It is still full, if not for a small append.
			for full = nil; full == nil; {
				es := makeEntries(l.Next(), l.NextIndex(), 50, 100)
				if full = l.Append(es); full == nil {
					want = append(want, es...)
				}
			}
			if !errors.Is(full, syscall.ENOSPC) {
				t.Fatal(full)
			}
			if err := errors.Join(l.Trim(int64(len(want)/2)), l.Recover()); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				want = append(want, mustAppend(t, l, 50, 100)...)
			}
			first := l.First()
			if first == 0 {
				t.Fatal("nothing was trimmed")
			}
			same(t, readAll(t, l, first, 100), want[first:])
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, dir, LogOptions{})
			same(t, readAll(t, l, first, 100), want[first:])
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The process dies on the full disk: what was acknowledged is there.
func TestLogFullDiskThenCrash(t *testing.T) {
	dir := filepath.Join(smallDisk(t, "300k"), "log")
	l := mustOpen(t, dir, LogOptions{Sync: SyncNever})
	var want []Entry
	for {
		es := makeEntries(l.Next(), l.NextIndex(), 50, 300)
		if err := l.Append(es); err != nil {
			break
		}
		want = append(want, es...)
	}
	after := mustOpen(t, dir, LogOptions{Sync: SyncNever}) // without closing the first
	if after.Next() != int64(len(want)) || after.Recovered().CutBytes == 0 {
		t.Errorf("next is %d of %d, found %+v", after.Next(), len(want), after.Recovered())
	}
	same(t, readAll(t, after, 0, 100), want)
	if err := errors.Join(l.Close(), after.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestMetaFullDisk(t *testing.T) {
	m, err := OpenMeta(smallDisk(t, "400k"), SyncAlways)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	stored := 0
	for err == nil && stored < 1000 {
		if _, err = m.AddSchema("topic", Schema{Data: make([]byte, 10_000)}); err == nil {
			stored++
		}
	}
	if err == nil {
		t.Fatal("the disk does not become full")
	}
	ss, err := m.Schemas("topic")
	if err != nil || len(ss) != stored {
		t.Fatalf("%d schemas of %d: %v", len(ss), stored, err)
	}
}
