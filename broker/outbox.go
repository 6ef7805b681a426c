package broker

import (
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/dispatch"
)

// outgoing is one thing for a connection's writer: exactly one of response,
// publish and delivery is set.
type outgoing struct {
	next     *outgoing
	response []byte             // an encoded frame
	publish  *publish           // its receipt or error
	delivery *dispatch.Delivery // MESSAGE frames
	unasked  bool               // response: no answer to anything the client sent
}

// outbox queues what a connection has to write. Executors, dispatchers and the
// connection's reader push without a lock; the writer takes everything at once.
// Only a push to an empty outbox wakes the writer.
type outbox struct {
	newest atomic.Pointer[outgoing] // linked from newest to oldest
	wake   chan struct{}
}

func newOutbox() outbox { return outbox{wake: make(chan struct{}, 1)} }

func (b *outbox) push(o *outgoing) {
	for {
		top := b.newest.Load()
		o.next = top
		if !b.newest.CompareAndSwap(top, o) {
			continue
		}
		if top == nil {
			select {
			case b.wake <- struct{}{}:
			default: // a wake-up is due already
			}
		}
		return
	}
}

// take returns everything queued, oldest first, or nil.
func (b *outbox) take() *outgoing {
	var oldest *outgoing
	for o := b.newest.Swap(nil); o != nil; {
		o.next, oldest, o = oldest, o, o.next
	}
	return oldest
}
