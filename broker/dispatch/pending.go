package dispatch

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// pendingAck is an entry sent to a consumer and not acknowledged by it.
type pendingAck struct {
	hash     uint16
	messages int32
	draining uint32 // generation of the draining count it is part of; 0 = none
}

// pendingAcks are one consumer's. Adding is the last gate before an entry is
// sent: it is refused once the consumer is closing.
type pendingAcks struct {
	mu      sync.Mutex
	entries map[int64]pendingAck
	closed  bool
}

// add reports whether the entry may be sent.
func (p *pendingAcks) add(id int64, a pendingAck) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.entries[id] = a
	return true
}

// takenAcks sums up entries that were removed because they were acknowledged.
type takenAcks struct {
	messages int64
	draining []pendingAck // those that a draining hash counts
}

// take removes what is pending of ids and says how many that were.
func (p *pendingAcks) take(ids []int64) (t takenAcks, found int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		a, ok := p.entries[id]
		if !ok {
			continue
		}
		delete(p.entries, id)
		found++
		t.messages += int64(a.messages)
		if a.draining != 0 {
			t.draining = append(t.draining, a)
		}
	}
	return t, found
}

// upTo returns the pending entries up to last, in no order.
func (p *pendingAcks) upTo(last int64) []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []int64
	for id := range p.entries {
		if id <= last {
			ids = append(ids, id)
		}
	}
	return ids
}

// withdraw removes what is pending of ids, or everything if ids is nil, to be
// sent again, and returns it in order with its number of messages.
func (p *pendingAcks) withdraw(ids []int64) (items []replayItem, messages int64) {
	if ids == nil {
		ids = p.upTo(math.MaxInt64)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if a, ok := p.entries[id]; ok {
			delete(p.entries, id)
			items = append(items, replayItem{id, a.hash})
			messages += int64(a.messages)
		}
	}
	slices.SortFunc(items, func(a, b replayItem) int { return cmp.Compare(a.id, b.id) })
	return items, messages
}

// close withdraws everything and makes add refuse.
func (p *pendingAcks) close() []replayItem {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	items, _ := p.withdraw(nil)
	return items
}

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
		c.pending.mu.Lock()
		for id, a := range c.pending.entries {
			stays := owner(a.hash) == c
			if a.draining = d.generation; stays {
				a.draining = 0
			}
			c.pending.entries[id] = a
			if stays {
				continue
			}
			h := d.left[a.hash]
			if h == nil {
				h = &drainingHash{owner: c}
				d.left[a.hash] = h
			}
			h.count++
		}
		c.pending.mu.Unlock()
	}
	d.active.Store(len(d.left) > 0)
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
