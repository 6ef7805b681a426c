package drive

import "sync"

// budget bounds the messages that were sent and not delivered. Publishers that
// find none left wait in line, and get their whole demand at once.
type budget struct {
	mu      sync.Mutex
	free    int
	waiting []*publisher // in line; each has held > 0
	held    int64        // times that a publisher joined the line
	stopped bool
	limit   int64         // messages still to be sent; negative = no limit
	grants  []grant       // for the granter
	wake    chan struct{} // of the granter; has room for one
}

type grant struct {
	p *publisher
	n int
}

func newBudget(n int, messages int64) *budget {
	if messages == 0 {
		messages = -1
	}
	return &budget{free: n, limit: messages, wake: make(chan struct{}, 1)}
}

// take returns how many of n messages p may send now. The rest it gets through
// the granter; nothing is left when the budget is stopped.
func (b *budget) take(p *publisher, n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return 0
	}
	if b.limit >= 0 {
		n = int(min(int64(n), b.limit))
		b.limit -= int64(n)
	}
	if p.held > 0 { // in line already
		p.held += n
		return 0
	}
	got := n
	if len(b.waiting) > 0 {
		got = 0
	}
	got = min(got, b.free)
	b.free -= got
	if p.held = n - got; p.held > 0 {
		b.waiting = append(b.waiting, p)
		b.held++
	}
	return got
}

// give returns n delivered messages and lets those in line go that they suffice
// for.
func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	granted := false
	for len(b.waiting) > 0 && b.free >= b.waiting[0].held && !b.stopped {
		p := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.free -= p.held
		b.grants = append(b.grants, grant{p, p.held})
		p.held = 0
		granted = true
	}
	if granted {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// granted empties the list of grants.
func (b *budget) granted() []grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.grants
	b.grants = nil
	return g
}

// stop lets nothing more be sent, other than what was granted.
func (b *budget) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	for _, p := range b.waiting {
		p.held = 0
	}
	b.waiting = nil
}

// drained reports whether a message limit has been used up and sent.
func (b *budget) drained() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit == 0 && len(b.waiting) == 0 && len(b.grants) == 0
}

func (b *budget) timesHeld() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}
