package broker

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/wire"
)

// conn is one client's connection: a goroutine that reads and decodes, and one
// that writes.
type conn struct {
	server *Server
	id     uint64
	net    net.Conn
	out    outbox
	done   chan struct{} // closed when the connection ends
	end    sync.Once

	// The reader's.
	connected bool
	indexes   bool // the client understands broker entry metadata, and is to have it
	producers map[uint64]*producer
	consumers map[uint64]*consumer
	pool      publishPool
	ids       []int64
	sought    map[*subscription]struct{} // by this client, and not come back to
	warnings  int                        // logged of what the client reported
	asking    int                        // subscriptions that wait for other clients to answer

	// owed counts frames the writer owes to the reader's input: receipts and
	// responses. The reader stops at the limit, until half are written, and
	// waits with throttled set for the writer to get down to resumeAt.
	owed      atomic.Int64
	throttled atomic.Bool
	resumeAt  atomic.Int64
	resume    chan struct{}
	flight    flight

	control  control
	pongs    []chan struct{} // closed at the next one; control.mu guards them
	gone     chan struct{}   // closed when the connection is cleaned up
	draining atomic.Bool     // the broker shuts down
	untold   atomic.Int64    // frames that nobody asked for, in out

	// queued is the bytes of messages in out; unwritable says that a consumer
	// was refused because of it.
	queued     atomic.Int64
	unwritable atomic.Bool
	consMu     sync.Mutex // consumers, for other goroutines than the reader

	heard   atomic.Bool  // a frame came since the keep-alive last looked
	quiet   int          // keep-alive rounds without one
	held    atomic.Int32 // not 0: the reader waits, and cannot hear anything
	writing atomic.Bool  // the writer waits for the client to take bytes
	wrote   atomic.Bool  // it took some since the keep-alive last looked
}

type consumer struct {
	*dispatch.Consumer
	sub    *subscription
	closed atomic.Bool // by the broker; the client was told
}

// noRequest is the request id of commands that answer none.
const noRequest = math.MaxUint64

// maxUntold bounds the frames queued for a client that did not ask for them and
// does not read them either.
const maxUntold = 10_000

func newConn(s *Server, id uint64, nc net.Conn) *conn {
	return &conn{
		server: s, id: id, net: nc, out: newOutbox(), done: make(chan struct{}), gone: make(chan struct{}), resume: make(chan struct{}, 1),
		producers: map[uint64]*producer{}, consumers: map[uint64]*consumer{}, sought: map[*subscription]struct{}{},
	}
}

// close ends the connection; what it served is cleaned up by the reader.
func (c *conn) close() {
	c.end.Do(func() {
		close(c.done)
		_ = c.net.Close() // the reader and the writer see it
	})
}

// readLoop runs the connection until it ends and returns why.
func (c *conn) readLoop() error {
	fr := wire.NewFrameReader(c.net, wire.ReaderOptions{
		MaxFrameSize: c.server.cfg.MaxMessageSize + wire.FramePadding, ReadFailed: c.readFailed,
	})
	var f wire.Frame
	var cmd wire.Command
	for {
		if err := fr.Next(&f); err != nil {
			return err
		}
		if !c.heard.Load() {
			c.heard.Store(true)
		}
		if err := wire.Parse(f.Command, &cmd); err != nil {
			return fmt.Errorf("frame at byte %d: %w", f.Offset, err)
		}
		if err := c.handle(&f, &cmd); err != nil {
			return fmt.Errorf("frame at byte %d, %v: %w", f.Offset, cmd.Type, err)
		}
		if !c.mayRead() && !c.waitForWriter() {
			return net.ErrClosed
		}
	}
}

// respond queues an encoded frame.
func (c *conn) respond(frame []byte) {
	c.owed.Add(1)
	c.out.push(&outgoing{response: frame})
}

// tell queues an encoded frame that is no answer to anything the client sent.
// Any goroutine may call it.
func (c *conn) tell(frame []byte) {
	if c.untold.Add(1) > maxUntold {
		c.server.log.Warn("closing a connection", "conn", c.id, "client", c.net.RemoteAddr().String(),
			"reason", "it does not read what it is told")
		c.close()
		return
	}
	c.out.push(&outgoing{response: frame, unasked: true})
}

// ActiveChanged tells a consumer's client whether the consumer is the one that
// Failover sends to. One that is being connected is told by attach.
func (c *conn) ActiveChanged(id uint64, active bool) {
	c.consMu.Lock()
	defer c.consMu.Unlock()
	if c.consumers[id] != nil {
		c.tellActive(id, active)
	}
}

func (c *conn) tellActive(id uint64, active bool) {
	c.tell((&wire.ActiveConsumerChange{ConsumerID: id, Active: active}).AppendFrame(nil))
}

// Deliver queues messages for a consumer of this connection.
func (c *conn) Deliver(d *dispatch.Delivery) {
	c.queued.Add(d.Bytes)
	c.out.push(&outgoing{delivery: d})
}

// Writable is false while too many bytes of messages are queued.
func (c *conn) Writable() bool {
	high := c.server.cfg.WriteHighWater
	if c.draining.Load() {
		return false
	}
	if c.queued.Load() < high {
		return true
	}
	c.unwritable.Store(true)
	// The writer may have caught up before it could see the mark.
	if c.queued.Load() > high/2 {
		return false
	}
	c.unwritable.Store(false)
	return true
}

// written takes delivered bytes off the queue and tells the dispatchers when
// the connection has become writable again.
func (c *conn) written(bytes int64) {
	if bytes == 0 {
		return
	}
	if c.queued.Add(-bytes) <= c.server.cfg.WriteHighWater/2 && c.unwritable.CompareAndSwap(true, false) {
		c.consMu.Lock()
		defer c.consMu.Unlock()
		for _, cs := range c.consumers {
			cs.WritabilityChanged()
		}
	}
}

const (
	writeBuffer = 64 << 10  // bytes written with one call, about
	keepBuffer  = 256 << 10 // a larger buffer is not kept
)

// writeLoop writes what is queued until the connection ends.
func (c *conn) writeLoop() error {
	buf := make([]byte, 0, 4<<10)
	for c.waitForOutput() {
		var owed, bytes, receipted int64
		for o := c.out.take(); o != nil; {
			next := o.next // o may be reused once it is encoded
			switch {
			case o.publish != nil:
				buf = o.publish.append(buf)
				receipted += int64(len(o.publish.Data))
				c.pool.give(o.publish)
				owed++
			case o.delivery != nil:
				var err error
				if buf, err = c.appendDelivery(buf, o.delivery); err != nil {
					return err
				}
				bytes += o.delivery.Bytes
				o.delivery.Release()
			default:
				buf = append(buf, o.response...)
				if o.unasked {
					c.untold.Add(-1)
				} else {
					owed++
				}
			}
			o = next
			if o != nil && len(buf) < writeBuffer {
				continue
			}
			if err := c.flush(&buf); err != nil {
				return err
			}
			c.settle(owed)
			c.receipted(receipted)
			c.written(bytes)
			owed, bytes, receipted = 0, 0, 0
		}
	}
	return nil
}

// waitForOutput waits until something was queued; false = the connection ends.
func (c *conn) waitForOutput() bool {
	select {
	case <-c.out.wake:
		return true
	case <-c.done:
		return false
	}
}

func (c *conn) flush(buf *[]byte) error {
	if c.draining.Load() {
		_ = c.net.SetWriteDeadline(time.Now().Add(drainWrite))
	}
	c.writing.Store(true)
	_, err := c.net.Write(*buf)
	c.wrote.Store(true)
	c.writing.Store(false)
	if *buf = (*buf)[:0]; cap(*buf) > keepBuffer {
		*buf = make([]byte, 0, writeBuffer)
	}
	return err
}

// appendDelivery encodes the messages of d, flushing as the buffer fills.
func (c *conn) appendDelivery(buf []byte, d *dispatch.Delivery) ([]byte, error) {
	c.consMu.Lock()
	cs := c.consumers[d.ConsumerID]
	c.consMu.Unlock()
	if cs == nil || cs.closed.Load() {
		return buf, nil // the client has closed it
	}
	frame := wire.Message{ConsumerID: d.ConsumerID, ID: cs.sub.topic.messageID(0)}
	frame.ID.Ledger = d.LedgerID
	for i := range d.Messages {
		m := &d.Messages[i]
		frame.ID.Entry, frame.RedeliveryCount, frame.AckSet = uint64(m.Entry.ID), m.Redeliveries, cs.sub.partial.of(m.Entry.ID)
		if c.indexes {
			e := wire.BrokerEntry{Timestamp: uint64(m.Entry.Timestamp), Index: uint64(m.Entry.Index)}
			buf = wire.AppendMessageWithEntry(buf, &frame, &e, m.Entry.Data)
		} else {
			buf = wire.AppendMessage(buf, &frame, m.Entry.Data)
		}
		if len(buf) >= writeBuffer {
			if err := c.flush(&buf); err != nil {
				return nil, err
			}
		}
	}
	return buf, nil
}

// heldBack reports whether a connection is silent because the broker does not
// read it, for another reason than that its client takes nothing.
func (c *conn) heldBack(tookSome bool) bool {
	return c.held.Load() != 0 && (tookSome || !c.writing.Load())
}

// checkAlive is one round of the keep-alive: a silent connection is pinged, and
// closed if it stays silent.
func (c *conn) checkAlive() {
	tookSome := c.wrote.Swap(false)
	if c.heard.Swap(false) || c.heldBack(tookSome) {
		c.quiet = 0
		return
	}
	if c.quiet++; c.quiet < 2 {
		c.tell((&wire.Ping{}).AppendFrame(nil))
		return
	}
	c.server.log.Info("closing a silent connection", "conn", c.id, "client", c.net.RemoteAddr().String())
	c.close()
}

// cleanUp closes what the connection had open; the reader's last act.
func (c *conn) cleanUp() {
	for _, p := range c.producers {
		p.topic.removeProducer(p)
	}
	c.consMu.Lock()
	consumers := c.consumers
	c.consumers = nil
	c.consMu.Unlock()
	for _, cs := range consumers {
		cs.leave(true)
	}
	c.abandonSought()
}

// ordinaryEnd reports whether a connection ended because a side closed it.
func ordinaryEnd(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
}
