package storage

import (
	"fmt"
	"testing"
)

func benchEntries(n, size int) []Entry {
	es := make([]Entry, n)
	for i := range es {
		es[i] = Entry{Data: make([]byte, size), Messages: 1}
	}
	return es
}

// number gives entries the next numbers.
func number(es []Entry, next int64) {
	for i := range es {
		es[i].ID, es[i].Index, es[i].Timestamp = next+int64(i), next+int64(i), 1_700_000_000_000
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, mode := range []Sync{SyncNever, SyncAlways} {
		for _, n := range []int{1, 32, 1024} {
			b.Run(fmt.Sprintf("sync=%s/entries=%d", mode, n), func(b *testing.B) {
				l := mustOpen(b, b.TempDir(), LogOptions{Sync: mode})
				es := benchEntries(n, 200)
				b.SetBytes(int64(n) * 200)
				b.ReportAllocs()
				for b.Loop() {
					number(es, l.Next())
					if err := l.Append(es); err != nil {
						b.Fatal(err)
					}
					if l.Size() > 256<<20 {
						b.StopTimer()
						if err := l.Trim(l.Next()); err != nil {
							b.Fatal(err)
						}
						b.StartTimer()
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
			})
		}
	}
}

// BenchmarkRead reads 64 MB again and again, 500 entries at a time.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{1, 32, 1024} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			l := mustOpen(b, b.TempDir(), LogOptions{Sync: SyncNever})
			es := benchEntries(n, 200)
			for l.Size() < 64<<20 {
				number(es, l.Next())
				if err := l.Append(es); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(500 * 200)
			b.ReportAllocs()
			var into []Entry
			from := int64(0)
			for b.Loop() {
				var err error
				if into, err = l.Read(from, 500, 0, into[:0]); err != nil {
					b.Fatal(err)
				}
				if from += int64(len(into)); from+500 > l.Next() {
					from = 0
				}
			}
		})
	}
}

// BenchmarkOpen opens a log whose last file is full.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{1, 1024} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			dir := b.TempDir()
			l := mustOpen(b, dir, LogOptions{Sync: SyncNever})
			es := benchEntries(n, 200)
			for len(l.segs) < 2 {
				number(es, l.Next())
				if err := l.Append(es); err != nil {
					b.Fatal(err)
				}
			}
			last := l.segs[1].path
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
			if err := (osFS{}).Remove(last); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				l, err := OpenLog(dir, LogOptions{Sync: SyncNever})
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPutCursors(b *testing.B) {
	for _, mode := range []Sync{SyncNever, SyncAlways} {
		b.Run("sync="+string(mode), func(b *testing.B) {
			m, err := OpenMeta(b.TempDir(), mode)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = m.Close() }()
			var cs []LedgerCursor
			for i := range 100 {
				t, _, err := m.CreateTopic(fmt.Sprint("topic", i))
				if err != nil {
					b.Fatal(err)
				}
				cs = append(cs, LedgerCursor{t.Ledger, Cursor{Name: "subscription", Acked: [][2]int64{{2, 3}, {10, 2000}}}})
			}
			for b.Loop() {
				if err := m.PutCursors(cs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
