package drive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// protocol is what differs between brokers.
type protocol interface {
	// prepare makes what must be there before clients connect.
	prepare(ctx context.Context) error
	publisher(nc net.Conn, index int) (publisherCodec, error)
	consumer(nc net.Conn, index int) (consumerCodec, error)
	// ordered: keys are delivered in order.
	ordered() bool
	// leftOver is how many messages the broker has not had acknowledged.
	leftOver(ctx context.Context) (int64, error)
	// busy is how long the broker's serial stage has worked, in seconds; 0 where
	// it has none that tells.
	busy(ctx context.Context) (float64, error)
}

type run struct {
	job      Job
	protocol protocol
	epoch    time.Time
	check    *check
	budget   *budget

	publishers []*publisher
	consumers  []*consumer

	sent      atomic.Int64
	published atomic.Int64 // acknowledged to publishers
	delivered atomic.Int64 // for the first time
	confirmed atomic.Int64 // acknowledged by consumers: written
	inWindow  atomic.Bool
	publish   *recorder
	endToEnd  *recorder

	fail      context.CancelCauseFunc
	work      sync.WaitGroup
	stopLoops func()
}

// now is ns since the epoch, monotonic.
func (r *run) now() int64 { return int64(time.Since(r.epoch)) }

var errOver = errors.New("the run is over")

// Run drives the broker. An error means that there is no result; failed checks
// are in Result.Invalidity.
func Run(ctx context.Context, j Job) (*Result, error) {
	if err := j.Validate(); err != nil {
		return nil, err
	}
	r := &run{
		job: j, epoch: time.Now(), budget: newBudget(j.Backlog, j.Messages), publish: newRecorder(), endToEnd: newRecorder(),
		publishers: make([]*publisher, j.Connections), consumers: make([]*consumer, j.Consumers),
	}
	r.check = newCheck(rand.Uint32()|1, j.Connections, j.InFlight)
	r.protocol = &pulsar{r}
	if j.Protocol == NATS {
		r.protocol = &nats{r}
	}
	ctx, r.fail = context.WithCancelCause(ctx)
	res := &Result{Invalidity: []string{}}
	err := r.phases(ctx, res)
	r.fail(errOver)
	r.closeAll()
	r.work.Wait()
	if err != nil {
		return nil, err
	}
	r.finish(res)
	return res, nil
}

// phases runs until everything is acknowledged.
func (r *run) phases(ctx context.Context, res *Result) error {
	if err := r.connect(ctx); err != nil {
		return err
	}
	context.AfterFunc(ctx, r.closeAll) // releases whatever waits in a read or a write
	for _, p := range r.publishers {
		if err := p.send(r.budget.take(p, r.job.InFlight)); err != nil {
			return err
		}
	}
	if err := r.measure(ctx, res); err != nil {
		return err
	}
	r.budget.stop()
	if err := r.drain(ctx); err != nil {
		return err
	}
	return r.settle(ctx, res)
}

// dial connects; the connection closes when ctx ends, until release is called.
func (r *run) dial(ctx context.Context) (nc net.Conn, release func() bool, err error) {
	d := net.Dialer{Timeout: r.job.Timeout}
	if nc, err = d.DialContext(ctx, "tcp", r.job.Addr); err != nil {
		return nil, nil, err
	}
	return nc, context.AfterFunc(ctx, func() { nc.Close() }), nil
}

// connect attaches the group first, so that nothing is delivered late, and
// starts all goroutines.
func (r *run) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.job.Timeout, fmt.Errorf("not connected within %v", r.job.Timeout))
	defer cancel()
	if err := r.protocol.prepare(ctx); err != nil {
		return err
	}
	for i := range r.consumers {
		nc, release, err := r.dial(ctx)
		if err != nil {
			return fmt.Errorf("consumer %d: %w", i, err)
		}
		codec, err := r.protocol.consumer(nc, i)
		r.consumers[i] = newConsumer(r, i, nc, codec)
		if err != nil {
			return fmt.Errorf("consumer %d: %w", i, err)
		}
		release()
	}
	for i := range r.publishers {
		nc, release, err := r.dial(ctx)
		if err != nil {
			return fmt.Errorf("publisher %d: %w", i, err)
		}
		codec, err := r.protocol.publisher(nc, i)
		r.publishers[i] = newPublisher(r, i, nc, codec)
		if err != nil {
			return fmt.Errorf("publisher %d: %w", i, err)
		}
		release()
	}
	for _, c := range r.consumers {
		r.start(c.read)
	}
	for _, p := range r.publishers {
		r.start(p.read)
	}
	done := make(chan struct{})
	r.start(func() error { return r.grantLoop(done) })
	r.start(func() error { return r.flushLoop(done) })
	r.stopLoops = sync.OnceFunc(func() { close(done) })
	return nil
}

// start runs a goroutine whose error ends the run.
func (r *run) start(f func() error) {
	r.work.Go(func() {
		if err := f(); err != nil {
			r.fail(err) // later ones, of connections being closed, do not count
		}
	})
}

// grantLoop sends for publishers that waited for the backlog.
func (r *run) grantLoop(done <-chan struct{}) error {
	for {
		select {
		case <-r.budget.wake:
		case <-done:
			return nil
		}
		for _, g := range r.budget.granted() {
			if err := g.p.send(g.n); err != nil {
				return err
			}
		}
	}
}

// flushLoop sees to it that no acknowledgement waits for long.
func (r *run) flushLoop(done <-chan struct{}) error {
	tick := time.NewTicker(ackEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-done:
			return nil
		}
		for _, c := range r.consumers {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
}

const pollEvery = 2 * time.Millisecond

// await polls until done. It gives up when ctx ends, or when nothing has moved
// for the job's timeout.
func (r *run) await(ctx context.Context, what string, done func() bool) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	progress, moved := int64(-1), time.Now()
	for !done() {
		if now := r.published.Load() + r.delivered.Load() + r.confirmed.Load(); now != progress {
			progress, moved = now, time.Now()
		} else if time.Since(moved) > r.job.Timeout {
			return fmt.Errorf("%s: nothing came for %v: %d sent, %d acknowledged to publishers, %d delivered, %d acknowledged by consumers",
				what, r.job.Timeout, r.sent.Load(), r.published.Load(), r.delivered.Load(), r.confirmed.Load())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// drain waits until everything that was sent has come, as far as it comes.
func (r *run) drain(ctx context.Context) error {
	return r.await(ctx, "draining", func() bool {
		n := r.sent.Load()
		return r.published.Load() == n && r.delivered.Load() >= n && r.confirmed.Load() >= n
	})
}

// settle waits until the broker says so too, and keeps what it last said.
func (r *run) settle(ctx context.Context, res *Result) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		n, err := r.protocol.leftOver(ctx)
		if err != nil {
			return fmt.Errorf("ask the broker what is left over: %w", err)
		}
		if res.LeftOver = n; n == 0 || time.Now().After(deadline) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *run) closeAll() {
	if r.stopLoops != nil {
		r.stopLoops()
	}
	for _, c := range r.consumers {
		if c != nil {
			c.nc.Close()
		}
	}
	for _, p := range r.publishers {
		if p != nil {
			p.nc.Close()
		}
	}
}

// finish fills in what the checks found. All goroutines have ended.
func (r *run) finish(res *Result) {
	acked, sent := make([]uint32, len(r.publishers)), make([]uint32, len(r.publishers))
	for i, p := range r.publishers {
		acked[i], sent[i] = p.acked, p.next
	}
	lost, unknown := r.check.finish(acked, sent)
	c := r.check
	res.Sent, res.Lost, res.Duplicates, res.Invalid, res.Disorder = r.sent.Load(), lost, c.duplicates, c.invalid+unknown, c.disorder
	res.HeldBack = r.budget.timesHeld()
	why := func(bad bool, format string, a ...any) {
		if bad {
			res.Invalidity = append(res.Invalidity, fmt.Sprintf(format, a...))
		}
	}
	why(lost > 0, "%d of %d messages were lost", lost, res.Sent)
	why(res.Duplicates > 0, "%d messages came more than once", res.Duplicates)
	why(res.Invalid > 0, "%d messages were damaged or never sent", res.Invalid)
	why(res.LeftOver != 0, "the broker says that %d messages are not acknowledged", res.LeftOver)
	if r.protocol.ordered() {
		why(res.Disorder > 0, "%d messages came before an earlier one of their key", res.Disorder)
	} else {
		res.Disorder = -1
	}
	apart := max(res.Published, res.Delivered) - res.Complete
	why(float64(apart) > r.job.Apart*float64(res.Complete), "not a steady state: %d published, %d delivered and %d acknowledged in the window", res.Published, res.Delivered, res.Acked)
	why(res.Complete == 0, "no message was completed in the window")
}
