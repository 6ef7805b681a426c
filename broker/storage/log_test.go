package storage

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		os.Exit(runWriter(dir))
	}
	goleak.VerifyTestMain(m)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// makeEntries returns n entries that follow next and index; entry id has content
// and messages that follow from id.
func makeEntries(next, index int64, n, size int) []Entry {
	es := make([]Entry, n)
	for i := range es {
		id := next + int64(i)
		messages := int32(id%3) + 1
		index += int64(messages)
		es[i] = Entry{ID: id, Data: content(id, size), Messages: messages, Index: index - 1, Timestamp: 1_700_000_000_000 + id*7}
	}
	return es
}

func content(id int64, size int) []byte {
	if size == 0 {
		return []byte{}
	}
	r := rand.New(rand.NewPCG(uint64(id), 7))
	b := bytes.Repeat([]byte{byte(id)}, r.IntN(2*size))
	return append(b, fmt.Sprint(id)...)
}

func mustOpen(t testing.TB, dir string, o LogOptions) *Log {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet()
	}
	l, err := OpenLog(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func mustAppend(t testing.TB, l *Log, n, size int) []Entry {
	t.Helper()
	es := makeEntries(l.Next(), l.NextIndex(), n, size)
	if err := l.Append(es); err != nil {
		t.Fatal(err)
	}
	return es
}

// readAll reads from entry from to the end, most at a time.
func readAll(t testing.TB, l *Log, from int64, most int) []Entry {
	t.Helper()
	var all []Entry
	for from < l.Next() {
		n := len(all)
		var err error
		if all, err = l.Read(from, most, 0, all); err != nil {
			t.Fatal(err)
		}
		if len(all) == n {
			t.Fatalf("reading entry %d of %d gave nothing", from, l.Next())
		}
		from = all[len(all)-1].ID + 1
	}
	return all
}

func same(t testing.TB, got, want []Entry) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return // quickly
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("entries differ (-want +got):\n%.2000s", d)
	}
}

func openFDs(t testing.TB) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("descriptors cannot be counted here:", err)
	}
	return len(es)
}

func TestLogEmpty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := mustOpen(t, dir, LogOptions{})
	if l.First() != 0 || l.Next() != 0 || l.NextIndex() != 0 || l.Size() != 0 {
		t.Errorf("an empty log has first %d, next %d, next index %d, size %d", l.First(), l.Next(), l.NextIndex(), l.Size())
	}
	if es, err := l.Read(0, 10, 0, nil); err != nil || len(es) != 0 {
		t.Errorf("reading an empty log: %v, %v", es, err)
	}
	if err := errors.Join(l.Trim(5), l.Sync(), l.Append(nil), l.Recover(), l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log that was never written to left %s: %v", dir, err)
	}
}

func TestLogAppendReadReopen(t *testing.T) {
	for _, mode := range Syncs() {
		t.Run(string(mode), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "log")
			o := LogOptions{Sync: mode, SegmentBytes: 20_000, SyncInterval: time.Millisecond, Logger: quiet()}
			var want []Entry
			segments := 0
			for round := range 3 {
				l := mustOpen(t, dir, o)
				if int(l.Next()) != len(want) {
					t.Fatalf("round %d: next is %d, %d were stored", round, l.Next(), len(want))
				}
				for i := range 40 {
					want = append(want, mustAppend(t, l, i%7+1, 100)...)
				}
				want = append(want, mustAppend(t, l, 3, 0)...)
				for _, most := range []int{1, 5, 500} {
					same(t, readAll(t, l, 0, most), want)
				}
				same(t, readAll(t, l, 77, 0), want[77:])
				segments = len(l.segs)
				if last := want[len(want)-1]; l.NextIndex() != last.Index+1 {
					t.Fatalf("next index %d after %d", l.NextIndex(), last.Index)
				}
				if r := l.Recovered(); r.CutBytes != 0 || r.Damage != nil {
					t.Fatalf("opening a whole log found %+v", r)
				}
				if got, want := l.Size(), dirBytes(t, dir); got != want {
					t.Fatalf("size is %d, the files have %d", got, want)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if segments < 3 {
				t.Errorf("%d segments, the test wants several", segments)
			}
		})
	}
}

func dirBytes(t testing.TB, dir string) (n int64) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		fi, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		n += fi.Size()
	}
	return n
}

func TestLogReadLimits(t *testing.T) {
	l := mustOpen(t, t.TempDir(), LogOptions{Sync: SyncNever})
	var es []Entry
	for i := range int64(10) {
		es = append(es, Entry{ID: i, Data: make([]byte, 100), Messages: 1, Index: i})
	}
	if err := errors.Join(l.Append(es[:4]), l.Append(es[4:])); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from  int64
		most  int
		bytes int64
		want  int
	}{{0, 3, 0, 3}, {0, 0, 0, 10}, {2, 5, 0, 5}, {0, 10, 1, 1}, {0, 10, 250, 2}, {3, 10, 200, 2}, {9, 10, 0, 1}, {10, 1, 0, 0}, {11, 1, 0, 0}, {-5, 2, 0, 2}} {
		got, err := l.Read(c.from, c.most, c.bytes, nil)
		if err != nil || len(got) != c.want {
			t.Errorf("Read(%d, %d, %d) gave %d entries, want %d: %v", c.from, c.most, c.bytes, len(got), c.want, err)
			continue
		}
		if c.want > 0 && got[0].ID != max(c.from, 0) {
			t.Errorf("Read(%d, …) begins with %d", c.from, got[0].ID)
		}
	}
	prefix := []Entry{{ID: 99}}
	if got, err := l.Read(0, 1, 0, prefix); err != nil || len(got) != 2 || got[0].ID != 99 {
		t.Errorf("Read does not append to what it is given: %v, %v", got, err)
	}
}

// A small part of a large block does not keep the block in memory; a large part
// is not copied.
func TestLogReadCopiesSmallParts(t *testing.T) {
	l := mustOpen(t, t.TempDir(), LogOptions{Sync: SyncNever})
	var es []Entry
	for i := range int64(100) {
		es = append(es, Entry{ID: i, Data: bytes.Repeat([]byte{byte(i)}, 100), Messages: 1, Index: i})
	}
	if err := l.Append(es); err != nil {
		t.Fatal(err)
	}
	for most, copied := range map[int]bool{2: true, 100: false} {
		a, err := l.Read(0, most, 0, nil)
		b, err2 := l.Read(0, most, 0, nil)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if (&a[1].Data[0] != &b[1].Data[0]) != copied {
			t.Errorf("reading %d of 100 entries: copied is not %v", most, copied)
		}
		if a[1].Data[0] != 1 || b[1].Data[0] != 1 {
			t.Errorf("%v, %v", a[1], b[1])
		}
	}
}

func TestLogRefuses(t *testing.T) {
	l := mustOpen(t, t.TempDir(), LogOptions{Sync: SyncNever})
	mustAppend(t, l, 2, 10)
	next, index := l.Next(), l.NextIndex()
	good := Entry{ID: next, Messages: 1, Index: index}
	for name, es := range map[string][]Entry{
		"a gap":           {{ID: next + 1, Messages: 1, Index: index}},
		"a repetition":    {{ID: next - 1, Messages: 1, Index: index}},
		"disorder":        {good, good},
		"negative count":  {{ID: next, Messages: -1, Index: index - 2}},
		"wrong index":     {{ID: next, Messages: 2, Index: index}},
		"too many bytes":  {{ID: next, Messages: 1, Index: index, Data: make([]byte, MaxBlockBytes)}},
		"too many in all": {{ID: next, Messages: 1, Index: index, Data: make([]byte, MaxBlockBytes/2)}, {ID: next + 1, Messages: 1, Index: index + 1, Data: make([]byte, MaxBlockBytes/2)}},
	} {
		if err := l.Append(es); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if err := l.Append([]Entry{good}); err != nil {
		t.Errorf("a refused append must not harm the next: %v", err)
	}
	for _, o := range []LogOptions{{Sync: "sometimes"}, {SegmentBytes: -1}, {SegmentBytes: 3 << 30}, {SyncInterval: -1}} {
		if _, err := OpenLog(t.TempDir(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, readErr := l.Read(0, 1, 0, nil)
	for _, err := range []error{l.Append([]Entry{good}), readErr, l.Sync(), l.Trim(1), l.Recover()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestLogLargeEntries(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, LogOptions{Sync: SyncNever})
	var want []Entry
	for i, size := range []int{10, 5 << 20, 10, MaxBlockBytes - 100, 10} {
		e := Entry{ID: int64(i), Data: bytes.Repeat([]byte{byte(i + 1)}, size), Messages: 1, Index: int64(i)}
		if err := l.Append([]Entry{e}); err != nil {
			t.Fatal(err)
		}
		want = append(want, e)
	}
	check := func(l *Log) {
		got := readAll(t, l, 0, 1)
		for i := range want {
			if !bytes.Equal(got[i].Data, want[i].Data) {
				t.Fatalf("entry %d differs", i)
			}
		}
	}
	check(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	check(mustOpen(t, dir, LogOptions{}))
}

func TestLogManyBlocksBeginANewFile(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, LogOptions{Sync: SyncNever})
	for range maxSegmentBlocks + 10 {
		mustAppend(t, l, 1, 0)
	}
	if len(l.segs) != 2 {
		t.Fatalf("%d segments", len(l.segs))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, LogOptions{})
	if l.Next() != maxSegmentBlocks+10 {
		t.Errorf("next is %d", l.Next())
	}
	mustAppend(t, l, 1, 0)
	if got := readAll(t, l, maxSegmentBlocks-5, 3); len(got) != 16 {
		t.Errorf("%d entries", len(got))
	}
}

func TestLogTrim(t *testing.T) {
	dir := t.TempDir()
	o := LogOptions{Sync: SyncNever, SegmentBytes: 5000}
	l := mustOpen(t, dir, o)
	var want []Entry
	for range 100 {
		want = append(want, mustAppend(t, l, 2, 200)...)
	}
	old := readAll(t, l, 0, 10)
	trimmed := int64(0)
	for _, before := range []int64{0, 1, 57, 100, 20, 199, 200, 1000} {
		if err := l.Trim(before); err != nil {
			t.Fatal(err)
		}
		first := l.First()
		trimmed = max(trimmed, before)
		if first > trimmed || min(trimmed, 200) > first+60 {
			t.Fatalf("trimmed before %d, the first is %d", before, first)
		}
		got, err := l.Read(0, 0, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want[first:])
		if got, want := l.Size(), dirBytes(t, dir); got != want {
			t.Fatalf("size is %d, the files have %d", got, want)
		}
	}
	same(t, old, want) // what was read stays valid
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, o)
	if l.Next() != 200 || l.NextIndex() != want[199].Index+1 {
		t.Fatalf("after reopening, next is %d and next index %d", l.Next(), l.NextIndex())
	}
	mustAppend(t, l, 1, 10)
}

// Reading, trimming and syncing beside an appender: everything that is read is
// right, and in order.
func TestLogConcurrent(t *testing.T) {
	fds := openFDs(t)
	o := LogOptions{Sync: SyncInterval, SyncInterval: time.Millisecond, SegmentBytes: 8000, Cache: NewCache(20_000)}
	l := mustOpen(t, t.TempDir(), o)
	const total = 3000
	var readers sync.WaitGroup
	for r := range 3 {
		readers.Go(func() {
			for from := int64(0); from < total; {
				es, err := l.Read(from, 7+r, 0, nil)
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range es {
					if e.ID < from || !bytes.Equal(e.Data, content(e.ID, 60)) {
						t.Errorf("asked for %d, got %d with %q", from, e.ID, e.Data)
						return
					}
					from = e.ID + 1
				}
			}
		})
	}
	for l.Next() < total {
		mustAppend(t, l, 5, 60)
		if n := l.Next(); n%500 == 0 {
			if err := errors.Join(l.Trim(n-1000), l.Sync()); err != nil {
				t.Fatal(err)
			}
		}
	}
	readers.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := openFDs(t); n > fds {
		t.Errorf("%d descriptors open, %d before", n, fds)
	}
}

func TestLogHoldsFewFiles(t *testing.T) {
	before := openFDs(t)
	dir := t.TempDir()
	l := mustOpen(t, dir, LogOptions{Sync: SyncNever, SegmentBytes: 2000})
	if n := openFDs(t); n != before {
		t.Errorf("an empty log holds %d files", n-before)
	}
	for range 200 {
		mustAppend(t, l, 2, 100)
	}
	readAll(t, l, 0, 10)
	if n := openFDs(t); n > before+1+maxLoaded {
		t.Errorf("a log of %d segments holds %d files", len(l.segs), n-before)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, LogOptions{})
	if n := openFDs(t); n != before {
		t.Errorf("a log that was only opened holds %d files", n-before)
	}
}
