package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	// dialParallel bounds how many connections are being set up at once, so
	// that a listen queue of the usual length takes them.
	dialParallel = 32
	// ackEvery is how long an id may wait for its ACK.
	ackEvery     = 100 * time.Millisecond
	closeTimeout = 5 * time.Second

	producerBuffer = 16 << 10
	consumerBuffer = 256 << 10
)

// connect attaches all consumers, then all producers, and starts their
// goroutines.
func (r *run) connect(ctx context.Context, address string) error {
	dial := r.opts.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	setup, cancel := context.WithTimeout(ctx, r.sc.Timeout)
	defer cancel()
	d := dialer{dial: dial, address: address, bufferSize: consumerBuffer}
	if err := d.lookup(setup, r.sc.Topic); err != nil {
		return err
	}
	r.consumers = make([]*consumer, r.sc.Applications*r.sc.Consumers)
	err := inParallel(len(r.consumers), func(i int) error {
		app := r.apps[i/r.sc.Consumers]
		l, err := d.open(setup, fmt.Sprintf("consumer %d of %s", i%r.sc.Consumers, app.name))
		if err != nil {
			return err
		}
		c := &consumer{link: l, run: r, app: app, index: i}
		r.consumers[i] = c
		if err := c.attach(); err != nil {
			return d.expired(setup, err)
		}
		l.ready()
		return nil
	})
	if err != nil {
		return err
	}
	d.bufferSize = producerBuffer
	r.producers = make([]*producer, r.sc.Connections)
	err = inParallel(len(r.producers), func(i int) error {
		l, err := d.open(setup, fmt.Sprintf("producer connection %d", i))
		if err != nil {
			return err
		}
		p := newProducer(l, r, i)
		r.producers[i] = p
		if err := p.attach(); err != nil {
			return d.expired(setup, err)
		}
		l.ready()
		return nil
	})
	if err != nil {
		return err
	}
	r.begin(ctx)
	return nil
}

// lookup asks who serves the topic, as a cluster wants before anything else,
// and follows redirects.
func (d *dialer) lookup(ctx context.Context, topic string) error {
	authoritative := false
	for range 5 {
		l, err := d.open(ctx, "lookup")
		if err != nil {
			return err
		}
		m := wire.Lookup{Topic: topic, RequestID: 1, Authoritative: authoritative}
		err = l.request(m.AppendFrame(nil), wire.TypeLookupResponse)
		l.nc.Close() // the answer is here
		if err != nil {
			return d.expired(ctx, err)
		}
		a := l.cmd.LookupResponse
		if a.Response == wire.LookupFailed {
			return fmt.Errorf("lookup of topic %s at %s: broker answered %v: %q", topic, d.address, a.Code, a.Message)
		}
		if a.ProxyThroughService || a.BrokerURL == "" {
			return nil
		}
		if d.address, err = parseBroker(a.BrokerURL); err != nil {
			return fmt.Errorf("lookup of topic %s: %w", topic, err)
		}
		if a.Response == wire.LookupConnect {
			return nil
		}
		authoritative = a.Authoritative
	}
	return fmt.Errorf("lookup of topic %s: brokers keep redirecting, last to %s", topic, d.address)
}

// inParallel calls f(0)…f(n-1), some at a time, and returns the first error;
// after one it starts no more.
func inParallel(n int, f func(int) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
		next  int
	)
	claim := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, first == nil && next <= n
	}
	for range min(n, dialParallel) {
		wg.Go(func() {
			for i, ok := claim(); ok; i, ok = claim() {
				if err := f(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}

// begin starts the goroutines. A connection that breaks ends the run; when the
// run ends, for whatever reason, readers are released by closing connections.
func (r *run) begin(ctx context.Context) {
	start := func(l *link, read func() error) {
		r.work.Go(func() { r.fatal(l.write()) })
		r.work.Go(func() { r.fatal(read()) })
	}
	for _, c := range r.consumers {
		start(c.link, c.read)
	}
	for _, p := range r.producers {
		start(p.link, p.read)
	}
	r.work.Go(func() { r.acknowledge(ctx) })
}

func (r *run) fatal(err error) {
	if err != nil {
		r.fail(err) // later ones, of connections being closed, do not count
	}
}

// acknowledge sees to it that no id waits for long.
func (r *run) acknowledge(ctx context.Context) {
	tick := time.NewTicker(ackEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.flushAcks()
		}
	}
}

func (r *run) flushAcks() {
	for _, c := range r.consumers {
		c.mu.Lock()
		c.flushAcks()
		c.mu.Unlock()
	}
}

// shutdown closes everything and waits for the goroutines. After a good run it
// first lets the broker confirm that producers and consumers are closed, so
// that the last acknowledgements have arrived.
func (r *run) shutdown(ctx context.Context, graceful bool) {
	if graceful {
		r.flushAcks()
		r.closeGracefully(ctx)
	}
	r.fail(errors.New("the run is over"))
	for _, l := range r.links() {
		l.stop()
		l.nc.Close() // nothing is awaited from it any more
	}
	r.work.Wait()
}

func (r *run) closeGracefully(ctx context.Context) {
	bye := wire.Close{ID: producerID, RequestID: 2}
	for _, p := range r.producers {
		p.mu.Lock()
		p.out = bye.AppendProducerFrame(p.out)
		p.signal()
		p.mu.Unlock()
	}
	bye.ID = consumerID
	for _, c := range r.consumers {
		c.mu.Lock()
		c.out = bye.AppendConsumerFrame(c.out)
		c.signal()
		c.mu.Unlock()
	}
	deadline := time.Now().Add(closeTimeout)
	for !r.confirmed() && ctx.Err() == nil && time.Now().Before(deadline) {
		time.Sleep(pollEvery)
	}
}

func (r *run) confirmed() bool {
	for _, p := range r.producers {
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if !closed {
			return false
		}
	}
	for _, c := range r.consumers {
		c.mu.Lock()
		closed := c.closed
		c.mu.Unlock()
		if !closed {
			return false
		}
	}
	return true
}

func (r *run) links() (all []*link) {
	for _, c := range r.consumers {
		if c != nil {
			all = append(all, c.link)
		}
	}
	for _, p := range r.producers {
		if p != nil {
			all = append(all, p.link)
		}
	}
	return all
}
