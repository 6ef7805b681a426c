package broker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
)

func TestLookupAndMetadata(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	c.write((&wire.PartitionedMetadata{Topic: "persistent://public/default/t", RequestID: 1}).AppendFrame(nil))
	if r := c.expect(wire.TypePartitionedMetadataResponse).PartitionedMetadataResponse; r.RequestID != 1 || r.Partitions != 0 || r.Response != wire.MetadataSuccess {
		t.Errorf("metadata %+v", r)
	}
	c.write((&wire.Lookup{Topic: "t", RequestID: 2}).AppendFrame(nil))
	if r := c.expect(wire.TypeLookupResponse).LookupResponse; r.RequestID != 2 || r.Response != wire.LookupConnect || r.BrokerURL != s.URL() || !r.Authoritative {
		t.Errorf("lookup %+v", r)
	}
	c.write((&wire.Lookup{Topic: "non-persistent://a/b/c", RequestID: 3}).AppendFrame(nil))
	if r := c.expect(wire.TypeLookupResponse).LookupResponse; r.Response != wire.LookupFailed || r.Code != wire.ErrorInvalidTopicName {
		t.Errorf("lookup of a bad topic %+v", r)
	}
}

func TestBadRequestsGetAnError(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	access := wire.Producer{Topic: "t", RequestID: 5, AccessMode: 9}
	noTopic := wire.Subscribe{Topic: "absent", Subscription: "r", RequestID: 6, NoTopicCreation: true}
	ranges := wire.Subscribe{Topic: "t", Subscription: "k", RequestID: 10, Type: wire.KeyShared,
		KeyShared: &wire.KeySharedMeta{Mode: wire.Sticky, Ranges: []wire.HashRange{{Start: 5, End: 70000}}}}
	long := wire.Subscribe{Topic: "t", Subscription: strings.Repeat("s", 2000), RequestID: 11}
	for id, r := range map[uint64]struct {
		frame []byte
		code  wire.ServerError
	}{
		1:  {(&wire.Seek{ConsumerID: 1, RequestID: 1, PublishTime: 1, HasPublishTime: true}).AppendFrame(nil), wire.ErrorConsumerNotFound},
		5:  {access.AppendFrame(nil), wire.ErrorNotAllowed},
		6:  {noTopic.AppendFrame(nil), wire.ErrorTopicNotFound},
		7:  {(&wire.Unsubscribe{ConsumerID: 9, RequestID: 7}).AppendFrame(nil), wire.ErrorConsumerNotFound},
		8:  {(&wire.GetLastMessageID{ConsumerID: 9, RequestID: 8}).AppendFrame(nil), wire.ErrorConsumerNotFound},
		9:  {(&wire.Producer{Topic: "a/b", RequestID: 9}).AppendFrame(nil), wire.ErrorInvalidTopicName},
		10: {ranges.AppendFrame(nil), wire.ErrorConsumerAssign},
		11: {long.AppendFrame(nil), wire.ErrorNotAllowed},
		12: {(&wire.Subscribe{Topic: "t", RequestID: 12}).AppendFrame(nil), wire.ErrorNotAllowed},
		13: {(&wire.Subscribe{Topic: "t", Subscription: "s", Type: 9, RequestID: 13}).AppendFrame(nil), wire.ErrorNotAllowed},
	} {
		c.write(r.frame)
		if e := c.expect(wire.TypeError).Error; e.RequestID != id || e.Message == "" || e.Code != r.code {
			t.Errorf("request %d: %+v, want code %v", id, e, r.code)
		}
	}
	c.write((&wire.GetSchema{RequestID: 2, Topic: "t"}).AppendFrame(nil))
	if r := c.expect(wire.TypeGetSchemaResponse).SchemaResponse; r.RequestID != 2 || !r.Failed || r.Code != wire.ErrorTopicNotFound {
		t.Errorf("no schema: %+v", r)
	}
	c.write((&wire.GetOrCreateSchema{RequestID: 4, Topic: "absent", Schema: wire.Schema{Type: 2}}).AppendFrame(nil))
	if r := c.expect(wire.TypeGetOrCreateSchemaResponse).SchemaResponse; r.RequestID != 4 || !r.Failed || r.Code != wire.ErrorTopicNotFound {
		t.Errorf("schema of an absent topic: %+v", r)
	}
	c.write((&wire.Ping{}).AppendFrame(nil))
	c.expect(wire.TypePong)
}

// logBuffer may be written by the broker's goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestBrokenFramesEndTheirConnectionOnly(t *testing.T) {
	var log logBuffer
	s := startServer(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	good := dial(t, s)
	good.producer("t", 1)
	connect := (&wire.Connect{ClientVersion: "x"}).AppendFrame(nil)
	for name, c := range map[string]struct {
		frames []byte
		reason string
	}{
		"not CONNECT first":   {(&wire.Ping{}).AppendFrame(nil), "first frame must be CONNECT"},
		"CONNECT twice":       {append(connect, connect...), "CONNECT was sent before"},
		"a broker's command":  {append(connect, (&wire.Success{RequestID: 1}).AppendFrame(nil)...), "only a broker sends"},
		"SEND without body":   {append(connect, 0, 0, 0, 12, 0, 0, 0, 8, 8, 6, 50, 4, 8, 0, 16, 0), "no payload"},
		"unknown command":     {append(connect, 0, 0, 0, 6, 0, 0, 0, 2, 8, 120), "unknown command"},
		"garbage":             {append(connect, 0, 0, 0, 8, 0, 0, 0, 4, 255, 255, 255, 255), "frame"},
		"a frame of 4 GiB":    {append(connect, 255, 255, 255, 255, 0, 0, 0, 4), "larger than the limit"},
		"longer than its own": {append(connect, 0, 0, 0, 4, 0, 0, 0, 99), "frame"},
	} {
		bad := dialRaw(t, s)
		bad.write(c.frames)
		bad.expectClosed()
		waitUntil(t, name+" is logged with its reason", func() bool { return bytes.Contains([]byte(log.String()), []byte(c.reason)) })
	}
	good.send(1, 0, "k", []byte("x"))
	good.expect(wire.TypeSendReceipt)
}

func onlyConn(s *Server) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		return c
	}
	return nil
}

func TestProducerNames(t *testing.T) {
	s := startServer(t, nil)
	a, b := dial(t, s), dial(t, s)
	open := func(c *client, epoch uint64) wire.CommandType {
		c.write((&wire.Producer{Topic: "t", ProducerID: 1, RequestID: 1, Name: "same", Epoch: epoch}).AppendFrame(nil))
		c.next()
		return c.cmd.Type
	}
	if got := open(a, 0); got != wire.TypeProducerSuccess {
		t.Fatalf("first: %v", got)
	}
	if got := open(b, 0); got != wire.TypeError || b.cmd.Error.Code != wire.ErrorProducerBusy {
		t.Fatalf("same name again: %v", got)
	}
	if got := open(b, 1); got != wire.TypeProducerSuccess {
		t.Fatalf("same name with a newer epoch: %v", got)
	}
	b.write((&wire.Close{ID: 1, RequestID: 4}).AppendProducerFrame(nil))
	b.expect(wire.TypeSuccess)
	if got := open(b, 0); got != wire.TypeProducerSuccess {
		t.Fatalf("after closing: %v", got)
	}
}

func TestConsumerLifeCycle(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	c.producer("t", 1)
	c.subscribe("t", "sub", 1, wire.Exclusive, 0)
	for i := range uint64(3) {
		c.send(1, i, "k", number(i))
		if r := c.expect(wire.TypeSendReceipt).SendReceipt; r.SequenceID != i || r.MessageID.Entry != i {
			t.Fatalf("receipt %+v", r)
		}
	}
	c.flow(1, 10)
	var ids []wire.MessageID
	for i := range uint64(3) {
		m := c.expect(wire.TypeMessage).Message
		if _, p := c.payload(); binary.BigEndian.Uint64(p) != i || m.ConsumerID != 1 || m.RedeliveryCount != 0 {
			t.Fatalf("message %+v", m)
		}
		ids = append(ids, wire.NewMessageID(m.ID.Ledger, m.ID.Entry))
	}
	c.write((&wire.GetLastMessageID{ConsumerID: 1, RequestID: 5}).AppendFrame(nil))
	if r := c.expect(wire.TypeGetLastMessageIDResponse).GetLastMessageIDResponse; r.Last.Entry != 2 || int64(r.MarkDelete.Entry) != -1 {
		t.Fatalf("last message id %+v", r)
	}
	c.write((&wire.Ack{ConsumerID: 1, IDs: ids[:1], ValidationError: -1, RequestID: 6, HasRequestID: true}).AppendFrame(nil))
	if r := c.expect(wire.TypeAckResponse).AckResponse; r.RequestID != 6 || r.Message != "" {
		t.Fatalf("ack response %+v", r)
	}
	part := ids[1]
	part.AckSet = []int64{1} // one message of the entry is not acknowledged
	c.write((&wire.Ack{ConsumerID: 1, IDs: []wire.MessageID{part}, ValidationError: -1}).AppendFrame(nil))
	c.write((&wire.Redeliver{ConsumerID: 1, IDs: []wire.MessageID{wire.NewMessageID(99, 0)}}).AppendFrame(nil)) // of no ledger here: nothing
	c.write((&wire.Redeliver{ConsumerID: 1}).AppendFrame(nil))
	for _, want := range []uint64{1, 2} {
		if m := c.expect(wire.TypeMessage).Message; m.ID.Entry != want || m.RedeliveryCount != 1 {
			t.Fatalf("redelivered %+v, want entry %d", m, want)
		}
	}
	c.write((&wire.Ack{ConsumerID: 1, Type: wire.AckCumulative, IDs: ids[2:], ValidationError: -1, RequestID: 7, HasRequestID: true}).AppendFrame(nil))
	c.expect(wire.TypeAckResponse)
	if got := s.acked.Load(); got != 3 {
		t.Errorf("%d acknowledged, want 3", got)
	}
	c.write((&wire.Unsubscribe{ConsumerID: 1, RequestID: 8}).AppendFrame(nil))
	c.expect(wire.TypeSuccess)
	c.write((&wire.Ack{ConsumerID: 1, IDs: ids, ValidationError: -1, RequestID: 9, HasRequestID: true}).AppendFrame(nil))
	if r := c.expect(wire.TypeAckResponse).AckResponse; r.Code != wire.ErrorConsumerNotFound || r.Message == "" {
		t.Fatalf("ack without a consumer %+v", r)
	}
}

func TestExclusiveIsBusyWhileItsClientAnswers(t *testing.T) {
	s := startServer(t, nil)
	a, b := dial(t, s), dial(t, s)
	a.subscribe("t", "sub", 1, wire.Exclusive, 0)
	want := func() {
		b.write((&wire.Subscribe{Topic: "t", Subscription: "sub", ConsumerID: 1, RequestID: 3}).AppendFrame(nil))
	}
	want()
	a.expect(wire.TypePing)
	a.write((&wire.Pong{}).AppendFrame(nil))
	if e := b.expect(wire.TypeError).Error; e.Code != wire.ErrorConsumerBusy || e.RequestID != 3 {
		t.Fatalf("%+v", e)
	}
	// On the same connection it is busy without a question.
	a.write((&wire.Subscribe{Topic: "t", Subscription: "sub", ConsumerID: 2, RequestID: 4}).AppendFrame(nil))
	if e := a.expect(wire.TypeError).Error; e.Code != wire.ErrorConsumerBusy {
		t.Fatalf("%+v", e)
	}
	// A client that comes back after its connection broke is not refused, even
	// if the broker has not noticed yet.
	a.nc.Close()
	want()
	b.expect(wire.TypeSuccess)
}

// A client that asks for what another one holds, again and again, costs the
// other few pings and the broker no more than it allows.
func TestAskingForABusySubscriptionIsBounded(t *testing.T) {
	s := startServer(t, nil)
	a, b := dial(t, s), dial(t, s)
	a.subscribe("t", "sub", 1, wire.Exclusive, 0)
	const asked = 3 * maxAsking
	for i := range uint64(asked) {
		b.write((&wire.Subscribe{Topic: "t", Subscription: "sub", ConsumerID: i, RequestID: i}).AppendFrame(nil))
	}
	// Those above the bound are refused while the others wait for an answer.
	for range asked - maxAsking {
		b.expect(wire.TypeError)
	}
	pings := make(chan int)
	go func() {
		n := 0
		for a.next() {
			if a.cmd.Type == wire.TypePing {
				n++
				a.write((&wire.Pong{}).AppendFrame(nil))
			}
		}
		pings <- n
	}()
	for range maxAsking {
		b.expect(wire.TypeError)
	}
	a.nc.Close()
	if n := <-pings; n < 1 || n > maxAsking {
		t.Fatalf("%d pings for %d questions, want 1 to %d", n, asked, maxAsking)
	}
}

func TestExclusiveIsTakenFromASilentClient(t *testing.T) {
	s := startServer(t, func(c *Config) { c.LivenessTimeout = 20 * time.Millisecond })
	a, b := dial(t, s), dial(t, s)
	a.subscribe("t", "sub", 1, wire.Exclusive, 0)
	b.subscribe("t", "sub", 1, wire.Exclusive, 0)
	a.expect(wire.TypePing)
	a.expectClosed()
}

// A consumer's connection that dies loses nothing: what it had not acknowledged
// goes to the others.
func TestNothingIsLostWithAConsumer(t *testing.T) {
	s := startServer(t, func(c *Config) { c.NewEntriesCheckDelay = time.Millisecond })
	p := dial(t, s)
	p.producer("t", 1)
	dying := dial(t, s)
	dying.subscribe("t", "sub", 1, wire.KeyShared, 1000)
	const n = 100
	for i := range uint64(n) {
		p.send(1, i, fmt.Sprint("k", i%7), number(i))
		p.expect(wire.TypeSendReceipt)
	}
	for range n / 2 {
		dying.expect(wire.TypeMessage)
	}
	dying.nc.Close()
	heir := dial(t, s)
	heir.subscribe("t", "sub", 1, wire.KeyShared, 1000)
	last := map[string]uint64{}
	seen := map[uint64]bool{}
	for len(seen) < n {
		heir.expect(wire.TypeMessage)
		key, payload := heir.payload()
		v := binary.BigEndian.Uint64(payload)
		if seen[v] || v < last[key] {
			t.Fatalf("message %d of %s came again or after %d", v, key, last[key])
		}
		seen[v], last[key] = true, v
	}
}

func TestReaderIsHeldBackUntilReceiptsAreWritten(t *testing.T) {
	s := startServer(t, func(c *Config) { c.MaxPendingPublishes = 10 })
	c := dial(t, s)
	c.producer("t", 1)
	hold := make(chan struct{})
	e := s.topics["persistent://public/default/t"].executor
	if err := e.Execute(0, blockTask(hold)); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(50) {
		c.send(1, i, "k", []byte("x"))
	}
	waitUntil(t, "the connection is held back", func() bool { return onlyConn(s).throttled.Load() })
	// The answer to PRODUCER may have counted as one that was still to be written.
	if got := onlyConn(s).owed.Load(); got < 9 || got > 10 {
		t.Errorf("%d sends taken in, want the limit of 10", got)
	}
	close(hold)
	for i := range uint64(50) {
		if r := c.expect(wire.TypeSendReceipt).SendReceipt; r.SequenceID != i {
			t.Fatalf("receipt %d where %d was due", r.SequenceID, i)
		}
	}
	if s.throttled.total() == 0 {
		t.Error("not counted")
	}
}

type blockTask chan struct{}

func (b blockTask) Run() { <-b }

// A consumer that grants endless permits and never reads must not make the
// broker queue without bound.
func TestSlowReaderIsBounded(t *testing.T) {
	const mark = 64 << 10
	s := startServer(t, func(c *Config) { c.WriteHighWater, c.MaxReadBatchSize = mark, 10 })
	slow := dial(t, s)
	slow.subscribe("t", "sub", 1, wire.Exclusive, 1<<31)
	p := dial(t, s)
	p.producer("t", 1)
	payload := make([]byte, 8<<10)
	const n = 2000 // 16 MB, more than sockets hold
	go func() {
		for i := range uint64(n) {
			p.send(1, i, "k", payload)
		}
	}()
	for range n {
		p.expect(wire.TypeSendReceipt)
	}
	sc := connWithConsumer(s)
	waitUntil(t, "the connection is unwritable", func() bool { return sc.unwritable.Load() })
	if got := sc.queued.Load(); got > mark+10*(int64(len(payload))+100) {
		t.Errorf("%d bytes queued for a connection with a mark of %d", got, mark)
	}
	for range n { // and when it reads, all comes
		slow.expect(wire.TypeMessage)
	}
}

func connWithConsumer(s *Server) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.consMu.Lock()
		n := len(c.consumers)
		c.consMu.Unlock()
		if n > 0 {
			return c
		}
	}
	return nil
}

func TestSilentConnectionIsPingedThenClosed(t *testing.T) {
	s := startServer(t, func(c *Config) { c.KeepAlive = 20 * time.Millisecond })
	c := dial(t, s)
	c.expect(wire.TypePing)
	c.expectClosed()
}

func TestLimits(t *testing.T) {
	s := startServer(t, func(c *Config) { c.MaxConnections, c.MaxTopics = 1, 1 })
	a := dial(t, s)
	b := dialRaw(t, s)
	b.expectClosed()
	if s.refused.Load() != 1 {
		t.Error("the refused connection was not counted")
	}
	a.producer("one", 1)
	a.write((&wire.Producer{Topic: "two", ProducerID: 2, RequestID: 2}).AppendFrame(nil))
	if e := a.expect(wire.TypeError).Error; e.Code != wire.ErrorNotAllowed {
		t.Errorf("%+v", e)
	}
}
