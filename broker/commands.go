package broker

import (
	"errors"
	"fmt"
	"math"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/wire"
)

// protocolVersion is the newest protocol version this broker claims.
const protocolVersion = 20

var (
	errNotConnected = errors.New("the first frame must be CONNECT")
	errConnected    = errors.New("CONNECT was sent before")
	errFromServer   = errors.New("only a broker sends this command")
	errNoPayload    = errors.New("the frame has no payload")
)

// handle serves one frame. An error ends the connection; what the protocol has
// an answer for is answered instead.
func (c *conn) handle(f *wire.Frame, m *wire.Command) error {
	if !c.connected {
		if m.Type != wire.TypeConnect {
			return errNotConnected
		}
		return c.connect(&m.Connect)
	}
	switch m.Type {
	case wire.TypeSend:
		return c.send(f, &m.Send)
	case wire.TypeAck:
		return c.ack(&m.Ack)
	case wire.TypeFlow:
		if cs := c.consumers[m.Flow.ConsumerID]; cs != nil {
			cs.Flow(m.Flow.Permits)
		}
		return nil
	case wire.TypeConnect:
		return errConnected
	case wire.TypePing:
		c.respond((&wire.Pong{}).AppendFrame(nil))
		return nil
	case wire.TypePong:
		return nil
	case wire.TypeRedeliver:
		return c.redeliver(&m.Redeliver)
	}
	return c.handleRequest(m)
}

// handleRequest serves the commands that carry a request id.
func (c *conn) handleRequest(m *wire.Command) error {
	var id uint64
	var err error
	switch m.Type {
	case wire.TypeProducer:
		id, err = m.Producer.RequestID, c.openProducer(&m.Producer)
	case wire.TypeSubscribe:
		id, err = m.Subscribe.RequestID, c.subscribe(&m.Subscribe)
	case wire.TypeCloseProducer:
		c.closeProducer(m.Close.ID)
		id = m.Close.RequestID
		c.succeed(id)
	case wire.TypeCloseConsumer:
		c.closeConsumer(m.Close.ID)
		id = m.Close.RequestID
		c.succeed(id)
	case wire.TypeUnsubscribe:
		id, err = m.Unsubscribe.RequestID, c.unsubscribe(&m.Unsubscribe)
	case wire.TypePartitionedMetadata:
		c.partitionedMetadata(&m.PartitionedMetadata)
	case wire.TypeLookup:
		c.lookup(&m.Lookup)
	case wire.TypeGetLastMessageID:
		id, err = m.GetLastMessageID.RequestID, c.lastMessageID(&m.GetLastMessageID)
	case wire.TypeSeek:
		id, err = m.Seek.RequestID, errUnsupported(m.Type)
	case wire.TypeGetTopics:
		id, err = m.GetTopics.RequestID, errUnsupported(m.Type)
	case wire.TypeGetSchema:
		id, err = m.GetSchema.RequestID, errUnsupported(m.Type)
	case wire.TypeGetOrCreateSchema:
		id, err = m.GetOrCreateSchema.RequestID, errUnsupported(m.Type)
	default:
		return errFromServer
	}
	if err != nil {
		e := wire.Error{RequestID: id, Code: codeOf(err), Message: err.Error()}
		c.respond(e.AppendFrame(nil))
	}
	return nil
}

func errUnsupported(t wire.CommandType) error {
	return refuse(wire.ErrorNotAllowed, "NotAllowedError: this broker does not support %v", t)
}

func (c *conn) succeed(request uint64) {
	c.respond((&wire.Success{RequestID: request}).AppendFrame(nil))
}

func (c *conn) connect(*wire.Connect) error {
	c.connected = true
	r := wire.Connected{
		ServerVersion: "contention reference broker", ProtocolVersion: protocolVersion,
		MaxMessageSize: int32(min(c.server.cfg.MaxMessageSize, math.MaxInt32)),
	}
	c.respond(r.AppendFrame(nil))
	return nil
}

func (c *conn) openProducer(m *wire.Producer) error {
	if m.AccessMode != wire.AccessShared {
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: producer access mode %d is not supported", m.AccessMode)
	}
	t, err := c.server.openTopic(m.Topic)
	if err != nil {
		return err
	}
	if old := c.producers[m.ProducerID]; old != nil {
		// A client that timed out asks again.
		c.closeProducer(m.ProducerID)
	}
	p := &producer{topic: t, conn: c, id: m.ProducerID, name: m.Name, epoch: m.Epoch}
	if p.name == "" {
		p.name = fmt.Sprintf("%s-%d", c.server.name, c.server.nextProducer.Add(1))
	}
	if err := t.addProducer(p); err != nil {
		return err
	}
	c.producers[p.id] = p
	r := wire.ProducerSuccess{RequestID: m.RequestID, Name: p.name, LastSequenceID: -1}
	c.respond(r.AppendFrame(nil))
	return nil
}

func (c *conn) closeProducer(id uint64) {
	if p := c.producers[id]; p != nil {
		delete(c.producers, id)
		p.topic.removeProducer(p)
	}
}

// send hands one message over to its topic's ledger.
func (c *conn) send(f *wire.Frame, m *wire.Send) error {
	if f.HeadersAndPayload == nil {
		return errNoPayload
	}
	p := c.producers[m.ProducerID]
	if p == nil {
		return c.sendError(m, wire.ErrorUnknown, fmt.Sprintf("producer %d is not open on this connection", m.ProducerID))
	}
	if err := wire.VerifyChecksum(f.HeadersAndPayload); err != nil {
		return c.sendError(m, wire.ErrorChecksum, err.Error())
	}
	pub := c.pool.get(c)
	pub.producerID, pub.sequenceID, pub.highestID = m.ProducerID, m.SequenceID, m.HighestSequenceID
	pub.ledgerID = p.topic.ledger.ID
	pub.Data, pub.Messages = c.bytes.copyOf(f.HeadersAndPayload), max(m.NumMessages, 1)
	c.owed.Add(1)
	if err := p.topic.ledger.AsyncAddEntry(&pub.Add); err != nil {
		pub.AddFailed(err)
	}
	return nil
}

func (c *conn) sendError(m *wire.Send, code wire.ServerError, why string) error {
	e := wire.SendError{ProducerID: m.ProducerID, SequenceID: m.SequenceID, Code: code, Message: why}
	c.respond(e.AppendFrame(nil))
	return nil
}

func (c *conn) subscribe(m *wire.Subscribe) error {
	if old := c.consumers[m.ConsumerID]; old != nil {
		c.closeConsumer(m.ConsumerID)
	}
	name := m.ConsumerName
	if name == "" {
		name = fmt.Sprintf("%s-c%d", c.server.name, c.server.nextConsumer.Add(1))
	}
	cs, t, err := c.server.subscribe(m, dispatch.ConsumerOptions{ID: m.ConsumerID, Name: name, Type: m.Type, Sink: c})
	if err != nil {
		return err
	}
	c.consMu.Lock()
	c.consumers[m.ConsumerID] = &consumer{Consumer: cs, topic: t}
	c.consMu.Unlock()
	c.succeed(m.RequestID)
	return nil
}

// forget takes a consumer off the connection.
func (c *conn) forget(id uint64) *consumer {
	c.consMu.Lock()
	defer c.consMu.Unlock()
	cs := c.consumers[id]
	delete(c.consumers, id)
	return cs
}

func (c *conn) closeConsumer(id uint64) {
	if cs := c.forget(id); cs != nil {
		cs.Close()
	}
}

func (c *conn) unsubscribe(m *wire.Unsubscribe) error {
	cs := c.consumers[m.ConsumerID]
	if cs == nil {
		return errNoConsumer(m.ConsumerID)
	}
	if err := cs.topic.unsubscribe(cs.Consumer); err != nil {
		return err
	}
	c.forget(m.ConsumerID)
	c.succeed(m.RequestID)
	return nil
}

func errNoConsumer(id uint64) error {
	return refuse(wire.ErrorConsumerNotFound, "ConsumerNotFound: consumer %d is not on this connection", id)
}

// entries converts the ids of whole entries of the topic's ledger. An id with
// part of a batch still unacknowledged is left out: the client acknowledges
// the entry again when it is done with all of it.
func (c *conn) entries(t *topic, ids []wire.MessageID) []int64 {
	c.ids = c.ids[:0]
	for i := range ids {
		id := &ids[i]
		if id.Ledger != t.ledger.ID || id.Entry > math.MaxInt64 || partial(id.AckSet) {
			continue
		}
		c.ids = append(c.ids, int64(id.Entry))
	}
	return c.ids
}

func partial(ackSet []int64) bool {
	for _, w := range ackSet {
		if w != 0 {
			return true
		}
	}
	return false
}

func (c *conn) ack(m *wire.Ack) error {
	cs := c.consumers[m.ConsumerID]
	why, code := "", wire.ErrorUnknown
	if cs == nil {
		why, code = errNoConsumer(m.ConsumerID).Error(), wire.ErrorConsumerNotFound
	} else if ids := c.entries(cs.topic, m.IDs); m.Type == wire.AckCumulative {
		if len(ids) == 1 {
			cs.AckCumulative(ids[0])
		}
	} else if len(ids) > 0 {
		cs.Ack(ids)
	}
	if m.HasRequestID {
		r := wire.AckResponse{ConsumerID: m.ConsumerID, RequestID: m.RequestID, Code: code, Message: why}
		c.respond(r.AppendFrame(nil))
	}
	return nil
}

func (c *conn) redeliver(m *wire.Redeliver) error {
	cs := c.consumers[m.ConsumerID]
	if cs == nil {
		return nil // it closed meanwhile; there is no answer to this command
	}
	if len(m.IDs) == 0 {
		cs.Redeliver(nil)
	} else if ids := c.entries(cs.topic, m.IDs); len(ids) > 0 {
		cs.Redeliver(ids)
	}
	return nil
}

func (c *conn) partitionedMetadata(m *wire.PartitionedMetadata) {
	r := wire.PartitionedMetadataResponse{RequestID: m.RequestID, Response: wire.MetadataSuccess}
	if _, err := canonicalTopic(m.Topic); err != nil {
		r.Response, r.Code, r.Message = wire.MetadataFailed, codeOf(err), err.Error()
	}
	c.respond(r.AppendFrame(nil))
}

func (c *conn) lookup(m *wire.Lookup) {
	r := wire.LookupResponse{RequestID: m.RequestID, Response: wire.LookupConnect, BrokerURL: c.server.advertised, Authoritative: true}
	if _, err := canonicalTopic(m.Topic); err != nil {
		r = wire.LookupResponse{RequestID: m.RequestID, Response: wire.LookupFailed, Code: codeOf(err), Message: err.Error()}
	}
	c.respond(r.AppendFrame(nil))
}

func (c *conn) lastMessageID(m *wire.GetLastMessageID) error {
	cs := c.consumers[m.ConsumerID]
	if cs == nil {
		return errNoConsumer(m.ConsumerID)
	}
	l := cs.topic.ledger
	mark := wire.NewMessageID(l.ID, uint64(cs.Dispatcher().Cursor().MarkDeletePosition()))
	r := wire.GetLastMessageIDResponse{
		RequestID: m.RequestID, Last: wire.NewMessageID(l.ID, uint64(l.LastConfirmed())), MarkDelete: &mark,
	}
	c.respond(r.AppendFrame(nil))
	return nil
}
