package broker

import (
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

// openAs opens a producer and returns the answer.
func (c *client) openAs(id uint64, name string, mode wire.AccessMode, change func(*wire.Producer)) wire.Command {
	c.t.Helper()
	m := wire.Producer{Topic: "t", ProducerID: id, RequestID: 50 + id, Name: name, AccessMode: mode}
	if change != nil {
		change(&m)
	}
	c.write(m.AppendFrame(nil))
	if !c.next() {
		c.t.Fatal("the connection ended")
	}
	return c.cmd
}

func wantError(t *testing.T, got wire.Command, code wire.ServerError) {
	t.Helper()
	if got.Type != wire.TypeError || got.Error.Code != code {
		t.Fatalf("got %v %+v, want an error %v", got.Type, got.Error, code)
	}
}

func wantProducer(t *testing.T, got wire.Command, ready bool, epoch uint64) {
	t.Helper()
	if r := got.ProducerSuccess; got.Type != wire.TypeProducerSuccess || r.NotReady == ready || ready && r.TopicEpoch != epoch {
		t.Fatalf("got %v %+v %+v, want ready %t, epoch %d", got.Type, r, got.Error, ready, epoch)
	}
}

func TestFencingTakesTheTopicFromOthers(t *testing.T) {
	s := startServer(t, nil)
	a, b := dial(t, s), dial(t, s)
	wantProducer(t, a.openAs(1, "a", wire.AccessExclusive, nil), true, 0)
	a.send(1, 0, "k", []byte("x"))
	a.expect(wire.TypeSendReceipt)
	wantProducer(t, b.openAs(1, "b", wire.AccessExclusiveWithFencing, nil), true, 1)
	if m := a.expect(wire.TypeCloseProducer).Close; m.ID != 1 {
		t.Fatalf("CLOSE_PRODUCER %+v", m)
	}
	a.send(1, 1, "k", []byte("y")) // on its way when it was fenced off
	a.write((&wire.Ping{}).AppendFrame(nil))
	a.expect(wire.TypePong)
	if n := s.published.Load(); n != 1 {
		t.Fatalf("%d messages published, want 1", n)
	}
	back := func(m *wire.Producer) { m.Epoch, m.TopicEpoch, m.HasTopicEpoch = 1, 0, true }
	wantError(t, a.openAs(1, "a", wire.AccessExclusive, back), wire.ErrorProducerFenced)
	wantError(t, a.openAs(1, "a", wire.AccessExclusiveWithFencing, back), wire.ErrorProducerFenced)
	wantError(t, a.openAs(1, "a", wire.AccessShared, nil), wire.ErrorProducerBusy)
	b.send(1, 0, "k", []byte("z"))
	b.expect(wire.TypeSendReceipt)
}

func TestWaitingForExclusiveAccess(t *testing.T) {
	s := startServer(t, nil)
	a, b, c := dial(t, s), dial(t, s), dial(t, s)
	wantProducer(t, a.openAs(1, "a", wire.AccessExclusive, nil), true, 0)
	wantProducer(t, b.openAs(2, "b", wire.AccessWaitForExclusive, nil), false, 0)
	wantProducer(t, c.openAs(3, "c", wire.AccessWaitForExclusive, nil), false, 0)
	b.send(2, 0, "k", []byte("too early"))
	if e := b.expect(wire.TypeSendError).SendError; e.Code != wire.ErrorNotAllowed {
		t.Fatalf("a send before the producer is ready: %+v", e)
	}
	a.nc.Close()
	if r := b.expect(wire.TypeProducerSuccess).ProducerSuccess; r.NotReady || r.RequestID != 52 || r.TopicEpoch != 1 {
		t.Fatalf("the first to wait: %+v", r)
	}
	b.send(2, 0, "k", []byte("x"))
	b.expect(wire.TypeSendReceipt)
	// The one that waits may give up, and one that comes back is the same.
	c.write((&wire.Close{ID: 3, RequestID: 9}).AppendProducerFrame(nil))
	c.expect(wire.TypeSuccess)
	again := func(m *wire.Producer) { m.Epoch, m.TopicEpoch, m.HasTopicEpoch = 1, 1, true }
	wantProducer(t, c.openAs(7, "b", wire.AccessExclusive, again), true, 1)
	b.send(2, 1, "k", []byte("of the old connection"))
	b.write((&wire.Ping{}).AppendFrame(nil))
	b.expect(wire.TypePong)
	if n := s.published.Load(); n != 1 {
		t.Fatalf("%d messages published, want 1", n)
	}
}

// A producer that takes its own earlier one's place, and is then refused, leaves
// the topic to the one that waits.
func TestRefusedSuccessorDoesNotLeaveOthersWaiting(t *testing.T) {
	s := startServer(t, nil)
	a, b, c := dial(t, s), dial(t, s), dial(t, s)
	wantProducer(t, a.openAs(1, "a", wire.AccessExclusive, nil), true, 0)
	wantProducer(t, b.openAs(2, "b", wire.AccessWaitForExclusive, nil), false, 0)
	wantError(t, c.openAs(3, "a", wire.AccessShared, func(m *wire.Producer) { m.Epoch = 1 }), wire.ErrorProducerBusy)
	if r := b.expect(wire.TypeProducerSuccess).ProducerSuccess; r.NotReady || r.TopicEpoch != 1 {
		t.Fatalf("the one that waits: %+v", r)
	}
}

func TestInitialSubscription(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	wantProducer(t, c.openAs(1, "p", wire.AccessShared, func(m *wire.Producer) { m.InitialSubscription = "kept" }), true, 0)
	c.send(1, 0, "k", []byte("x"))
	c.expect(wire.TypeSendReceipt)
	c.write((&wire.Subscribe{Topic: "t", Subscription: "kept", ConsumerID: 1, RequestID: 3}).AppendFrame(nil))
	c.expect(wire.TypeSuccess)
	c.flow(1, 10)
	c.expect(wire.TypeMessage)
}

// After a failed send its producer's later ones are refused too: the client
// sends all of them again, and they must not have been stored before.
func TestNothingIsStoredAfterAFailedSend(t *testing.T) {
	s := startServer(t, func(c *Config) { c.HandoverMaxBatchItems, c.ExecutorQueueLimit, c.Executors = 1, 1, 1 })
	c := dial(t, s)
	c.producer("t", 1)
	c.producer("t", 2)
	hold, held := make(chan struct{}), make(chan struct{})
	if err := s.topics[topicT].executor.Execute(0, funcTask(func() { close(held); <-hold })); err != nil {
		t.Fatal(err)
	}
	<-held
	stored := uint64(0)
	for i := range uint64(5) {
		c.send(1, i, "k", []byte("x"))
	}
	c.expect(wire.TypeSendError) // the executor takes one task at most
	close(hold)
	// There is room again, for another producer and not for this one.
	seq := uint64(0)
	waitUntil(t, "another producer's send is stored", func() bool {
		c.send(2, seq, "k", []byte("x"))
		seq++
		for c.next() {
			switch m := &c.cmd; {
			case m.Type == wire.TypeSendReceipt && m.SendReceipt.ProducerID == 1:
				stored++
			case m.Type == wire.TypeSendReceipt:
				return true
			case m.SendError.ProducerID == 2: // it has failed as well
				c.write((&wire.Close{ID: 2, RequestID: 9}).AppendProducerFrame(nil))
				for c.next() && c.cmd.Type != wire.TypeSuccess {
				}
				c.producer("t", 2)
				return false
			}
		}
		return false
	})
	if stored > 1 {
		t.Errorf("%d sends were stored of which one was taken at most", stored)
	}
	c.send(1, 5, "k", []byte("x"))
	if e := c.expect(wire.TypeSendError).SendError; e.ProducerID != 1 || e.SequenceID != 5 {
		t.Fatalf("%+v", e)
	}
	c.write((&wire.Close{ID: 1, RequestID: 9}).AppendProducerFrame(nil))
	c.expect(wire.TypeSuccess)
	c.producer("t", 1)
	c.send(1, stored, "k", []byte("x"))
	c.expect(wire.TypeSendReceipt)
}

type funcTask func()

func (f funcTask) Run() { f() }
