package drive

import (
	"fmt"
	"net"
	"sync"
)

// publisherCodec encodes for one publishing connection.
type publisherCodec interface {
	// appendMessage appends the n-th message of the connection; unixMs is now.
	appendMessage(dst []byte, n uint32, unixMs uint64, payload []byte) []byte
	// receipts reads once and returns how many of the oldest messages the
	// broker has taken, and what it wants answered.
	receipts() (n int, reply []byte, err error)
}

// publisher is one publishing connection.
type publisher struct {
	run   *run
	index int
	nc    net.Conn
	codec publisherCodec

	held int // of the budget: messages that wait in line

	mu      sync.Mutex // below, and writes to nc
	out     []byte
	payload []byte
	next    uint32  // counter of the next message
	acked   uint32  // receipts that came
	sentAt  []int64 // by counter modulo the window
}

func newPublisher(r *run, index int, nc net.Conn, codec publisherCodec) *publisher {
	p := &publisher{run: r, index: index, nc: nc, codec: codec, payload: make([]byte, r.job.Size), sentAt: make([]int64, r.job.InFlight)}
	for i := range p.payload {
		p.payload[i] = 'a' + byte(i%26)
	}
	return p
}

// send writes the next n messages.
func (p *publisher) send(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.write(n)
}

// write is send with p.mu held.
func (p *publisher) write(n int) error {
	if n == 0 {
		return nil
	}
	now := p.run.now()
	unixMs := uint64(p.run.epoch.UnixMilli() + now/1e6)
	out := p.out[:0]
	for range n {
		if p.next == 1<<32-1 {
			return fmt.Errorf("publisher %d: more messages than the check counts", p.index)
		}
		s := stamp{run: p.run.check.run, conn: uint32(p.index), counter: p.next, sent: now}
		s.put(p.payload)
		p.sentAt[p.next%uint32(len(p.sentAt))] = now
		out = p.codec.appendMessage(out, p.next, unixMs, p.payload)
		p.next++
	}
	p.out = out
	p.run.sent.Add(int64(n)) // before the write: what is received was sent
	if _, err := p.nc.Write(out); err != nil {
		return fmt.Errorf("publisher %d: %w", p.index, err)
	}
	return nil
}

// read is the connection's goroutine: it takes receipts and sends as many
// messages again.
func (p *publisher) read() error {
	for {
		n, reply, err := p.codec.receipts()
		if err != nil {
			return fmt.Errorf("publisher %d: %w", p.index, err)
		}
		if err := p.take(n, reply); err != nil {
			return err
		}
	}
}

func (p *publisher) take(n int, reply []byte) error {
	now := p.run.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(reply) > 0 {
		if _, err := p.nc.Write(reply); err != nil {
			return fmt.Errorf("publisher %d: %w", p.index, err)
		}
	}
	if uint32(n) > p.next-p.acked {
		return fmt.Errorf("publisher %d: %d receipts for %d messages", p.index, n, p.next-p.acked)
	}
	if p.run.inWindow.Load() {
		p.run.publish.mu.Lock()
		for i := range uint32(n) {
			p.run.publish.record(now - p.sentAt[(p.acked+i)%uint32(len(p.sentAt))])
		}
		p.run.publish.mu.Unlock()
	}
	p.acked += uint32(n)
	p.run.published.Add(int64(n))
	return p.write(p.run.budget.take(p, n))
}
