package broker

import (
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
)

const topicT = "persistent://public/default/t"

// publishAt publishes one message for each publish time, in ms.
func (c *client) publishAt(times ...uint64) {
	c.t.Helper()
	for i, at := range times {
		md := wire.Metadata{ProducerName: []byte("p"), SequenceID: uint64(i), PublishTime: at}
		c.write(wire.AppendSend(nil, &wire.Send{ProducerID: 1, SequenceID: uint64(i)}, &md, number(uint64(i))))
		c.expect(wire.TypeSendReceipt)
	}
}

func (c *client) wantMessages(want ...uint64) {
	c.t.Helper()
	for _, w := range want {
		c.expect(wire.TypeMessage)
		if _, p := c.payload(); binary.BigEndian.Uint64(p) != w {
			c.t.Fatalf("got message %d, want %d", binary.BigEndian.Uint64(p), w)
		}
	}
}

func (s *Server) subscriptionNames(topic string) (names []string) {
	s.mu.Lock()
	t := s.topics[topic]
	s.mu.Unlock()
	for name := range t.subscriptions() {
		names = append(names, name)
	}
	return names
}

func TestSeekDisconnectsEveryConsumer(t *testing.T) {
	s := startServer(t, nil)
	a, b := dial(t, s), dial(t, s)
	a.producer("t", 1)
	a.subscribe("t", "keep", 9, wire.Shared, 0)
	a.subscribe("t", "sub", 1, wire.Shared, 100)
	b.subscribe("t", "sub", 5, wire.Shared, 0)
	a.publishAt(10, 20, 30, 40)
	a.wantMessages(0, 1, 2, 3)
	second := wire.NewMessageID(a.cmd.Message.ID.Ledger, 1)
	for _, seek := range []wire.Seek{{MessageID: &second}, {PublishTime: 15, HasPublishTime: true}, {PublishTime: 20, HasPublishTime: true}} {
		seek.ConsumerID, seek.RequestID = 1, 77
		a.write(seek.AppendFrame(nil))
		if m := a.expect(wire.TypeCloseConsumer).Close; m.ID != 1 {
			t.Fatalf("CLOSE_CONSUMER %+v", m)
		}
		if m := a.expect(wire.TypeSuccess).Success; m.RequestID != 77 {
			t.Fatalf("SUCCESS %+v", m)
		}
		if m := b.expect(wire.TypeCloseConsumer).Close; m.ID != 5 {
			t.Fatalf("CLOSE_CONSUMER of the other %+v", m)
		}
		// Until they come back they are gone.
		a.flow(1, 100)
		a.write((&wire.GetLastMessageID{ConsumerID: 1, RequestID: 8}).AppendFrame(nil))
		if e := a.expect(wire.TypeError).Error; e.Code != wire.ErrorConsumerNotFound {
			t.Fatalf("%+v", e)
		}
		b.subscribe("t", "sub", 5, wire.Shared, 0)
		a.subscribe("t", "sub", 1, wire.Shared, 100)
		a.wantMessages(1, 2, 3)
	}
	a.write((&wire.Seek{ConsumerID: 1, RequestID: 78}).AppendFrame(nil))
	wantError(t, *a.expect(wire.TypeError), wire.ErrorMetadata)
}

func TestReaderLeavesNothingBehind(t *testing.T) {
	s := startServer(t, nil)
	c, r := dial(t, s), dial(t, s)
	c.producer("t", 1)
	c.subscribe("t", "keep", 9, wire.Shared, 0)
	c.publishAt(10, 20, 30, 40, 50)
	ledger := s.topics[topicT].ledger.ID
	open := func(change func(*wire.Subscribe)) {
		t.Helper()
		m := wire.Subscribe{Topic: "t", Subscription: "reader", ConsumerID: 1, RequestID: 2, NonDurable: true}
		change(&m)
		r.write(m.AppendFrame(nil))
		r.expect(wire.TypeSuccess)
		r.flow(1, 100)
	}
	at := func(ledger, entry uint64) func(*wire.Subscribe) {
		id := wire.NewMessageID(ledger, entry)
		return func(m *wire.Subscribe) { m.StartMessageID = &id }
	}
	for name, step := range map[string]struct {
		change func(*wire.Subscribe)
		want   []uint64
	}{
		"earliest id":    {at(1<<64-1, 1<<64-1), []uint64{0, 1, 2, 3, 4}},
		"an older topic": {at(ledger-1, 3), []uint64{0, 1, 2, 3, 4}},
		"a message":      {at(ledger, 3), []uint64{3, 4}},
		"beyond":         {at(ledger, 99), nil},
		"latest id":      {at(1<<63-1, 1<<63-1), nil},
		"initial":        {func(m *wire.Subscribe) { m.InitialPosition = wire.Earliest }, []uint64{0, 1, 2, 3, 4}},
		"long rollback":  {func(m *wire.Subscribe) { m.StartRollback = 1<<64 - 1 }, []uint64{0, 1, 2, 3, 4}},
		"short rollback": {func(m *wire.Subscribe) { m.StartRollback = 1 }, nil},
	} {
		open(step.change)
		r.wantMessages(step.want...)
		// A sought reader stays until it is closed or its connection is gone.
		r.write((&wire.Seek{ConsumerID: 1, RequestID: 7, PublishTime: 40, HasPublishTime: true}).AppendFrame(nil))
		r.expect(wire.TypeCloseConsumer)
		r.expect(wire.TypeSuccess)
		open(step.change) // where it was sought to, not where it starts
		r.wantMessages(3, 4)
		r.write((&wire.Close{ID: 1, RequestID: 3}).AppendConsumerFrame(nil))
		r.expect(wire.TypeSuccess)
		if names := s.subscriptionNames(topicT); len(names) != 1 {
			t.Fatalf("%s: subscriptions %v are left", name, names)
		}
	}
	open(at(ledger, 0))
	r.write((&wire.Seek{ConsumerID: 1, RequestID: 7, PublishTime: 40, HasPublishTime: true}).AppendFrame(nil))
	r.nc.Close()
	waitUntil(t, "the sought reader's subscription is gone", func() bool { return len(s.subscriptionNames(topicT)) == 1 })
	wait := wire.Subscribe{Topic: "t", Subscription: "keep", ConsumerID: 2, RequestID: 4, NonDurable: true, Type: wire.Shared}
	c.write(wait.AppendFrame(nil))
	wantError(t, *c.expect(wire.TypeError), wire.ErrorNotAllowed)
}

func TestForcedUnsubscribe(t *testing.T) {
	s := startServer(t, nil)
	a, b := dial(t, s), dial(t, s)
	a.subscribe("t", "sub", 1, wire.Shared, 0)
	b.subscribe("t", "sub", 5, wire.Shared, 0)
	a.write((&wire.Unsubscribe{ConsumerID: 1, RequestID: 3}).AppendFrame(nil))
	wantError(t, *a.expect(wire.TypeError), wire.ErrorConsumerBusy)
	a.write((&wire.Unsubscribe{ConsumerID: 1, RequestID: 4, Force: true}).AppendFrame(nil))
	a.expect(wire.TypeSuccess)
	if m := b.expect(wire.TypeCloseConsumer).Close; m.ID != 5 {
		t.Fatalf("CLOSE_CONSUMER %+v", m)
	}
	if names := s.subscriptionNames(topicT); len(names) != 0 {
		t.Fatalf("subscriptions %v", names)
	}
}

// batch publishes one entry of n messages.
func (c *client) batch(seq uint64, n int32) {
	c.t.Helper()
	md := wire.Metadata{ProducerName: []byte("p"), SequenceID: seq, Batched: true, NumMessages: n}
	c.write(wire.AppendSend(nil, &wire.Send{ProducerID: 1, SequenceID: seq, NumMessages: n}, &md, number(seq)))
	c.expect(wire.TypeSendReceipt)
}

func TestPartialAcknowledgement(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	c.producer("t", 1)
	c.subscribe("t", "sub", 1, wire.Shared, 1000)
	c.batch(0, 4)
	id := c.expect(wire.TypeMessage).Message.ID
	again := func(want int64) {
		t.Helper()
		c.write((&wire.Redeliver{ConsumerID: 1}).AppendFrame(nil))
		m := c.expect(wire.TypeMessage).Message
		if len(m.AckSet) != 1 || m.AckSet[0] != want {
			t.Fatalf("the entry came with ack set %b, want %b", m.AckSet, want)
		}
	}
	ack := func(set int64) {
		id.AckSet = []int64{set}
		c.ack(1, id)
	}
	ack(0b1101) // bits say what is not acknowledged
	again(0b1101)
	ack(0b0111)
	again(0b0101)
	ack(0b1010) // the rest
	sub := s.topics[topicT].subs["sub"]
	waitUntil(t, "the entry is acknowledged", func() bool { return sub.Cursor().Backlog() == 0 })
	if sub.partial.any.Load() && len(sub.partial.sets) > 0 {
		t.Errorf("sets %v are kept", sub.partial.sets)
	}
	// An entry that does not exist, or is acknowledged, is not kept.
	id.AckSet = []int64{1}
	c.ack(1, id)
	id.Entry = 1 << 40
	c.ack(1, id)
	c.write((&wire.Ack{ConsumerID: 1, RequestID: 5, HasRequestID: true, ValidationError: -1}).AppendFrame(nil))
	c.expect(wire.TypeAckResponse)
	if n := len(sub.partial.sets); n != 0 {
		t.Errorf("%d sets are kept", n)
	}
	// Bounded, whatever a client sends.
	c.batch(1, 4)
	id.Entry, id.AckSet = 1, make([]int64, maxAckWords+1)
	id.AckSet[0] = 1
	c.ack(1, id)
	c.write((&wire.Ack{ConsumerID: 1, RequestID: 6, HasRequestID: true, ValidationError: -1}).AppendFrame(nil))
	for c.next() && c.cmd.Type != wire.TypeAckResponse {
	}
	if n := len(sub.partial.sets); n != 0 {
		t.Errorf("a set of %d words is kept", maxAckWords+1)
	}
}

func TestAckErrors(t *testing.T) {
	var log logBuffer
	s := startServer(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	c := dial(t, s)
	c.producer("t", 1)
	c.subscribe("t", "shared", 1, wire.Shared, 10)
	c.subscribe("t", "exclusive", 2, wire.Exclusive, 0)
	c.batch(0, 1)
	id := c.expect(wire.TypeMessage).Message.ID
	for name, step := range map[string]struct {
		ack  wire.Ack
		code wire.ServerError
	}{
		"cumulative on Shared":  {wire.Ack{ConsumerID: 1, Type: wire.AckCumulative, IDs: []wire.MessageID{id}}, wire.ErrorNotAllowed},
		"cumulative of nothing": {wire.Ack{ConsumerID: 2, Type: wire.AckCumulative}, wire.ErrorMetadata},
		"cumulative of two":     {wire.Ack{ConsumerID: 2, Type: wire.AckCumulative, IDs: []wire.MessageID{id, id}}, wire.ErrorMetadata},
		"of no consumer":        {wire.Ack{ConsumerID: 3, IDs: []wire.MessageID{id}}, wire.ErrorConsumerNotFound},
	} {
		step.ack.RequestID, step.ack.HasRequestID, step.ack.ValidationError = 4, true, -1
		c.write(step.ack.AppendFrame(nil))
		if r := c.expect(wire.TypeAckResponse).AckResponse; r.Code != step.code || r.Message == "" || r.RequestID != 4 || r.ConsumerID != step.ack.ConsumerID {
			t.Errorf("%s: %+v, want code %v", name, r, step.code)
		}
	}
	bad := wire.Ack{ConsumerID: 1, IDs: []wire.MessageID{id}, ValidationError: wire.ValidationChecksumMismatch}
	for range 3 * maxWarnings {
		c.write(bad.AppendFrame(nil))
	}
	c.write((&wire.Ping{}).AppendFrame(nil))
	c.expect(wire.TypePong)
	if n := strings.Count(log.String(), "could not read a message"); n != maxWarnings {
		t.Errorf("%d warnings, want %d", n, maxWarnings)
	}
}

func TestLastMessageIDOfABatch(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	c.producer("t", 1)
	c.subscribe("t", "sub", 1, wire.Exclusive, 0)
	last := func() wire.MessageID {
		c.write((&wire.GetLastMessageID{ConsumerID: 1, RequestID: 5}).AppendFrame(nil))
		return c.expect(wire.TypeGetLastMessageIDResponse).GetLastMessageIDResponse.Last
	}
	if id := last(); int64(id.Entry) != -1 {
		t.Errorf("an empty topic's last message is %v", &id)
	}
	c.batch(0, 7)
	if id := last(); id.Entry != 0 || id.BatchIndex != 6 {
		t.Errorf("the last of a batch of 7 is %v", &id)
	}
}

func TestIndexIsForClientsThatKnowIt(t *testing.T) {
	s := startServer(t, func(c *Config) { c.BrokerEntryMetadata = true })
	old := dial(t, s)
	old.producer("t", 1)
	old.subscribe("t", "old", 1, wire.Exclusive, 10)
	c := dialRaw(t, s)
	c.write((&wire.Connect{ClientVersion: "x", Features: wire.FeatureFlags{BrokerEntryMetadata: true}}).AppendFrame(nil))
	c.expect(wire.TypeConnected)
	c.subscribe("t", "new", 1, wire.Exclusive, 10)
	before := time.Now().UnixMilli()
	old.batch(0, 3)
	old.batch(1, 2)
	for i, want := range []uint64{2, 4} {
		old.expect(wire.TypeMessage)
		if old.f.BrokerEntry != nil {
			t.Errorf("message %d has broker entry metadata for a client that does not know it", i)
		}
		c.expect(wire.TypeMessage)
		var e wire.BrokerEntry
		if err := wire.ParseBrokerEntry(c.f.BrokerEntry, &e); err != nil || e.Index != want || int64(e.Timestamp) < before {
			t.Errorf("message %d: %+v, %v, want index %d", i, e, err, want)
		}
	}
}

// What a client did not ask for is queued for it up to a limit.
func TestClientThatDoesNotReadWhatItIsTold(t *testing.T) {
	s := startServer(t, func(c *Config) { c.AdminListen = "" })
	deaf := dial(t, s)
	deaf.subscribe("t", "sub", 1, wire.Failover, 0)
	deaf.expect(wire.TypeActiveConsumerChange)
	c := onlyConn(s)
	for range maxUntold {
		c.untold.Add(1)
	}
	c.tellActive(1, true)
	deaf.expectClosed()
}

func TestPartialAcksAreBounded(t *testing.T) {
	var p partialAcks
	const last = 1 << 40
	for entry := range int64(maxPartial + 10) {
		if p.merge(entry, []int64{1}, 0, last) {
			t.Fatalf("entry %d is acknowledged altogether", entry)
		}
	}
	if n := len(p.sets); n != maxPartial || p.of(maxPartial) != nil {
		t.Errorf("%d sets are kept, want %d", n, maxPartial)
	}
	// Those acknowledged meanwhile make room.
	p.merge(maxPartial+20, []int64{1}, 100, last)
	if n := len(p.sets); n != maxPartial-100+1 || p.of(99) != nil || p.of(maxPartial+20) == nil {
		t.Errorf("%d sets are kept", n)
	}
	// Words that are left out are acknowledged.
	p.merge(200, []int64{-1, -1}, 100, last)
	p.clear()
	if p.merge(200, []int64{-1, -1}, 0, last) || !p.merge(200, []int64{0}, 0, last) || p.of(200) != nil {
		t.Error("a shorter set does not acknowledge the rest")
	}
}
