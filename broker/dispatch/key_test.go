package dispatch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

func TestRingMovesOnlyTheShareOfWhoLeaves(t *testing.T) {
	var all []*Consumer
	for i := range 20 {
		all = append(all, &Consumer{ConsumerOptions: ConsumerOptions{Name: fmt.Sprint("consumer-", i)}, number: uint64(i)})
	}
	before := autoSplit(all)
	shuffled := slices.Clone(all)
	slices.Reverse(shuffled)
	again := autoSplit(shuffled)
	after := autoSplit(all[1:])
	share := map[*Consumer]int{}
	for h := range hashRange {
		o := before.owner(uint16(h))
		share[o]++
		if again.owner(uint16(h)) != o {
			t.Fatalf("hash %d: the owner depends on the order of joining", h)
		}
		if n := after.owner(uint16(h)); o != all[0] && n != o {
			t.Fatalf("hash %d moved from %s to %s when %s left", h, o.Name, n.Name, all[0].Name)
		}
	}
	for _, c := range all {
		if n := share[c]; n < hashRange/20/2 || n > hashRange/20*2 {
			t.Errorf("%s owns %d hashes, far from a twentieth of %d", c.Name, n, hashRange)
		}
	}
}

func TestStickyKey(t *testing.T) {
	for _, c := range []struct {
		md   wire.Metadata
		want string
	}{
		{wire.Metadata{PartitionKey: []byte("p"), OrderingKey: []byte("o")}, "o"},
		{wire.Metadata{PartitionKey: []byte("cA=="), PartitionKeyB64: true}, "p"},
		{wire.Metadata{PartitionKey: []byte("not base64!"), PartitionKeyB64: true}, "not base64!"},
		{wire.Metadata{PartitionKey: []byte("p")}, "p"},
		{wire.Metadata{}, string(noKey)},
	} {
		c.md.ProducerName = []byte("x")
		entry := wire.AppendHeadersAndPayload(nil, &c.md, []byte("payload"))
		var md wire.Metadata
		if got, _ := entryHash(entry, &md, nil); got != keyHash([]byte(c.want)) {
			t.Errorf("%+v does not hash as %q", c.md, c.want)
		}
	}
	if got, _ := entryHash([]byte("garbage"), new(wire.Metadata), nil); got != keyHash(noKey) {
		t.Error("an entry that cannot be read must hash as one without a key")
	}
}

func TestKeyHashKnownValues(t *testing.T) {
	for key, want := range map[string]uint32{
		"": 0, "hello": 0x248bfa47, "hello, world": 0x149bbb7f, "The quick brown fox jumps over the lazy dog": 0x2e4ff723,
	} {
		if got := murmur32([]byte(key)); got != want {
			t.Errorf("hash of %q is %#x, want %#x", key, got, want)
		}
	}
	if keyHash(nil) != 1 {
		t.Error("hash 0 is reserved and must become 1")
	}
}
