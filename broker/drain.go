package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
)

// errDraining ends the reader of a connection when the broker shuts down.
var errDraining = errors.New("the broker is shutting down")

// drainWrite is how long one write may take while the broker shuts down: a
// client that takes nothing for so long gets nothing more.
const drainWrite = time.Second

// shutdownGrace is the time that what is left has when draining took too long.
const shutdownGrace = 5 * time.Second

// control runs functions on a connection's reader, between its frames.
type control struct {
	mu    sync.Mutex
	queue []func() error
}

// onReader has the connection's reader run f, before it reads from the socket
// the next time. An error of f ends the connection. f is dropped if the
// connection ends first.
func (c *conn) onReader(f func() error) {
	c.control.mu.Lock()
	defer c.control.mu.Unlock()
	c.control.queue = append(c.control.queue, f)
	_ = c.net.SetReadDeadline(time.Unix(1, 0)) // interrupts a read; a closed connection needs none
}

// readFailed goes on after a read that onReader interrupted.
func (c *conn) readFailed(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	c.control.mu.Lock()
	queue := c.control.queue
	c.control.queue = nil
	_ = c.net.SetReadDeadline(time.Time{})
	c.control.mu.Unlock()
	for _, f := range queue {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// startDraining stops the reader and, at once, deliveries to the connection.
func (c *conn) startDraining() {
	c.draining.Store(true)
	_ = c.net.SetWriteDeadline(time.Now().Add(drainWrite)) // a write that hangs already
	c.onReader(func() error { return errDraining })
}

// drain gives a connection whose reader has stopped what it is owed: the
// receipts of all it sent, and a CLOSE for all it has open, on which clients
// look for another broker. Its last receipt is written before its CLOSE, so
// that a client sends nothing again that was stored.
func (c *conn) drain() {
	c.consMu.Lock()
	consumers := c.consumers
	c.consumers = nil
	c.consMu.Unlock()
	for _, cs := range consumers {
		cs.leave(true)
	}
	c.abandonSought()
	if !c.waitForOwed(0) {
		return
	}
	for id := range consumers {
		c.respond((&wire.Close{ID: id, RequestID: noRequest}).AppendConsumerFrame(nil))
	}
	for id := range c.producers {
		c.closeProducer(id)
		c.respond((&wire.Close{ID: id, RequestID: noRequest}).AppendProducerFrame(nil))
	}
	if c.waitForOwed(0) {
		c.linger()
	}
}

// linger lets the client take what was written: a socket that is closed while
// bytes from the client are unread resets the connection, and what the client
// has not taken by then is lost to it. It ends when the client closes its side,
// and soon.
func (c *conn) linger() {
	half, ok := c.net.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.net.SetReadDeadline(time.Now().Add(drainWrite))
	_, _ = io.Copy(io.Discard, c.net) // whatever ends it, this is the end
}

// Shutdown drains and stops the broker: nobody new is let in, connections are
// not read any more, what they sent is stored and its receipts are written,
// clients are told to go elsewhere, and then everything is closed that Start
// started. When ctx ends before all connections are drained they are cut, and
// the error says so. It may be called more than once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.shutdown.Do(func() {
		close(s.stop)
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		_ = s.listener.Close()
		for _, c := range s.connections() {
			c.startDraining()
		}
	})
	var errs []error
	if err := waitFor(ctx, s.wg.Wait); err != nil {
		left := s.connections()
		errs = append(errs, fmt.Errorf("broker shutdown: %d connections were cut before they were drained: %w", len(left), err))
		for _, c := range left {
			c.close()
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		ctx = grace
		errs = append(errs, waitFor(ctx, s.wg.Wait))
	}
	return errors.Join(append(errs, s.close(ctx))...)
}

// close ends what is below the connections.
func (s *Server) close(ctx context.Context) error {
	for _, t := range s.allTopics() {
		t.close()
	}
	errs := []error{s.workers.Shutdown(ctx), s.executors.Shutdown(ctx), s.closeDurable()}
	if s.admin != nil {
		errs = append(errs, s.admin.close(ctx))
	}
	return errors.Join(errs...)
}

// waitFor waits for wait to return or for ctx.
func waitFor(ctx context.Context, wait func()) error {
	done := make(chan struct{})
	go func() { wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connections returns those open now.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// allTopics returns those open now.
func (s *Server) allTopics() []*topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	topics := make([]*topic, 0, len(s.topics))
	for _, t := range s.topics {
		topics = append(topics, t)
	}
	return topics
}
