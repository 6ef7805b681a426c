package dispatch

import (
	"slices"
	"testing"

	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// What a send loop has collected counts, though not counted yet.
func TestUnackedLimitWithinOneSendLoop(t *testing.T) {
	const limit = 4
	r := start(t, Config{MaxUnackedPerConsumer: limit})
	for range 3 * limit {
		r.publish("k")
	}
	c, s := r.join("a", wire.KeyShared)
	c.Flow(100)
	r.settle()
	if n := s.count(); n != limit || !c.Stats().Blocked {
		t.Fatalf("%d sent with a limit of %d unacknowledged, %+v", n, limit, c.Stats())
	}
	c.Ack(s.ids()[:limit/2])
	waitUntil(t, "sent up to the limit again", func() bool { return s.count() == limit+limit/2 })
}

// Entries of a hash that waits for its former owner do not take the place of
// others in a read.
func TestDrainingHashesAreNotPicked(t *testing.T) {
	r := start(t, Config{MaxReadBatchSize: 2})
	a, _ := r.join("a", wire.KeyShared)
	b, _ := r.join("b", wire.KeyShared)
	key := r.keyOf(b)
	other := key
	for i := 0; other == key || r.d.selector.owner(keyHash([]byte(other))) != b; i++ {
		other = "other-" + string(rune('a'+i))
	}
	b.Close()
	a.Flow(100)
	r.publish(key)
	r.settle()
	b, s := r.join("b", wire.KeyShared)
	for range 4 {
		r.publish(key)
	}
	r.publish(other)
	r.settle()
	if st := r.d.Stats(); st.Replay != 5 || st.DrainingHashes != 1 {
		t.Fatalf("%+v", st)
	}
	b.Flow(100)
	waitUntil(t, "the entry of the other key is sent", func() bool { return s.count() == 1 })
	a.Ack([]int64{0})
	waitUntil(t, "the rest is sent", func() bool { return s.count() == 5 })
	if got, want := s.ids(), []int64{5, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Fatalf("sent %v, want %v", got, want)
	}
}

// An entry whose hash is not known is picked whatever waits before it, which
// could not be sent then and could now.
func TestUnknownHashWaitsForEarlierOnes(t *testing.T) {
	r := start(t, Config{})
	c, s := r.join("a", wire.KeyShared)
	md := &wire.Metadata{ProducerName: []byte("p"), PartitionKey: []byte("k")}
	data := wire.AppendHeadersAndPayload(nil, md, nil)
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.d.replay.add(replayItem{0, keyHash(md.PartitionKey)}, replayItem{1, unknownHash})
	picked := r.d.replay.pick(nil, 10, nil)
	if want := []replayItem{{1, unknownHash}}; !slices.Equal(picked, want) {
		t.Fatalf("picked %v without permits, want %v", picked, want)
	}
	c.permits.Store(10) // as Flow does
	if n := r.d.sendMessagesToConsumers([]ledger.Entry{{ID: 1, Messages: 1, Data: data}}, picked); n != 0 || s.count() != 0 {
		t.Fatal("sent before an earlier entry of its key")
	}
	h := keyHash(md.PartitionKey)
	if again, want := r.d.replay.pick(nil, 10, nil), []replayItem{{0, h}, {1, h}}; !slices.Equal(again, want) {
		t.Fatalf("then picked %v, want %v", again, want)
	}
}

// The subscription changes its type while entries are being read again.
func TestTypeChangeDuringAReplayRead(t *testing.T) {
	r := start(t, Config{})
	a, _ := r.join("a", wire.KeyShared)
	a.Flow(100)
	r.publish("k")
	r.settle()
	var b *Consumer
	var s *sink
	r.between(func() {
		a.Redeliver(nil)
		r.d.mu.Lock()
		r.d.readMoreEntries()
		reading := len(r.d.replayIDs)
		r.d.mu.Unlock()
		if reading != 1 {
			t.Errorf("%d entries being read again, want 1", reading)
		}
		a.Close()
		b, s = r.join("b", wire.Failover)
		b.Flow(100)
	})
	waitUntil(t, "sent again", func() bool { return s.count() == 1 })
	r.publish("k")
	waitUntil(t, "the next one is sent", func() bool { return s.count() == 2 })
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	for _, p := range b.pending.items {
		if p.hash != 1 {
			t.Errorf("entry %d has hash %d, not that of a Failover subscription", p.id, p.hash)
		}
	}
	if r.d.replay.len() != 0 || r.d.replay.hashes[unknownHash] != 0 || r.d.replay.hashes[keyHash([]byte("k"))] != 0 {
		t.Errorf("replay set has %d, of unknown hash %d", r.d.replay.len(), r.d.replay.hashes[unknownHash])
	}
}
