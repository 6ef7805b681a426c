package broker

import (
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// Under load, stopping writes the receipt of everything that was stored, and
// stores nothing that gets none.
func TestShutdownDrains(t *testing.T) {
	for _, h := range []ledger.Handover{ledger.Direct, ledger.Channel, ledger.Batched} {
		t.Run(string(h), func(t *testing.T) {
			s := startServer(t, func(c *Config) { c.Handover = h })
			const conns = 8
			var receipts [conns]uint64
			var closed [conns]bool
			var all sync.WaitGroup
			for i := range conns {
				c := dial(t, s)
				c.producer("t", 1)
				go func() { // until the connection ends
					md := wire.Metadata{ProducerName: []byte("p"), PublishTime: 1}
					for n := uint64(0); ; n++ {
						if _, err := c.nc.Write(wire.AppendSend(nil, &wire.Send{ProducerID: 1, SequenceID: n}, &md, number(n))); err != nil {
							return
						}
					}
				}()
				all.Go(func() {
					for c.next() {
						switch {
						case c.cmd.Type == wire.TypeCloseProducer:
							closed[i] = true
						case c.cmd.Type != wire.TypeSendReceipt || c.cmd.SendReceipt.SequenceID != receipts[i] || closed[i]:
							t.Errorf("connection %d: %v %+v after %d receipts, closed %t", i, c.cmd.Type, c.cmd.SendReceipt, receipts[i], closed[i])
							return
						default:
							receipts[i]++
						}
					}
				})
			}
			consumer := dial(t, s)
			consumer.subscribe("t", "sub", 1, wire.Exclusive, 1000)
			consumer.expect(wire.TypeMessage)
			var told bool
			all.Go(func() {
				for consumer.next() {
					told = told || consumer.cmd.Type == wire.TypeCloseConsumer
				}
			})
			waitUntil(t, "there is load", func() bool { return s.published.Load() > 1000 })
			stopServer(t, s)
			all.Wait()
			var got uint64
			for i, n := range receipts {
				got += n
				if !closed[i] {
					t.Errorf("producer of connection %d was not told", i)
				}
			}
			if !told {
				t.Error("the consumer was not told")
			}
			if stored := s.topics["persistent://public/default/t"].ledger.Stats().Entries; got != s.published.Load() || int64(got) != stored {
				t.Errorf("%d receipts arrived, %d written, %d entries stored", got, s.published.Load(), stored)
			}
		})
	}
}

// A client that takes nothing does not keep the broker from stopping.
func TestShutdownDoesNotWaitForStuckClients(t *testing.T) {
	s := startServer(t, func(c *Config) { c.WriteHighWater = 1 << 30 })
	stuck := dial(t, s)
	stuck.subscribe("t", "sub", 1, wire.Exclusive, 1<<30)
	p := dial(t, s)
	p.producer("t", 1)
	for i := range uint64(100) {
		p.send(1, i, "k", make([]byte, 1<<20)) // more than the socket's buffers take
		p.expect(wire.TypeSendReceipt)
	}
	start := time.Now()
	stopServer(t, s)
	if took := time.Since(start); took > patience/2 {
		t.Errorf("stopping took %v", took)
	}
}

// What cannot be drained in time is cut, and the error says how much.
func TestShutdownIsBounded(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	c.producer("t", 1)
	hold := make(chan struct{})
	if err := s.topics["persistent://public/default/t"].executor.Execute(executor.Other, blockTask(hold)); err != nil {
		t.Fatal(err)
	}
	c.send(1, 0, "k", []byte("x"))
	waitUntil(t, "the send was taken in", func() bool { return onlyConn(s).owed.Load() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	time.AfterFunc(50*time.Millisecond, func() { close(hold) }) // long after the connection was cut
	if err := s.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 connections were cut") {
		t.Errorf("shutdown: %v", err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("the second time: %v", err)
	}
	c.expectClosed()
}

// Bytes in flight stop every connection that publishes, and no other, until
// half are receipted; each cause is counted for itself.
func TestBytesInFlightAreBounded(t *testing.T) {
	const limit, size = 1 << 20, 32 << 10
	s := startServer(t, func(c *Config) {
		c.MaxMessageSize, c.MaxPublishBytesInFlight, c.MaxPendingPublishes = 64<<10, limit, 1000
	})
	consumer := dial(t, s)
	consumer.subscribe("other", "sub", 1, wire.Shared, 10)
	hold := make(chan struct{})
	var writers sync.WaitGroup
	var clients []*client
	const each = 100
	for range 4 {
		c := dial(t, s)
		c.producer("t", 1)
		clients = append(clients, c)
	}
	if err := s.topics["persistent://public/default/t"].executor.Execute(executor.Other, blockTask(hold)); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		writers.Go(func() {
			for i := range uint64(each) {
				c.send(1, i, "k", make([]byte, size))
			}
		})
	}
	count := &s.throttled[throttleBytes]
	waitUntil(t, "all that publish are held back", func() bool { return count.now.Load() == int64(len(clients)) })
	if used := s.flight.used.Load(); used < limit || used > limit+int64(len(clients))*(size+1024) {
		t.Errorf("%d bytes in flight with a limit of %d", used, limit)
	}
	consumer.write((&wire.Ping{}).AppendFrame(nil))
	consumer.expect(wire.TypePong) // it is read all the same
	if s.throttled[throttlePending].times.Load() != 0 {
		t.Error("counted for another cause")
	}
	close(hold)
	for _, c := range clients {
		for range each {
			c.expect(wire.TypeSendReceipt)
		}
	}
	writers.Wait()
	waitUntil(t, "nothing is in flight", func() bool { return s.flight.used.Load() == 0 && count.now.Load() == 0 && !s.flight.over.Load() })
	if count.times.Load() < uint64(len(clients)) {
		t.Errorf("counted %d times", count.times.Load())
	}
	_, text := request(t, "GET", s.AdminURL()+"/metrics")
	for _, line := range []string{
		`contention_broker_publish_throttles_by_cause_total{cause="pending_publishes"} 0`, "contention_broker_publish_bytes_in_flight 0",
		`pulsar_broker_throttled_connections_global_limit{cluster="standalone"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
}

// A connection that ends with sends in flight takes them off the budget.
func TestBytesOfEndedConnectionsAreGivenBack(t *testing.T) {
	s := startServer(t, func(c *Config) { c.MaxMessageSize, c.MaxPublishBytesInFlight = 1<<20, 1<<20 })
	c := dial(t, s)
	c.producer("t", 1)
	hold := make(chan struct{})
	defer close(hold)
	if err := s.topics["persistent://public/default/t"].executor.Execute(executor.Other, blockTask(hold)); err != nil {
		t.Fatal(err)
	}
	c.send(1, 0, "k", make([]byte, 600<<10))
	waitUntil(t, "the send is in flight", func() bool { return s.flight.used.Load() > 0 })
	c.nc.Close()
	waitUntil(t, "it is off again", func() bool { return s.flight.used.Load() == 0 })
}

// The budget's stop and go under concurrent changes.
func TestByteBudgetAlwaysClears(t *testing.T) {
	b := byteBudget{limit: 100}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5000 {
				b.add(30)
				b.add(-30)
				if clear := b.stopped(); clear != nil {
					select {
					case <-clear:
					case <-time.After(patience):
						t.Error("stopped for ever")
						return
					}
				}
			}
		})
	}
	all.Wait()
	if b.used.Load() != 0 || b.over.Load() || b.stopped() != nil {
		t.Errorf("%d bytes, over %t", b.used.Load(), b.over.Load())
	}
}

// fill publishes n messages of size bytes and waits for the receipts.
func fill(c *client, id uint64, n, size int) {
	for i := range uint64(n) {
		payload := make([]byte, size)
		binary.BigEndian.PutUint64(payload, i)
		c.send(id, i, "k", payload)
		c.expect(wire.TypeSendReceipt)
	}
}

func TestBacklogQuotaHoldsProducers(t *testing.T) {
	for policy, code := range map[QuotaPolicy]wire.ServerError{QuotaHold: wire.ErrorQuotaBlocked, QuotaException: wire.ErrorQuotaExceeded} {
		t.Run(string(policy), func(t *testing.T) {
			s := startServer(t, func(c *Config) {
				c.BacklogQuotaBytes, c.BacklogQuotaPolicy, c.BacklogQuotaCheckInterval = 64<<10, policy, time.Millisecond
			})
			consumer, c := dial(t, s), dial(t, s)
			consumer.subscribe("t", "sub", 1, wire.Shared, 0)
			c.producer("t", 1)
			c.producer("free", 2)
			fill(c, 1, 60, 1000)
			seq := uint64(60)
			for c.cmd.Type == wire.TypeSendReceipt { // until it is above
				c.send(1, seq, "k", make([]byte, 1000))
				if !c.next() {
					t.Fatal("the connection ended")
				}
				seq++
			}
			if c.cmd.Type != wire.TypeCloseProducer || c.cmd.Close.ID != 1 {
				t.Fatalf("got %v %+v, want CLOSE_PRODUCER", c.cmd.Type, c.cmd.Close)
			}
			ask := func() *wire.Command {
				c.write((&wire.Producer{Topic: "t", ProducerID: 1, RequestID: 7}).AppendFrame(nil))
				for c.next() {
					// a send that met the CLOSE on its way is answered or dropped
					if c.cmd.Type == wire.TypeError || c.cmd.Type == wire.TypeProducerSuccess {
						return &c.cmd
					}
				}
				t.Fatal("the connection ended")
				return nil
			}
			if got := ask(); got.Type != wire.TypeError || got.Error.Code != code || got.Error.RequestID != 7 {
				t.Fatalf("a producer above the quota: %v %+v", got.Type, got.Error)
			}
			fill(c, 2, 10, 1000) // another topic's is not concerned
			consumer.flow(1, 100)
			var ids []wire.MessageID
			for n := s.published.Load() - 10; n > 0; n-- {
				ids = append(ids, consumer.expect(wire.TypeMessage).Message.ID)
				if len(ids)%50 == 0 {
					consumer.flow(1, 50)
				}
			}
			consumer.ack(1, ids...)
			waitUntil(t, "producers are let in again", func() bool { return ask().Type == wire.TypeProducerSuccess })
			if s.quotaRefused.Load() == 0 {
				t.Error("refusals are not counted")
			}
		})
	}
}

func TestBacklogQuotaEvictsTheOldest(t *testing.T) {
	const limit, size = 64 << 10, 1000
	s := startServer(t, func(c *Config) {
		c.BacklogQuotaBytes, c.BacklogQuotaPolicy, c.BacklogQuotaCheckInterval = limit, QuotaEviction, time.Hour
	})
	consumer, c := dial(t, s), dial(t, s)
	consumer.subscribe("t", "sub", 1, wire.Exclusive, 0)
	c.producer("t", 1)
	const n = 200
	fill(c, 1, n, size)
	s.enforceQuotas()
	top := s.topics["persistent://public/default/t"]
	left := top.subs["sub"].Cursor().Backlog()
	if bytes := top.backlog().bytes(); bytes > limit || bytes < limit/2 || s.evicted.Load() != uint64(n-left) {
		t.Errorf("%d bytes and %d entries left, %d evicted", bytes, left, s.evicted.Load())
	}
	s.enforceQuotas()
	if s.evicted.Load() != uint64(n-left) {
		t.Error("evicted again")
	}
	consumer.flow(1, n)
	for i := n - left; i < n; i++ {
		consumer.expect(wire.TypeMessage)
		if _, payload := consumer.payload(); binary.BigEndian.Uint64(payload) != uint64(i) {
			t.Fatalf("got message %d where %d was due", binary.BigEndian.Uint64(payload), i)
		}
	}
	fill(c, 1, 1, size) // producers stay
}
