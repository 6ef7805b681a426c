package wire

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

var (
	errNoKeyValue = errors.New("key-value pair lacks its key or value")
	errNoSchema   = errors.New("schema lacks its name, data or type")
)

// KeyValue is a property.
type KeyValue struct {
	Key, Value string
}

func appendKeyValue(s *scanner, kvs []KeyValue) []KeyValue {
	var kv KeyValue
	in := scan(s.data)
	for in.next() {
		switch in.tag {
		case 1<<3 | bytesT:
			kv.Key = in.str()
		case 2<<3 | bytesT:
			kv.Value = in.str()
		default:
			in.skip()
		}
	}
	if in.err == nil && !(in.has(1) && in.has(2)) {
		in.err = errNoKeyValue
	}
	s.inner(in.err)
	return append(kvs, kv)
}

func putKeyValues(b []byte, num protowire.Number, kvs []KeyValue) []byte {
	for i := range kvs {
		var start int
		b, start = openMessage(b, num)
		b = closeMessage(putString(putString(b, 1, kvs[i].Key), 2, kvs[i].Value), start)
	}
	return b
}

// Schema is passed through as bytes; Data aliases what was parsed.
type Schema struct {
	Name       string
	Data       []byte
	Type       int32
	Properties []KeyValue
}

func (m *Schema) decode(b []byte) error {
	s := scan(b)
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			m.Name = s.str()
		case 3<<3 | bytesT:
			m.Data = s.bytes()
		case 4<<3 | varint:
			m.Type = s.int32()
		case 5<<3 | bytesT:
			m.Properties = appendKeyValue(&s, m.Properties)
		default:
			s.skip()
		}
	}
	if s.err == nil && !(s.has(1) && s.has(3) && s.has(4)) {
		return errNoSchema
	}
	return s.err
}

// append writes nothing for a nil schema.
func (m *Schema) append(b []byte, num protowire.Number) []byte {
	if m == nil {
		return b
	}
	b, start := openMessage(b, num)
	b = putString(b, 1, m.Name)
	b = putBytes(b, 3, m.Data)
	b = putInt(b, 4, int64(m.Type))
	return closeMessage(putKeyValues(b, 5, m.Properties), start)
}

// GetSchema asks for a topic's schema; a nil Version asks for the latest.
type GetSchema struct {
	RequestID uint64
	Topic     string
	Version   []byte
}

func (m *GetSchema) decode(s *scanner) {
	*m = GetSchema{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.RequestID = s.val
		case 2<<3 | bytesT:
			m.Topic = s.str()
		case 3<<3 | bytesT:
			m.Version = s.bytes()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *GetSchema) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeGetSchema)
	return closeFrame(optBytes(putString(putUint(b, 1, m.RequestID), 2, m.Topic), 3, m.Version), f)
}

// SchemaResponse answers GetSchema and GetOrCreateSchema; Failed says whether
// Code and Message hold.
type SchemaResponse struct {
	RequestID uint64
	Failed    bool
	Code      ServerError
	Message   string
	Schema    *Schema // GetSchema only
	Version   []byte
}

// decode serves two commands: field 4 is GetSchemaResponse's schema or
// GetOrCreateSchemaResponse's version.
func (m *SchemaResponse) decode(s *scanner, create bool) {
	*m = SchemaResponse{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.RequestID = s.val
		case 2<<3 | varint:
			m.Code, m.Failed = ServerError(s.int32()), true
		case 3<<3 | bytesT:
			m.Message = s.str()
		case 4<<3 | bytesT:
			if create {
				m.Version = s.bytes()
				continue
			}
			m.Schema = new(Schema)
			s.inner(m.Schema.decode(s.data))
		case 5<<3 | bytesT:
			if !create {
				m.Version = s.bytes()
			}
		default:
			s.skip()
		}
	}
}

// AppendGetFrame appends m as one GET_SCHEMA_RESPONSE frame.
func (m *SchemaResponse) AppendGetFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeGetSchemaResponse)
	b = m.Schema.append(m.appendStatus(b), 4)
	return closeFrame(optBytes(b, 5, m.Version), f)
}

// AppendCreateFrame appends m as one GET_OR_CREATE_SCHEMA_RESPONSE frame.
func (m *SchemaResponse) AppendCreateFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeGetOrCreateSchemaResponse)
	return closeFrame(optBytes(m.appendStatus(b), 4, m.Version), f)
}

func (m *SchemaResponse) appendStatus(b []byte) []byte {
	b = putUint(b, 1, m.RequestID)
	if m.Failed {
		b = putInt(b, 2, int64(m.Code))
		b = putString(b, 3, m.Message)
	}
	return b
}

// GetOrCreateSchema registers a topic's schema.
type GetOrCreateSchema struct {
	RequestID uint64
	Topic     string
	Schema    Schema
}

func (m *GetOrCreateSchema) decode(s *scanner) {
	*m = GetOrCreateSchema{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.RequestID = s.val
		case 2<<3 | bytesT:
			m.Topic = s.str()
		case 3<<3 | bytesT:
			s.inner(m.Schema.decode(s.data))
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *GetOrCreateSchema) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeGetOrCreateSchema)
	return closeFrame(m.Schema.append(putString(putUint(b, 1, m.RequestID), 2, m.Topic), 3), f)
}
