package storage

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// MemoryMeta is Metadata that ends with the process. The zero value is empty.
type MemoryMeta struct {
	mu         sync.Mutex
	last       int64 // ledger number given
	topics     map[string]Topic
	cursors    map[int64]map[string]Cursor // an entry for every ledger
	partitions map[string]int
	schemas    map[string][]Schema
}

var _ Metadata = (*MemoryMeta)(nil)

func (m *MemoryMeta) Topics() ([]Topic, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.topics), func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) }), nil
}

func (m *MemoryMeta) CreateTopic(name string) (Topic, bool, error) {
	if name == "" {
		return Topic{}, false, errNoName
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, ok := m.topics[name]; ok {
		return t, false, nil
	}
	if m.topics == nil {
		m.topics, m.cursors = map[string]Topic{}, map[int64]map[string]Cursor{}
	}
	m.last++
	t := Topic{Name: name, Ledger: m.last, Created: now()}
	m.topics[name], m.cursors[t.Ledger] = t, map[string]Cursor{}
	return t, true, nil
}

func (m *MemoryMeta) DeleteTopic(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.topics[name]
	if !ok {
		return fmt.Errorf("deleting topic %q: %w", name, ErrNotFound)
	}
	delete(m.topics, name)
	delete(m.cursors, t.Ledger)
	delete(m.schemas, name)
	return nil
}

func (m *MemoryMeta) Cursors(ledger int64) ([]Cursor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cs := slices.SortedFunc(maps.Values(m.cursors[ledger]), func(a, b Cursor) int { return cmp.Compare(a.Name, b.Name) })
	for i := range cs {
		cs[i].Acked = slices.Clone(cs[i].Acked)
	}
	return cs, nil
}

func (m *MemoryMeta) PutCursors(cs []LedgerCursor) error {
	for _, c := range cs {
		if err := checkCursor(c); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range cs {
		if of := m.cursors[c.Ledger]; of != nil {
			k := c.Cursor
			k.Acked = slices.Clone(k.Acked)
			of[c.Name] = k
		}
	}
	return nil
}

func (m *MemoryMeta) DeleteCursor(ledger int64, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.cursors[ledger], name)
	return nil
}

func (m *MemoryMeta) Partitions() (map[string]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.partitions == nil {
		return map[string]int{}, nil
	}
	return maps.Clone(m.partitions), nil
}

func (m *MemoryMeta) PutPartitions(topic string, n int) error {
	if err := checkPartitions(topic, n); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.partitions == nil {
		m.partitions = map[string]int{}
	}
	m.partitions[topic] = n
	return nil
}

func (m *MemoryMeta) DeletePartitions(topic string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.partitions, topic)
	if _, ok := m.topics[topic]; !ok {
		delete(m.schemas, topic)
	}
	return nil
}

func (m *MemoryMeta) Schemas(topic string) ([]Schema, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ss := slices.Clone(m.schemas[topic])
	for i := range ss {
		ss[i] = ss[i].clone()
	}
	return ss, nil
}

func (m *MemoryMeta) AddSchema(topic string, s Schema) (int64, error) {
	if topic == "" {
		return 0, errNoName
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.schemas == nil {
		m.schemas = map[string][]Schema{}
	}
	s = s.clone()
	s.Version = int64(len(m.schemas[topic]))
	m.schemas[topic] = append(m.schemas[topic], s)
	return s.Version, nil
}

func (m *MemoryMeta) Close() error { return nil }

func (s Schema) clone() Schema {
	s.Data, s.Properties = bytes.Clone(s.Data), bytes.Clone(s.Properties)
	if len(s.Data) == 0 {
		s.Data = nil
	}
	if len(s.Properties) == 0 {
		s.Properties = nil
	}
	return s
}

// now has the precision that is stored.
func now() time.Time { return time.UnixMilli(time.Now().UnixMilli()) }
