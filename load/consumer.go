package load

import (
	"fmt"
	"slices"

	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	consumerID = 1
	ackGroup   = 1000 // ids in one ACK at most
)

// application is one subscription and what is measured about it.
type application struct {
	name     string
	track    *tracker
	endToEnd *recorder
}

// consumer is one member of an application's subscription, on a connection of
// its own.
type consumer struct {
	*link
	run   *run
	app   *application
	index int

	// Guarded by link.mu.
	ack    wire.Ack // ids not yet acknowledged
	closed bool     // the broker confirmed CLOSE_CONSUMER

	// Of the reading goroutine.
	md       wire.Metadata
	obs      []observation
	ids      []wire.MessageID
	samples  []sample
	bad      bad
	consumed int // messages since the last FLOW
}

// attach subscribes and grants the first permits.
func (c *consumer) attach() error {
	t, err := c.run.sc.subType()
	if err != nil {
		return err
	}
	m := wire.Subscribe{
		Topic: c.run.sc.Topic, Subscription: c.app.name, Type: t, ConsumerID: consumerID, RequestID: 1,
		ConsumerName: fmt.Sprintf("%s-consumer-%d", c.app.name, c.index), InitialPosition: wire.Latest,
	}
	if err := c.request(m.AppendFrame(nil), wire.TypeSuccess); err != nil {
		return err
	}
	c.ack = wire.Ack{ConsumerID: consumerID, Type: wire.AckIndividual}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flow(c.run.sc.ReceiverQueue)
	return nil
}

// flow grants permits; c.mu is held.
func (c *consumer) flow(n int) {
	c.out = (&wire.Flow{ConsumerID: consumerID, Permits: uint32(n)}).AppendFrame(c.out)
	c.signal()
}

// read is the reading goroutine: it checks the messages that one read
// returned, acknowledges them and grants new permits.
func (c *consumer) read() error {
	for {
		if err := c.link.next(); err != nil {
			return err
		}
		now := c.run.now()
		for {
			if err := c.handle(); err != nil {
				return err
			}
			if !c.fr.Buffered() {
				break
			}
			if err := c.link.next(); err != nil {
				return err
			}
		}
		if len(c.ids) > 0 {
			c.finish(now)
		}
	}
}

func (c *consumer) handle() error {
	switch c.cmd.Type {
	case wire.TypeMessage:
		return c.message(&c.cmd.Message)
	case wire.TypePing:
		c.mu.Lock()
		c.pong()
		c.mu.Unlock()
	case wire.TypeSuccess:
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
	case wire.TypePong, wire.TypeActiveConsumerChange, wire.TypeAckResponse:
	default:
		return c.unexpected("while consuming")
	}
	return nil
}

func (c *consumer) message(m *wire.Message) error {
	if m.ConsumerID != consumerID {
		return fmt.Errorf("%s: broker sent a message for consumer %d, which does not exist", c.name, m.ConsumerID)
	}
	id := m.ID
	id.AckSet = nil // aliases the Command
	c.ids = append(c.ids, id)
	var o observation
	err := o.parse(c.frame.HeadersAndPayload, &c.md, int(c.run.sc.MessageSize), c.run.sc.Devices)
	switch {
	case err == nil && o.run == c.run.id:
		c.obs = append(c.obs, o)
	case err == nil || o.run != 0 && o.run != c.run.id:
		c.bad.foreign++
	default:
		c.bad.invalid++
		if c.bad.first == nil {
			c.bad.first = fmt.Errorf("%s, message %v: %w", c.name, m.ID.String(), err)
		}
	}
	return nil
}

// finish checks and acknowledges what one read returned.
func (c *consumer) finish(now int64) {
	c.app.track.observe(c.obs, c.bad, now, c.run.window)
	c.bad = bad{}
	for i := range c.obs {
		if o := &c.obs[i]; o.fresh && c.run.window.since(o.sent) {
			c.samples = append(c.samples, sample{intended: now - o.intended, sent: now - o.sent})
		}
	}
	c.app.endToEnd.record(c.index, c.samples)
	c.samples, c.obs = c.samples[:0], c.obs[:0]

	c.mu.Lock()
	defer c.mu.Unlock()
	c.consumed += len(c.ids)
	c.ack.IDs = append(c.ack.IDs, c.ids...)
	c.ids = c.ids[:0]
	if len(c.ack.IDs) >= ackGroup {
		c.flushAcks()
	}
	if c.consumed >= c.run.sc.ReceiverQueue/2 {
		c.flow(c.consumed)
		c.consumed = 0
	}
}

// flushAcks writes the collected ids; c.mu is held.
func (c *consumer) flushAcks() {
	if len(c.ack.IDs) == 0 {
		return
	}
	for group := range slices.Chunk(c.ack.IDs, ackGroup) {
		m := c.ack
		m.IDs = group
		c.out = m.AppendFrame(c.out)
	}
	c.ack.IDs = c.ack.IDs[:0]
	c.signal()
}
