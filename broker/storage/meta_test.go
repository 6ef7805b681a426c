package storage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

func mustMeta(t testing.TB, dir string) *Meta {
	t.Helper()
	m, err := OpenMeta(dir, SyncNever)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// eachMetadata runs f with an empty one of each kind.
func eachMetadata(t *testing.T, f func(t *testing.T, m Metadata)) {
	t.Run("memory", func(t *testing.T) { f(t, &MemoryMeta{}) })
	t.Run("file", func(t *testing.T) { f(t, mustMeta(t, t.TempDir())) })
}

func TestMetaTopics(t *testing.T) {
	eachMetadata(t, func(t *testing.T, m Metadata) {
		if ts, err := m.Topics(); err != nil || len(ts) != 0 {
			t.Fatalf("%v, %v", ts, err)
		}
		a, created, err := m.CreateTopic("a")
		if err != nil || !created || a.Ledger < 1 || a.Created.IsZero() {
			t.Fatalf("%+v, %v, %v", a, created, err)
		}
		if again, created, err := m.CreateTopic("a"); err != nil || created || !cmp.Equal(a, again) {
			t.Fatalf("%+v, %v, %v", again, created, err)
		}
		if err := m.DeleteTopic("b"); !errors.Is(err, ErrNotFound) {
			t.Errorf("deleting what is not there says %v", err)
		}
		if err := m.DeleteTopic("a"); err != nil {
			t.Fatal(err)
		}
		b, created, err := m.CreateTopic("a")
		if err != nil || !created || b.Ledger <= a.Ledger {
			t.Errorf("the ledger of a deleted topic is used again: %+v after %+v, %v", b, a, err)
		}
		if _, _, err := m.CreateTopic(""); err == nil {
			t.Error("a topic without a name was created")
		}
	})
}

func TestMetaDeletedTopicTakesItsOwn(t *testing.T) {
	eachMetadata(t, func(t *testing.T, m Metadata) {
		a, _, err := m.CreateTopic("a")
		ab, _, err2 := m.CreateTopic("ab")
		_, err3 := m.AddSchema("a", Schema{Name: "one"})
		_, err4 := m.AddSchema("ab", Schema{Name: "two"})
		c := Cursor{Name: "s", MarkDelete: 7}
		if err := errors.Join(err, err2, err3, err4, m.PutCursors([]LedgerCursor{{a.Ledger, c}, {ab.Ledger, c}, {999, c}}), m.DeleteTopic("a"),
			m.PutCursors([]LedgerCursor{{a.Ledger, c}})); err != nil {
			t.Fatal(err)
		}
		for ledger, want := range map[int64]int{a.Ledger: 0, ab.Ledger: 1, 999: 0} {
			if cs, err := m.Cursors(ledger); err != nil || len(cs) != want {
				t.Errorf("ledger %d has cursors %v, %v", ledger, cs, err)
			}
		}
		for topic, want := range map[string]int{"a": 0, "ab": 1} {
			if ss, err := m.Schemas(topic); err != nil || len(ss) != want {
				t.Errorf("topic %s has schemas %v, %v", topic, ss, err)
			}
		}
		if err := errors.Join(m.DeleteCursor(ab.Ledger, "s"), m.DeleteCursor(ab.Ledger, "s"), m.DeleteCursor(5, "x")); err != nil {
			t.Fatal(err)
		}
		if cs, err := m.Cursors(ab.Ledger); err != nil || len(cs) != 0 {
			t.Errorf("%v, %v", cs, err)
		}
	})
}

func TestMetaPartitionsAndSchemas(t *testing.T) {
	eachMetadata(t, func(t *testing.T, m Metadata) {
		for topic, n := range map[string]int{"": 1, "p": 0, "q": -1, "r": 1 << 30} {
			if err := m.PutPartitions(topic, n); err == nil {
				t.Errorf("topic %q with %d partitions was accepted", topic, n)
			}
		}
		if err := errors.Join(m.PutPartitions("p", 3), m.PutPartitions("p", 5), m.PutPartitions("q", 1)); err != nil {
			t.Fatal(err)
		}
		want := []Schema{{Version: 0, Name: "x", Type: 2, Data: []byte("{}"), Properties: []byte{0, 1}}, {Version: 1, Type: -1}}
		for i, s := range want {
			if v, err := m.AddSchema("p", Schema{Name: s.Name, Type: s.Type, Data: s.Data, Properties: s.Properties, Version: 77}); err != nil || v != int64(i) {
				t.Fatalf("version %d, %v", v, err)
			}
		}
		if ss, err := m.Schemas("p"); err != nil || !cmp.Equal(ss, want) {
			t.Errorf("%+v, %v", ss, err)
		}
		if _, err := m.AddSchema("", Schema{}); err == nil {
			t.Error("a schema without a topic was accepted")
		}
		if ps, err := m.Partitions(); err != nil || !cmp.Equal(ps, map[string]int{"p": 5, "q": 1}) {
			t.Errorf("%v, %v", ps, err)
		}
		if err := m.DeletePartitions("p"); err != nil {
			t.Fatal(err)
		}
		ps, err := m.Partitions()
		ss, err2 := m.Schemas("p")
		if err := errors.Join(err, err2); err != nil || !cmp.Equal(ps, map[string]int{"q": 1}) || len(ss) != 0 {
			t.Errorf("%v, %v, %v", ps, ss, err)
		}
	})
}

func TestMetaRefusesCursors(t *testing.T) {
	eachMetadata(t, func(t *testing.T, m Metadata) {
		a, _, err := m.CreateTopic("a")
		if err != nil {
			t.Fatal(err)
		}
		good := LedgerCursor{a.Ledger, Cursor{Name: "good", MarkDelete: 1}}
		for _, c := range []Cursor{
			{Name: ""}, {Name: "x", MarkDelete: -2}, {Name: "x", MarkDelete: 5, Acked: [][2]int64{{5, 6}}},
			{Name: "x", Acked: [][2]int64{{4, 3}}}, {Name: "x", Acked: [][2]int64{{4, 5}, {5, 6}}},
		} {
			if err := m.PutCursors([]LedgerCursor{good, {a.Ledger, c}}); err == nil {
				t.Errorf("%+v was accepted", c)
			}
		}
		if cs, err := m.Cursors(a.Ledger); err != nil || len(cs) != 0 {
			t.Errorf("a refused transaction left %v, %v", cs, err)
		}
	})
}

// Both kinds do the same, and the file is the same after it is opened again.
func TestMetaModel(t *testing.T) {
	base := t.TempDir()
	names := rapid.SampledFrom([]string{"a", "b", "ab", "persistent://x/y/z", "\x00", strings.Repeat("long", 100)})
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "meta")
		if err != nil {
			t.Fatal(err)
		}
		model := &MemoryMeta{}
		var file Metadata
		if file, err = OpenMeta(dir, SyncNever); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		both := func(f func(Metadata) (any, error)) {
			a, errA := f(model)
			b, errB := f(file)
			if d := cmp.Diff(a, b); d != "" || (errA == nil) != (errB == nil) {
				t.Fatalf("they differ (-memory +file):\n%s\n%v, %v", d, errA, errB)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				n := names.Draw(t, "topic")
				both(func(m Metadata) (any, error) { x, _, err := m.CreateTopic(n); return x.Ledger, err })
			},
			"delete": func(t *rapid.T) {
				n := names.Draw(t, "topic")
				both(func(m Metadata) (any, error) { return nil, m.DeleteTopic(n) })
			},
			"cursors": func(t *rapid.T) {
				var cs []LedgerCursor
				for range rapid.IntRange(1, 4).Draw(t, "cursors") {
					c := LedgerCursor{rapid.Int64Range(1, 6).Draw(t, "ledger"), Cursor{Name: names.Draw(t, "name"), MarkDelete: rapid.Int64Range(-1, 1<<40).Draw(t, "mark")}}
					at := c.MarkDelete
					for range rapid.IntRange(0, 3).Draw(t, "ranges") {
						at += rapid.Int64Range(2, 1000).Draw(t, "gap")
						end := at + rapid.Int64Range(0, 1000).Draw(t, "more")
						c.Acked = append(c.Acked, [2]int64{at, end})
						at = end
					}
					cs = append(cs, c)
				}
				both(func(m Metadata) (any, error) { return nil, m.PutCursors(cs) })
			},
			"drop cursor": func(t *rapid.T) {
				l, n := rapid.Int64Range(1, 6).Draw(t, "ledger"), names.Draw(t, "name")
				both(func(m Metadata) (any, error) { return nil, m.DeleteCursor(l, n) })
			},
			"partitions": func(t *rapid.T) {
				n, k := names.Draw(t, "topic"), rapid.IntRange(0, 5).Draw(t, "partitions")
				both(func(m Metadata) (any, error) {
					if k == 0 {
						return nil, m.DeletePartitions(n)
					}
					return nil, m.PutPartitions(n, k)
				})
			},
			"schema": func(t *rapid.T) {
				n, s := names.Draw(t, "topic"), Schema{Name: names.Draw(t, "name"), Type: int32(rapid.IntRange(-1, 30).Draw(t, "type")), Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data")}
				both(func(m Metadata) (any, error) { return m.AddSchema(n, s) })
			},
			"reopen": func(t *rapid.T) {
				if err := file.Close(); err != nil {
					t.Fatal(err)
				}
				if file, err = OpenMeta(dir, SyncNever); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				both(func(m Metadata) (any, error) {
					var ns []string
					ts, err := m.Topics()
					for _, t := range ts {
						ns = append(ns, fmt.Sprint(t.Name, t.Ledger))
					}
					return ns, err
				})
				for l := range int64(7) {
					both(func(m Metadata) (any, error) { return m.Cursors(l) })
				}
				n := names.Draw(t, "topic")
				both(func(m Metadata) (any, error) { return m.Schemas(n) })
				both(func(m Metadata) (any, error) { return m.Partitions() })
			},
		})
	})
}

func TestMetaConcurrent(t *testing.T) {
	eachMetadata(t, func(t *testing.T, m Metadata) {
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 20 {
					a, _, err := m.CreateTopic(fmt.Sprint("t", i))
					if err != nil {
						t.Error(err)
						return
					}
					if err := m.PutCursors([]LedgerCursor{{a.Ledger, Cursor{Name: fmt.Sprint(g), MarkDelete: int64(i)}}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		ts, err := m.Topics()
		if err != nil || len(ts) != 20 {
			t.Fatalf("%d topics, %v", len(ts), err)
		}
		for _, a := range ts {
			if cs, err := m.Cursors(a.Ledger); err != nil || len(cs) != 4 {
				t.Errorf("%s has %d cursors, %v", a.Name, len(cs), err)
			}
		}
	})
}

func TestMetaLocksItsDirectory(t *testing.T) {
	dir := t.TempDir()
	m := mustMeta(t, dir)
	_, err := OpenMeta(dir, SyncAlways)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Fatalf("the second one says %v", err)
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	mustMeta(t, dir)
}

// A process that is killed leaves the directory unlocked and everything in it.
func TestMetaSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), writerEnv+"=meta:"+dir)
	out, err := cmd.Output()
	var killed *exec.ExitError
	if !errors.As(err, &killed) || killed.Exited() {
		t.Fatalf("the writer said %q and ended by itself: %v", out, err)
	}
	m := mustMeta(t, dir)
	ts, err := m.Topics()
	if err != nil || len(ts) != 5 {
		t.Fatalf("%v, %v", ts, err)
	}
	for i, a := range ts {
		if cs, err := m.Cursors(a.Ledger); err != nil || len(cs) != 1 || cs[0].MarkDelete != int64(i) {
			t.Errorf("%v, %v", cs, err)
		}
	}
}

func TestMetaDamaged(t *testing.T) {
	dir := t.TempDir()
	m := mustMeta(t, dir)
	for i := range 300 {
		if _, _, err := m.CreateTopic(strings.Repeat(fmt.Sprint("topic", i), 5)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"not a database":  []byte(strings.Repeat("text ", 10_000)),
		"cut short":       good[:len(good)/2],
		"without an end":  good[:3*4096],
		"zeros in it":     append(append(append([]byte(nil), good[:3*4096]...), make([]byte, 5*4096)...), good[8*4096:]...),
		"another version": nil,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, metaFile)
			if b == nil {
				if err := os.WriteFile(path, good, 0o640); err != nil {
					t.Fatal(err)
				}
				setFormat(t, path)
			} else if err := os.WriteFile(path, b, 0o640); err != nil {
				t.Fatal(err)
			}
			m, err := OpenMeta(dir, SyncNever)
			if err == nil {
				t.Fatalf("it was opened; closing: %v", m.Close())
			}
			if !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name the file: %v", err)
			}
		})
	}
}

func setFormat(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o640, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket(formatBucket).Put([]byte("version"), []byte{9}) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
