package load

import (
	"sync"
	"sync/atomic"
)

// maxPending bounds the memory that a hostile broker's gaps can take; what
// goes beyond counts as invalid.
const maxPending = 4 << 20

// tracker checks one application's deliveries: an expected counter per device,
// and the few counters that came before their turn.
type tracker struct {
	unique     atomic.Int64
	lastUnique atomic.Int64 // when the last unique message came, ns since the epoch
	ordered    bool         // the subscription promises order per key

	mu         sync.Mutex
	next       []uint32            // by device: everything below was received
	early      map[uint64]struct{} // device<<32|counter received above next
	duplicates int64
	disorder   int64
	invalid    int64
	foreign    int64
	firstBad   error // the first invalid message's reason
	inWindow   int64 // unique messages received in the window
}

func newTracker(devices int, ordered bool) *tracker {
	return &tracker{ordered: ordered, next: make([]uint32, devices), early: map[uint64]struct{}{}}
}

// observation is one message on its way through the checks; fresh is the
// tracker's verdict that it was seen for the first time.
type observation struct {
	stamp
	fresh bool
}

// bad counts messages that cannot be checked.
type bad struct {
	invalid int64
	foreign int64 // left over from another run
	first   error
}

// observe checks the messages that one read returned, at time now, in order.
func (t *tracker) observe(obs []observation, b bad, now int64, window *window) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := int64(0)
	for i := range obs {
		o := &obs[i]
		if o.fresh = t.see(o.device, o.counter); o.fresh {
			fresh++
		}
	}
	t.invalid += b.invalid
	t.foreign += b.foreign
	if t.firstBad == nil {
		t.firstBad = b.first
	}
	if fresh == 0 {
		return
	}
	if window.has(now) {
		t.inWindow += fresh
	}
	t.lastUnique.Store(now)
	t.unique.Add(fresh)
}

// see reports whether the message is received for the first time.
func (t *tracker) see(device int32, counter uint32) bool {
	next := &t.next[device]
	switch {
	case counter == *next:
		*next++
		for len(t.early) > 0 {
			if _, ok := t.early[earlyKey(device, *next)]; !ok {
				break
			}
			delete(t.early, earlyKey(device, *next))
			*next++
		}
		return true
	case counter < *next:
		t.duplicates++
		return false
	}
	key := earlyKey(device, counter)
	if _, ok := t.early[key]; ok {
		t.duplicates++
		return false
	}
	if len(t.early) >= maxPending {
		t.invalid++
		return false
	}
	t.early[key] = struct{}{}
	if t.ordered {
		t.disorder++
	}
	return true
}

func earlyKey(device int32, counter uint32) uint64 {
	return uint64(uint32(device))<<32 | uint64(counter)
}

// finish compares the end state per device with the producers': acked[d]
// messages were acknowledged, and one more may be in flight where unacked[d].
// Received counts acknowledged messages only.
func (t *tracker) finish(acked []uint32, unacked map[int32]bool) Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := Delivery{Duplicates: t.duplicates, Disorder: t.disorder, Invalid: t.invalid, Foreign: t.foreign, Received: t.unique.Load()}
	earlyBelow := map[int32]int64{} // early messages that the producers know
	for key := range t.early {
		device, counter := int32(key>>32), uint32(key)
		if counter < acked[device] {
			earlyBelow[device]++
			continue
		}
		d.Received--
		if !(unacked[device] && counter == acked[device]) {
			d.Invalid++ // nobody sent it
		}
	}
	for device, n := range acked {
		dev := int32(device)
		d.Expected += int64(n)
		got := t.next[device]
		if got > n {
			over := int64(got - n)
			d.Received -= over
			if unacked[dev] {
				over-- // delivered although its receipt did not come
			}
			d.Invalid += over
			got = n
		}
		if missing := int64(n-got) - earlyBelow[dev]; missing > 0 {
			d.Lost += missing
			d.DevicesIncomplete++
		}
	}
	return d
}
