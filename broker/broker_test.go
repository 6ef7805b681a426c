package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func stopServer(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// tracker checks what consumers get: every message once, per key in order.
type tracker struct {
	mu       sync.Mutex
	next     map[string]uint64
	got      int
	want     int
	problems []string
	done     chan struct{}
}

func (tr *tracker) see(key string, n uint64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if due := tr.next[key]; n != due && len(tr.problems) < 10 {
		tr.problems = append(tr.problems, fmt.Sprintf("key %s: got %d where %d was due", key, n, due))
	}
	tr.next[key] = n + 1
	if tr.got++; tr.got == tr.want {
		close(tr.done)
	}
}

// consume receives on one connection until it ends, acknowledging in groups and
// granting permits again at half.
func consume(c *client, id uint64, tr *tracker, permits uint32) {
	var acks []wire.MessageID
	var used uint32
	for c.next() {
		if c.cmd.Type != wire.TypeMessage {
			continue
		}
		key, payload := c.payload()
		tr.see(key, binary.BigEndian.Uint64(payload))
		m := c.cmd.Message.ID
		acks = append(acks, wire.NewMessageID(m.Ledger, m.Entry))
		if used++; used >= permits/2 {
			c.ack(id, acks...)
			c.flow(id, used)
			acks, used = acks[:0], 0
		}
	}
}

type traffic struct {
	connections, keysEach, perKey int
	consumers                     int
	permits                       uint32
	window                        int // sends in flight per connection
}

// drive produces from several connections and consumes with a Key_Shared
// subscription, and returns when everything was delivered.
func drive(t *testing.T, s *Server, tf traffic) *tracker {
	t.Helper()
	const topic = "load"
	tr := &tracker{next: map[string]uint64{}, want: tf.connections * tf.keysEach * tf.perKey, done: make(chan struct{})}
	for i := range tf.consumers {
		c := dial(t, s)
		c.subscribe(topic, "sub", uint64(i), wire.KeyShared, tf.permits)
		go consume(c, uint64(i), tr, tf.permits)
	}
	for i := range tf.connections {
		c := dial(t, s)
		c.producer(topic, 1)
		go produce(c, i, tf)
	}
	select {
	case <-tr.done:
	case <-time.After(patience):
		t.Fatalf("%d of %d messages delivered in %v", tr.got, tr.want, patience)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, p := range tr.problems {
		t.Error(p)
	}
	return tr
}

func produce(c *client, conn int, tf traffic) {
	slots := make(chan struct{}, tf.window)
	go func() {
		var seq uint64
		for n := range tf.perKey {
			for k := range tf.keysEach {
				slots <- struct{}{}
				c.send(1, seq, fmt.Sprintf("c%d-k%d", conn, k), number(uint64(n)))
				seq++
			}
		}
	}()
	var next uint64
	for int(next) < tf.keysEach*tf.perKey && c.next() {
		if c.cmd.Type != wire.TypeSendReceipt || c.cmd.SendReceipt.SequenceID != next {
			c.t.Errorf("connection %d: got %v for %d, want the receipt of %d", conn, c.cmd.Type, c.cmd.SendReceipt.SequenceID, next)
			return
		}
		next++
		<-slots
	}
}

func TestDeliveryInEveryMode(t *testing.T) {
	for _, h := range []ledger.Handover{ledger.Direct, ledger.Batched} {
		for _, f := range []dispatch.FlowMode{dispatch.Monitor, dispatch.Atomic} {
			t.Run(fmt.Sprintf("%s, %s", h, f), func(t *testing.T) {
				s := startServer(t, func(c *Config) {
					c.Handover, c.Flow = h, f
					c.NewEntriesCheckDelay = time.Millisecond
				})
				drive(t, s, traffic{connections: 8, keysEach: 10, perKey: 50, consumers: 5, permits: 20, window: 50})
				waitUntil(t, "everything is acknowledged or pending", func() bool {
					return s.published.Load() == 4000 && s.delivered.Load() == 4000
				})
			})
		}
	}
}

func waitUntil(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// With a bounded executor queue, adds, reads, wake-ups and dispatch tasks are
// rejected at random. Adds fail; everything that was receipted still arrives.
func TestBoundedExecutorQueueLosesNothing(t *testing.T) {
	for h, limit := range map[ledger.Handover]int{ledger.Direct: 8, ledger.Batched: 2} {
		t.Run(string(h), func(t *testing.T) {
			s := startServer(t, func(c *Config) {
				c.Handover, c.ExecutorQueueLimit, c.HandoverMaxBatchItems, c.NewEntriesCheckDelay = h, limit, 4, 0
			})
			const window = 5
			got := make(chan uint64, 4000)
			c := dial(t, s)
			c.subscribe("t", "sub", 1, wire.KeyShared, 100_000)
			go func() {
				for c.next() {
					if c.cmd.Type == wire.TypeMessage {
						_, payload := c.payload()
						got <- binary.BigEndian.Uint64(payload)
					}
				}
			}()
			var mu sync.Mutex
			receipted := map[uint64]bool{}
			var failed int
			var senders sync.WaitGroup
			for i := range 4 {
				p := dial(t, s)
				p.producer("t", 1)
				senders.Go(func() {
					for n := range uint64(1000 + window) {
						if n < 1000 {
							p.send(1, n, "k", number(uint64(i)<<32|n))
						}
						if n < window {
							continue
						}
						if !p.next() {
							t.Error("a producer's connection ended")
							return
						}
						mu.Lock()
						if p.cmd.Type == wire.TypeSendReceipt {
							receipted[uint64(i)<<32|p.cmd.SendReceipt.SequenceID] = true
						} else {
							failed++
						}
						mu.Unlock()
					}
				})
			}
			senders.Wait()
			if len(receipted)+failed != 4000 || len(receipted) == 0 {
				t.Fatalf("%d receipts and %d errors for 4000 sends", len(receipted), failed)
			}
			t.Logf("%d adds rejected", failed)
			for n := len(receipted); n > 0; n-- {
				select {
				case v := <-got:
					if !receipted[v] {
						t.Fatalf("%#x was delivered twice or without a receipt", v)
					}
					delete(receipted, v)
				case <-time.After(patience):
					t.Fatalf("%d receipted messages did not arrive", len(receipted))
				}
			}
		})
	}
}
