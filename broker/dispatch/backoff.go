package dispatch

import "time"

// backoff is a delay that doubles from first to most until it is reset.
type backoff struct {
	first, most time.Duration
	now         time.Duration
}

func (b *backoff) next() time.Duration {
	b.now = min(max(2*b.now, b.first), b.most)
	return b.now
}

func (b *backoff) reset() { b.now = 0 }
