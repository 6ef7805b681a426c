package wire

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// commandCase ties a command's encoder to the Command field that decodes it.
type commandCase struct {
	t      CommandType
	encode func(t *rapid.T) (frame []byte, want any)
	got    func(c *Command) any
}

// framed is implemented by pointers to the commands that have one frame form.
type framed[T any] interface {
	*T
	AppendFrame([]byte) []byte
}

// plain is the case of a command with AppendFrame; fix turns what cannot be
// told apart on the wire into its canonical form.
func plain[T any, P framed[T]](t CommandType, fix func(*T), got func(*Command) *T) commandCase {
	return commandCase{t: t,
		encode: func(rt *rapid.T) ([]byte, any) {
			v := rapid.Make[T]().Draw(rt, t.String())
			if fix != nil {
				fix(&v)
			}
			return P(&v).AppendFrame(nil), v
		},
		got: func(c *Command) any { return *got(c) },
	}
}

func fixID(m *MessageID) {
	if m == nil {
		return
	}
	m.Partition, m.BatchIndex = max(m.Partition, -1), max(m.BatchIndex, -1)
}

func fixIDs(ids []MessageID) {
	for i := range ids {
		fixID(&ids[i])
	}
}

func commandCases() []commandCase {
	return slices.Concat(requestCases(), responseCases(), unsupportedCases())
}

func unsupportedCases() (cases []commandCase) {
	for _, typ := range []CommandType{
		TypeConsumerStats, TypeTransactionBroker, TypeNewTransaction, TypeAddPartitionTxn, TypeAddSubTxn, TypeEndTransaction, TypeWatchTopics,
	} {
		cases = append(cases, commandCase{t: typ,
			encode: func(rt *rapid.T) ([]byte, any) {
				m := rapid.Make[Unsupported]().Draw(rt, typ.String())
				return m.AppendFrame(nil, typ), m
			},
			got: func(c *Command) any { return c.Unsupported },
		})
	}
	return cases
}

func requestCases() []commandCase {
	return []commandCase{
		plain(TypeConnect, nil, func(c *Command) *Connect { return &c.Connect }),
		plain(TypeSubscribe, func(m *Subscribe) { fixID(m.StartMessageID) }, func(c *Command) *Subscribe { return &c.Subscribe }),
		plain(TypeProducer, func(m *Producer) {
			if !m.HasTopicEpoch {
				m.TopicEpoch = 0
			}
		}, func(c *Command) *Producer { return &c.Producer }),
		plain(TypeAck, func(m *Ack) {
			fixIDs(m.IDs)
			if m.ValidationError <= 0 {
				m.ValidationError = -1
			}
			if !m.HasRequestID {
				m.RequestID = 0
			}
		}, func(c *Command) *Ack { return &c.Ack }),
		plain(TypeFlow, nil, func(c *Command) *Flow { return &c.Flow }),
		plain(TypeUnsubscribe, nil, func(c *Command) *Unsubscribe { return &c.Unsubscribe }),
		plain(TypeRedeliver, func(m *Redeliver) { fixIDs(m.IDs) }, func(c *Command) *Redeliver { return &c.Redeliver }),
		plain(TypePartitionedMetadata, nil, func(c *Command) *PartitionedMetadata { return &c.PartitionedMetadata }),
		plain(TypeLookup, nil, func(c *Command) *Lookup { return &c.Lookup }),
		plain(TypeSeek, func(m *Seek) {
			fixID(m.MessageID)
			if !m.HasPublishTime {
				m.PublishTime = 0
			}
		}, func(c *Command) *Seek { return &c.Seek }),
		plain(TypeGetLastMessageID, nil, func(c *Command) *GetLastMessageID { return &c.GetLastMessageID }),
		plain(TypeGetTopics, nil, func(c *Command) *GetTopics { return &c.GetTopics }),
		plain(TypeGetSchema, nil, func(c *Command) *GetSchema { return &c.GetSchema }),
		plain(TypeGetOrCreateSchema, nil, func(c *Command) *GetOrCreateSchema { return &c.GetOrCreateSchema }),
		plain(TypePing, nil, func(*Command) *Ping { return &Ping{} }),
		{t: TypeCloseProducer, encode: func(rt *rapid.T) ([]byte, any) {
			m := rapid.Make[Close]().Draw(rt, "close")
			return m.AppendProducerFrame(nil), m
		}, got: func(c *Command) any { return c.Close }},
		{t: TypeCloseConsumer, encode: func(rt *rapid.T) ([]byte, any) {
			m := rapid.Make[Close]().Draw(rt, "close")
			return m.AppendConsumerFrame(nil), m
		}, got: func(c *Command) any { return c.Close }},
		{t: TypeSend, encode: func(rt *rapid.T) ([]byte, any) {
			m := rapid.Make[Send]().Draw(rt, "send")
			m.NumMessages = max(m.NumMessages, 1)
			return AppendSend(nil, &m, &Metadata{}, []byte("x")), m
		}, got: func(c *Command) any { return c.Send }},
	}
}

func responseCases() []commandCase {
	return []commandCase{
		plain(TypeConnected, nil, func(c *Command) *Connected { return &c.Connected }),
		plain(TypeSendReceipt, func(m *SendReceipt) {
			fixID(&m.MessageID)
			if !m.HasMessageID {
				m.MessageID = MessageID{Partition: -1, BatchIndex: -1}
			}
		}, func(c *Command) *SendReceipt { return &c.SendReceipt }),
		plain(TypeSendError, nil, func(c *Command) *SendError { return &c.SendError }),
		plain(TypeSuccess, nil, func(c *Command) *Success { return &c.Success }),
		plain(TypeError, nil, func(c *Command) *Error { return &c.Error }),
		plain(TypePong, nil, func(*Command) *Pong { return &Pong{} }),
		plain(TypeProducerSuccess, func(m *ProducerSuccess) {
			if !m.HasTopicEpoch {
				m.TopicEpoch = 0
			}
		}, func(c *Command) *ProducerSuccess { return &c.ProducerSuccess }),
		plain(TypePartitionedMetadataResponse, func(m *PartitionedMetadataResponse) {
			if m.Response != MetadataFailed {
				m.Code, m.Message = 0, ""
			}
		}, func(c *Command) *PartitionedMetadataResponse { return &c.PartitionedMetadataResponse }),
		plain(TypeLookupResponse, func(m *LookupResponse) {
			if m.Response != LookupFailed {
				m.Code, m.Message = 0, ""
			}
		}, func(c *Command) *LookupResponse { return &c.LookupResponse }),
		plain(TypeAckResponse, func(m *AckResponse) {
			if m.Message == "" {
				m.Code = 0
			}
		}, func(c *Command) *AckResponse { return &c.AckResponse }),
		plain(TypeGetLastMessageIDResponse, func(m *GetLastMessageIDResponse) {
			fixID(&m.Last)
			fixID(m.MarkDelete)
		}, func(c *Command) *GetLastMessageIDResponse { return &c.GetLastMessageIDResponse }),
		plain(TypeActiveConsumerChange, nil, func(c *Command) *ActiveConsumerChange { return &c.ActiveConsumerChange }),
		plain(TypeGetTopicsResponse, nil, func(c *Command) *GetTopicsResponse { return &c.GetTopicsResponse }),
		{t: TypeMessage, encode: func(rt *rapid.T) ([]byte, any) {
			m := rapid.Make[Message]().Draw(rt, "message")
			fixID(&m.ID)
			return AppendMessage(nil, &m, AppendHeadersAndPayload(nil, &Metadata{}, []byte("x"))), m
		}, got: func(c *Command) any { return c.Message }},
		{t: TypeGetSchemaResponse, encode: func(rt *rapid.T) ([]byte, any) {
			m := drawSchemaResponse(rt)
			return m.AppendGetFrame(nil), m
		}, got: func(c *Command) any { return c.SchemaResponse }},
		{t: TypeGetOrCreateSchemaResponse, encode: func(rt *rapid.T) ([]byte, any) {
			m := drawSchemaResponse(rt)
			m.Schema = nil
			return m.AppendCreateFrame(nil), m
		}, got: func(c *Command) any { return c.SchemaResponse }},
	}
}

func drawSchemaResponse(rt *rapid.T) SchemaResponse {
	m := rapid.Make[SchemaResponse]().Draw(rt, "schema response")
	if !m.Failed {
		m.Code, m.Message = 0, ""
	}
	return m
}

func TestEveryCommandHasACase(t *testing.T) {
	covered := map[CommandType]bool{}
	for _, tc := range commandCases() {
		covered[tc.t] = true
	}
	for i, name := range typeNames {
		if name != "" && !covered[CommandType(i)] {
			t.Errorf("%s has no round-trip case", name)
		}
	}
}

// The Command is shared by all draws: what one leaves behind must not show in
// the next.
func TestCommandRoundTrip(t *testing.T) {
	for _, tc := range commandCases() {
		t.Run(tc.t.String(), func(t *testing.T) {
			var c Command
			rapid.Check(t, func(rt *rapid.T) {
				frame, want := tc.encode(rt)
				fr := NewFrameReader(bytes.NewReader(frame), ReaderOptions{VerifyChecksum: true})
				var f Frame
				if err := fr.Next(&f); err != nil {
					rt.Fatalf("frame: %v", err)
				}
				if err := Parse(f.Command, &c); err != nil {
					rt.Fatalf("parse: %v", err)
				}
				if c.Type != tc.t {
					rt.Fatalf("type %v, want %v", c.Type, tc.t)
				}
				if diff := cmp.Diff(want, tc.got(&c), cmpopts.EquateEmpty()); diff != "" {
					rt.Fatalf("decoded differs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The bytes are written out by hand from the protocol's definition.
func TestGoldenFrames(t *testing.T) {
	connected := []byte{
		0, 0, 0, 0x0f, // total
		0, 0, 0, 0x0b, // command
		0x08, 3, // type = CONNECTED
		0x1a, 7, // connected, 7 bytes
		0x0a, 3, 'r', 'e', 'f', // server_version
		0x10, 20, // protocol_version
	}
	m := Connected{ServerVersion: "ref", ProtocolVersion: 20}
	checkBytes(t, "CONNECTED", m.AppendFrame(nil), connected)

	receipt := []byte{
		0, 0, 0, 19, // total
		0, 0, 0, 15, // command
		0x08, 7, // type = SEND_RECEIPT
		0x3a, 11, // send_receipt, 11 bytes
		0x08, 0, // producer_id: required, so written although 0
		0x10, 0xac, 0x02, // sequence_id = 300
		0x1a, 4, 0x08, 5, 0x10, 7, // message_id {ledgerId 5, entryId 7}
	}
	r := SendReceipt{SequenceID: 300, HasMessageID: true, MessageID: NewMessageID(5, 7)}
	checkBytes(t, "SEND_RECEIPT", r.AppendFrame(nil), receipt)
}

func checkBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s\n got % x\nwant % x", what, got, want)
	}
}

func TestParseRejects(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cmd   []byte
		wants string
	}{
		{"empty", nil, "no type"},
		{"no body", []byte{0x08, 6}, "SEND: body is missing"},
		{"required", []byte{0x08, 6, 0x32, 2, 0x08, 1}, "SEND: required field 2 is missing"},
		{"wrong wire type is not the field", []byte{0x08, 6, 0x32, 5, 0x08, 1, 0x12, 1, 9}, "required field 2 is missing"},
		{"cut body", []byte{0x08, 6, 0x32, 9, 0x08, 1}, "past the end"},
		{"cut field", []byte{0x08, 6, 0x32, 3, 0x08, 1, 0x10}, "SEND: at byte"},
		{"field number 0", []byte{0x08, 6, 0x00}, "invalid field tag"},
		{"unknown type", []byte{0x08, 60, 0xe2, 3, 0}, "unknown command type 60"},
		{"unknown type without body", []byte{0x08, 0x7f}, "unknown command type 127"},
		{"negative type", []byte{0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, "unknown command type -1"},
		{"id without entry", []byte{0x08, 10, 0x52, 8, 0x08, 1, 0x10, 0, 0x1a, 2, 0x08, 1}, "ACK: at byte 8 of 8: field 3: message id lacks"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c Command
			err := Parse(tc.cmd, &c)
			if err == nil || !strings.Contains(err.Error(), tc.wants) {
				t.Fatalf("error %v, want one with %q", err, tc.wants)
			}
		})
	}
	var c Command
	if err := Parse([]byte{0x08, 27, 0xda, 1, 0}, &c); !errors.Is(err, ErrUnknownCommand) || c.Type != 27 {
		t.Errorf("error %v with type %d, want ErrUnknownCommand with 27", err, c.Type)
	}
}

// Fields may come in any order, also the type after its body, and unknown ones
// are skipped, groups too.
func TestParseAcceptsAnyOrder(t *testing.T) {
	body := []byte{
		0x10, 9, // sequence_id
		0xfa, 0x07, 2, 1, 2, // field 127, bytes
		0xf3, 0x07, 0x08, 1, 0xf4, 0x07, // field 126, a group
		0x0d, 1, 2, 3, 4, // field 1 as fixed32: unknown
		0x08, 4, // producer_id
	}
	cmd := append([]byte{0x32, byte(len(body))}, body...)
	cmd = append(cmd, 0x08, 6)
	var c Command
	if err := Parse(cmd, &c); err != nil {
		t.Fatal(err)
	}
	if want := (Send{ProducerID: 4, SequenceID: 9, NumMessages: 1}); c.Type != TypeSend || c.Send != want {
		t.Errorf("got %v %+v, want SEND %+v", c.Type, c.Send, want)
	}
}

func TestPackedAckSet(t *testing.T) {
	id := []byte{0x08, 1, 0x10, 2, 0x2a, 3, 5, 0x80, 1} // ack_set packed: 5, 128
	var m MessageID
	if err := m.decode(id); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{5, 128}, m.AckSet); diff != "" {
		t.Error(diff)
	}
}

func TestTooManyIDs(t *testing.T) {
	ack := Ack{IDs: make([]MessageID, MaxMessageIDs+1)}
	frame := ack.AppendFrame(nil)
	var c Command
	if err := Parse(frame[8:], &c); !errors.Is(err, errTooMany) {
		t.Errorf("%d ids: error %v, want %v", len(ack.IDs), err, errTooMany)
	}
	ack.IDs = ack.IDs[:MaxMessageIDs]
	if err := Parse(ack.AppendFrame(frame[:0])[8:], &c); err != nil || len(c.Ack.IDs) != MaxMessageIDs {
		t.Errorf("%d ids: error %v, got %d", len(ack.IDs), err, len(c.Ack.IDs))
	}
}
