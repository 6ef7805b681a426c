package broker

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// producer is a client's right to send to a topic.
type producer struct {
	topic   *topic
	conn    *conn
	id      uint64 // the client's number for it
	request uint64 // id of the request that opened it
	name    string
	epoch   uint64
	access  wire.AccessMode
	// ledgerEpoch is the ledger's when the producer was opened.
	ledgerEpoch uint32
	schema      []byte // its version
	// bytes holds what it sends: a block shared with another topic would stay
	// as long as the entries of both.
	bytes slab // the reader's

	state atomic.Int32
	// failed: a send could not be stored. What was sent after it is refused
	// too, since its client sends all of it again.
	failed atomic.Bool
}

// States of a producer.
const (
	producerOpen    int32 = iota
	producerWaiting       // for exclusive access
	producerClosed        // by the broker; its client is told or is gone
)

// writers are a topic's producers and their claims on it. The topic's mu guards
// them.
type writers struct {
	open      map[string]*producer // by name
	exclusive *producer            // the only one, if there is one
	waiting   []*producer          // for exclusive access, in order
	// epoch counts exclusive accesses; a producer that had an earlier one has
	// been fenced off.
	epoch    uint64
	hasEpoch bool
}

// addProducer opens p, or makes it wait for exclusive access, and answers its
// client. A producer of the same name is replaced if it has an older epoch, as
// that of a connection the client has given up. The clients of those that p
// fences off are told.
func (t *topic) addProducer(p *producer, topicEpoch uint64, hasEpoch bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.promote() // p may have replaced the one that others waited for
	evicted, err := t.admit(p, topicEpoch, hasEpoch)
	if err != nil {
		return err
	}
	// Under the lock, so that the answer comes before one that ends a wait.
	p.conn.respond(p.success(&t.writers))
	for _, o := range evicted {
		o.conn.tell((&wire.Close{ID: o.id, RequestID: noRequest}).AppendProducerFrame(nil))
	}
	return nil
}

// admit needs mu.
func (t *topic) admit(p *producer, topicEpoch uint64, hasEpoch bool) (evicted []*producer, err error) {
	w := &t.writers
	if err := w.replace(p, t.name); err != nil {
		return nil, err
	}
	stale := hasEpoch && w.hasEpoch && topicEpoch < w.epoch
	others := len(w.open) > 0 || len(w.waiting) > 0
	switch p.access {
	case wire.AccessShared:
		if w.exclusive != nil || len(w.waiting) > 0 {
			return nil, refuse(wire.ErrorProducerBusy, "ProducerBusy: %s has an exclusive producer", t.name)
		}
		w.open[p.name] = p
		return nil, nil
	case wire.AccessExclusive, wire.AccessWaitForExclusive, wire.AccessExclusiveWithFencing:
	default:
		return nil, refuse(wire.ErrorNotAllowed, "NotAllowedError: %d is not an access mode", p.access)
	}
	switch {
	case stale:
		return nil, refuse(wire.ErrorProducerFenced, "ProducerFenced: %s had a newer exclusive producer, of epoch %d, than %q", t.name, w.epoch, p.name)
	case others && p.access == wire.AccessExclusive:
		return nil, refuse(wire.ErrorProducerFenced, "ProducerFenced: %s has other producers", t.name)
	case others && p.access == wire.AccessWaitForExclusive:
		p.state.Store(producerWaiting)
		w.waiting = append(w.waiting, p)
		return nil, nil
	}
	for _, o := range w.open {
		evicted = append(evicted, o)
	}
	evicted = append(evicted, w.waiting...)
	for _, o := range evicted {
		o.state.Store(producerClosed)
	}
	clear(w.open)
	w.waiting = nil
	if hasEpoch && w.hasEpoch && topicEpoch == w.epoch && len(evicted) == 0 {
		w.exclusive, w.open[p.name] = p, p // back after a lost connection
		return nil, nil
	}
	w.grant(p)
	return evicted, nil
}

// replace takes out a producer of p's name that p succeeds.
func (w *writers) replace(p *producer, topic string) error {
	old := w.open[p.name]
	i := slices.IndexFunc(w.waiting, func(o *producer) bool { return o.name == p.name })
	if old == nil && i >= 0 {
		old = w.waiting[i]
	}
	if old == nil {
		return nil
	}
	if p.epoch <= old.epoch {
		return refuse(wire.ErrorProducerBusy, "ProducerBusy: producer %q is connected to %s already", p.name, topic)
	}
	old.state.Store(producerClosed)
	if i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
		return nil
	}
	delete(w.open, p.name)
	if w.exclusive == old {
		w.exclusive = nil
	}
	return nil
}

// grant gives p exclusive access, of a new epoch.
func (w *writers) grant(p *producer) {
	if w.hasEpoch {
		w.epoch++
	}
	w.hasEpoch = true
	w.exclusive, w.open[p.name] = p, p
	p.state.Store(producerOpen)
}

// removeProducer closes p; the first that waits for exclusive access may get it.
func (t *topic) removeProducer(p *producer) {
	p.state.Store(producerClosed)
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &t.writers
	if i := slices.Index(w.waiting, p); i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
	}
	if w.open[p.name] == p {
		delete(w.open, p.name)
	}
	if w.exclusive == p {
		w.exclusive = nil
	}
	t.promote()
}

// promote gives the first that waits exclusive access if nobody has any. It
// needs mu.
func (t *topic) promote() {
	w := &t.writers
	if len(w.open) > 0 || len(w.waiting) == 0 {
		return
	}
	next := w.waiting[0]
	w.waiting = slices.Delete(w.waiting, 0, 1)
	w.grant(next)
	next.conn.tell(next.success(w))
}

// success is the answer that tells the client of its producer.
func (p *producer) success(w *writers) []byte {
	r := wire.ProducerSuccess{
		RequestID: p.request, Name: p.name, LastSequenceID: -1, SchemaVersion: p.schema,
		TopicEpoch: w.epoch, HasTopicEpoch: w.hasEpoch, NotReady: p.state.Load() == producerWaiting,
	}
	return r.AppendFrame(nil)
}

func (c *conn) openProducer(m *wire.Producer) error {
	if err := checkName("producer", m.Name); err != nil {
		return err
	}
	t, err := c.server.openTopic(m.Topic, true)
	if err != nil {
		return err
	}
	c.closeProducer(m.ProducerID) // a client that timed out asks again
	if len(c.producers) >= maxPerConnection {
		return errTooMany("producers")
	}
	p := &producer{
		topic: t, conn: c, id: m.ProducerID, request: m.RequestID, name: m.Name, epoch: m.Epoch, access: m.AccessMode,
		ledgerEpoch: t.ledger.Epoch(),
	}
	if p.name == "" {
		p.name = fmt.Sprintf("%s-%d", c.server.name, c.server.nextProducer.Add(1))
	}
	if t.ledger.State() == ledger.Fenced {
		return refuse(wire.ErrorServiceNotReady, "ServiceNotReady: %s takes no entries, its storage failed", t.name)
	}
	if err := c.server.checkQuota(t); err != nil {
		return err
	}
	if p.schema, err = c.server.schemas.add(t.base, m.Schema); err != nil {
		return err
	}
	if m.InitialSubscription != "" {
		if err := c.server.createSubscription(t, m.InitialSubscription); err != nil {
			return err
		}
	}
	if err := t.addProducer(p, m.TopicEpoch, m.HasTopicEpoch); err != nil {
		return err
	}
	c.producers[p.id] = p
	return nil
}

func (c *conn) closeProducer(id uint64) {
	if p := c.producers[id]; p != nil {
		delete(c.producers, id)
		p.topic.removeProducer(p)
	}
}
