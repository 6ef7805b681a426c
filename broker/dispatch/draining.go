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

// acked takes an entry off, which was marked, and reports whether its hash is
// free now.
func (d *draining) acked(a pendingAck) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.left[a.hash]
	if left == nil || a.draining != d.generation {
		return false
	}
	if left.count--; left.count > 0 {
		return false
	}
	delete(d.left, a.hash)
	d.active.Store(len(d.left) > 0)
	return true
}
