package wire

// HashRange is an inclusive range of sticky hashes in [0, 65535].
type HashRange struct {
	Start, End int32
}

func (h *HashRange) decode(b []byte) error {
	s := scan(b)
	start, end := decodePair(&s)
	*h = HashRange{Start: int32(start), End: int32(end)}
	return s.err
}

// KeySharedMeta is a consumer's policy for a Key_Shared subscription.
type KeySharedMeta struct {
	Mode            KeySharedMode
	Ranges          []HashRange
	AllowOutOfOrder bool
}

func (k *KeySharedMeta) decode(b []byte) error {
	s := scan(b)
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			k.Mode = KeySharedMode(s.int32())
		case 3<<3 | bytesT:
			k.Ranges = append(k.Ranges, HashRange{})
			s.inner(k.Ranges[len(k.Ranges)-1].decode(s.data))
		case 4<<3 | varint:
			k.AllowOutOfOrder = s.bool()
		default:
			s.skip()
		}
	}
	return s.err
}

func (k *KeySharedMeta) append(b []byte) []byte {
	b, start := openMessage(b, 17)
	b = putInt(b, 1, int64(k.Mode))
	for i := range k.Ranges {
		var inner int
		b, inner = openMessage(b, 3)
		b = putInt(b, 1, int64(k.Ranges[i].Start))
		b = putInt(b, 2, int64(k.Ranges[i].End))
		b = closeMessage(b, inner)
	}
	return closeMessage(optBool(b, 4, k.AllowOutOfOrder), start)
}

// Subscribe attaches a consumer to a subscription.
type Subscribe struct {
	Topic           string
	Subscription    string
	Type            SubType
	ConsumerID      uint64
	RequestID       uint64
	ConsumerName    string
	PriorityLevel   int32
	NonDurable      bool       // durable = false
	StartMessageID  *MessageID // where a non-durable subscription starts
	Properties      []KeyValue
	ReadCompacted   bool
	Schema          *Schema
	InitialPosition InitialPosition
	NoTopicCreation bool   // force_topic_creation = false
	StartRollback   uint64 // seconds before now to start from; 0 = not asked for
	KeyShared       *KeySharedMeta
	ConsumerEpoch   uint64
}

func (m *Subscribe) decode(s *scanner) {
	*m = Subscribe{}
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			m.Topic = s.str()
		case 2<<3 | bytesT:
			m.Subscription = s.str()
		case 3<<3 | varint:
			m.Type = SubType(s.int32())
		case 4<<3 | varint:
			m.ConsumerID = s.val
		case 5<<3 | varint:
			m.RequestID = s.val
		case 6<<3 | bytesT:
			m.ConsumerName = s.str()
		case 7<<3 | varint:
			m.PriorityLevel = s.int32()
		case 8<<3 | varint:
			m.NonDurable = !s.bool()
		case 11<<3 | varint:
			m.ReadCompacted = s.bool()
		case 13<<3 | varint:
			m.InitialPosition = InitialPosition(s.int32())
		case 15<<3 | varint:
			m.NoTopicCreation = !s.bool()
		case 16<<3 | varint:
			m.StartRollback = s.val
		case 19<<3 | varint:
			m.ConsumerEpoch = s.val
		default:
			m.decodeNested(s)
		}
	}
}

func (m *Subscribe) decodeNested(s *scanner) {
	switch s.tag {
	case 9<<3 | bytesT:
		m.StartMessageID = new(MessageID)
		s.inner(m.StartMessageID.decode(s.data))
	case 10<<3 | bytesT:
		m.Properties = appendKeyValue(s, m.Properties)
	case 12<<3 | bytesT:
		m.Schema = new(Schema)
		s.inner(m.Schema.decode(s.data))
	case 17<<3 | bytesT:
		m.KeyShared = new(KeySharedMeta)
		s.inner(m.KeyShared.decode(s.data))
	default:
		s.skip()
	}
}

// AppendFrame appends m as one frame.
func (m *Subscribe) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeSubscribe)
	b = putString(b, 1, m.Topic)
	b = putString(b, 2, m.Subscription)
	b = putInt(b, 3, int64(m.Type))
	b = putUint(b, 4, m.ConsumerID)
	b = putUint(b, 5, m.RequestID)
	b = optString(b, 6, m.ConsumerName)
	b = optInt(b, 7, int64(m.PriorityLevel))
	b = putBool(b, 8, !m.NonDurable)
	if m.StartMessageID != nil {
		b = m.StartMessageID.append(b, 9)
	}
	b = putKeyValues(b, 10, m.Properties)
	b = optBool(b, 11, m.ReadCompacted)
	b = m.Schema.append(b, 12)
	b = optInt(b, 13, int64(m.InitialPosition))
	b = putBool(b, 15, !m.NoTopicCreation)
	b = optUint(b, 16, m.StartRollback)
	if m.KeyShared != nil {
		b = m.KeyShared.append(b)
	}
	b = optUint(b, 19, m.ConsumerEpoch)
	return closeFrame(b, f)
}

// Message delivers the payload of its frame.
type Message struct {
	ConsumerID      uint64
	ID              MessageID
	RedeliveryCount uint32
	AckSet          []int64
	ConsumerEpoch   uint64
}

func (m *Message) decode(s *scanner) {
	*m = Message{ID: MessageID{AckSet: m.ID.AckSet}, AckSet: m.AckSet[:0]}
	m.ID.reset()
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.ConsumerID = s.val
		case 2<<3 | bytesT:
			s.inner(m.ID.decode(s.data))
		case 3<<3 | varint:
			m.RedeliveryCount = uint32(s.val)
		case 4<<3 | varint, 4<<3 | bytesT:
			m.AckSet = s.ints(m.AckSet)
		case 5<<3 | varint:
			m.ConsumerEpoch = s.val
		default:
			s.skip()
		}
	}
}

// AppendMessage appends one MESSAGE frame: m, then stored headers-and-payload
// (0x0e01… or, with broker entry metadata, 0x0e02…) as they are.
func AppendMessage(dst []byte, m *Message, headersAndPayload []byte) []byte {
	b, f := m.append(dst)
	return closeTotal(append(b, headersAndPayload...), f)
}

// AppendMessageWithEntry is AppendMessage with e before headers-and-payload
// that start with 0x0e01.
func AppendMessageWithEntry(dst []byte, m *Message, e *BrokerEntry, headersAndPayload []byte) []byte {
	b, f := m.append(dst)
	return closeTotal(append(AppendBrokerEntry(b, e), headersAndPayload...), f)
}

func (m *Message) append(dst []byte) ([]byte, frameMark) {
	b, f := openFrame(dst, TypeMessage)
	b = putUint(b, 1, m.ConsumerID)
	b = m.ID.append(b, 2)
	b = optUint(b, 3, uint64(m.RedeliveryCount))
	for _, v := range m.AckSet {
		b = putInt(b, 4, v)
	}
	b = optUint(b, 5, m.ConsumerEpoch)
	return closeCommand(b, f), f
}

// Ack acknowledges messages. ValidationError is −1 when absent; set
// HasRequestID to ask for an AckResponse.
type Ack struct {
	ConsumerID      uint64
	Type            AckType
	IDs             []MessageID // at most MaxMessageIDs
	ValidationError int32
	RequestID       uint64
	HasRequestID    bool
}

func (m *Ack) decode(s *scanner) {
	*m = Ack{IDs: m.IDs[:0], ValidationError: -1}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.ConsumerID = s.val
		case 2<<3 | varint:
			m.Type = AckType(s.int32())
		case 3<<3 | bytesT:
			m.IDs = appendID(s, m.IDs)
		case 4<<3 | varint:
			m.ValidationError = s.int32()
		case 8<<3 | varint:
			m.RequestID, m.HasRequestID = s.val, true
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame. A ValidationError is written only with
// a positive value: 0 is UncompressedSizeCorruption, which only a zero Ack
// would claim.
func (m *Ack) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeAck)
	b = putUint(b, 1, m.ConsumerID)
	b = putInt(b, 2, int64(m.Type))
	for i := range m.IDs {
		b = m.IDs[i].append(b, 3)
	}
	if m.ValidationError > 0 {
		b = putInt(b, 4, int64(m.ValidationError))
	}
	if m.HasRequestID {
		b = putUint(b, 8, m.RequestID)
	}
	return closeFrame(b, f)
}

// AckResponse answers an Ack that carried a request id. Clients see a failure
// if and only if Message is not empty.
type AckResponse struct {
	ConsumerID uint64
	Code       ServerError
	Message    string
	RequestID  uint64
}

func (m *AckResponse) decode(s *scanner) {
	*m = AckResponse{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.ConsumerID = s.val
		case 4<<3 | varint:
			m.Code = ServerError(s.int32())
		case 5<<3 | bytesT:
			m.Message = s.str()
		case 6<<3 | varint:
			m.RequestID = s.val
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *AckResponse) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeAckResponse)
	b = putUint(b, 1, m.ConsumerID)
	if m.Message != "" {
		b = putInt(b, 4, int64(m.Code))
		b = putString(b, 5, m.Message)
	}
	b = putUint(b, 6, m.RequestID)
	return closeFrame(b, f)
}

// Flow grants a consumer's permits, in messages.
type Flow struct {
	ConsumerID uint64
	Permits    uint32
}

func (m *Flow) decode(s *scanner) {
	id, permits := decodePair(s)
	*m = Flow{ConsumerID: id, Permits: uint32(permits)}
}

// AppendFrame appends m as one frame.
func (m *Flow) AppendFrame(dst []byte) []byte {
	return appendPair(dst, TypeFlow, m.ConsumerID, uint64(m.Permits))
}

// Unsubscribe deletes the consumer's subscription.
type Unsubscribe struct {
	ConsumerID, RequestID uint64
	Force                 bool
}

func (m *Unsubscribe) decode(s *scanner) {
	*m = Unsubscribe{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.ConsumerID = s.val
		case 2<<3 | varint:
			m.RequestID = s.val
		case 3<<3 | varint:
			m.Force = s.bool()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *Unsubscribe) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeUnsubscribe)
	b = putUint(b, 1, m.ConsumerID)
	b = putUint(b, 2, m.RequestID)
	return closeFrame(optBool(b, 3, m.Force), f)
}

// Redeliver asks for unacknowledged messages again: those of IDs, or all of
// the consumer's when IDs is empty.
type Redeliver struct {
	ConsumerID    uint64
	IDs           []MessageID // at most MaxMessageIDs
	ConsumerEpoch uint64
}

func (m *Redeliver) decode(s *scanner) {
	*m = Redeliver{IDs: m.IDs[:0]}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.ConsumerID = s.val
		case 2<<3 | bytesT:
			m.IDs = appendID(s, m.IDs)
		case 3<<3 | varint:
			m.ConsumerEpoch = s.val
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *Redeliver) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeRedeliver)
	b = putUint(b, 1, m.ConsumerID)
	for i := range m.IDs {
		b = m.IDs[i].append(b, 2)
	}
	return closeFrame(optUint(b, 3, m.ConsumerEpoch), f)
}

// ActiveConsumerChange tells a Failover consumer whether it is the active one.
type ActiveConsumerChange struct {
	ConsumerID uint64
	Active     bool
}

func (m *ActiveConsumerChange) decode(s *scanner) {
	id, active := decodePair(s)
	*m = ActiveConsumerChange{ConsumerID: id, Active: active != 0}
}

// AppendFrame appends m as one frame.
func (m *ActiveConsumerChange) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeActiveConsumerChange)
	return closeFrame(putBool(putUint(b, 1, m.ConsumerID), 2, m.Active), f)
}
