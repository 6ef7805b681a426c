package wire

import (
	"errors"
	"fmt"
)

var errNoMetadata = errors.New("message metadata lacks producer_name, sequence_id or publish_time")

// Metadata is what the broker and the load need of a message's outer metadata;
// other fields are skipped when reading and cannot be written. After
// [ParseMetadata] the byte slices alias the input; nil means absent.
type Metadata struct {
	ProducerName []byte
	SequenceID   uint64
	PublishTime  uint64 // ms since the Unix epoch
	PartitionKey []byte
	// PartitionKeyB64: PartitionKey is base64 and its decoded bytes are the key.
	PartitionKeyB64 bool
	OrderingKey     []byte
	Compression     int32 // 0 = none
	UncompressedLen uint32
	// NumMessages is num_messages_in_batch, 1 when absent. Clients take a
	// message for a batch if and only if the field is present, even with value
	// 1, so it is written if and only if Batched is set.
	NumMessages int32
	Batched     bool
	EventTime   uint64 // ms since the Unix epoch
	NullValue   bool
	MarkerType  int32
	// UUID is set on the chunks of a message that was cut up, the same on all
	// of them; NumChunks is how many there are and ChunkID the number of this
	// one, from 0.
	UUID      []byte
	NumChunks int32
	ChunkID   int32
}

// ParseMetadata decodes b into m, which it resets first.
func ParseMetadata(b []byte, m *Metadata) error {
	*m = Metadata{NumMessages: 1}
	s := scan(b)
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			m.ProducerName = s.bytes()
		case 2<<3 | varint:
			m.SequenceID = s.val
		case 3<<3 | varint:
			m.PublishTime = s.val
		case 6<<3 | bytesT:
			m.PartitionKey = s.bytes()
		case 8<<3 | varint:
			m.Compression = s.int32()
		case 9<<3 | varint:
			m.UncompressedLen = uint32(s.val)
		case 11<<3 | varint:
			m.NumMessages, m.Batched = s.int32(), true
		case 12<<3 | varint:
			m.EventTime = s.val
		case 17<<3 | varint:
			m.PartitionKeyB64 = s.bool()
		case 18<<3 | bytesT:
			m.OrderingKey = s.bytes()
		case 20<<3 | varint:
			m.MarkerType = s.int32()
		case 25<<3 | varint:
			m.NullValue = s.bool()
		case 26<<3 | bytesT:
			m.UUID = s.bytes()
		case 27<<3 | varint:
			m.NumChunks = s.int32()
		case 29<<3 | varint:
			m.ChunkID = s.int32()
		default:
			s.skip()
		}
	}
	if s.err != nil {
		return fmt.Errorf("message metadata: %w", s.err)
	}
	if !(s.has(1) && s.has(2) && s.has(3)) {
		return errNoMetadata
	}
	return nil
}

// Append appends m's encoding, without a length, to b.
func (m *Metadata) Append(b []byte) []byte {
	b = putBytes(b, 1, m.ProducerName)
	b = putUint(b, 2, m.SequenceID)
	b = putUint(b, 3, m.PublishTime)
	b = optBytes(b, 6, m.PartitionKey)
	b = optInt(b, 8, int64(m.Compression))
	b = optUint(b, 9, uint64(m.UncompressedLen))
	if m.Batched {
		b = putInt(b, 11, int64(m.NumMessages))
	}
	b = optUint(b, 12, m.EventTime)
	b = optBool(b, 17, m.PartitionKeyB64)
	b = optBytes(b, 18, m.OrderingKey)
	b = optInt(b, 20, int64(m.MarkerType))
	b = optBool(b, 25, m.NullValue)
	if m.UUID != nil {
		b = putBytes(b, 26, m.UUID)
		b = putInt(b, 27, int64(m.NumChunks))
		b = putInt(b, 29, int64(m.ChunkID))
	}
	return b
}

// BrokerEntry is BrokerEntryMetadata, which a broker may put before a
// message's headers: when it stored the entry and the index of its last
// message.
type BrokerEntry struct {
	Timestamp uint64 // ms since the Unix epoch
	Index     uint64
}

// ParseBrokerEntry decodes b into e, which it resets first.
func ParseBrokerEntry(b []byte, e *BrokerEntry) error {
	*e = BrokerEntry{}
	s := scan(b)
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			e.Timestamp = s.val
		case 2<<3 | varint:
			e.Index = s.val
		default:
			s.skip()
		}
	}
	if s.err != nil {
		return fmt.Errorf("broker entry metadata: %w", s.err)
	}
	return nil
}
