package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func FuzzDecodeBlock(f *testing.F) {
	f.Add([]byte{})
	for _, es := range [][]Entry{makeEntries(0, 0, 1, 0), makeEntries(0, 0, 5, 20), makeEntries(1<<40, 1<<50, 3, 300)} {
		f.Add(appendBlock(nil, es))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(b []byte) {
			es, err := decodeBlock(b, nil)
			if err != nil {
				if !errors.Is(err, errBlock) {
					t.Fatalf("%v", err)
				}
				return
			}
			end, err := endIndex(b)
			if err != nil || end != es[len(es)-1].Index+1 {
				t.Fatalf("the index after it is %d, the last entry is %+v: %v", end, es[len(es)-1], err)
			}
			again, err := decodeBlock(appendBlock(nil, es), nil)
			if err != nil || len(again) != len(es) {
				t.Fatalf("encoding what was decoded: %v", err)
			}
			for i := range es {
				if es[i].ID != again[i].ID || es[i].Index != again[i].Index || es[i].Timestamp != again[i].Timestamp || !bytes.Equal(es[i].Data, again[i].Data) {
					t.Fatalf("%+v became %+v", es[i], again[i])
				}
			}
		}
		check(b)
		if len(b) >= headerBytes { // the checksum would keep the fuzzer out
			b = append([]byte(nil), b...)
			copy(b, blockMagic)
			b[4] = blockVersion
			binary.LittleEndian.PutUint32(b[8:], uint32(len(b)-headerBytes))
			binary.LittleEndian.PutUint32(b[12:], blockChecksum(b))
			check(b)
		}
	})
}

// A file with anything in it can be opened, read as far as it is whole, and
// written to.
func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	l, err := OpenLog(dir, LogOptions{Sync: SyncNever, Logger: quiet()})
	if err != nil {
		f.Fatal(err)
	}
	for range 3 {
		if err := l.Append(makeEntries(l.Next(), l.NextIndex(), 3, 20)); err != nil {
			f.Fatal(err)
		}
	}
	name := filepath.Base(l.segs[0].path)
	if err := l.Close(); err != nil {
		f.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add(content[:len(content)-9])
	f.Add(content[:40])
	f.Add(append(append([]byte(nil), content[:200]...), content...))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o640); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l, err := OpenLog(dir, LogOptions{Sync: SyncNever, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			readThrough(t, l)
			next := l.Next()
			if err := l.Append(makeEntries(next, l.NextIndex(), 2, 10)); err != nil {
				t.Fatal(err)
			}
			if es, err := l.Read(next, 2, 0, nil); err != nil || len(es) != 2 {
				t.Fatalf("%d of the 2 entries appended: %v", len(es), err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// readThrough reads everything and goes on after what is corrupt.
func readThrough(t *testing.T, l *Log) {
	for from := l.First(); from < l.Next(); {
		es, err := l.Read(from, 100, 0, nil)
		var corrupt *CorruptError
		switch {
		case errors.As(err, &corrupt) && corrupt.Next > from:
			from = corrupt.Next
		case err != nil:
			t.Fatal(err)
		case len(es) == 0 || es[0].ID != from:
			t.Fatalf("reading entry %d gave %d entries", from, len(es))
		default:
			from = es[len(es)-1].ID + 1
		}
	}
}

func FuzzMetaValues(f *testing.F) {
	f.Add(encodeTopic(Topic{Ledger: 3, Created: now()}))
	f.Add(encodeCursor(Cursor{MarkDelete: 5, Acked: [][2]int64{{7, 8}, {10, 100}}}))
	f.Add(encodeSchema(Schema{Name: "n", Type: 3, Data: []byte("d"), Properties: []byte("p")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := decodeTopic("t", b); err == nil {
			if y, err := decodeTopic("t", encodeTopic(x)); err != nil || y != x {
				t.Fatalf("%+v became %+v: %v", x, y, err)
			}
		}
		if x, err := decodeCursor("c", b); err == nil {
			if err := checkCursor(LedgerCursor{1, x}); err != nil {
				t.Fatal(err)
			}
			if y, err := decodeCursor("c", encodeCursor(x)); err != nil || len(y.Acked) != len(x.Acked) {
				t.Fatalf("%+v became %+v: %v", x, y, err)
			}
		}
		if x, err := decodeSchema(1, b); err == nil {
			if y, err := decodeSchema(1, encodeSchema(x)); err != nil || y.Name != x.Name || !bytes.Equal(x.Data, y.Data) {
				t.Fatalf("%+v became %+v: %v", x, y, err)
			}
		}
	})
}
