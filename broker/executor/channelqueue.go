package executor

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// ChannelQueue is a buffered channel. Offer of an [Add] blocks while it is
// full: that is its back-pressure. Every other kind never blocks, since the
// executor submits those to itself; what finds the channel full goes to an
// overflow list.
//
// The consumer takes from the overflow list only after everything that was in
// the channel before, and within one channel's length of items. So the order
// of one goroutine's items holds, except that an add may overtake an earlier
// item of another kind that went to the overflow list. A task that submits an
// Add to its own executor could block for ever.
type ChannelQueue struct {
	limit   int
	ch      chan Item
	kick    chan struct{} // tells a waiting consumer to look at the overflow list
	closing chan struct{}
	close   sync.Once
	closed  atomic.Bool

	// pending counts items that are queued or being offered: closed and none
	// pending means that nothing will come any more.
	pending    atomic.Int64
	unfinished atomic.Int64 // pending or taken and not finished; only with a limit
	submitted  atomic.Uint64

	overflowed atomic.Int64 // length of overflow, read without the lock
	mu         sync.Mutex
	overflow   []Item
	due        int // the first so many of overflow are taken next,
	ahead      int // after so many items of the channel
}

func newChannelQueue(limit, size int) *ChannelQueue {
	if size <= 0 {
		size = DefaultChannelSize
	}
	return &ChannelQueue{limit: limit, ch: make(chan Item, size), kick: make(chan struct{}, 1), closing: make(chan struct{})}
}

// Offer appends one item. It fails with ErrRejected when the queue is at its
// limit, or is closed, also while it waits for room.
func (q *ChannelQueue) Offer(it Item) error {
	if !q.reserve(it.Kind) {
		return ErrRejected
	}
	if it.Kind != Add {
		q.offerUnblocked(it)
	} else if !q.send(it) {
		select {
		case q.ch <- it:
		case <-q.closing:
			q.unreserve()
			return ErrRejected
		}
	}
	q.submitted.Add(1)
	return nil
}

// reserve counts an item in; it fails when the queue is full or closed.
func (q *ChannelQueue) reserve(k Kind) bool {
	for q.limit > 0 {
		n := q.unfinished.Load()
		if n >= int64(q.limit) && !exempt(k) {
			return false
		}
		if q.unfinished.CompareAndSwap(n, n+1) {
			break
		}
	}
	q.pending.Add(1)
	if q.closed.Load() { // after the count, so that the consumer waits for us or we see this
		q.unreserve()
		return false
	}
	return true
}

func (q *ChannelQueue) unreserve() {
	q.pending.Add(-1)
	if q.limit > 0 {
		q.unfinished.Add(-1)
	}
}

func (q *ChannelQueue) send(it Item) bool {
	select {
	case q.ch <- it:
		return true
	default:
		return false
	}
}

func (q *ChannelQueue) offerUnblocked(it Item) {
	if q.overflowed.Load() == 0 && q.send(it) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.overflow) > 0 || !q.send(it) {
		q.spill(it)
	}
}

// spill puts it on the overflow list; mu is held.
func (q *ChannelQueue) spill(it Item) {
	q.overflow = append(q.overflow, it)
	q.overflowed.Store(int64(len(q.overflow)))
	// The consumer may have emptied the channel meanwhile and wait for it.
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// TakeAll is [Queue.TakeAll].
func (q *ChannelQueue) TakeAll(into []Item) int {
	for {
		if n := q.takeReady(into); n > 0 {
			q.pending.Add(-int64(n))
			return n
		}
		if !q.closed.Load() {
			select {
			case into[0] = <-q.ch:
				n := 1 + q.receive(into[1:])
				q.pending.Add(-int64(n))
				return n
			case <-q.kick:
			case <-q.closing:
			}
			continue
		}
		if q.pending.Load() == 0 {
			return 0
		}
		runtime.Gosched() // an Offer under way will send its item or give up
	}
}

// takeReady moves what is there, without waiting.
func (q *ChannelQueue) takeReady(into []Item) int {
	if q.overflowed.Load() == 0 {
		return q.receive(into)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.due == 0 {
		q.due, q.ahead = len(q.overflow), len(q.ch)
	}
	want := min(q.ahead, len(into))
	n := q.receive(into[:want])
	q.ahead -= n
	if n < want { // Drain took them
		q.ahead = 0
	}
	if q.ahead == 0 {
		m := copy(into[n:], q.overflow[:q.due])
		q.dropOverflow(m)
		q.due -= m
		n += m
	}
	return n
}

// dropOverflow removes the first n items of the overflow list.
func (q *ChannelQueue) dropOverflow(n int) {
	rest := copy(q.overflow, q.overflow[n:])
	clear(q.overflow[rest:])
	q.overflow = q.overflow[:rest]
	q.overflowed.Store(int64(rest))
}

// receive moves what the channel holds, without waiting.
func (q *ChannelQueue) receive(into []Item) int {
	for n := range into {
		select {
		case into[n] = <-q.ch:
		default:
			return n
		}
	}
	return len(into)
}

// Close makes Offer fail, also where it waits for room, and TakeAll return what
// is left, then 0.
func (q *ChannelQueue) Close() {
	q.closed.Store(true)
	q.close.Do(func() { close(q.closing) })
}

// Drain removes and returns everything queued. On a closed queue it waits for
// the Offers under way, each of which either fails or is in what Drain returns
// or the consumer has taken.
func (q *ChannelQueue) Drain() []Item {
	var rest []Item
	for {
		before := len(rest)
		for more := true; more; {
			select {
			case it := <-q.ch:
				rest = append(rest, it)
			default:
				more = false
			}
		}
		q.mu.Lock()
		rest = append(rest, q.overflow...)
		q.due, q.ahead = 0, 0
		q.dropOverflow(len(q.overflow))
		q.mu.Unlock()
		n := int64(len(rest) - before)
		if q.limit > 0 {
			q.unfinished.Add(-n)
		}
		if q.pending.Add(-n) == 0 || !q.closed.Load() {
			return rest
		}
		runtime.Gosched()
	}
}

// Len returns the number of items queued.
func (q *ChannelQueue) Len() int { return len(q.ch) + int(q.overflowed.Load()) }

// Submitted returns the number of items ever accepted.
func (q *ChannelQueue) Submitted() uint64 { return q.submitted.Load() }

func (q *ChannelQueue) finished() {
	if q.limit > 0 {
		q.unfinished.Add(-1)
	}
}
