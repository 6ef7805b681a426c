package broker

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// protocolError is a refusal with the code that the client is told.
type protocolError struct {
	code wire.ServerError
	err  error
}

func (e *protocolError) Error() string { return e.err.Error() }
func (e *protocolError) Unwrap() error { return e.err }

func refuse(code wire.ServerError, format string, args ...any) error {
	return &protocolError{code, fmt.Errorf(format, args...)}
}

// codeOf returns the code a client is told for err.
func codeOf(err error) wire.ServerError {
	var p *protocolError
	switch {
	case errors.As(err, &p):
		return p.code
	case errors.Is(err, dispatch.ErrConsumerBusy), errors.Is(err, dispatch.ErrOtherType):
		return wire.ErrorConsumerBusy
	case errors.Is(err, ledger.ErrClosed), errors.Is(err, dispatch.ErrClosed):
		return wire.ErrorServiceNotReady
	}
	return wire.ErrorUnknown
}

const maxTopicName = 1024

// canonicalTopic returns the full name of a topic.
func canonicalTopic(name string) (string, error) {
	full := name
	switch parts := strings.Split(name, "/"); {
	case strings.Contains(name, "://"):
	case len(parts) == 1:
		full = "persistent://public/default/" + name
	case len(parts) == 3:
		full = "persistent://" + name
	}
	rest, persistent := strings.CutPrefix(full, "persistent://")
	parts := strings.SplitN(rest, "/", 3)
	if !persistent || len(full) > maxTopicName || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", refuse(wire.ErrorInvalidTopicName, "InvalidTopicName: %.100q is not persistent://tenant/namespace/topic", name)
	}
	return full, nil
}

// topic is one ledger with its producers and subscriptions.
type topic struct {
	name     string
	ledger   *ledger.Ledger
	executor *executor.Executor

	mu        sync.Mutex
	producers map[string]*producer
	subs      map[string]*dispatch.Dispatcher
}

// producer is a client's right to send to a topic.
type producer struct {
	topic *topic
	conn  *conn
	id    uint64
	name  string
	epoch uint64
}

// openTopic returns the topic of a client's name for it, creating it.
func (s *Server) openTopic(name string) (*topic, error) {
	full, err := canonicalTopic(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[full]; t != nil {
		return t, nil
	}
	if s.closing {
		return nil, refuse(wire.ErrorServiceNotReady, "broker is shutting down")
	}
	if s.cfg.MaxTopics > 0 && len(s.topics) >= s.cfg.MaxTopics {
		return nil, refuse(wire.ErrorNotAllowed, "NotAllowedError: the broker has its limit of %d topics", s.cfg.MaxTopics)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(full))
	e := s.executors.Choose(h.Sum64())
	l, err := ledger.OpenLedger(uint64(len(s.topics)), full, e, s.ledgerConfig)
	if err != nil {
		return nil, err
	}
	t := &topic{name: full, ledger: l, executor: e, producers: map[string]*producer{}, subs: map[string]*dispatch.Dispatcher{}}
	s.topics[full] = t
	return t, nil
}

// addProducer registers p under its name. A producer of the same name is
// replaced if it has an older epoch, as that of a connection the client has
// given up.
func (t *topic) addProducer(p *producer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.producers[p.name]; old != nil && !(p.epoch > old.epoch) {
		return refuse(wire.ErrorProducerBusy, "ProducerBusy: producer %q is connected to %s already", p.name, t.name)
	}
	t.producers[p.name] = p
	return nil
}

func (t *topic) removeProducer(p *producer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.producers[p.name] == p {
		delete(t.producers, p.name)
	}
}

// subscribe connects a consumer, creating the subscription at the position the
// client asks for.
func (s *Server) subscribe(m *wire.Subscribe, o dispatch.ConsumerOptions) (*dispatch.Consumer, *topic, error) {
	switch {
	case o.Type < wire.Exclusive || o.Type > wire.KeyShared:
		return nil, nil, refuse(wire.ErrorNotAllowed, "NotAllowedError: %v is not a subscription type", o.Type)
	case m.Subscription == "":
		return nil, nil, refuse(wire.ErrorNotAllowed, "NotAllowedError: the subscription has no name")
	case m.NonDurable || m.StartMessageID != nil || m.StartRollback != 0:
		return nil, nil, refuse(wire.ErrorNotAllowed, "NotAllowedError: readers and start positions are not supported")
	case m.KeyShared != nil && m.KeyShared.Mode != wire.AutoSplit:
		return nil, nil, refuse(wire.ErrorNotAllowed, "NotAllowedError: only auto-split Key_Shared is supported")
	}
	t, err := s.openTopic(m.Topic)
	if err != nil {
		return nil, nil, err
	}
	at := ledger.Latest
	if m.InitialPosition == wire.Earliest {
		at = ledger.Earliest
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.subs[m.Subscription]
	if d == nil {
		if d, err = dispatch.New(t.ledger, t.executor, m.Subscription, at, true, s.dispatchConfig); err != nil {
			return nil, nil, err
		}
		t.subs[m.Subscription] = d
	}
	c, err := d.AddConsumer(o)
	return c, t, err
}

// unsubscribe deletes the subscription of a consumer that is its only one.
func (t *topic) unsubscribe(c *dispatch.Consumer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := c.Dispatcher()
	if n := d.Consumers(); n != 1 {
		return refuse(wire.ErrorConsumerBusy, "ConsumerBusy: the subscription has %d consumers", n)
	}
	c.Close()
	d.Close()
	delete(t.subs, d.Name)
	return nil
}

// close ends the topic's subscriptions and its ledger.
func (t *topic) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.subs {
		d.Close()
	}
	t.ledger.Close()
}
