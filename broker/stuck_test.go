package broker

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/wire"
)

// peakHeap samples the live and garbage heap until stop is closed, and returns
// the most.
func peakHeap(stop <-chan struct{}, peak *atomic.Uint64) {
	for {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.HeapAlloc > peak.Load() {
			peak.Store(m.HeapAlloc)
		}
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// BenchmarkStuckConsumer publishes messages of 1 KiB to a topic with two
// subscriptions: one reads and acknowledges, the other granted endless permits
// and reads nothing from its socket. Of the backlog that it leaves no more than
// the quota is kept, nor of the other's, when that falls so far behind. queued-bytes is what the broker queued for its connection,
// peak-heap-bytes the most that the process, the clients included, had on its
// heap.
func BenchmarkStuckConsumer(b *testing.B) {
	const quota = 32 << 20
	s := startServer(b, func(c *Config) {
		c.BacklogQuotaBytes, c.BacklogQuotaPolicy, c.BacklogQuotaCheckInterval = quota, QuotaEviction, 20*time.Millisecond
	})
	stuck := dial(b, s)
	stuck.subscribe("t", "stuck", 1, wire.Exclusive, 1<<31)
	reader := dial(b, s)
	reader.subscribe("t", "reads", 1, wire.Exclusive, 1<<31)
	_ = reader.nc.SetDeadline(time.Time{})
	go func() {
		for reader.next() {
			if reader.cmd.Type == wire.TypeMessage {
				m := reader.cmd.Message.ID
				reader.ack(1, wire.NewMessageID(m.Ledger, m.Entry))
			}
		}
	}()
	c := dial(b, s)
	c.producer("t", 1)
	_ = c.nc.SetDeadline(time.Time{})
	md := wire.Metadata{ProducerName: []byte("p"), PublishTime: 1}
	frame := wire.AppendSend(nil, &wire.Send{ProducerID: 1}, &md, make([]byte, 1024))
	var peak atomic.Uint64
	stop := make(chan struct{})
	go peakHeap(stop, &peak)
	b.SetBytes(int64(len(frame)))
	b.ResetTimer()
	const window = 100
	var batch []byte
	for range window {
		batch = append(batch, frame...)
	}
	for left := b.N; left > 0; {
		n := min(left, window)
		if _, err := c.nc.Write(batch[:n*len(frame)]); err != nil {
			b.Fatal(err)
		}
		for range n {
			if err := c.fr.Next(&c.f); err != nil {
				b.Fatal(err)
			}
		}
		left -= n
	}
	b.StopTimer()
	close(stop)
	reads := s.topics["persistent://public/default/t"].subs["reads"]
	waitUntil(b, "the other subscription has the rest", func() bool { return reads.Cursor().Backlog() == 0 })
	b.ReportMetric(float64(peak.Load()), "peak-heap-bytes")
	b.ReportMetric(float64(queuedFor(s, "stuck")), "queued-bytes")
}

// queuedFor returns the bytes queued for the connections of a subscription.
func queuedFor(s *Server, sub string) (n int64) {
	for _, c := range s.connections() {
		c.consMu.Lock()
		for _, cs := range c.consumers {
			if cs.sub.Name == sub {
				n += c.queued.Load()
			}
		}
		c.consMu.Unlock()
	}
	return n
}

// A consumer that never reads holds what is queued for it and the backlog that
// the quota leaves, however much is published.
func TestStuckConsumerIsBounded(t *testing.T) {
	const quota, size, mark = 1 << 20, 1 << 10, 256 << 10
	s := startServer(t, func(c *Config) {
		c.BacklogQuotaBytes, c.BacklogQuotaPolicy, c.BacklogQuotaCheckInterval = quota, QuotaEviction, time.Millisecond
		c.WriteHighWater, c.MaxReadSizeBytes, c.Flow = mark, 64<<10, dispatch.Atomic
	})
	stuck, c := dial(t, s), dial(t, s)
	stuck.subscribe("t", "stuck", 1, wire.Exclusive, 1<<31)
	c.producer("t", 1)
	top := s.topics["persistent://public/default/t"]
	for range 40 {
		fill(c, 1, 1000, size)
	}
	if q := queuedFor(s, "stuck"); q > mark+2*(64<<10) {
		t.Errorf("%d bytes are queued, with a mark of %d", q, mark)
	}
	s.enforceQuotas()
	// What is evicted leaves memory when about 4 MB have gathered.
	waitUntil(t, "what was evicted is gone", func() bool { return top.ledger.Stats().Bytes < quota+8<<20 })
	if b := top.backlog(); b.bytes() > quota {
		t.Errorf("a backlog of %d bytes is left", b.bytes())
	}
}
