package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Metadata is what a broker knows about its topics. Implementations are safe for
// concurrent use. What a call returned without an error survives the process.
type Metadata interface {
	// Topics returns all topics, by name.
	Topics() ([]Topic, error)
	// CreateTopic returns the topic of that name; it creates one, with a ledger
	// number that no topic ever had, if there is none.
	CreateTopic(name string) (t Topic, created bool, err error)
	// DeleteTopic forgets a topic with its cursors and schemas. One that does
	// not exist is ErrNotFound.
	DeleteTopic(name string) error

	// Cursors returns those of a ledger, by name.
	Cursors(ledger int64) ([]Cursor, error)
	// PutCursors writes cursors in one transaction; those of a ledger whose
	// topic has been deleted are left out.
	PutCursors([]LedgerCursor) error
	// DeleteCursor does nothing if there is none of that name.
	DeleteCursor(ledger int64, name string) error

	// Partitions returns the partitioned topics and their numbers of partitions.
	Partitions() (map[string]int, error)
	PutPartitions(topic string, n int) error
	// DeletePartitions forgets that a topic is partitioned, and its schemas
	// where it is no topic itself.
	DeletePartitions(topic string) error

	// Schemas returns those of a topic, oldest first.
	Schemas(topic string) ([]Schema, error)
	// AddSchema stores a schema under the next version, from 0, which it
	// returns. The topic need not exist.
	AddSchema(topic string, s Schema) (version int64, err error)

	Close() error
}

// ErrNotFound: there is no such thing.
var ErrNotFound = errors.New("not found")

// Topic is a topic and its ledger.
type Topic struct {
	Name    string
	Ledger  int64 // from 1, never used for another topic
	Created time.Time
}

// Cursor is the durable state of a cursor.
type Cursor struct {
	Name string
	// MarkDelete: this entry and all before it are acknowledged; -1 = none.
	MarkDelete int64
	// Acked are ranges of acknowledged entries beyond MarkDelete, first and last
	// entry, ascending and not touching.
	Acked [][2]int64
}

// LedgerCursor is a cursor and whose it is.
type LedgerCursor struct {
	Ledger int64
	Cursor
}

// Schema is a schema as a producer or consumer gave it.
type Schema struct {
	Version    int64
	Name       string
	Type       int32
	Data       []byte
	Properties []byte
}

// The values of the metadata file.

const metaFormat = 1

var errMeta = errors.New("not what this program writes")

func encodeTopic(t Topic) []byte {
	b := binary.AppendVarint(nil, t.Ledger)
	return binary.AppendVarint(b, t.Created.UnixMilli())
}

func decodeTopic(name string, v []byte) (Topic, error) {
	d := decoder{b: v}
	t := Topic{Name: name, Ledger: d.varint(), Created: time.UnixMilli(d.varint())}
	if err := d.end(); err != nil || t.Ledger < 1 {
		return Topic{}, fmt.Errorf("topic %q: %w", name, errMeta)
	}
	return t, nil
}

func encodeCursor(c Cursor) []byte {
	b := binary.AppendVarint(nil, c.MarkDelete)
	b = binary.AppendUvarint(b, uint64(len(c.Acked)))
	at := c.MarkDelete
	for _, r := range c.Acked {
		b = binary.AppendVarint(b, r[0]-at)
		b = binary.AppendVarint(b, r[1]-r[0])
		at = r[1]
	}
	return b
}

func decodeCursor(name string, v []byte) (Cursor, error) {
	d := decoder{b: v}
	c := Cursor{Name: name, MarkDelete: d.varint()}
	n := d.uvarint()
	if n > uint64(len(v)) {
		return Cursor{}, fmt.Errorf("cursor %q: %w", name, errMeta)
	}
	if n > 0 {
		c.Acked = make([][2]int64, 0, n)
	}
	at := c.MarkDelete
	for range n {
		gap, more := d.varint(), d.varint()
		if gap < 1 || more < 0 || gap > math.MaxInt64-max(at, 0) || more > math.MaxInt64-(at+gap) {
			return Cursor{}, fmt.Errorf("cursor %q: %w", name, errMeta)
		}
		c.Acked = append(c.Acked, [2]int64{at + gap, at + gap + more})
		at += gap + more
	}
	if err := d.end(); err != nil || c.MarkDelete < -1 {
		return Cursor{}, fmt.Errorf("cursor %q: %w", name, errMeta)
	}
	return c, nil
}

// checkCursor finds what could not be read back.
func checkCursor(c LedgerCursor) error {
	if c.Name == "" {
		return fmt.Errorf("a cursor of ledger %d has no name", c.Ledger)
	}
	if c.MarkDelete < -1 {
		return fmt.Errorf("cursor %q of ledger %d: mark-delete position %d", c.Name, c.Ledger, c.MarkDelete)
	}
	at := c.MarkDelete
	for _, r := range c.Acked {
		if r[0] <= at || r[1] < r[0] {
			return fmt.Errorf("cursor %q of ledger %d: acknowledged range %d to %d after %d", c.Name, c.Ledger, r[0], r[1], at)
		}
		at = r[1]
	}
	return nil
}

func encodeSchema(s Schema) []byte {
	b := binary.AppendVarint(nil, int64(s.Type))
	for _, f := range [][]byte{[]byte(s.Name), s.Data, s.Properties} {
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
	}
	return b
}

func decodeSchema(version int64, v []byte) (Schema, error) {
	d := decoder{b: v}
	typ := d.varint()
	s := Schema{Version: version, Type: int32(typ), Name: string(d.bytes()), Data: d.bytes(), Properties: d.bytes()}
	if err := d.end(); err != nil || int64(s.Type) != typ {
		return Schema{}, fmt.Errorf("schema version %d: %w", version, errMeta)
	}
	return s, nil
}

// decoder reads numbers and byte strings; the first error sticks.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) took(n int) bool {
	if n <= 0 {
		d.bad, d.b = true, nil
		return false
	}
	d.b = d.b[n:]
	return true
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if !d.took(n) {
		return 0
	}
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if !d.took(n) {
		return 0
	}
	return v
}

// bytes returns a copy, nil for none.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	b := append([]byte(nil), d.b[:n]...)
	d.b = d.b[n:]
	return b
}

func (d *decoder) end() error {
	if d.bad || len(d.b) > 0 {
		return errMeta
	}
	return nil
}
