package storage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// tornLog makes a log of n blocks of 3 entries in one file, whose content is
// returned with where each block's frames begin, and where the last ends.
func tornLog(t *testing.T, n int) (name string, content []byte, at []int64) {
	t.Helper()
	dir := t.TempDir()
	l := mustOpen(t, dir, LogOptions{Sync: SyncNever})
	for range n {
		at = append(at, max(l.Size(), fileHeader))
		mustAppend(t, l, 3, 20)
	}
	at = append(at, l.Size())
	content, err := os.ReadFile(l.segs[0].path)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(content)) != at[n] {
		t.Fatalf("the file has %d bytes, the log says %d", len(content), at[n])
	}
	return filepath.Base(l.segs[0].path), content, at
}

// reopen writes content as the only file of a log and opens it.
func reopen(t *testing.T, name string, content []byte) *Log {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o640); err != nil {
		t.Fatal(err)
	}
	return mustOpen(t, dir, LogOptions{Sync: SyncNever})
}

// goesOn appends to a log whose entries before next are as makeEntries makes
// them, and opens it once more.
func goesOn(t *testing.T, l *Log, next int64) {
	t.Helper()
	mustAppend(t, l, 3, 20)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, l.dir, LogOptions{Sync: SyncNever})
	same(t, readAll(t, again, 0, 2), makeEntries(0, 0, int(next)+3, 20))
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// A write that ended at any byte of the last block leaves what was before.
func TestLogTornAtEveryByte(t *testing.T) {
	const blocks = 3
	name, content, at := tornLog(t, blocks)
	for cut := at[blocks-1]; cut < at[blocks]; cut++ {
		l := reopen(t, name, content[:cut])
		r := l.Recovered()
		if l.Next() != 3*(blocks-1) || r.CutBytes != cut-at[blocks-1] || (r.CutBytes > 0 && r.CutOffset != at[blocks-1]) || r.Damage != nil {
			t.Fatalf("cut at %d of %d…%d: next is %d, found %+v", cut, at[blocks-1], at[blocks], l.Next(), r)
		}
		if fi, err := os.Stat(l.segs[0].path); err != nil || fi.Size() != at[blocks-1] {
			t.Fatalf("cut at %d: the file has not been cut to %d: %v", cut, at[blocks-1], err)
		}
		goesOn(t, l, 3*(blocks-1))
	}
	for cut := range int64(at[0]) { // of the file's header
		l := reopen(t, name, content[:cut])
		if l.Next() != 0 || l.Recovered().CutBytes != cut {
			t.Fatalf("cut at %d: next is %d, found %+v", cut, l.Next(), l.Recovered())
		}
		goesOn(t, l, 0)
	}
}

// A bit flipped in any byte of the last block loses at most that block, and says
// so.
func TestLogFlippedInTheLastBlock(t *testing.T) {
	const blocks = 3
	name, content, at := tornLog(t, blocks)
	whole := 0
	for i := at[blocks-1]; i < at[blocks]; i++ {
		hurt := append([]byte(nil), content...)
		hurt[i] ^= 1 << (i % 8)
		l := reopen(t, name, hurt)
		next := int64(3 * blocks)
		if r := l.Recovered(); r.CutBytes > 0 {
			if next -= 3; r.CutOffset != at[blocks-1] {
				t.Fatalf("byte %d: found %+v", i, r)
			}
		} else {
			whole++ // padding, or the library's checksum
		}
		if l.Next() != next {
			t.Fatalf("byte %d: next is %d, found %+v", i, l.Next(), l.Recovered())
		}
		goesOn(t, l, next)
	}
	if whole > 3+7+4+3 {
		t.Errorf("%d flipped bits went unnoticed: the reserved, padding and checksum bytes of the frames are fewer", whole)
	}
}

// A bit flipped in any byte of a block in the middle loses that block, says
// which, and leaves those before and after readable; so does one in an older
// file.
func TestLogFlippedInTheMiddle(t *testing.T) {
	const blocks = 4
	name, content, at := tornLog(t, blocks)
	noticed := 0
	for i := at[1]; i < at[2]; i++ {
		hurt := append([]byte(nil), content...)
		hurt[i] ^= 1 << (i % 8)
		l := reopen(t, name, hurt)
		if l.Next() != 3*blocks || l.Recovered().CutBytes != 0 {
			t.Fatalf("byte %d: next is %d, found %+v", i, l.Next(), l.Recovered())
		}
		if len(l.Recovered().Damage) > 0 {
			noticed++
			checkDamaged(t, l, at[1])
		}
		mustAppend(t, l, 3, 20)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, l.dir, LogOptions{Sync: SyncNever}) // the damage is in an older file now
		if l.Next() != 3*blocks+3 {
			t.Fatalf("byte %d: next is %d", i, l.Next())
		}
		if len(l.segs) > 1 {
			checkDamaged(t, l, at[1])
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if all := int(at[2] - at[1]); noticed < all-17 {
		t.Errorf("%d of %d flipped bits were noticed", noticed, all)
	}
}

// checkDamaged wants entries 3 to 5 unreadable and all others there.
func checkDamaged(t *testing.T, l *Log, offset int64) {
	t.Helper()
	want := makeEntries(0, 0, int(l.Next()), 20)
	before, err := l.Read(0, 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, before, want[:3])
	for id := int64(3); id < 6; id++ {
		var corrupt *CorruptError
		if _, err := l.Read(id, 1, 0, nil); !errors.As(err, &corrupt) {
			t.Fatalf("reading entry %d says %v", id, err)
		}
		if corrupt.First != 3 || corrupt.Next != 6 || corrupt.Offset != offset || corrupt.File != l.segs[0].path {
			t.Fatalf("%+v", corrupt)
		}
	}
	same(t, readAll(t, l, 6, 0), want[6:])
}

// A bit that flips while the log is open is found by whoever reads.
func TestLogFlippedWhileOpen(t *testing.T) {
	l := mustOpen(t, t.TempDir(), LogOptions{Sync: SyncNever, Cache: NewCache(0)})
	var at []int64
	for range 3 {
		at = append(at, max(l.Size(), fileHeader))
		mustAppend(t, l, 3, 20)
	}
	f, err := os.OpenFile(l.segs[0].path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, at[1]+frameHeader+headerBytes+5); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	checkDamaged(t, l, at[1]+frameHeader)
}

// A last file in which nothing was stored does not hide the one before.
func TestLogEmptyLastFile(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, LogOptions{Sync: SyncNever, SegmentBytes: 1})
	for range 3 {
		mustAppend(t, l, 3, 20)
	}
	last := l.segs[2].path
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(last, 40); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, LogOptions{Sync: SyncNever})
	if l.Next() != 6 || l.Recovered().CutBytes != 40 {
		t.Fatalf("next is %d, found %+v", l.Next(), l.Recovered())
	}
	// The power failed: the file before has lost its end, too.
	if err := os.WriteFile(last, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	before := l.segs[1].path
	if err := os.Truncate(before, 100); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, LogOptions{Sync: SyncNever})
	if l.Next() != 3 || l.Recovered().CutBytes != 100 || len(l.segs) != 1 {
		t.Fatalf("next is %d, found %+v", l.Next(), l.Recovered())
	}
	goesOn(t, l, 3)
}

// An older file that is too short says which entries are missing.
func TestLogShortOlderFile(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, LogOptions{Sync: SyncNever, SegmentBytes: 400})
	for len(l.segs) < 3 {
		mustAppend(t, l, 3, 20)
	}
	short, end := l.segs[1], l.segs[2].first
	at := int64(short.blocks[len(short.blocks)-1].at) - frameHeader
	lost := short.first + int64(short.blocks[len(short.blocks)-1].first)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(short.path, at+5); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, LogOptions{Sync: SyncNever})
	want := makeEntries(0, 0, int(l.Next()), 20)
	got, err := l.Read(0, 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, want[:lost])
	for id := lost; id < end; id++ {
		var corrupt *CorruptError
		if _, err := l.Read(id, 1, 0, nil); !errors.As(err, &corrupt) || corrupt.First != lost || corrupt.Next != end || corrupt.Offset != at {
			t.Fatalf("reading entry %d says %v", id, err)
		}
	}
	same(t, readAll(t, l, end, 0), want[end:])
}
