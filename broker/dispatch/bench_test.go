package dispatch

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// acker acknowledges what it is sent, outside the send loop.
type acker struct {
	c   *Consumer
	ids []int64
}

func (a *acker) Deliver(d *Delivery) {
	for i := range d.Messages {
		a.ids = append(a.ids, d.Messages[i].Entry.ID)
	}
	d.Release()
}
func (a *acker) Writable() bool             { return true }
func (a *acker) ActiveChanged(uint64, bool) {}

// BenchmarkSendLoop sends read batches of 500 entries of 128 B to 20 consumers
// and acknowledges them; one operation is one message.
func BenchmarkSendLoop(b *testing.B) {
	for name, v := range map[string]struct {
		typ    wire.SubType
		sticky bool
	}{
		"exclusive": {typ: wire.Exclusive}, "shared": {typ: wire.Shared}, "keyshared": {typ: wire.KeyShared}, "sticky": {wire.KeyShared, true},
	} {
		b.Run(name, func(b *testing.B) { benchSendLoop(b, v.typ, v.sticky) })
	}
}

func benchSendLoop(b *testing.B, typ wire.SubType, sticky bool) {
	const batch, consumers = 500, 20
	e := executor.New(executor.Options{})
	defer e.ShutdownNow()
	l, err := ledger.OpenLedger(1, "l", e, ledger.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	d, err := New(l, e, "s", ledger.Earliest, true, Config{MaxUnackedPerConsumer: -1, MaxUnackedPerSubscription: -1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	var sinks []*acker
	for i := range consumers {
		if typ == wire.Exclusive && i > 0 {
			break
		}
		s := &acker{}
		o := ConsumerOptions{Name: fmt.Sprint("consumer-", i), Type: typ, Sink: s}
		if sticky {
			size := int32(hashRange / consumers)
			o.KeyShared = stickyMeta(int32(i)*size, int32(i+1)*size-1)
			if i == consumers-1 {
				o.KeyShared.Ranges[0].End = hashRange - 1
			}
		}
		if s.c, err = d.AddConsumer(o); err != nil {
			b.Fatal(err)
		}
		s.c.permits.Store(1 << 40) // without Flow, so that nothing is read meanwhile
		sinks = append(sinks, s)
	}
	entries := make([]ledger.Entry, batch)
	payload := make([]byte, 128)
	for i := range entries {
		md := wire.Metadata{ProducerName: []byte("producer"), PartitionKey: fmt.Appendf(nil, "device-%d", i)}
		entries[i] = ledger.Entry{Messages: 1, Data: wire.AppendHeadersAndPayload(nil, &md, payload)}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		for i := range entries {
			entries[i].ID = int64(n + i)
		}
		d.mu.Lock()
		d.sendMessagesToConsumers(entries, nil)
		d.mu.Unlock()
		for _, s := range sinks {
			s.c.settle(must(s.c.pending.take(s.ids)))
			s.ids = s.ids[:0]
		}
	}
	b.StopTimer()
	if st := d.Stats(); st.Replay != 0 || st.Unacked != 0 {
		b.Fatalf("%+v", st)
	}
}

func must(t takenAcks, _ int) takenAcks { return t }

// BenchmarkFlow is one Flow beside a running broker of one consumer.
func BenchmarkFlow(b *testing.B) {
	for _, mode := range []FlowMode{Atomic, Monitor} {
		b.Run(string(mode), func(b *testing.B) {
			r, stop := newRig(b, Config{Flow: mode})
			defer stop()
			c, err := r.d.AddConsumer(ConsumerOptions{Name: "a", Type: wire.KeyShared, Sink: &acker{}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				c.Flow(1)
			}
		})
	}
}

// BenchmarkMembershipChange is what a consumer costs that joins 20 others, each
// with 1,000 entries unacknowledged, and leaves.
func BenchmarkMembershipChange(b *testing.B) {
	r, stop := newRig(b, Config{})
	defer stop()
	for i := range 20 {
		c, err := r.d.AddConsumer(ConsumerOptions{Name: fmt.Sprint("c", i), Type: wire.KeyShared, Sink: &acker{}})
		if err != nil {
			b.Fatal(err)
		}
		for id := range int64(1000) {
			c.pending.add(pendingAck{id: id*20 + int64(i), hash: uint16(id), messages: 1})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		c, err := r.d.AddConsumer(ConsumerOptions{Name: "new", Type: wire.KeyShared, Sink: &acker{}})
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

// BenchmarkReplayBesideStopped is a group of 20 consumers, of which 5 are out of
// permits and have 20,000 entries in the replay set. One operation is one
// message for the others: what a look for something to replay costs after a read
// of 500 that was sent at once, and what sending 500 from the replay set costs.
func BenchmarkReplayBesideStopped(b *testing.B) {
	b.Run("look", func(b *testing.B) {
		g := newStoppedGroup(b)
		for n := 0; b.Loop(); n++ {
			if n%stoppedBatch == 0 && len(g.pick()) != 0 {
				b.Fatal("picked what cannot be sent")
			}
		}
	})
	b.Run("send", func(b *testing.B) {
		g := newStoppedGroup(b)
		for n := 0; b.Loop(); n++ {
			if n%stoppedBatch == 0 {
				g.sendAgain(b)
			}
		}
	})
}

const stoppedBatch, stoppedEntries = 500, 20_000

type stoppedGroup struct {
	d       *Dispatcher
	sinks   []*acker
	entries []ledger.Entry // of those that are not stopped
	hashes  []uint16
	next    int64
}

func newStoppedGroup(b *testing.B) *stoppedGroup {
	r, stop := newRig(b, Config{MaxUnackedPerConsumer: -1, MaxUnackedPerSubscription: -1})
	b.Cleanup(stop)
	g := &stoppedGroup{d: r.d, next: stoppedEntries}
	stopped := map[*Consumer]bool{}
	for i := range 20 {
		s := &acker{}
		var err error
		if s.c, err = r.d.AddConsumer(ConsumerOptions{Name: fmt.Sprint("consumer-", i), Type: wire.KeyShared, Sink: s}); err != nil {
			b.Fatal(err)
		}
		if stopped[s.c] = i%4 == 0; !stopped[s.c] {
			s.c.permits.Store(1 << 40)
		}
		g.sinks = append(g.sinks, s)
	}
	r.settle()
	payload := make([]byte, 128)
	waiting := int64(0)
	for i := 0; waiting < stoppedEntries || len(g.entries) < stoppedBatch; i++ {
		key := fmt.Appendf(nil, "device-%d", i)
		h := keyHash(key)
		switch {
		case stopped[r.d.selector.owner(h)]:
			if waiting < stoppedEntries {
				g.put(waiting, h)
				waiting++
			}
		case len(g.entries) < stoppedBatch:
			md := wire.Metadata{ProducerName: []byte("producer"), PartitionKey: key}
			g.entries = append(g.entries, ledger.Entry{Messages: 1, Data: wire.AppendHeadersAndPayload(nil, &md, payload)})
			g.hashes = append(g.hashes, h)
		}
	}
	b.ReportAllocs()
	return g
}

func (g *stoppedGroup) put(id int64, h uint16) { g.d.replay.add(replayItem{id, h}) }

func (g *stoppedGroup) pick() []replayItem {
	g.d.picked = g.d.replay.pick(g.d.picked[:0], stoppedBatch, nil)
	return g.d.picked
}

// sendAgain sends 500 entries that come to the replay set and acknowledges them.
func (g *stoppedGroup) sendAgain(b *testing.B) {
	for i := range g.entries {
		g.entries[i].ID = g.next
		g.put(g.next, g.hashes[i])
		g.next++
	}
	g.d.mu.Lock()
	sent := g.d.sendMessagesToConsumers(g.entries, g.pick())
	g.d.mu.Unlock()
	if sent != stoppedBatch {
		b.Fatalf("sent %d of %d", sent, stoppedBatch)
	}
	for _, s := range g.sinks {
		s.c.settle(must(s.c.pending.take(s.ids)))
		s.ids = s.ids[:0]
	}
}
