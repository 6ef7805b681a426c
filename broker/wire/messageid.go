package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// MaxMessageIDs bounds the ids one ACK or REDELIVER_UNACKED may carry; clients
// group at most 1,000.
const MaxMessageIDs = 1 << 16

var errNoID = errors.New("message id lacks ledgerId or entryId")

// MessageID is the protocol's MessageIdData. Partition and BatchIndex are −1
// when absent; use [NewMessageID] to have them so.
type MessageID struct {
	Ledger, Entry uint64
	Partition     int32
	BatchIndex    int32
	BatchSize     int32
	// AckSet is a bitmap over a batch's messages; a set bit is not acknowledged.
	AckSet []int64
}

// NewMessageID returns the id of a whole entry of a non-partitioned topic.
func NewMessageID(ledger, entry uint64) MessageID {
	return MessageID{Ledger: ledger, Entry: entry, Partition: -1, BatchIndex: -1}
}

// String returns ledger:entry:partition, and the batch index where there is
// one. Ledger and entry print as signed, since −1 is how an empty topic's last
// entry is written.
func (m *MessageID) String() string {
	s := fmt.Sprintf("%d:%d:%d", int64(m.Ledger), int64(m.Entry), m.Partition)
	if m.BatchIndex >= 0 {
		s = fmt.Sprintf("%s:%d", s, m.BatchIndex)
	}
	return s
}

func (m *MessageID) reset() {
	*m = MessageID{Partition: -1, BatchIndex: -1, AckSet: m.AckSet[:0]}
}

func (m *MessageID) decode(b []byte) error {
	m.reset()
	s := scan(b)
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.Ledger = s.val
		case 2<<3 | varint:
			m.Entry = s.val
		case 3<<3 | varint:
			m.Partition = s.int32()
		case 4<<3 | varint:
			m.BatchIndex = s.int32()
		case 5<<3 | varint, 5<<3 | bytesT:
			m.AckSet = s.ints(m.AckSet)
		case 6<<3 | varint:
			m.BatchSize = s.int32()
		default:
			s.skip()
		}
	}
	if s.err == nil && !(s.has(1) && s.has(2)) {
		return errNoID
	}
	return s.err
}

func (m *MessageID) append(b []byte, num protowire.Number) []byte {
	b, start := openMessage(b, num)
	b = putUint(b, 1, m.Ledger)
	b = putUint(b, 2, m.Entry)
	if m.Partition >= 0 {
		b = putInt(b, 3, int64(m.Partition))
	}
	if m.BatchIndex >= 0 {
		b = putInt(b, 4, int64(m.BatchIndex))
	}
	for _, v := range m.AckSet {
		b = putInt(b, 5, v)
	}
	b = optInt(b, 6, int64(m.BatchSize))
	return closeMessage(b, start)
}

// appendID decodes one more id at the end of ids, reusing what lies in its
// spare capacity.
func appendID(s *scanner, ids []MessageID) []MessageID {
	if len(ids) == MaxMessageIDs {
		s.fail(errTooMany)
		return ids
	}
	if len(ids) < cap(ids) {
		ids = ids[:len(ids)+1]
	} else {
		ids = append(ids, MessageID{})
	}
	s.inner(ids[len(ids)-1].decode(s.data))
	return ids
}
