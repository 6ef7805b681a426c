package broker

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	// maxSchemas bounds the versions of a topic's schema, maxSchemaSize the
	// bytes of each.
	maxSchemas    = 256
	maxSchemaSize = 1 << 20

	schemaNone        = 0  // bytes without a schema
	schemaAutoConsume = 21 // a consumer takes what there is
)

// schemas keeps the versions of topics' schemas. They are opaque: nothing is
// checked but whether two are the same. The partitions of a topic share them.
type schemas struct {
	mu      sync.Mutex
	byTopic map[string][]wire.Schema // by name without the partition; the index is the version
	// keep, when set, stores a version where it survives the broker.
	keep func(topic string, version int, s *wire.Schema) error
}

// schemaVersion is how the protocol writes a version.
func schemaVersion(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// add returns the version of a client's schema, making it the newest one if
// the topic does not have it. nil = the client has none.
func (ss *schemas) add(topic string, s *wire.Schema) ([]byte, error) {
	if s == nil || s.Type == schemaNone || s.Type == schemaAutoConsume {
		return nil, nil
	}
	own := wire.Schema{Name: s.Name, Data: bytes.Clone(s.Data), Type: s.Type, Properties: slices.Clone(s.Properties)}
	slices.SortFunc(own.Properties, func(a, b wire.KeyValue) int { return cmp.Compare(a.Key, b.Key) })
	size := len(s.Name) + len(s.Data)
	for _, p := range s.Properties {
		size += len(p.Key) + len(p.Value)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	has := ss.byTopic[topic]
	n := slices.IndexFunc(has, func(o wire.Schema) bool {
		return o.Type == own.Type && bytes.Equal(o.Data, own.Data) && slices.Equal(o.Properties, own.Properties)
	})
	switch {
	case n >= 0:
		return schemaVersion(n), nil
	case size > maxSchemaSize:
		return nil, refuse(wire.ErrorIncompatibleSchema, "IncompatibleSchema: the schema has %d bytes, the limit is %d", size, maxSchemaSize)
	case len(has) == maxSchemas:
		return nil, refuse(wire.ErrorIncompatibleSchema, "IncompatibleSchema: %s has its limit of %d schemas", topic, maxSchemas)
	}
	n = len(has)
	if ss.keep != nil {
		if err := ss.keep(topic, n, &own); err != nil {
			return nil, fmt.Errorf("storing version %d of the schema of %s: %w", n, topic, err)
		}
	}
	ss.byTopic[topic] = append(has, own)
	return schemaVersion(n), nil
}

// get returns a version of a topic's schema, the newest for an empty one.
func (ss *schemas) get(topic string, version []byte) (*wire.Schema, []byte, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	has := ss.byTopic[topic]
	n := len(has) - 1
	switch {
	case n < 0:
		return nil, nil, refuse(wire.ErrorTopicNotFound, "TopicNotFound: %s has no schema", topic)
	case len(version) == 8 && binary.BigEndian.Uint64(version) < uint64(len(has)):
		n = int(binary.BigEndian.Uint64(version))
	case len(version) > 0:
		return nil, nil, refuse(wire.ErrorTopicNotFound, "TopicNotFound: %s has no schema of version %x", topic, version[:min(len(version), 16)])
	}
	return &has[n], schemaVersion(n), nil
}

func (c *conn) getSchema(m *wire.GetSchema) {
	r := wire.SchemaResponse{RequestID: m.RequestID}
	tn, err := c.server.knownTopic(m.Topic)
	if err == nil {
		r.Schema, r.Version, err = c.server.schemas.get(tn.base, m.Version)
	}
	if err != nil {
		r.Failed, r.Code, r.Message = true, codeOf(err), err.Error()
	}
	c.respond(r.AppendGetFrame(nil))
}

func (c *conn) getOrCreateSchema(m *wire.GetOrCreateSchema) {
	r := wire.SchemaResponse{RequestID: m.RequestID}
	tn, err := c.server.knownTopic(m.Topic)
	if err == nil {
		r.Version, err = c.server.schemas.add(tn.base, &m.Schema)
	}
	if err != nil {
		r.Failed, r.Code, r.Message = true, codeOf(err), err.Error()
	}
	c.respond(r.AppendCreateFrame(nil))
}

// knownTopic returns the name of a topic that exists.
func (s *Server) knownTopic(name string) (topicName, error) {
	tn, err := parseTopicName(name)
	if err != nil {
		return tn, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[tn.full] == nil && s.partitioned[tn.base] == 0 {
		return tn, refuse(wire.ErrorTopicNotFound, "TopicNotFound: %s does not exist", tn.full)
	}
	return tn, nil
}
