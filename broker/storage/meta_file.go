package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Meta is Metadata in the file meta.db of a directory, which it locks: a second
// broker cannot use the directory.
type Meta struct {
	dir string
	db  *bolt.DB
}

var _ Metadata = (*Meta)(nil)

const (
	metaFile  = "meta.db"
	ownerFile = "meta.owner" // who has it locked, for the message to the second one
)

// The file's buckets and their keys.
var (
	formatBucket    = []byte("format")     // "version" → uvarint
	topicBucket     = []byte("topics")     // name → topic; its sequence gives ledger numbers
	ledgerBucket    = []byte("ledgers")    // ledger → name of its topic
	cursorBucket    = []byte("cursors")    // ledger, name → cursor
	partitionBucket = []byte("partitions") // topic → uvarint
	schemaBucket    = []byte("schemas")    // length and name of the topic, version → schema
	metaBuckets     = [][]byte{formatBucket, topicBucket, ledgerBucket, cursorBucket, partitionBucket, schemaBucket}
)

var errNoName = errors.New("a topic has no name")

// OpenMeta opens the metadata in dir, which it makes if need be. Every change is
// flushed to the disk before its call returns, unless sync is SyncNever: a power
// failure in the middle of an unflushed change could take the whole file.
func OpenMeta(dir string, sync Sync) (*Meta, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("opening the data directory: %w", err)
	}
	path := filepath.Join(dir, metaFile)
	var db *bolt.DB
	err := guarded(func() (err error) {
		db, err = bolt.Open(path, 0o640, &bolt.Options{
			Timeout: time.Millisecond, FreelistType: bolt.FreelistMapType, NoSync: sync == SyncNever, NoGrowSync: sync == SyncNever})
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("data directory %s is in use by another broker (%s): stop that one or give this one another directory", dir, owner(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	if err := guarded(func() error { return prepare(db) }); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", path, err), db.Close())
	}
	who := fmt.Sprintf("process %d, since %s", os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(who), 0o640); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the data directory: %w", err), db.Close())
	}
	return &Meta{dir: dir, db: db}, nil
}

func owner(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil || len(b) == 0 || len(b) > 200 {
		return "an unknown process"
	}
	return strings.ToValidUTF8(string(b), "?")
}

// guarded runs f: a damaged file makes the library panic, or fault where it has
// been cut short.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file is damaged: %v", p)
		}
	}()
	return f()
}

// prepare checks a file and makes what is missing.
func prepare(db *bolt.DB) error {
	err := db.View(func(tx *bolt.Tx) error {
		var first error
		for e := range tx.Check() {
			if first == nil {
				first = fmt.Errorf("the file is damaged: %w", e)
			}
		}
		return first
	})
	if err != nil {
		return err
	}
	return db.Update(func(tx *bolt.Tx) error {
		for _, name := range metaBuckets {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		f := tx.Bucket(formatBucket)
		switch v := f.Get([]byte("version")); {
		case v == nil:
			return f.Put([]byte("version"), binary.AppendUvarint(nil, metaFormat))
		case !bytes.Equal(v, binary.AppendUvarint(nil, metaFormat)):
			return fmt.Errorf("the file has format %x, this program knows %d: use the program that wrote it", v, metaFormat)
		}
		return nil
	})
}

func (m *Meta) view(what string, f func(*bolt.Tx) error) error { return m.wrap(what, m.db.View(f)) }
func (m *Meta) update(what string, f func(*bolt.Tx) error) error {
	return m.wrap(what, m.db.Update(f))
}

func (m *Meta) wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s in %s: %w", what, filepath.Join(m.dir, metaFile), err)
	}
	return nil
}

func ledgerKey(ledger int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(ledger)) }

func schemaPrefix(topic string) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(topic))), topic...)
}

// each calls f for the keys that begin with prefix, without it.
func each(b *bolt.Bucket, prefix []byte, f func(key, value []byte) error) error {
	c := b.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if err := f(k[len(prefix):], v); err != nil {
			return err
		}
	}
	return nil
}

func deletePrefix(b *bolt.Bucket, prefix []byte) error {
	var keys [][]byte
	if err := each(b, prefix, func(k, _ []byte) error {
		keys = append(keys, append(bytes.Clone(prefix), k...))
		return nil
	}); err != nil {
		return err
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

func (m *Meta) Topics() (ts []Topic, err error) {
	err = m.view("reading topics", func(tx *bolt.Tx) error {
		return each(tx.Bucket(topicBucket), nil, func(k, v []byte) error {
			t, err := decodeTopic(string(k), v)
			ts = append(ts, t)
			return err
		})
	})
	return ts, err
}

func (m *Meta) CreateTopic(name string) (t Topic, created bool, err error) {
	if name == "" {
		return t, false, errNoName
	}
	err = m.view("reading a topic", func(tx *bolt.Tx) error {
		v := tx.Bucket(topicBucket).Get([]byte(name))
		if v == nil {
			return nil
		}
		t, err = decodeTopic(name, v)
		return err
	})
	if err != nil || t.Ledger != 0 {
		return t, false, err
	}
	err = m.update("creating a topic", func(tx *bolt.Tx) error {
		b := tx.Bucket(topicBucket)
		if v := b.Get([]byte(name)); v != nil { // another call was faster
			t, err = decodeTopic(name, v)
			return err
		}
		n, err := b.NextSequence()
		if err != nil {
			return err
		}
		t, created = Topic{Name: name, Ledger: int64(n), Created: now()}, true
		if err := tx.Bucket(ledgerBucket).Put(ledgerKey(t.Ledger), []byte(name)); err != nil {
			return err
		}
		return b.Put([]byte(name), encodeTopic(t))
	})
	if err != nil {
		return Topic{}, false, err
	}
	return t, created, nil
}

func (m *Meta) DeleteTopic(name string) error {
	return m.update(fmt.Sprintf("deleting topic %q", name), func(tx *bolt.Tx) error {
		b := tx.Bucket(topicBucket)
		v := b.Get([]byte(name))
		if v == nil {
			return ErrNotFound
		}
		t, err := decodeTopic(name, v)
		if err != nil {
			return err
		}
		return errors.Join(b.Delete([]byte(name)), tx.Bucket(ledgerBucket).Delete(ledgerKey(t.Ledger)),
			deletePrefix(tx.Bucket(cursorBucket), ledgerKey(t.Ledger)), deletePrefix(tx.Bucket(schemaBucket), schemaPrefix(name)))
	})
}

func (m *Meta) Cursors(ledger int64) (cs []Cursor, err error) {
	err = m.view("reading cursors", func(tx *bolt.Tx) error {
		return each(tx.Bucket(cursorBucket), ledgerKey(ledger), func(k, v []byte) error {
			c, err := decodeCursor(string(k), v)
			cs = append(cs, c)
			return err
		})
	})
	return cs, err
}

func (m *Meta) PutCursors(cs []LedgerCursor) error {
	for _, c := range cs {
		if err := checkCursor(c); err != nil {
			return err
		}
	}
	if len(cs) == 0 {
		return nil
	}
	return m.update("writing cursors", func(tx *bolt.Tx) error {
		ledgers, b := tx.Bucket(ledgerBucket), tx.Bucket(cursorBucket)
		for _, c := range cs {
			k := ledgerKey(c.Ledger)
			if ledgers.Get(k) == nil {
				continue
			}
			if err := b.Put(append(k, c.Name...), encodeCursor(c.Cursor)); err != nil {
				return fmt.Errorf("cursor %q: %w", c.Name, err)
			}
		}
		return nil
	})
}

func (m *Meta) DeleteCursor(ledger int64, name string) error {
	return m.update("deleting a cursor", func(tx *bolt.Tx) error {
		return tx.Bucket(cursorBucket).Delete(append(ledgerKey(ledger), name...))
	})
}

func (m *Meta) Partitions() (map[string]int, error) {
	ps := map[string]int{}
	err := m.view("reading partitioned topics", func(tx *bolt.Tx) error {
		return each(tx.Bucket(partitionBucket), nil, func(k, v []byte) error {
			d := decoder{b: v}
			n := d.uvarint()
			if d.end() != nil || n < 1 || n > maxPartitions {
				return fmt.Errorf("partitioned topic %q: %w", k, errMeta)
			}
			ps[string(k)] = int(n)
			return nil
		})
	})
	return ps, err
}

// maxPartitions is far beyond use, and an int everywhere.
const maxPartitions = 1 << 20

func checkPartitions(topic string, n int) error {
	switch {
	case topic == "":
		return errNoName
	case n < 1 || n > maxPartitions:
		return fmt.Errorf("topic %q with %d partitions: use 1 to %d", topic, n, maxPartitions)
	}
	return nil
}

func (m *Meta) PutPartitions(topic string, n int) error {
	if err := checkPartitions(topic, n); err != nil {
		return err
	}
	return m.update("writing a partitioned topic", func(tx *bolt.Tx) error {
		return tx.Bucket(partitionBucket).Put([]byte(topic), binary.AppendUvarint(nil, uint64(n)))
	})
}

func (m *Meta) DeletePartitions(topic string) error {
	return m.update("deleting a partitioned topic", func(tx *bolt.Tx) error {
		if err := tx.Bucket(partitionBucket).Delete([]byte(topic)); err != nil {
			return err
		}
		if tx.Bucket(topicBucket).Get([]byte(topic)) != nil {
			return nil
		}
		return deletePrefix(tx.Bucket(schemaBucket), schemaPrefix(topic))
	})
}

func (m *Meta) Schemas(topic string) (ss []Schema, err error) {
	err = m.view("reading schemas", func(tx *bolt.Tx) error {
		return each(tx.Bucket(schemaBucket), schemaPrefix(topic), func(k, v []byte) error {
			if len(k) != 8 {
				return fmt.Errorf("schema of %q: %w", topic, errMeta)
			}
			s, err := decodeSchema(int64(binary.BigEndian.Uint64(k)), v)
			ss = append(ss, s)
			return err
		})
	})
	return ss, err
}

func (m *Meta) AddSchema(topic string, s Schema) (version int64, err error) {
	if topic == "" {
		return 0, errNoName
	}
	err = m.update("writing a schema", func(tx *bolt.Tx) error {
		version = 0
		b, prefix := tx.Bucket(schemaBucket), schemaPrefix(topic)
		if err := each(b, prefix, func([]byte, []byte) error { version++; return nil }); err != nil {
			return err
		}
		return b.Put(binary.BigEndian.AppendUint64(prefix, uint64(version)), encodeSchema(s))
	})
	return version, err
}

// Close unlocks the directory; a second Close does nothing.
func (m *Meta) Close() error {
	return m.wrap("closing", m.db.Close())
}
