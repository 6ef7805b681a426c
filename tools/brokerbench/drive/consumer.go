package drive

import (
	"fmt"
	"net"
	"sync"
)

// consumerCodec encodes for one member of the group. It is used under the
// consumer's lock, but for receive's wait.
type consumerCodec interface {
	// wait reads once.
	wait() error
	// receive handles what was read: it calls visit for every whole message
	// and remembers to acknowledge it.
	receive(visit func(payload []byte)) error
	// pending is how many acknowledgements are not written, and whether
	// something else must be written at once.
	pending() (acks int, urgent bool)
	// appendReply appends what is to be written: acknowledgements, and what
	// asks for more messages.
	appendReply(dst []byte) []byte
}

// consumer is one member of the group.
type consumer struct {
	run   *run
	index int
	nc    net.Conn
	codec consumerCodec

	mu     sync.Mutex // the codec, and writes to nc
	out    []byte
	stamps []stamp
}

func newConsumer(r *run, index int, nc net.Conn, codec consumerCodec) *consumer {
	return &consumer{run: r, index: index, nc: nc, codec: codec}
}

func (c *consumer) read() error {
	for {
		err := c.codec.wait()
		if err == nil {
			err = c.take()
		}
		if err != nil {
			return fmt.Errorf("consumer %d: %w", c.index, err)
		}
	}
}

// take checks and acknowledges what one read returned.
func (c *consumer) take() error {
	r := c.run
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamps = c.stamps[:0]
	err := c.codec.receive(func(payload []byte) {
		var s stamp
		if s.parse(payload, r.job.Size) != nil {
			r.check.refuse()
			return
		}
		c.stamps = append(c.stamps, s)
	})
	if err != nil {
		return err
	}
	if len(c.stamps) > 0 {
		now := r.now()
		fresh := r.check.observe(c.stamps)
		if r.inWindow.Load() {
			r.endToEnd.mu.Lock()
			for i := range c.stamps {
				r.endToEnd.record(now - c.stamps[i].sent)
			}
			r.endToEnd.mu.Unlock()
		}
		r.delivered.Add(int64(fresh))
		r.budget.give(fresh)
	}
	if n, urgent := c.codec.pending(); urgent || n >= r.job.AckGroup {
		return c.reply()
	}
	return nil
}

// reply writes what is pending; c.mu is held.
func (c *consumer) reply() error {
	n, urgent := c.codec.pending()
	if n == 0 && !urgent {
		return nil
	}
	c.out = c.codec.appendReply(c.out[:0])
	if _, err := c.nc.Write(c.out); err != nil {
		return err
	}
	c.run.confirmed.Add(int64(n))
	return nil
}

// flush writes acknowledgements that waited for their group.
func (c *consumer) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.reply(); err != nil {
		return fmt.Errorf("consumer %d: %w", c.index, err)
	}
	return nil
}
