package wire

// PartitionedMetadata asks how many partitions a topic has.
type PartitionedMetadata struct {
	Topic     string
	RequestID uint64
}

func (m *PartitionedMetadata) decode(s *scanner) {
	*m = PartitionedMetadata{}
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			m.Topic = s.str()
		case 2<<3 | varint:
			m.RequestID = s.val
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *PartitionedMetadata) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypePartitionedMetadata)
	return closeFrame(putUint(putString(b, 1, m.Topic), 2, m.RequestID), f)
}

// PartitionedMetadataResponse answers PartitionedMetadata; 0 partitions is a
// topic without.
type PartitionedMetadataResponse struct {
	Partitions uint32
	RequestID  uint64
	Response   int32 // MetadataSuccess or MetadataFailed
	Code       ServerError
	Message    string
}

func (m *PartitionedMetadataResponse) decode(s *scanner) {
	*m = PartitionedMetadataResponse{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.Partitions = uint32(s.val)
		case 2<<3 | varint:
			m.RequestID = s.val
		case 3<<3 | varint:
			m.Response = s.int32()
		case 4<<3 | varint:
			m.Code = ServerError(s.int32())
		case 5<<3 | bytesT:
			m.Message = s.str()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *PartitionedMetadataResponse) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypePartitionedMetadataResponse)
	b = putUint(b, 1, uint64(m.Partitions))
	b = putUint(b, 2, m.RequestID)
	b = putInt(b, 3, int64(m.Response))
	if m.Response == MetadataFailed {
		b = putInt(b, 4, int64(m.Code))
		b = putString(b, 5, m.Message)
	}
	return closeFrame(b, f)
}

// Lookup asks which broker serves a topic.
type Lookup struct {
	Topic         string
	RequestID     uint64
	Authoritative bool
	Listener      string
	Properties    []KeyValue
}

func (m *Lookup) decode(s *scanner) {
	*m = Lookup{}
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			m.Topic = s.str()
		case 2<<3 | varint:
			m.RequestID = s.val
		case 3<<3 | varint:
			m.Authoritative = s.bool()
		case 7<<3 | bytesT:
			m.Listener = s.str()
		case 8<<3 | bytesT:
			m.Properties = appendKeyValue(s, m.Properties)
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *Lookup) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeLookup)
	b = putString(b, 1, m.Topic)
	b = putUint(b, 2, m.RequestID)
	b = optBool(b, 3, m.Authoritative)
	b = optString(b, 7, m.Listener)
	b = putKeyValues(b, 8, m.Properties)
	return closeFrame(b, f)
}

// LookupResponse answers Lookup. BrokerURL must be exactly the URL the client
// dialled, since it is the key of the client's connection.
type LookupResponse struct {
	BrokerURL           string
	BrokerURLTLS        string
	Response            int32 // LookupRedirect, LookupConnect or LookupFailed; always written
	RequestID           uint64
	Authoritative       bool
	Code                ServerError
	Message             string
	ProxyThroughService bool
}

func (m *LookupResponse) decode(s *scanner) {
	*m = LookupResponse{}
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			m.BrokerURL = s.str()
		case 2<<3 | bytesT:
			m.BrokerURLTLS = s.str()
		case 3<<3 | varint:
			m.Response = s.int32()
		case 4<<3 | varint:
			m.RequestID = s.val
		case 5<<3 | varint:
			m.Authoritative = s.bool()
		case 6<<3 | varint:
			m.Code = ServerError(s.int32())
		case 7<<3 | bytesT:
			m.Message = s.str()
		case 8<<3 | varint:
			m.ProxyThroughService = s.bool()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *LookupResponse) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeLookupResponse)
	b = optString(b, 1, m.BrokerURL)
	b = optString(b, 2, m.BrokerURLTLS)
	b = putInt(b, 3, int64(m.Response))
	b = putUint(b, 4, m.RequestID)
	b = putBool(b, 5, m.Authoritative)
	if m.Response == LookupFailed {
		b = putInt(b, 6, int64(m.Code))
		b = putString(b, 7, m.Message)
	}
	return closeFrame(optBool(b, 8, m.ProxyThroughService), f)
}

// Seek moves a subscription to a message or to a publish time.
type Seek struct {
	ConsumerID     uint64
	RequestID      uint64
	MessageID      *MessageID
	PublishTime    uint64 // ms since the Unix epoch
	HasPublishTime bool
}

func (m *Seek) decode(s *scanner) {
	*m = Seek{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.ConsumerID = s.val
		case 2<<3 | varint:
			m.RequestID = s.val
		case 3<<3 | bytesT:
			m.MessageID = new(MessageID)
			s.inner(m.MessageID.decode(s.data))
		case 4<<3 | varint:
			m.PublishTime, m.HasPublishTime = s.val, true
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *Seek) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeSeek)
	b = putUint(b, 1, m.ConsumerID)
	b = putUint(b, 2, m.RequestID)
	if m.MessageID != nil {
		b = m.MessageID.append(b, 3)
	}
	if m.HasPublishTime {
		b = putUint(b, 4, m.PublishTime)
	}
	return closeFrame(b, f)
}

// GetLastMessageID asks for the topic's last message.
type GetLastMessageID struct {
	ConsumerID, RequestID uint64
}

func (m *GetLastMessageID) decode(s *scanner) { m.ConsumerID, m.RequestID = decodePair(s) }

// AppendFrame appends m as one frame.
func (m *GetLastMessageID) AppendFrame(dst []byte) []byte {
	return appendPair(dst, TypeGetLastMessageID, m.ConsumerID, m.RequestID)
}

// GetLastMessageIDResponse answers GetLastMessageID; an empty topic's last
// entry is −1.
type GetLastMessageIDResponse struct {
	Last       MessageID
	RequestID  uint64
	MarkDelete *MessageID
}

func (m *GetLastMessageIDResponse) decode(s *scanner) {
	*m = GetLastMessageIDResponse{}
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			s.inner(m.Last.decode(s.data))
		case 2<<3 | varint:
			m.RequestID = s.val
		case 3<<3 | bytesT:
			m.MarkDelete = new(MessageID)
			s.inner(m.MarkDelete.decode(s.data))
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *GetLastMessageIDResponse) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeGetLastMessageIDResponse)
	b = putUint(m.Last.append(b, 1), 2, m.RequestID)
	if m.MarkDelete != nil {
		b = m.MarkDelete.append(b, 3)
	}
	return closeFrame(b, f)
}

// GetTopics asks for a namespace's topics.
type GetTopics struct {
	RequestID uint64
	Namespace string
	Mode      int32 // 0 persistent, 1 non-persistent, 2 all
}

func (m *GetTopics) decode(s *scanner) {
	*m = GetTopics{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.RequestID = s.val
		case 2<<3 | bytesT:
			m.Namespace = s.str()
		case 3<<3 | varint:
			m.Mode = s.int32()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *GetTopics) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeGetTopics)
	return closeFrame(optInt(putString(putUint(b, 1, m.RequestID), 2, m.Namespace), 3, int64(m.Mode)), f)
}

// GetTopicsResponse answers GetTopics.
type GetTopicsResponse struct {
	RequestID uint64
	Topics    []string
	Filtered  bool
	Hash      string
	Unchanged bool // changed = false
}

func (m *GetTopicsResponse) decode(s *scanner) {
	*m = GetTopicsResponse{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.RequestID = s.val
		case 2<<3 | bytesT:
			m.Topics = append(m.Topics, s.str())
		case 3<<3 | varint:
			m.Filtered = s.bool()
		case 4<<3 | bytesT:
			m.Hash = s.str()
		case 5<<3 | varint:
			m.Unchanged = !s.bool()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *GetTopicsResponse) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeGetTopicsResponse)
	b = putUint(b, 1, m.RequestID)
	for _, t := range m.Topics {
		b = putString(b, 2, t)
	}
	b = optBool(b, 3, m.Filtered)
	b = optString(b, 4, m.Hash)
	if m.Unchanged {
		b = putBool(b, 5, false)
	}
	return closeFrame(b, f)
}
