package broker

import (
	"sync"
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	// maxPartial bounds the entries of a subscription that are kept as
	// acknowledged in part, maxAckWords the words of each: more are treated as
	// not acknowledged at all, so that all of the entry may come again.
	maxPartial  = 10_000
	maxAckWords = 64 // 4,096 messages
)

// partialAcks are the entries of a subscription of which some messages are
// acknowledged: bitmaps whose set bits are not. They are in memory only.
type partialAcks struct {
	any  atomic.Bool // false: there are none, and the lock is not needed
	mu   sync.Mutex
	sets map[int64][]int64
}

// merge takes an acknowledgement of part of an entry and reports whether the
// entry is acknowledged altogether now. first and last bound the entries that
// may be.
func (p *partialAcks) merge(entry int64, set []int64, first, last int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.sets[entry]
	switch {
	case len(set) > maxAckWords || entry < first || entry > last:
		return false
	case has == nil:
		if p.forgetBelow(first); len(p.sets) >= maxPartial {
			return false
		}
		if p.sets == nil {
			p.sets = map[int64][]int64{}
		}
		p.sets[entry] = append([]int64(nil), set...)
		p.any.Store(true)
		return false
	}
	left := int64(0)
	for i := range has {
		if i < len(set) {
			has[i] &= set[i]
		} else { // words that are left out are all acknowledged
			has[i] = 0
		}
		left |= has[i]
	}
	if left == 0 {
		delete(p.sets, entry)
	}
	return left == 0
}

// forgetBelow drops what was acknowledged otherwise, once there is much. It
// needs mu.
func (p *partialAcks) forgetBelow(first int64) {
	if len(p.sets) < maxPartial {
		return
	}
	for entry := range p.sets {
		if entry < first {
			delete(p.sets, entry)
		}
	}
}

// of returns a copy of an entry's set, nil if none of it is acknowledged.
func (p *partialAcks) of(entry int64) []int64 {
	if !p.any.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if set := p.sets[entry]; set != nil {
		return append([]int64(nil), set...)
	}
	return nil
}

// forget drops an entry that is acknowledged.
func (p *partialAcks) forget(entry int64) {
	if !p.any.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sets, entry)
	p.any.Store(len(p.sets) > 0)
}

func (p *partialAcks) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.sets)
	p.any.Store(false)
}

// partial reports whether a set leaves messages of its entry unacknowledged.
func partial(ackSet []int64) bool {
	for _, w := range ackSet {
		if w != 0 {
			return true
		}
	}
	return false
}

// acked returns the entries that ids acknowledge altogether; of the others, what
// is acknowledged is kept. The result is valid until the next call.
func (c *conn) acked(sub *subscription, ids []wire.MessageID) []int64 {
	c.ids = c.ids[:0]
	for i := range ids {
		id := &ids[i]
		entry, ok := sub.topic.ownEntry(id)
		if !ok {
			continue
		}
		if partial(id.AckSet) {
			l := sub.topic.ledger
			if !sub.partial.merge(entry, id.AckSet, sub.Cursor().MarkDeletePosition()+1, l.LastConfirmed()) {
				continue
			}
		} else {
			sub.partial.forget(entry)
		}
		c.ids = append(c.ids, entry)
	}
	return c.ids
}
