package broker

import (
	"errors"
	"fmt"
	"math"

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
		if cs := c.consumer(m.Flow.ConsumerID); cs != nil {
			cs.Flow(m.Flow.Permits)
		}
		return nil
	case wire.TypeConnect:
		return errConnected
	case wire.TypePing:
		c.respond((&wire.Pong{}).AppendFrame(nil))
		return nil
	case wire.TypePong:
		c.ponged()
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
		err = c.subscribeAgain(&m.Subscribe, err)
	case wire.TypeCloseProducer:
		c.closeProducer(m.Close.ID)
		id = m.Close.RequestID
		c.succeed(id)
	case wire.TypeCloseConsumer:
		c.closeConsumer(m.Close.ID, false)
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
		id, err = m.Seek.RequestID, c.seek(&m.Seek)
	case wire.TypeGetTopics:
		id, err = m.GetTopics.RequestID, c.topics(&m.GetTopics)
	case wire.TypeGetSchema:
		c.getSchema(&m.GetSchema)
	case wire.TypeGetOrCreateSchema:
		c.getOrCreateSchema(&m.GetOrCreateSchema)
	case wire.TypeConsumerStats, wire.TypeTransactionBroker, wire.TypeNewTransaction, wire.TypeAddPartitionTxn, wire.TypeAddSubTxn,
		wire.TypeEndTransaction, wire.TypeWatchTopics:
		id, err = m.Unsupported.RequestID, refuse(wire.ErrorNotAllowed, "NotAllowedError: this broker does not support %v", m.Type)
	default:
		return errFromServer
	}
	if err != nil {
		c.refuseRequest(id, err)
	}
	return nil
}

func (c *conn) refuseRequest(id uint64, err error) {
	e := wire.Error{RequestID: id, Code: codeOf(err), Message: err.Error()}
	c.respond(e.AppendFrame(nil))
}

func (c *conn) succeed(request uint64) {
	c.respond((&wire.Success{RequestID: request}).AppendFrame(nil))
}

func (c *conn) connect(m *wire.Connect) error {
	c.connected = true
	c.indexes = c.server.cfg.BrokerEntryMetadata && m.Features.BrokerEntryMetadata
	r := wire.Connected{
		ServerVersion: "contention reference broker", ProtocolVersion: protocolVersion,
		MaxMessageSize: int32(min(c.server.cfg.MaxMessageSize, math.MaxInt32)),
	}
	c.respond(r.AppendFrame(nil))
	return nil
}

// send hands one message over to its topic's ledger.
func (c *conn) send(f *wire.Frame, m *wire.Send) error {
	if f.HeadersAndPayload == nil {
		return errNoPayload
	}
	p := c.producers[m.ProducerID]
	if p == nil {
		// The client sends it again when it has opened the producer, and may
		// have sent what comes after it already: only a new connection brings
		// all of it in order.
		return fmt.Errorf("producer %d is not open", m.ProducerID)
	}
	switch p.state.Load() {
	case producerWaiting:
		return c.sendError(m, wire.ErrorNotAllowed, fmt.Sprintf("producer %q waits for exclusive access", p.name))
	case producerClosed:
		return nil // on its way before the client knew; it sends it again
	}
	if p.failed.Load() {
		return c.sendError(m, wire.ErrorPersistence, fmt.Sprintf("an earlier send of producer %q failed", p.name))
	}
	if n, most := len(f.HeadersAndPayload), c.server.cfg.MaxMessageSize+wire.FramePadding-messageOverhead; n > most {
		return c.sendError(m, wire.ErrorNotAllowed, fmt.Sprintf("message of %d bytes with its metadata: the limit is %d", n, most))
	}
	if err := wire.VerifyChecksum(f.HeadersAndPayload); err != nil {
		return c.sendError(m, wire.ErrorChecksum, err.Error())
	}
	pub := c.pool.get(c)
	pub.producer, pub.sequenceID, pub.highestID = p, m.SequenceID, m.HighestSequenceID
	pub.Data, pub.Messages, pub.Epoch = p.bytes.copyOf(f.HeadersAndPayload), max(m.NumMessages, 1), p.ledgerEpoch
	pub.Failed = &p.failed
	c.owed.Add(1)
	c.sent(len(pub.Data))
	if err := p.topic.ledger.AsyncAddEntry(&pub.Add); err != nil {
		p.failed.Store(true)
		c.waitForOwed(1) // this one
		pub.AddFailed(err)
	}
	return nil
}

// messageOverhead is what a MESSAGE frame may have beside a message, in bytes.
// Clients drop a connection on a frame that is longer than their limit.
const messageOverhead = 1 << 10

// sendError answers a SEND after all earlier ones: on most errors the client
// connects again and sends all again that has no receipt, though it be stored.
func (c *conn) sendError(m *wire.Send, code wire.ServerError, why string) error {
	if !c.waitForOwed(0) {
		return nil // the connection ends
	}
	e := wire.SendError{ProducerID: m.ProducerID, SequenceID: m.SequenceID, Code: code, Message: why}
	c.respond(e.AppendFrame(nil))
	return nil
}

// consumer returns a consumer of the connection that is open. The reader's.
func (c *conn) consumer(id uint64) *consumer {
	if cs := c.consumers[id]; cs != nil && !cs.closed.Load() {
		return cs
	}
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

// closeConsumer closes a consumer; back says that its client is to open it
// again.
func (c *conn) closeConsumer(id uint64, back bool) {
	if c.consumers[id] == nil {
		return
	}
	cs := c.forget(id)
	cs.leave(back)
	if !back {
		delete(c.sought, cs.sub)
	}
}

func errNoConsumer(id uint64) error {
	return refuse(wire.ErrorConsumerNotFound, "ConsumerNotFound: consumer %d is not on this connection", id)
}

func (c *conn) ack(m *wire.Ack) error {
	err := c.acknowledge(m)
	if m.HasRequestID {
		r := wire.AckResponse{ConsumerID: m.ConsumerID, RequestID: m.RequestID}
		if err != nil {
			r.Code, r.Message = codeOf(err), err.Error()
		}
		c.respond(r.AppendFrame(nil))
	}
	return nil
}

// maxWarnings bounds what is logged of one client's reports.
const maxWarnings = 10

func (c *conn) acknowledge(m *wire.Ack) error {
	cs := c.consumer(m.ConsumerID)
	if cs == nil {
		return errNoConsumer(m.ConsumerID)
	}
	if m.ValidationError >= 0 && c.warnings < maxWarnings {
		c.warnings++
		for i := range m.IDs[:min(len(m.IDs), 1)] {
			c.server.log.Warn("a client could not read a message and dropped it", "conn", c.id, "topic", cs.sub.topic.name,
				"subscription", cs.sub.Name, "message", m.IDs[i].String(), "validation_error", m.ValidationError)
		}
	}
	if m.Type != wire.AckCumulative {
		if ids := c.acked(cs.sub, m.IDs); len(ids) > 0 {
			cs.Ack(ids)
		}
		return nil
	}
	switch {
	case cs.Type != wire.Exclusive && cs.Type != wire.Failover:
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: a %v subscription has no cumulative acknowledgement", cs.Type)
	case len(m.IDs) != 1:
		return refuse(wire.ErrorMetadata, "MetadataError: a cumulative acknowledgement has %d ids, not 1", len(m.IDs))
	}
	entry, ok := cs.sub.topic.ownEntry(&m.IDs[0])
	switch {
	case !ok:
	case len(c.acked(cs.sub, m.IDs)) == 1:
		cs.AckCumulative(entry)
	case entry > 0: // part of the entry, and all before it
		cs.AckCumulative(entry - 1)
	}
	return nil
}

func (c *conn) redeliver(m *wire.Redeliver) error {
	cs := c.consumer(m.ConsumerID)
	if cs == nil {
		return nil // it closed meanwhile; there is no answer to this command
	}
	if len(m.IDs) == 0 {
		cs.Redeliver(nil)
		return nil
	}
	c.ids = c.ids[:0]
	for i := range m.IDs {
		if entry, ok := cs.sub.topic.ownEntry(&m.IDs[i]); ok {
			c.ids = append(c.ids, entry)
		}
	}
	if len(c.ids) > 0 {
		cs.Redeliver(c.ids)
	}
	return nil
}

func (c *conn) lookup(m *wire.Lookup) {
	r := wire.LookupResponse{RequestID: m.RequestID, Response: wire.LookupConnect, BrokerURL: c.server.advertised, Authoritative: true}
	if _, err := canonicalTopic(m.Topic); err != nil {
		r = wire.LookupResponse{RequestID: m.RequestID, Response: wire.LookupFailed, Code: codeOf(err), Message: err.Error()}
	}
	c.respond(r.AppendFrame(nil))
}

func (c *conn) lastMessageID(m *wire.GetLastMessageID) error {
	cs := c.consumer(m.ConsumerID)
	if cs == nil {
		return errNoConsumer(m.ConsumerID)
	}
	t := cs.sub.topic
	mark, last := t.messageID(cs.sub.Cursor().MarkDeletePosition()), t.messageID(t.ledger.LastConfirmed())
	if int64(last.Entry) >= 0 {
		// The client compares indexes too: of a batch, the last message counts.
		e, kept, err := t.ledger.Entry(int64(last.Entry))
		if err != nil {
			return err
		}
		if kept && e.Messages > 1 {
			last.BatchIndex, last.BatchSize = e.Messages-1, e.Messages
		}
	}
	r := wire.GetLastMessageIDResponse{RequestID: m.RequestID, Last: last, MarkDelete: &mark}
	c.respond(r.AppendFrame(nil))
	return nil
}
