package wire

import (
	"errors"
	"fmt"
)

// Command is a decoded BaseCommand, meant to be reused: [Parse] sets Type and
// the one body that belongs to it; what the others hold is stale. Byte slices
// alias the parsed bytes and the slices of an id list or an ack set are
// reused, so copy what must outlive the next Parse.
type Command struct {
	Type CommandType

	Connect                     Connect
	Connected                   Connected
	Subscribe                   Subscribe
	Producer                    Producer
	Send                        Send
	SendReceipt                 SendReceipt
	SendError                   SendError
	Message                     Message
	Ack                         Ack
	AckResponse                 AckResponse
	Flow                        Flow
	Unsubscribe                 Unsubscribe
	Success                     Success
	Error                       Error
	Close                       Close // CLOSE_PRODUCER and CLOSE_CONSUMER
	ProducerSuccess             ProducerSuccess
	Redeliver                   Redeliver
	PartitionedMetadata         PartitionedMetadata
	PartitionedMetadataResponse PartitionedMetadataResponse
	Lookup                      Lookup
	LookupResponse              LookupResponse
	Seek                        Seek
	GetLastMessageID            GetLastMessageID
	GetLastMessageIDResponse    GetLastMessageIDResponse
	ActiveConsumerChange        ActiveConsumerChange
	GetTopics                   GetTopics
	GetTopicsResponse           GetTopicsResponse
	GetSchema                   GetSchema
	GetOrCreateSchema           GetOrCreateSchema
	SchemaResponse              SchemaResponse // of GET_SCHEMA and GET_OR_CREATE_SCHEMA
	Unsupported                 Unsupported    // of the types listed with it
}

// Unsupported is what is read of a request that this package knows by name only:
// CONSUMER_STATS, WATCH_TOPIC_LIST and those of transactions.
type Unsupported struct {
	RequestID uint64
}

func (m *Unsupported) decode(s *scanner) {
	*m = Unsupported{}
	for s.next() {
		if s.tag == 1<<3|varint {
			m.RequestID = s.val
			continue
		}
		s.skip()
	}
}

// AppendFrame appends m as one frame of type t.
func (m *Unsupported) AppendFrame(dst []byte, t CommandType) []byte {
	b, f := openFrame(dst, t)
	return closeFrame(putUint(b, 1, m.RequestID), f)
}

// ErrUnknownCommand is what [Parse] wraps for a command type this package does
// not know. Command.Type is set, so that a server can name it in its answer.
var ErrUnknownCommand = errors.New("unknown command type")

var (
	errNoType = errors.New("command has no type")
	errNoBody = errors.New("body is missing")
)

// required holds, per command type, the mask of required field numbers.
var required = [65]uint64{
	TypeConnect: mask(1), TypeConnected: mask(1), TypeSubscribe: mask(1, 2, 3, 4, 5), TypeProducer: mask(1, 2, 3),
	TypeSend: mask(1, 2), TypeSendReceipt: mask(1, 2), TypeSendError: mask(1, 2, 3, 4), TypeMessage: mask(1, 2),
	TypeAck: mask(1, 2), TypeFlow: mask(1, 2), TypeUnsubscribe: mask(1, 2), TypeSuccess: mask(1), TypeError: mask(1, 2, 3),
	TypeCloseProducer: mask(1, 2), TypeCloseConsumer: mask(1, 2), TypeProducerSuccess: mask(1, 2), TypeRedeliver: mask(1),
	TypePartitionedMetadata: mask(1, 2), TypePartitionedMetadataResponse: mask(2), TypeLookup: mask(1, 2),
	TypeLookupResponse: mask(4), TypeSeek: mask(1, 2), TypeGetLastMessageID: mask(1, 2),
	TypeGetLastMessageIDResponse: mask(1, 2), TypeActiveConsumerChange: mask(1), TypeGetTopics: mask(1, 2),
	TypeGetTopicsResponse: mask(1), TypeGetSchema: mask(1, 2), TypeGetSchemaResponse: mask(1), TypeAckResponse: mask(1),
	TypeGetOrCreateSchema: mask(1, 2, 3), TypeGetOrCreateSchemaResponse: mask(1),
	TypeConsumerStats: mask(1), TypeTransactionBroker: mask(1), TypeNewTransaction: mask(1), TypeAddPartitionTxn: mask(1),
	TypeAddSubTxn: mask(1), TypeEndTransaction: mask(1), TypeWatchTopics: mask(1),
}

func mask(nums ...int) (m uint64) {
	for _, n := range nums {
		m |= 1 << n
	}
	return m
}

// Parse decodes the bytes of one BaseCommand into c. Errors name the command,
// the field and the place.
func Parse(b []byte, c *Command) error {
	c.Type = 0
	body, err := c.findBody(b)
	if err != nil {
		return err
	}
	s := scan(body)
	if !c.decodeBody(&s) {
		return fmt.Errorf("%w %d", ErrUnknownCommand, c.Type)
	}
	if s.err != nil {
		return fmt.Errorf("%v: %w", c.Type, s.err)
	}
	if missing := required[c.Type] &^ s.seen; missing != 0 {
		return fmt.Errorf("%v: required field %d is missing", c.Type, firstBit(missing))
	}
	return nil
}

// findBody reads the command's type and returns the body of that number,
// whichever of the two comes first.
func (c *Command) findBody(b []byte) ([]byte, error) {
	s := scan(b)
	var body []byte
	found := false
	for s.next() {
		switch {
		case s.tag == 1<<3|varint && c.Type == 0:
			c.Type = CommandType(s.int32())
		case c.Type > 1 && s.tag == uint64(c.Type)<<3|bytesT:
			body, found = s.data, true
		}
	}
	if s.err != nil {
		return nil, fmt.Errorf("command: %w", s.err)
	}
	if c.Type == 0 {
		return nil, errNoType
	}
	if found {
		return body, nil
	}
	for s = scan(b); s.next(); { // type came after the body
		if c.Type > 1 && s.tag == uint64(c.Type)<<3|bytesT {
			return s.data, nil
		}
	}
	if int(c.Type) >= len(typeNames) || c.Type < 0 || typeNames[c.Type] == "" {
		return nil, fmt.Errorf("%w %d", ErrUnknownCommand, c.Type)
	}
	return nil, fmt.Errorf("%v: %w", c.Type, errNoBody)
}

func firstBit(m uint64) int {
	for i := range 64 {
		if m&(1<<i) != 0 {
			return i
		}
	}
	return 64
}

// decodeBody reports whether it knows c.Type.
func (c *Command) decodeBody(s *scanner) bool {
	switch c.Type {
	case TypeSend:
		c.Send.decode(s)
	case TypeSendReceipt:
		c.SendReceipt.decode(s)
	case TypeMessage:
		c.Message.decode(s)
	case TypeAck:
		c.Ack.decode(s)
	case TypeFlow:
		c.Flow.decode(s)
	case TypePing, TypePong:
		drain(s)
	case TypeSendError:
		c.SendError.decode(s)
	case TypeAckResponse:
		c.AckResponse.decode(s)
	case TypeRedeliver:
		c.Redeliver.decode(s)
	default:
		return c.decodeRequest(s) || c.decodeResponse(s)
	}
	return true
}

func (c *Command) decodeRequest(s *scanner) bool {
	switch c.Type {
	case TypeConnect:
		c.Connect.decode(s)
	case TypeSubscribe:
		c.Subscribe.decode(s)
	case TypeProducer:
		c.Producer.decode(s)
	case TypeUnsubscribe:
		c.Unsubscribe.decode(s)
	case TypeCloseProducer, TypeCloseConsumer:
		c.Close.decode(s)
	case TypePartitionedMetadata:
		c.PartitionedMetadata.decode(s)
	case TypeLookup:
		c.Lookup.decode(s)
	case TypeSeek:
		c.Seek.decode(s)
	case TypeGetLastMessageID:
		c.GetLastMessageID.decode(s)
	case TypeGetTopics:
		c.GetTopics.decode(s)
	case TypeGetSchema:
		c.GetSchema.decode(s)
	case TypeGetOrCreateSchema:
		c.GetOrCreateSchema.decode(s)
	case TypeConsumerStats, TypeTransactionBroker, TypeNewTransaction, TypeAddPartitionTxn, TypeAddSubTxn, TypeEndTransaction, TypeWatchTopics:
		c.Unsupported.decode(s)
	default:
		return false
	}
	return true
}

func (c *Command) decodeResponse(s *scanner) bool {
	switch c.Type {
	case TypeConnected:
		c.Connected.decode(s)
	case TypeSuccess:
		c.Success.decode(s)
	case TypeError:
		c.Error.decode(s)
	case TypeProducerSuccess:
		c.ProducerSuccess.decode(s)
	case TypePartitionedMetadataResponse:
		c.PartitionedMetadataResponse.decode(s)
	case TypeLookupResponse:
		c.LookupResponse.decode(s)
	case TypeGetLastMessageIDResponse:
		c.GetLastMessageIDResponse.decode(s)
	case TypeActiveConsumerChange:
		c.ActiveConsumerChange.decode(s)
	case TypeGetTopicsResponse:
		c.GetTopicsResponse.decode(s)
	case TypeGetSchemaResponse:
		c.SchemaResponse.decode(s, false)
	case TypeGetOrCreateSchemaResponse:
		c.SchemaResponse.decode(s, true)
	default:
		return false
	}
	return true
}
