package broker

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// subscription is a dispatcher and what the server keeps beside it.
type subscription struct {
	*dispatch.Dispatcher
	topic   *topic
	durable bool
	partial partialAcks

	seeks atomic.Uint64 // begun
	// sought: a seek has disconnected the consumers, who come back: until then
	// it stays, even if it is not durable. The topic's mu guards it.
	sought bool
	// joining counts consumers on their way to it; the topic's mu guards it.
	joining int

	meter     meter
	figuresMu sync.Mutex
	last      dispatch.Stats // as they were read last
}

// maxSubscriptions bounds those of a topic, maxPerConnection the producers and
// the consumers that one client may have open.
const (
	maxSubscriptions = 10_000
	maxPerConnection = 10_000
)

func errTooMany(what string) error {
	return refuse(wire.ErrorNotAllowed, "NotAllowedError: the connection has its limit of %d %s", maxPerConnection, what)
}

// subscribe connects a consumer.
func (c *conn) subscribe(m *wire.Subscribe) error {
	if err := checkSubscribe(m); err != nil {
		return err
	}
	c.closeConsumer(m.ConsumerID, true) // a client that timed out asks again
	if len(c.consumers) >= maxPerConnection {
		return errTooMany("consumers")
	}
	t, err := c.server.openTopic(m.Topic, !m.NoTopicCreation)
	if err != nil {
		return err
	}
	if _, err := c.server.schemas.add(t.base, m.Schema); err != nil {
		return err
	}
	at, err := t.startPosition(m)
	if err != nil {
		return err
	}
	o := dispatch.ConsumerOptions{
		ID: m.ConsumerID, Name: m.ConsumerName, Type: m.Type, Sink: c, Priority: m.PriorityLevel, KeyShared: m.KeyShared,
	}
	if o.Name == "" {
		o.Name = fmt.Sprintf("%s-c%d", c.server.name, c.server.nextConsumer.Add(1))
	}
	sub, err := c.server.join(t, m, at)
	if err != nil {
		return err
	}
	seeks := sub.seeks.Load()
	dc, err := sub.AddConsumer(o) // may wait for a send loop, so not under the topic's lock
	c.joined(sub, err == nil)
	if err != nil {
		return err
	}
	c.attach(&consumer{Consumer: dc, sub: sub}, m.RequestID)
	if sub.seeks.Load() != seeks {
		// A seek by another consumer may have disconnected this one before it
		// could be told.
		c.disconnect(dc)
		dc.Close()
	}
	return nil
}

// join returns the subscription that m asks for, which stays until joined is
// called.
func (s *Server) join(t *topic, m *wire.Subscribe, at ledger.Position) (*subscription, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sub, err := s.subscription(t, m.Subscription, at, !m.NonDurable)
	if err == nil {
		sub.joining++
	}
	return sub, err
}

// joined ends what join began; has says whether the consumer is on the
// subscription.
func (c *conn) joined(sub *subscription, has bool) {
	sub.topic.mu.Lock()
	defer sub.topic.mu.Unlock()
	sub.joining--
	if has {
		sub.sought = false
		delete(c.sought, sub)
	} else if !sub.sought {
		sub.topic.dropIfUnused(sub)
	}
}

func checkSubscribe(m *wire.Subscribe) error {
	switch {
	case m.Type < wire.Exclusive || m.Type > wire.KeyShared:
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: %v is not a subscription type", m.Type)
	case m.Subscription == "":
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: the subscription has no name")
	}
	if err := checkName("subscription", m.Subscription); err != nil {
		return err
	}
	return checkName("consumer", m.ConsumerName)
}

// attach puts a consumer on the connection and answers its client, who learns
// after that whether the consumer is the active one.
func (c *conn) attach(cs *consumer, request uint64) {
	c.consMu.Lock()
	defer c.consMu.Unlock()
	c.consumers[cs.ID] = cs
	c.succeed(request)
	if cs.Type == wire.Failover {
		c.tellActive(cs.ID, cs.Active())
	}
}

// subscription returns the topic's subscription of that name, creating it. It
// needs t.mu.
func (s *Server) subscription(t *topic, name string, at ledger.Position, durable bool) (*subscription, error) {
	if sub := t.subs[name]; sub != nil {
		if sub.durable != durable {
			return nil, refuse(wire.ErrorNotAllowed, "NotAllowedError: subscription %s exists with durable = %t", name, sub.durable)
		}
		return sub, nil
	}
	if len(t.subs) >= maxSubscriptions {
		return nil, refuse(wire.ErrorNotAllowed, "NotAllowedError: %s has its limit of %d subscriptions", t.name, maxSubscriptions)
	}
	d, err := dispatch.New(t.ledger, t.executor, name, at, durable, s.dispatchConfigNow())
	if err != nil {
		return nil, err
	}
	sub := &subscription{Dispatcher: d, topic: t, durable: durable}
	if err := s.keep(sub); err != nil {
		d.Close()
		return nil, err
	}
	t.subs[name] = sub
	return sub, nil
}

// createSubscription makes a durable subscription from the topic's first
// message, if it does not exist.
func (s *Server) createSubscription(t *topic, name string) error {
	if err := checkName("subscription", name); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subs[name] != nil {
		return nil
	}
	_, err := s.subscription(t, name, ledger.Earliest, true)
	return err
}

// startPosition is where a subscription starts if m creates it.
func (t *topic) startPosition(m *wire.Subscribe) (ledger.Position, error) {
	switch {
	case m.StartRollback > 0:
		ms := uint64(time.Now().UnixMilli())
		back := min(m.StartRollback, math.MaxUint32) * 1000
		next, err := t.entryAt(ms - min(back, ms))
		return ledger.Position(next), err
	case m.NonDurable && m.StartMessageID != nil:
		return ledger.Position(t.entryOf(m.StartMessageID)), nil
	case m.InitialPosition == wire.Earliest:
		return ledger.Earliest, nil
	}
	return ledger.Latest, nil
}

// leave closes a consumer. A subscription that is not durable goes with its
// last one, unless the consumer is to come back after a seek.
func (cs *consumer) leave(back bool) {
	cs.Close()
	t := cs.sub.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	if !back || !cs.sub.sought {
		t.dropIfUnused(cs.sub)
	}
}

// dropIfUnused removes a subscription that is not durable and has no consumers.
// It needs mu.
func (t *topic) dropIfUnused(sub *subscription) {
	if !sub.durable && sub.joining == 0 && t.subs[sub.Name] == sub && sub.Consumers() == 0 {
		t.gone.add(sub.counts())
		delete(t.subs, sub.Name)
		sub.Close()
	}
}

// unsubscribe deletes a consumer's subscription, if it is the only consumer or
// the others are to be disconnected.
func (c *conn) unsubscribe(m *wire.Unsubscribe) error {
	cs := c.consumer(m.ConsumerID)
	if cs == nil {
		return errNoConsumer(m.ConsumerID)
	}
	sub, t := cs.sub, cs.sub.topic
	t.mu.Lock()
	if n := sub.Consumers(); n > 1 && !m.Force {
		t.mu.Unlock()
		return refuse(wire.ErrorConsumerBusy, "ConsumerBusy: subscription %s has %d consumers", sub.Name, n)
	}
	if t.subs[sub.Name] == sub {
		if err := c.server.forget(sub); err != nil {
			t.mu.Unlock()
			return err
		}
		t.gone.add(sub.counts())
		delete(t.subs, sub.Name)
	}
	t.mu.Unlock()
	c.forget(m.ConsumerID)
	cs.Close()
	sub.seeks.Add(1) // consumers being connected are to try again
	others, err := sub.Reset(math.MaxInt64)
	if err != nil {
		c.server.log.Warn("disconnecting the consumers of a deleted subscription failed", "subscription", sub.Name, "err", err)
	}
	sub.Close()
	disconnectAll(others)
	c.succeed(m.RequestID)
	return nil
}
