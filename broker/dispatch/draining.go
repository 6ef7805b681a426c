package dispatch

import (
	"sync"
	"sync/atomic"
)

// draining counts, for each hash that changed its owner, the entries that the
// old owner has not acknowledged; the new owner gets nothing of the hash until
// there are none.
type draining struct {
	active     atomic.Bool // false: no hash is draining, and the lock is not needed
	mu         sync.Mutex
	generation uint32 // tells an acknowledgement counted before from one counted now
	left       map[uint16]*drainingHash
}

type drainingHash struct {
	owner *Consumer
	count int
}

// clear forgets every hash: nothing waits for anybody.
func (d *draining) clear() { d.recompute(nil, nil) }

// recompute starts over from what is pending: called when consumers change.
func (d *draining) recompute(consumers []*Consumer, owner func(uint16) *Consumer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = make(map[uint16]*drainingHash)
	d.generation++
	for _, c := range consumers {
		d.count(c, owner)
	}
	d.active.Store(len(d.left) > 0)
}

// count marks and counts what c has of hashes that belong to others now.
func (d *draining) count(c *Consumer, owner func(uint16) *Consumer) {
	c.pending.mu.Lock()
	defer c.pending.mu.Unlock()
	for i := range c.pending.items {
		a := &c.pending.items[i]
		a.draining = 0
		if a.messages == 0 || owner(a.hash) == c {
			continue
		}
		a.draining = d.generation
		h := d.left[a.hash]
		if h == nil {
			h = &drainingHash{owner: c}
			d.left[a.hash] = h
		}
		h.count++
	}
}

// blocks reports whether c must wait for another consumer's entries of h.
func (d *draining) blocks(h uint16, c *Consumer) bool {
	if !d.active.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.left[h]
	return left != nil && left.owner != c
}

// settle takes entries off that were marked and are pending no more, and
// reports whether one of their hashes is free now. The caller holds no pending
// lock: recompute takes the locks the other way round.
func (d *draining) settle(gone []pendingAck) (free bool) {
	if len(gone) == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range gone {
		left := d.left[a.hash]
		if left != nil && a.draining == d.generation {
			if left.count--; left.count == 0 {
				delete(d.left, a.hash)
				left = nil
			}
		}
		// An entry of an earlier generation was not counted in this one. If the
		// hash is free, it may be only because of this entry.
		free = free || left == nil
	}
	d.active.Store(len(d.left) > 0)
	return free
}

func (d *draining) len() int {
	if !d.active.Load() {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.left)
}
