package executor

import "sync/atomic"

const initialRing = 64

// ring is what the queues with a lock have under it: a growing ring of items.
// Every method except finished needs the lock held.
type ring struct {
	limit     int    // on size and running together; 0 = none
	items     []Item // length is zero or a power of two
	head      int
	size      int
	closed    bool
	submitted uint64
	running   atomic.Int64 // taken and not finished; counted only with a limit
}

// exempt says whether the limit is not for tasks of that kind: completions are
// of adds that it has let pass before.
func exempt(k Kind) bool { return k == AddComplete }

// put appends it unless the queue is closed or full, and says whether it is
// now the only item.
func (r *ring) put(it Item) (first, ok bool) {
	if r.closed || r.limit > 0 && !exempt(it.Kind) && r.size+int(r.running.Load()) >= r.limit {
		return false, false
	}
	if r.size == len(r.items) {
		r.grow()
	}
	r.items[(r.head+r.size)&(len(r.items)-1)] = it
	r.size++
	r.submitted++
	return r.size == 1, true
}

func (r *ring) grow() {
	items := make([]Item, max(initialRing, 2*len(r.items)))
	n := copy(items, r.items[r.head:])
	copy(items[n:], r.items[:r.head])
	r.items, r.head = items, 0
}

// idle says whether a consumer has to wait.
func (r *ring) idle() bool { return r.size == 0 && !r.closed }

func (r *ring) take(into []Item) int {
	n := r.move(into)
	if r.limit > 0 {
		r.running.Add(int64(n))
	}
	return n
}

func (r *ring) drain() []Item {
	rest := make([]Item, r.size)
	r.move(rest)
	return rest
}

func (r *ring) move(into []Item) int {
	n := min(r.size, len(into))
	for done := 0; done < n; {
		part := r.items[r.head:min(r.head+n-done, len(r.items))]
		copy(into[done:], part)
		clear(part) // tasks that ran must not be kept alive by the ring
		done += len(part)
		r.head = (r.head + len(part)) & (len(r.items) - 1)
	}
	r.size -= n
	return n
}

func (r *ring) finished() { r.running.Add(-1) }
