package wire

// Producer opens a producer on a topic.
type Producer struct {
	Topic               string
	ProducerID          uint64
	RequestID           uint64
	Name                string
	Encrypted           bool
	Properties          []KeyValue
	Schema              *Schema
	Epoch               uint64
	GeneratedName       bool // user_provided_producer_name = false
	AccessMode          AccessMode
	TopicEpoch          uint64
	HasTopicEpoch       bool
	TxnEnabled          bool
	InitialSubscription string
}

func (m *Producer) decode(s *scanner) {
	*m = Producer{}
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			m.Topic = s.str()
		case 2<<3 | varint:
			m.ProducerID = s.val
		case 3<<3 | varint:
			m.RequestID = s.val
		case 4<<3 | bytesT:
			m.Name = s.str()
		case 5<<3 | varint:
			m.Encrypted = s.bool()
		case 6<<3 | bytesT:
			m.Properties = appendKeyValue(s, m.Properties)
		case 7<<3 | bytesT:
			m.Schema = new(Schema)
			s.inner(m.Schema.decode(s.data))
		case 8<<3 | varint:
			m.Epoch = s.val
		case 9<<3 | varint:
			m.GeneratedName = !s.bool()
		case 10<<3 | varint:
			m.AccessMode = AccessMode(s.int32())
		case 11<<3 | varint:
			m.TopicEpoch, m.HasTopicEpoch = s.val, true
		case 12<<3 | varint:
			m.TxnEnabled = s.bool()
		case 13<<3 | bytesT:
			m.InitialSubscription = s.str()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *Producer) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeProducer)
	b = putString(b, 1, m.Topic)
	b = putUint(b, 2, m.ProducerID)
	b = putUint(b, 3, m.RequestID)
	b = optString(b, 4, m.Name)
	b = optBool(b, 5, m.Encrypted)
	b = putKeyValues(b, 6, m.Properties)
	b = m.Schema.append(b, 7)
	b = optUint(b, 8, m.Epoch)
	if m.GeneratedName { // absent means true
		b = putBool(b, 9, false)
	}
	b = optInt(b, 10, int64(m.AccessMode))
	if m.HasTopicEpoch {
		b = putUint(b, 11, m.TopicEpoch)
	}
	b = optBool(b, 12, m.TxnEnabled)
	b = optString(b, 13, m.InitialSubscription)
	return closeFrame(b, f)
}

// ProducerSuccess answers Producer. LastSequenceID is −1 for a producer that
// starts afresh: a client continues from LastSequenceID+1.
type ProducerSuccess struct {
	RequestID      uint64
	Name           string
	LastSequenceID int64
	SchemaVersion  []byte
	TopicEpoch     uint64
	HasTopicEpoch  bool
	// NotReady (producer_ready = false) makes the client wait for a second
	// ProducerSuccess.
	NotReady bool
}

func (m *ProducerSuccess) decode(s *scanner) {
	*m = ProducerSuccess{LastSequenceID: -1}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.RequestID = s.val
		case 2<<3 | bytesT:
			m.Name = s.str()
		case 3<<3 | varint:
			m.LastSequenceID = int64(s.val)
		case 4<<3 | bytesT:
			m.SchemaVersion = s.bytes()
		case 5<<3 | varint:
			m.TopicEpoch, m.HasTopicEpoch = s.val, true
		case 6<<3 | varint:
			m.NotReady = !s.bool()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *ProducerSuccess) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeProducerSuccess)
	b = putUint(b, 1, m.RequestID)
	b = putString(b, 2, m.Name)
	b = putInt(b, 3, m.LastSequenceID)
	b = optBytes(b, 4, m.SchemaVersion)
	if m.HasTopicEpoch {
		b = putUint(b, 5, m.TopicEpoch)
	}
	b = putBool(b, 6, !m.NotReady)
	return closeFrame(b, f)
}

// Send publishes the payload of its frame.
type Send struct {
	ProducerID        uint64
	SequenceID        uint64
	NumMessages       int32 // 0 when writing means 1
	HighestSequenceID uint64
	IsChunk           bool
	Marker            bool
}

func (m *Send) decode(s *scanner) {
	*m = Send{NumMessages: 1}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.ProducerID = s.val
		case 2<<3 | varint:
			m.SequenceID = s.val
		case 3<<3 | varint:
			m.NumMessages = s.int32()
		case 6<<3 | varint:
			m.HighestSequenceID = s.val
		case 7<<3 | varint:
			m.IsChunk = s.bool()
		case 8<<3 | varint:
			m.Marker = s.bool()
		default:
			s.skip()
		}
	}
}

func (m *Send) append(dst []byte) ([]byte, frameMark) {
	b, f := openFrame(dst, TypeSend)
	b = putUint(b, 1, m.ProducerID)
	b = putUint(b, 2, m.SequenceID)
	if m.NumMessages > 1 {
		b = putInt(b, 3, int64(m.NumMessages))
	}
	b = optUint(b, 6, m.HighestSequenceID)
	b = optBool(b, 7, m.IsChunk)
	b = optBool(b, 8, m.Marker)
	return closeCommand(b, f), f
}

// AppendSend appends one SEND frame with metadata and payload.
func AppendSend(dst []byte, m *Send, md *Metadata, payload []byte) []byte {
	b, f := m.append(dst)
	return closeTotal(AppendHeadersAndPayload(b, md, payload), f)
}

// AppendSendRaw appends one SEND frame around headers-and-payload that exist
// already.
func AppendSendRaw(dst []byte, m *Send, headersAndPayload []byte) []byte {
	b, f := m.append(dst)
	return closeTotal(append(b, headersAndPayload...), f)
}

// SendReceipt acknowledges a Send once it is stored.
type SendReceipt struct {
	ProducerID        uint64
	SequenceID        uint64
	MessageID         MessageID
	HasMessageID      bool
	HighestSequenceID uint64
}

func (m *SendReceipt) decode(s *scanner) {
	ackSet := m.MessageID.AckSet
	*m = SendReceipt{MessageID: MessageID{Partition: -1, BatchIndex: -1, AckSet: ackSet[:0]}}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.ProducerID = s.val
		case 2<<3 | varint:
			m.SequenceID = s.val
		case 3<<3 | bytesT:
			m.HasMessageID = true
			s.inner(m.MessageID.decode(s.data))
		case 4<<3 | varint:
			m.HighestSequenceID = s.val
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *SendReceipt) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeSendReceipt)
	b = putUint(b, 1, m.ProducerID)
	b = putUint(b, 2, m.SequenceID)
	if m.HasMessageID {
		b = m.MessageID.append(b, 3)
	}
	b = optUint(b, 4, m.HighestSequenceID)
	return closeFrame(b, f)
}

// SendError says that a Send was not stored.
type SendError struct {
	ProducerID uint64
	SequenceID uint64
	Code       ServerError
	Message    string
}

func (m *SendError) decode(s *scanner) {
	*m = SendError{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.ProducerID = s.val
		case 2<<3 | varint:
			m.SequenceID = s.val
		case 3<<3 | varint:
			m.Code = ServerError(s.int32())
		case 4<<3 | bytesT:
			m.Message = s.str()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *SendError) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeSendError)
	b = putUint(b, 1, m.ProducerID)
	b = putUint(b, 2, m.SequenceID)
	b = putInt(b, 3, int64(m.Code))
	b = putString(b, 4, m.Message)
	return closeFrame(b, f)
}

// Close is CLOSE_PRODUCER or CLOSE_CONSUMER; ID is the producer's or the
// consumer's.
type Close struct {
	ID, RequestID uint64
}

func (m *Close) decode(s *scanner) { m.ID, m.RequestID = decodePair(s) }

// AppendProducerFrame appends m as one CLOSE_PRODUCER frame.
func (m *Close) AppendProducerFrame(dst []byte) []byte {
	return appendPair(dst, TypeCloseProducer, m.ID, m.RequestID)
}

// AppendConsumerFrame appends m as one CLOSE_CONSUMER frame.
func (m *Close) AppendConsumerFrame(dst []byte) []byte {
	return appendPair(dst, TypeCloseConsumer, m.ID, m.RequestID)
}

// decodePair reads the many bodies that are field 1 and field 2, both numbers.
func decodePair(s *scanner) (a, b uint64) {
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			a = s.val
		case 2<<3 | varint:
			b = s.val
		default:
			s.skip()
		}
	}
	return a, b
}

func appendPair(dst []byte, t CommandType, v1, v2 uint64) []byte {
	b, f := openFrame(dst, t)
	return closeFrame(putUint(putUint(b, 1, v1), 2, v2), f)
}
