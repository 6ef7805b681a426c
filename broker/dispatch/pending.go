package dispatch

import (
	"math"
	"slices"
	"sync"
)

// pendingAck is an entry sent to a consumer and not acknowledged by it.
type pendingAck struct {
	id       int64
	messages int32 // 0 = acknowledged meanwhile, not pending any more
	hash     uint16
	draining uint32 // generation of the draining count it is part of; 0 = none
}

// pendingAcks are one consumer's. Adding is the last gate before an entry is
// sent: it is refused once the consumer is closing.
//
// Entries are sent in order, but for replays, and acknowledged nearly so: they
// are kept in a sorted slice whose acknowledged elements stay until they are at
// its front or make up half of it.
type pendingAcks struct {
	mu     sync.Mutex
	items  []pendingAck // ascending
	gone   int          // of items, acknowledged
	closed bool
}

// add reports whether the entry may be sent.
func (p *pendingAcks) add(a pendingAck) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if n := len(p.items); n == 0 || p.items[n-1].id < a.id {
		p.items = append(p.items, a)
		return true
	}
	i, found := p.find(a.id)
	if !found {
		p.items = slices.Insert(p.items, i, a)
		return true
	}
	if p.items[i].messages == 0 {
		p.gone--
	}
	p.items[i] = a
	return true
}

// find needs mu. It also finds what is acknowledged already.
func (p *pendingAcks) find(id int64) (int, bool) {
	lo, hi := 0, len(p.items)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); p.items[mid].id < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(p.items) && p.items[lo].id == id
}

// remove takes id out and returns it as it was. It needs mu.
func (p *pendingAcks) remove(id int64) (pendingAck, bool) {
	i, found := p.find(id)
	if !found || p.items[i].messages == 0 {
		return pendingAck{}, false
	}
	a := p.items[i]
	p.items[i].messages = 0
	p.gone++
	return a, true
}

// tidy drops acknowledged elements when that is cheap. It needs mu.
func (p *pendingAcks) tidy() {
	if p.gone == len(p.items) {
		p.items, p.gone = p.items[:0], 0
		return
	}
	if p.gone > 64 && p.gone > len(p.items)/2 {
		p.items = slices.DeleteFunc(p.items, func(a pendingAck) bool { return a.messages == 0 })
		p.gone = 0
	}
}

// takenAcks sums up entries that were removed.
type takenAcks struct {
	messages int64
	draining []pendingAck // those that a draining hash counts
}

func (t *takenAcks) add(a pendingAck) {
	t.messages += int64(a.messages)
	if a.draining != 0 {
		t.draining = append(t.draining, a)
	}
}

// take removes what is pending of ids and says how many that were.
func (p *pendingAcks) take(ids []int64) (t takenAcks, found int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if a, ok := p.remove(id); ok {
			found++
			t.add(a)
		}
	}
	p.tidy()
	return t, found
}

// all returns the pending entries, in order.
func (p *pendingAcks) all() []int64 { return p.upTo(math.MaxInt64) }

// upTo returns the pending entries up to last, in order.
func (p *pendingAcks) upTo(last int64) []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []int64
	for _, a := range p.items {
		if a.id > last {
			break
		}
		if a.messages > 0 {
			ids = append(ids, a.id)
		}
	}
	return ids
}

// withdraw removes what is pending of ids to be sent again, and returns it in
// the order of ids.
func (p *pendingAcks) withdraw(ids []int64) (items []replayItem, t takenAcks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if a, ok := p.remove(id); ok {
			items = append(items, replayItem{id, a.hash})
			t.add(a)
		}
	}
	p.tidy()
	return items, t
}

// close withdraws everything, in order, and makes add refuse. What is being
// acknowledged at the same time is either returned or taken, never both.
func (p *pendingAcks) close() (items []replayItem, messages int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, a := range p.items {
		if a.messages > 0 {
			items = append(items, replayItem{a.id, a.hash})
			messages += int64(a.messages)
		}
	}
	p.items, p.gone = nil, 0
	return items, messages
}

// len returns the number of entries pending and the elements kept for them.
func (p *pendingAcks) len() (pending, kept int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.items) - p.gone, len(p.items)
}
