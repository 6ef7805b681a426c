package broker

import (
	"errors"
	"fmt"
	"hash/fnv"
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
	case errors.Is(err, dispatch.ErrKeyRanges), errors.Is(err, dispatch.ErrOtherPolicy):
		return wire.ErrorConsumerAssign
	case errors.Is(err, ledger.ErrClosed), errors.Is(err, dispatch.ErrClosed):
		return wire.ErrorServiceNotReady
	}
	return wire.ErrorUnknown
}

// topic is one ledger with its producers and subscriptions.
type topic struct {
	topicName
	name     string // full
	ledger   *ledger.Ledger
	executor *executor.Executor

	mu      sync.Mutex
	writers writers
	subs    map[string]*subscription
	gone    counts // of subscriptions that were deleted

	meter meter
}

// openTopic returns the topic of a client's name for it. One that does not
// exist is created, unless create is false.
func (s *Server) openTopic(name string, create bool) (*topic, error) {
	tn, err := parseTopicName(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[tn.full]; t != nil {
		return t, nil
	}
	if err := s.checkPartition(tn); err != nil {
		return nil, err
	}
	switch {
	case s.closing:
		return nil, refuse(wire.ErrorServiceNotReady, "broker is shutting down")
	case !create && s.partitioned[tn.base] == 0:
		return nil, refuse(wire.ErrorTopicNotFound, "TopicNotFound: %s does not exist", tn.full)
	case s.cfg.MaxTopics > 0 && len(s.topics) >= s.cfg.MaxTopics:
		return nil, errTooManyTopics(s.cfg.MaxTopics)
	}
	id, err := s.ledgerOf(tn.full)
	if err != nil {
		return nil, err
	}
	t, err := s.makeTopic(tn, id)
	if err != nil {
		return nil, err
	}
	s.topics[tn.full] = t
	return t, nil
}

// makeTopic makes the topic of a ledger: all that there is to make of one that
// is new, or that was stored. It needs s.mu.
func (s *Server) makeTopic(tn topicName, ledgerID uint64) (*topic, error) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tn.full))
	e := s.executors.Choose(h.Sum64())
	t := &topic{
		topicName: tn, name: tn.full, executor: e,
		writers: writers{open: map[string]*producer{}}, subs: map[string]*subscription{},
	}
	cfg := s.ledgerConfigNow()
	err := s.openLog(t, ledgerID, &cfg)
	if err != nil {
		return nil, err
	}
	if t.ledger, err = ledger.OpenLedger(ledgerID, tn.full, e, cfg); err != nil {
		return nil, err
	}
	return t, nil
}

// messageID is the id of a whole entry of the topic.
func (t *topic) messageID(entry int64) wire.MessageID {
	id := wire.NewMessageID(t.ledger.ID, uint64(entry))
	id.Partition = t.partition
	return id
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
