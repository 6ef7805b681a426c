package dispatch

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

// Whatever comes and goes, the total is what live consumers were credited and
// have not used, and what counts as unacknowledged is what is pending.
func TestCountsBesideRemoval(t *testing.T) {
	for _, mode := range []FlowMode{Atomic, Monitor} {
		for _, typ := range []wire.SubType{wire.Shared, wire.KeyShared, wire.Failover} {
			t.Run(fmt.Sprint(mode, " ", typ), func(t *testing.T) {
				r := start(t, Config{Flow: mode, MaxReadBatchSize: 16})
				var over atomic.Bool
				var publisher, users sync.WaitGroup
				publisher.Go(func() {
					for i := 0; !over.Load(); i++ {
						r.publish(fmt.Sprint(i % 20))
					}
				})
				stays, _ := r.join("stays", typ)
				for u := range 4 {
					users.Go(func() {
						rng := rand.New(rand.NewPCG(1, uint64(u)))
						for range 20 {
							c, _ := r.joinWith(ConsumerOptions{Name: fmt.Sprint("c", u), Type: typ, Priority: rng.Int32N(3)})
							var flows sync.WaitGroup
							for range 2 {
								flows.Go(func() {
									for range 10 {
										c.Flow(3)
										stays.Flow(1)
									}
								})
							}
							flows.Go(func() {
								for range 10 {
									c.Ack(c.pending.all())
									stays.Ack(stays.pending.all())
								}
							})
							if rng.IntN(2) == 0 {
								c.Redeliver(nil)
							}
							c.Close()
							flows.Wait()
						}
					})
				}
				users.Wait()
				over.Store(true)
				publisher.Wait()
				r.settle()
				st := r.d.Stats()
				pending, _ := stays.pending.len()
				if st.Permits != stays.permits.Load() || st.Permits != stays.credited.Load() || st.Permits < 0 {
					t.Errorf("total %d, the only consumer has %d, credited %d", st.Permits, stays.permits.Load(), stays.credited.Load())
				}
				if st.Unacked != int64(pending) || stays.unacked.Load() != st.Unacked {
					t.Errorf("unacknowledged %d, of the only consumer %d, pending %d", st.Unacked, stays.unacked.Load(), pending)
				}
			})
		}
	}
}

// What is being acknowledged while its consumer leaves is taken off once.
func TestAckDuringRemovalCountsOnce(t *testing.T) {
	r := start(t, Config{})
	c, _ := r.join("a", wire.Shared)
	other, _ := r.join("b", wire.Shared)
	other.Flow(0)
	c.Flow(100)
	for range 3 {
		r.publish("k")
	}
	r.settle()
	taken, _ := c.pending.take([]int64{0, 1}) // as Ack does, which goes on after the removal
	c.Close()
	c.settle(taken)
	if n := r.d.Stats().Unacked; n != 0 || c.unacked.Load() != 0 {
		t.Fatalf("%d unacknowledged with one entry in the replay set, %d of the consumer's", n, c.unacked.Load())
	}
}

// Acknowledgements run beside changes of owner: no hash may stay blocked.
func TestDrainingBesideChangesOfOwner(t *testing.T) {
	r := start(t, Config{MaxReadBatchSize: 16})
	var over atomic.Bool
	stays, _ := r.join("stays", wire.KeyShared)
	stays.Flow(1_000_000)
	var acks sync.WaitGroup
	acks.Go(func() {
		for !over.Load() {
			stays.Ack(stays.pending.all())
		}
	})
	const entries = 500
	var publisher sync.WaitGroup
	publisher.Go(func() {
		for i := range entries {
			r.publish(fmt.Sprint(i % 30))
		}
	})
	for i := range 80 {
		c, _ := r.join(fmt.Sprint("c", i%3), wire.KeyShared)
		c.Flow(10)
		acks.Go(func() {
			for range 5 {
				c.Ack(c.pending.all())
			}
			c.Close()
		})
	}
	publisher.Wait()
	waitUntil(t, "all acknowledged", func() bool { return r.d.Stats().Backlog == 0 })
	over.Store(true)
	acks.Wait()
	if st := r.d.Stats(); st.DrainingHashes != 0 || st.Unacked != 0 {
		t.Fatalf("left over: %+v", st)
	}
}

// An entry acknowledged between two changes of owner was counted by the first
// and not by the second.
func TestDrainingGenerations(t *testing.T) {
	old, now := &Consumer{}, &Consumer{}
	toNow := func(uint16) *Consumer { return now }
	var d draining
	for id := range int64(3) {
		old.pending.add(pendingAck{id: id, messages: 1, hash: 7})
	}
	members := []*Consumer{old, now}
	d.recompute(members, toNow)
	late, _ := old.pending.take([]int64{0})
	d.recompute(members, toNow) // counts 1 and 2
	if d.settle(late.draining) || !d.blocks(7, now) || d.blocks(7, old) || d.blocks(8, now) {
		t.Fatal("an entry of the count before must not free the hash")
	}
	one, _ := old.pending.take([]int64{1})
	if d.settle(one.draining) || !d.blocks(7, now) {
		t.Fatal("freed with an entry left")
	}
	two, _ := old.pending.take([]int64{2})
	if !d.settle(two.draining) || d.blocks(7, now) || d.len() != 0 {
		t.Fatal("not freed by the last entry")
	}
	// The last entry, taken before the hash was counted again without it: the
	// one who settles it must still make the new owner's entries be sent.
	old.pending.add(pendingAck{id: 3, messages: 1, hash: 7})
	d.recompute(members, toNow)
	last, _ := old.pending.take([]int64{3})
	d.recompute(members, toNow)
	if !d.settle(last.draining) {
		t.Fatal("the hash became free and nobody is told")
	}
}
