package broker

import (
	"errors"
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// publish is one SEND from its frame to its receipt. The connection's reader
// fills it, the ledger owns it until its callback, the connection's writer
// encodes the receipt and gives it back to the reader.
type publish struct {
	ledger.Add
	out      outgoing
	nextFree *publish

	conn       *conn
	producer   *producer
	sequenceID uint64
	highestID  uint64
	entry      int64
	err        error
}

// AddCompleted queues the receipt. The ledger executor is the only one that
// queues receipts of its ledger, so they are in the order of the entries.
func (p *publish) AddCompleted(entry int64) {
	p.entry = entry
	p.conn.server.published.Add(uint64(p.Messages))
	p.conn.out.push(&p.out)
}

// AddFailed queues an error in place of the receipt.
func (p *publish) AddFailed(err error) {
	p.err = err
	p.producer.failed.Store(true)
	p.conn.out.push(&p.out)
}

// append encodes the receipt or the error.
func (p *publish) append(dst []byte) []byte {
	if p.err != nil {
		e := wire.SendError{ProducerID: p.producer.id, SequenceID: p.sequenceID, Code: sendCode(p.err), Message: p.err.Error()}
		return e.AppendFrame(dst)
	}
	r := wire.SendReceipt{
		ProducerID: p.producer.id, SequenceID: p.sequenceID, HighestSequenceID: p.highestID,
		HasMessageID: true, MessageID: p.producer.topic.messageID(p.entry),
	}
	return r.AppendFrame(dst)
}

// sendCode is the error that a failed send is told with. Clients give a
// terminated topic up; with any other they connect again and send all again
// that has no receipt.
func sendCode(err error) wire.ServerError {
	switch {
	case errors.Is(err, ledger.ErrTerminated):
		return wire.ErrorTopicTerminated
	case errors.Is(err, ledger.ErrClosed):
		return wire.ErrorServiceNotReady
	case errors.Is(err, ledger.ErrThrottled):
		return wire.ErrorTooManyRequests
	}
	return wire.ErrorPersistence
}

// publishPool lets a connection reuse its publishes: the writer gives back, the
// reader takes.
type publishPool struct {
	mine  *publish                // the reader's
	given atomic.Pointer[publish] // by the writer
}

// publishChunk is the number of publishes allocated together.
const publishChunk = 32

func (l *publishPool) get(c *conn) *publish {
	if l.mine == nil {
		l.mine = l.given.Swap(nil)
	}
	if l.mine == nil {
		chunk := make([]publish, publishChunk)
		for i := range chunk {
			p := &chunk[i]
			p.conn, p.out.publish, p.Done = c, p, p
			p.nextFree, l.mine = l.mine, p
		}
	}
	p := l.mine
	l.mine = p.nextFree
	return p
}

// give returns p; the writer's side.
func (l *publishPool) give(p *publish) {
	p.Data, p.err, p.producer = nil, nil, nil
	for {
		top := l.given.Load()
		p.nextFree = top
		if l.given.CompareAndSwap(top, p) {
			return
		}
	}
}

// slab cuts small byte slices out of larger allocations. An entry keeps the
// whole block that it was cut from alive. The first blocks are small, so that a
// producer that sends little holds little.
type slab struct {
	free []byte
	next int // bytes of the next block; 0 = slabFirst
}

const (
	slabFirst   = 1 << 10
	slabBlock   = 16 << 10
	slabLargest = slabBlock / 8
)

// copyOf returns a copy of b.
func (s *slab) copyOf(b []byte) []byte {
	if len(b) > slabLargest {
		return append(make([]byte, 0, len(b)), b...)
	}
	if len(s.free) < len(b) {
		size := max(s.next, slabFirst, len(b))
		s.free = make([]byte, size)
		s.next = min(2*size, slabBlock)
	}
	out := s.free[:len(b):len(b)]
	s.free = s.free[len(b):]
	copy(out, b)
	return out
}
