package broker

import (
	"math"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// entryOf returns the entry of a client's message id; ids of other ledgers, as
// those for the earliest and the latest message, lie before or after all.
func (t *topic) entryOf(id *wire.MessageID) int64 {
	mine, theirs := int64(t.ledger.ID), int64(id.Ledger)
	switch {
	case theirs < mine:
		return 0
	case theirs > mine:
		return math.MaxInt64
	}
	return max(int64(id.Entry), 0)
}

// ownEntry returns the entry of an id if it is one of this topic's.
func (t *topic) ownEntry(id *wire.MessageID) (int64, bool) {
	return int64(id.Entry), id.Ledger == t.ledger.ID && id.Entry <= math.MaxInt64
}

// entryAt returns the first entry published at a time or later, in ms since
// 1970. Producers stamp their messages: where their clocks differ it is one of
// the entries about there.
func (t *topic) entryAt(ms uint64) (int64, error) {
	var md wire.Metadata
	return t.ledger.Search(func(e ledger.Entry) bool {
		raw, _, err := wire.SplitPayload(e.Data)
		if err == nil {
			err = wire.ParseMetadata(raw, &md)
		}
		return err == nil && md.PublishTime >= ms
	})
}

// seek moves a subscription. All of its consumers are disconnected and connect
// again: only so do they know which messages are of before.
func (c *conn) seek(m *wire.Seek) error {
	cs := c.consumer(m.ConsumerID)
	if cs == nil {
		return errNoConsumer(m.ConsumerID)
	}
	sub := cs.sub
	var next int64
	switch {
	case m.MessageID != nil:
		next = sub.topic.entryOf(m.MessageID)
	case m.HasPublishTime:
		var err error
		if next, err = sub.topic.entryAt(m.PublishTime); err != nil {
			return err
		}
	default:
		return refuse(wire.ErrorMetadata, "MetadataError: SEEK has neither a message id nor a time")
	}
	sub.topic.mu.Lock()
	sub.sought = true
	sub.topic.mu.Unlock()
	c.sought[sub] = struct{}{}
	sub.seeks.Add(1)
	sub.partial.clear()
	consumers, err := sub.Reset(next)
	if err == nil {
		err = c.server.keep(sub)
	}
	disconnectAll(consumers)
	if err != nil {
		return err
	}
	c.succeed(m.RequestID)
	return nil
}

// abandonSought removes the subscriptions that the connection sought and nobody
// came back to.
func (c *conn) abandonSought() {
	for sub := range c.sought {
		t := sub.topic
		t.mu.Lock()
		if sub.sought {
			t.dropIfUnused(sub)
		}
		t.mu.Unlock()
	}
}

// disconnectAll tells the clients of consumers that they are closed, as they
// are already for the dispatcher.
func disconnectAll(consumers []*dispatch.Consumer) {
	for _, dc := range consumers {
		if c, ok := dc.Sink.(*conn); ok {
			c.disconnect(dc)
		}
	}
}

// disconnect tells the client that one of its consumers is closed. Any goroutine
// may call it; the reader forgets the consumer when its client opens or closes
// it.
func (c *conn) disconnect(dc *dispatch.Consumer) {
	c.consMu.Lock()
	defer c.consMu.Unlock()
	if cs := c.consumers[dc.ID]; cs != nil && cs.Consumer == dc && cs.closed.CompareAndSwap(false, true) {
		c.tell((&wire.Close{ID: dc.ID, RequestID: noRequest}).AppendConsumerFrame(nil))
	}
}
