package natstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Load says what is published. The zero value is 100 connections that publish
// 128-byte messages to one JetStream stream, 64 in flight on each.
type Load struct {
	Conns    int
	InFlight int    // messages of one connection that are not acknowledged; all together must stay below the server's 10,000 per stream
	Size     int    // bytes of a message
	Storage  string // of the stream: "file" or "memory"; "" means file
	// Subscribers are connections that receive every message as well, outside
	// the stream: publishers then meet at the lock of each subscriber's client.
	Subscribers int
	Atmost      time.Duration // ends by itself after this; 0 means 2 minutes
}

func (l Load) withDefaults() Load {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&l.Conns, 100)
	set(&l.InFlight, 64)
	set(&l.Size, 128)
	if l.Storage == "" {
		l.Storage = "file"
	}
	if l.Atmost <= 0 {
		l.Atmost = 2 * time.Minute
	}
	return l
}

// Publisher publishes in the background. The test's cleanup stops it.
type Publisher struct {
	sent, acked, refused, delivered atomic.Int64

	begun  time.Time
	cancel context.CancelFunc
	ended  chan struct{} // closed when all connections are
	took   time.Duration // once ended is closed
	once   sync.Once
	mu     sync.Mutex
	errs   []error
}

// Counts is what was published so far.
type Counts struct {
	Sent    int64
	Acked   int64 // by the stream: stored
	Refused int64 // by the stream: answered with an error

	Delivered int64 // to all subscribers together
	Took      time.Duration
}

// PerSecond is the rate of acknowledged messages.
func (c Counts) PerSecond() float64 { return float64(c.Acked) / c.Took.Seconds() }

// Publish creates a stream and starts to publish to it. It returns when every
// connection has had its first message acknowledged.
func (s *Server) Publish(t testing.TB, l Load) *Publisher {
	t.Helper()
	l = l.withDefaults()
	ctx, cancel := context.WithTimeout(context.Background(), l.Atmost)
	if err := createStream(ctx, s.Addr, l.Storage); err != nil {
		cancel()
		t.Fatalf("create a stream: %v", err)
	}
	p := &Publisher{begun: time.Now(), cancel: cancel, ended: make(chan struct{})}
	first := make(chan struct{}, l.Conns)
	var wg sync.WaitGroup
	run := func(what string, i int, fn func() error) {
		wg.Go(func() {
			if err := fn(); err != nil {
				p.mu.Lock()
				p.errs = append(p.errs, fmt.Errorf("%s %d: %w", what, i, err))
				p.mu.Unlock()
				cancel() // the load is not what was asked for any more
			}
		})
	}
	for i := range l.Subscribers {
		run("subscriber", i, func() error { return p.subscribe(ctx, s.Addr) })
	}
	for i := range l.Conns {
		run("publisher", i, func() error { return p.publish(ctx, s.Addr, i, l, first) })
	}
	go func() {
		wg.Wait()
		p.took = time.Since(p.begun)
		close(p.ended)
	}()
	t.Cleanup(func() { p.Stop(t) })
	for range l.Conns {
		select {
		case <-first:
		case <-p.ended:
			p.Stop(t) // reports the errors
			t.Fatal("publishing ended before every connection had a message acknowledged")
		}
	}
	return p
}

// Counts returns what was published so far.
func (p *Publisher) Counts() Counts {
	c := Counts{Sent: p.sent.Load(), Acked: p.acked.Load(), Refused: p.refused.Load(), Delivered: p.delivered.Load()}
	select {
	case <-p.ended:
		c.Took = p.took
	default:
		c.Took = time.Since(p.begun)
	}
	return c
}

// Stop ends the load and returns what was published; a connection that failed
// fails the test. Further calls return the same.
func (p *Publisher) Stop(t testing.TB) Counts {
	t.Helper()
	p.once.Do(func() {
		p.cancel()
		<-p.ended
		if err := errors.Join(p.errs...); err != nil {
			t.Errorf("publish: %v", err)
		}
	})
	<-p.ended
	return p.Counts()
}

// publish runs one connection until ctx ends.
func (p *Publisher) publish(ctx context.Context, addr string, id int, l Load, first chan<- struct{}) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	inbox := fmt.Sprintf("_INBOX.pub.%d", id)
	c.printf("SUB %s 1\r\n", inbox)
	slots := make(chan struct{}, l.InFlight)
	received := make(chan error, 1)
	go func() {
		once := sync.OnceFunc(func() { first <- struct{}{} })
		received <- c.receive(func(payload []byte) {
			<-slots
			if err := ackError(payload); err != nil {
				p.refused.Add(1)
				return
			}
			p.acked.Add(1)
			once()
		})
	}()
	message := make([]byte, l.Size)
	for i := range message {
		message[i] = 'a' + byte(i%26)
	}
	head := fmt.Sprintf("PUB %s.%d %s %d\r\n%s\r\n", subject, id, inbox, l.Size, message)
	err = p.fill(ctx, c, head, slots)
	c.Close() // ends receive
	if r := <-received; err == nil && ctx.Err() == nil {
		err = r
	}
	return err
}

// subscribe receives every message until ctx ends.
func (p *Publisher) subscribe(ctx context.Context, addr string) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	defer c.Close()
	c.printf("SUB %s.* 1\r\n", subject)
	if err := c.flush(); err != nil {
		return ignoreEnd(ctx, err)
	}
	return ignoreEnd(ctx, c.receive(func([]byte) { p.delivered.Add(1) }))
}

// fill sends a message for every free slot until ctx ends.
func (p *Publisher) fill(ctx context.Context, c *conn, message string, slots chan struct{}) error {
	for {
		select {
		case slots <- struct{}{}:
		default: // all in flight: the server must have them before one is acknowledged
			if err := c.flush(); err != nil {
				return ignoreEnd(ctx, err)
			}
			select {
			case slots <- struct{}{}:
			case <-c.closed:
				return nil // receive tells why
			case <-ctx.Done():
				return nil
			}
		}
		if err := c.writeString(message); err != nil {
			return ignoreEnd(ctx, err)
		}
		p.sent.Add(1)
	}
}

// ignoreEnd drops errors that come from ending the load.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
