package broker

import (
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// benchPublish publishes b.N messages of 128 bytes over one loopback connection,
// 100 in flight, to a topic without subscriptions. The sending side allocates
// nothing, so allocations are the broker's, from frame to receipt.
func benchPublish(b *testing.B, h ledger.Handover) {
	s := startServer(b, func(c *Config) { c.Handover = h })
	c := dial(b, s)
	_ = c.nc.SetDeadline(time.Time{})
	c.producer("t", 1)
	const window = 100
	md := wire.Metadata{ProducerName: []byte("p"), PublishTime: 1, PartitionKey: []byte("device-1")}
	frame := wire.AppendSend(nil, &wire.Send{ProducerID: 1}, &md, make([]byte, 128))
	var batch []byte
	for range window {
		batch = append(batch, frame...)
	}
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	b.ResetTimer()
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
}

func BenchmarkPublish(b *testing.B) {
	for _, h := range []ledger.Handover{ledger.Direct, ledger.Batched} {
		b.Run(string(h), func(b *testing.B) { benchPublish(b, h) })
	}
}

func TestPublishAllocatesLessThanOncePerMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("a benchmark run")
	}
	for _, h := range []ledger.Handover{ledger.Direct, ledger.Batched} {
		r := testing.Benchmark(func(b *testing.B) { benchPublish(b, h) })
		if r.N == 0 || float64(r.MemAllocs)/float64(r.N) > 1 {
			t.Errorf("%s: %d allocations for %d messages, want at most one each", h, r.MemAllocs, r.N)
		}
	}
}
