package dispatch

import (
	"slices"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

// chunk publishes one chunk of a message cut in three.
func (r *rig) chunk(uuid string, id int32) {
	r.t.Helper()
	r.publishMessage(&wire.Metadata{ProducerName: []byte("p"), UUID: []byte(uuid), NumChunks: 3, ChunkID: id})
}

func TestChunksOfAMessageGoToOneSharedConsumer(t *testing.T) {
	r := start(t, Config{MaxRoundRobinBatch: 1})
	a, sa := r.join("a", wire.Shared)
	b, sb := r.join("b", wire.Shared)
	a.Flow(100)
	b.Flow(100)
	for id := range int32(3) {
		r.publish("k")
		r.chunk("u", id)
		r.chunk("v", id)
	}
	r.settle()
	u, v := []int64{1, 4, 7}, []int64{2, 5, 8}
	for _, m := range [][]int64{u, v} {
		var of []int
		for i, s := range []*sink{sa, sb} {
			var got []int64
			for _, id := range s.ids() {
				if slices.Contains(m, id) {
					got = append(got, id)
				}
			}
			if len(got) > 0 {
				of = append(of, i)
				if !slices.Equal(got, m) {
					t.Errorf("got %v of %v", got, m)
				}
			}
		}
		if len(of) != 1 {
			t.Errorf("%v went to %d consumers", m, len(of))
		}
	}
	if sa.count() == 0 || sb.count() == 0 || len(r.d.chunks.byHash) != 0 {
		t.Fatalf("%d and %d sent, %d messages still open", sa.count(), sb.count(), len(r.d.chunks.byHash))
	}
}

func TestChunksWaitForTheirConsumerAndNothingElseDoes(t *testing.T) {
	r := start(t, Config{MaxRoundRobinBatch: 1})
	a, sa := r.join("a", wire.Shared)
	b, sb := r.join("b", wire.Shared)
	a.Flow(1)
	r.chunk("u", 0)
	r.settle()
	b.Flow(100)
	r.chunk("u", 1)
	r.publish("k")
	r.chunk("u", 2)
	r.settle()
	if sa.count() != 1 || !slices.Equal(sb.ids(), []int64{2}) || r.d.Stats().Replay != 2 {
		t.Fatalf("a got %v, b %v, %d wait; want 0, 2 and two", sa.ids(), sb.ids(), r.d.Stats().Replay)
	}
	a.Flow(2)
	r.settle()
	if got := sa.ids(); !slices.Equal(got, []int64{0, 1, 3}) || sb.count() != 1 {
		t.Fatalf("a got %v, b %v", got, sb.ids())
	}
	a.Redeliver(nil) // all over again, in order, to one consumer
	a.Flow(3)
	r.settle()
	if got := sb.ids(); !slices.Equal(got, []int64{2, 0, 1, 3}) && !slices.Equal(sa.ids(), []int64{0, 1, 3, 0, 1, 3}) {
		t.Fatalf("then a got %v, b %v", sa.ids(), got)
	}
}

func TestChunksOfAConsumerThatLeavesStartOver(t *testing.T) {
	r := start(t, Config{MaxRoundRobinBatch: 1})
	a, sa := r.join("a", wire.Shared)
	a.Flow(100)
	r.chunk("u", 0)
	r.chunk("u", 1)
	r.settle()
	b, sb := r.join("b", wire.Shared)
	a.Close()
	r.chunk("u", 2)
	b.Flow(100)
	r.settle()
	if got := sb.ids(); sa.count() != 2 || !slices.Equal(got, []int64{0, 1, 2}) || len(r.d.chunks.byHash) != 0 {
		t.Fatalf("b got %v, want all three chunks", got)
	}
}

func TestChunkDoesNotOvertakeOneThatWaits(t *testing.T) {
	r := start(t, Config{})
	a, sa := r.join("a", wire.Shared)
	b, sb := r.join("b", wire.Shared)
	a.Flow(1)
	r.chunk("u", 0)
	r.settle()
	b.Flow(100)
	r.chunk("u", 1)
	r.settle()
	a.permits.Add(2) // as a Flow whose task has not run yet
	r.chunk("u", 2)
	r.settle()
	if got := sa.ids(); !slices.Equal(got, []int64{0, 1, 2}) || sb.count() != 0 {
		t.Fatalf("a got %v, b %v", got, sb.ids())
	}
}
