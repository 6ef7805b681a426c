package wire

import "google.golang.org/protobuf/encoding/protowire"

// FeatureFlags are the optional parts of the protocol a side understands.
type FeatureFlags struct {
	AuthRefresh         bool
	BrokerEntryMetadata bool
	PartialProducer     bool
	TopicWatchers       bool
}

func (f *FeatureFlags) decode(b []byte) error {
	*f = FeatureFlags{}
	s := scan(b)
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			f.AuthRefresh = s.bool()
		case 2<<3 | varint:
			f.BrokerEntryMetadata = s.bool()
		case 3<<3 | varint:
			f.PartialProducer = s.bool()
		case 4<<3 | varint:
			f.TopicWatchers = s.bool()
		default:
			s.skip()
		}
	}
	return s.err
}

func (f *FeatureFlags) append(b []byte, num protowire.Number) []byte {
	if *f == (FeatureFlags{}) {
		return b
	}
	b, start := openMessage(b, num)
	b = optBool(b, 1, f.AuthRefresh)
	b = optBool(b, 2, f.BrokerEntryMetadata)
	b = optBool(b, 3, f.PartialProducer)
	b = optBool(b, 4, f.TopicWatchers)
	return closeMessage(b, start)
}

// Connect is the first frame of a client.
type Connect struct {
	ClientVersion    string
	AuthData         []byte
	AuthMethodName   string
	ProtocolVersion  int32
	ProxyToBrokerURL string
	Features         FeatureFlags
}

func (m *Connect) decode(s *scanner) {
	*m = Connect{}
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			m.ClientVersion = s.str()
		case 3<<3 | bytesT:
			m.AuthData = s.bytes()
		case 4<<3 | varint:
			m.ProtocolVersion = s.int32()
		case 5<<3 | bytesT:
			m.AuthMethodName = s.str()
		case 6<<3 | bytesT:
			m.ProxyToBrokerURL = s.str()
		case 10<<3 | bytesT:
			s.inner(m.Features.decode(s.data))
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *Connect) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeConnect)
	b = putString(b, 1, m.ClientVersion)
	b = optBytes(b, 3, m.AuthData)
	b = optInt(b, 4, int64(m.ProtocolVersion))
	b = optString(b, 5, m.AuthMethodName)
	b = optString(b, 6, m.ProxyToBrokerURL)
	b = m.Features.append(b, 10)
	return closeFrame(b, f)
}

// Connected answers Connect. MaxMessageSize 0 means the protocol's 5 MiB.
type Connected struct {
	ServerVersion   string
	ProtocolVersion int32
	MaxMessageSize  int32
	Features        FeatureFlags
}

func (m *Connected) decode(s *scanner) {
	*m = Connected{}
	for s.next() {
		switch s.tag {
		case 1<<3 | bytesT:
			m.ServerVersion = s.str()
		case 2<<3 | varint:
			m.ProtocolVersion = s.int32()
		case 3<<3 | varint:
			m.MaxMessageSize = s.int32()
		case 4<<3 | bytesT:
			s.inner(m.Features.decode(s.data))
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *Connected) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeConnected)
	b = putString(b, 1, m.ServerVersion)
	b = optInt(b, 2, int64(m.ProtocolVersion))
	b = optInt(b, 3, int64(m.MaxMessageSize))
	b = m.Features.append(b, 4)
	return closeFrame(b, f)
}

// Ping asks the other side for a Pong.
type Ping struct{}

// AppendFrame appends m as one frame.
func (*Ping) AppendFrame(dst []byte) []byte { return closeFrame(openFrame(dst, TypePing)) }

// Pong answers Ping.
type Pong struct{}

// AppendFrame appends m as one frame.
func (*Pong) AppendFrame(dst []byte) []byte { return closeFrame(openFrame(dst, TypePong)) }

func drain(s *scanner) {
	for s.next() {
		s.skip()
	}
}

// Success answers requests that return nothing.
type Success struct {
	RequestID uint64
	Schema    *Schema
}

func (m *Success) decode(s *scanner) {
	*m = Success{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.RequestID = s.val
		case 2<<3 | bytesT:
			m.Schema = new(Schema)
			s.inner(m.Schema.decode(s.data))
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *Success) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeSuccess)
	b = putUint(b, 1, m.RequestID)
	b = m.Schema.append(b, 2)
	return closeFrame(b, f)
}

// Error answers a request that failed. Clients match some messages by the
// error's name.
type Error struct {
	RequestID uint64
	Code      ServerError
	Message   string
}

func (m *Error) decode(s *scanner) {
	*m = Error{}
	for s.next() {
		switch s.tag {
		case 1<<3 | varint:
			m.RequestID = s.val
		case 2<<3 | varint:
			m.Code = ServerError(s.int32())
		case 3<<3 | bytesT:
			m.Message = s.str()
		default:
			s.skip()
		}
	}
}

// AppendFrame appends m as one frame.
func (m *Error) AppendFrame(dst []byte) []byte {
	b, f := openFrame(dst, TypeError)
	b = putUint(b, 1, m.RequestID)
	b = putInt(b, 2, int64(m.Code))
	b = putString(b, 3, m.Message)
	return closeFrame(b, f)
}
