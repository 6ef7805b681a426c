package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
)

// Options of a run. Broker and Scenario are required.
type Options struct {
	// Broker is host:port or pulsar://host:port.
	Broker   string
	Scenario Scenario
	// Start holds the measurement back after PhaseWarm until it is closed or a
	// value comes; nil starts at once.
	Start <-chan struct{}
	// Events receives every phase, in order, from one goroutine; it should
	// return soon. May be nil.
	Events func(Event)
	// ProgressEvery adds PhaseProgress events inside the window; 0 adds none.
	ProgressEvery time.Duration
	// Dial replaces the network; nil dials it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// run is one load under way.
type run struct {
	opts  Options
	sc    Scenario
	id    uint32
	epoch time.Time

	producers []*producer
	consumers []*consumer
	apps      []*application

	pool      *pool
	sentCount []uint32 // by device, the next counter; owned by whoever holds the device
	gate      gate
	pacing    atomic.Bool // receipts do not trigger sends, the pacer does
	sent      atomic.Int64
	acked     atomic.Int64
	window    *window
	published counter // receipts inside the window
	publish   *recorder
	paced     *pacer

	fail context.CancelCauseFunc // the first failure ends the run
	work sync.WaitGroup

	cpu      time.Duration // over the window
	cpuKnown bool
	drained  int64 // when waiting ended, ns since the epoch
}

// Run drives the broker and returns what was measured. With an error (the
// broker refused, broke off or stopped answering, or ctx ended) the result
// holds what there is and is marked invalid; it is nil only where nothing
// could start. Failed delivery checks are no error: see Result.Valid.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Scenario.Validate(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", o.Scenario.Name, err)
	}
	address, err := parseBroker(o.Broker)
	if err != nil {
		return nil, err
	}
	r := newRun(o)
	ctx, r.fail = context.WithCancelCause(ctx)
	defer r.fail(nil)
	err = r.phases(ctx, address)
	r.shutdown(ctx, err == nil)
	return r.result(err), err
}

func newRun(o Options) *run {
	r := &run{
		opts: o, sc: o.Scenario, id: rand.Uint32() | 1, epoch: time.Now(), pool: newPool(o.Scenario.Devices),
		sentCount: make([]uint32, o.Scenario.Devices), window: newWindow(), publish: newRecorder(o.Scenario.paced()),
	}
	t, _ := r.sc.subType() // validated
	for i := range r.sc.Applications {
		r.apps = append(r.apps, &application{
			name: fmt.Sprintf("application-%d", i), track: newTracker(r.sc.Devices, t == wire.KeyShared), endToEnd: newRecorder(r.sc.paced()),
		})
	}
	return r
}

// now is the run's clock: ns since its epoch, monotonic.
func (r *run) now() int64 { return int64(time.Since(r.epoch)) }

func (r *run) unixNs(t int64) int64      { return r.epoch.UnixNano() + t }
func (r *run) unixMillis(t int64) uint64 { return uint64(r.unixNs(t) / 1e6) }

func (r *run) phases(ctx context.Context, address string) error {
	if err := r.connect(ctx, address); err != nil {
		return err
	}
	r.announce(PhaseConnected, r.now())
	if err := r.warmUp(ctx); err != nil {
		return err
	}
	r.announce(PhaseWarm, r.now())
	if err := r.awaitStart(ctx); err != nil {
		return err
	}
	if err := r.measure(ctx); err != nil {
		return err
	}
	err := r.drain(ctx)
	r.drained = r.now()
	r.announce(PhaseDrained, r.drained)
	return err
}

func (r *run) warmUp(ctx context.Context) error {
	if r.sc.WarmupMessages == 0 {
		return nil
	}
	r.gate.open(r.sc.WarmupMessages)
	r.launch()
	return r.await(ctx, "warm-up", func() bool { return r.gate.closed() && r.allReceived() })
}

func (r *run) awaitStart(ctx context.Context) error {
	if r.opts.Start == nil {
		return nil
	}
	select {
	case <-r.opts.Start:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the start: %w", context.Cause(ctx))
	}
}

// launch fills the in-flight allowance from the pool, connection by
// connection.
func (r *run) launch() {
	share := r.sc.InFlight/len(r.producers) + 1
	left := r.sc.InFlight
	for _, p := range r.producers {
		n := r.gate.take(min(share, left))
		r.sent.Add(int64(n))
		devices := r.pool.exchange(nil, n)
		left -= n
		now := r.now()
		p.send(devices, now, now, 0)
	}
}

// measure opens the window, sends, and closes it.
func (r *run) measure(ctx context.Context) error {
	budget := int64(math.MaxInt64)
	if r.sc.Messages > 0 {
		budget = r.sc.Messages
	}
	before, known := cpuTime()
	start := r.now()
	r.window.start.Store(start)
	if r.sc.Messages == 0 {
		r.window.end.Store(start + int64(r.sc.Duration))
	}
	r.gate.open(budget)
	r.announce(PhaseMeasuring, start)
	paced := make(chan struct{})
	if r.sc.paced() {
		r.pacing.Store(true)
		r.paced = &pacer{run: r, start: start, rate: r.sc.Rate}
		r.work.Go(func() {
			defer close(paced)
			r.paced.drive(ctx)
		})
	} else {
		close(paced)
		r.launch()
	}
	err := r.await(ctx, "measuring", func() bool {
		if r.sc.Messages > 0 {
			return r.gate.closed() && r.acked.Load() == r.sent.Load()
		}
		return r.now() >= r.window.end.Load()
	})
	if err != nil {
		r.gate.close() // which also ends the pacer
	}
	<-paced // after the window, the last step's messages still go out
	r.gate.close()
	if end := r.now(); err != nil || r.sc.Messages > 0 {
		r.window.end.Store(min(end, r.window.end.Load()))
	}
	after, _ := cpuTime()
	r.cpu, r.cpuKnown = after-before, known
	r.announce(PhaseMeasured, r.window.end.Load())
	return err
}

// drain waits until everything sent is acknowledged and received. What is
// acknowledged and does not come is for the delivery check; receipts that do
// not come are a failure.
func (r *run) drain(ctx context.Context) error {
	limit := drainTimeouts * r.sc.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not finished after %v", limit))
	defer cancel()
	err := r.await(ctx, "drain", r.allReceived)
	if errors.As(err, new(*stalled)) && r.acked.Load() == r.sent.Load() {
		return nil
	}
	return err
}

func (r *run) allReceived() bool {
	sent := r.sent.Load()
	if r.acked.Load() != sent {
		return false
	}
	for _, a := range r.apps {
		if a.track.unique.Load() < sent {
			return false
		}
	}
	return true
}

// stalled means that nothing moved for the scenario's timeout.
type stalled struct {
	during  string
	timeout time.Duration
	sent    int64
	acked   int64
	missing int64 // acknowledged messages that the furthest behind application lacks
}

func (s *stalled) Error() string {
	if s.acked == s.sent {
		return fmt.Sprintf("%s: no message came for %v, %d of %d acknowledged ones are missing", s.during, s.timeout, s.missing, s.acked)
	}
	return fmt.Sprintf("%s: broker sent no receipt and no message for %v, with %d of %d messages unacknowledged: see the broker's log, or raise the timeout if it is only slow",
		s.during, s.timeout, s.sent-s.acked, s.sent)
}

const (
	pollEvery = 2 * time.Millisecond
	// drainTimeouts bounds draining, in timeouts, for a broker that trickles.
	drainTimeouts = 10
)

// await polls until done. It gives up when ctx ends, and with *stalled when
// something is awaited and neither a receipt nor a new message has come for
// the scenario's timeout.
func (r *run) await(ctx context.Context, during string, done func() bool) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	progress, moved := r.progress(), time.Now()
	reported := moved
	for {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", during, context.Cause(ctx))
		}
		if done() {
			return nil
		}
		now := time.Now()
		if p := r.progress(); p != progress || r.sent.Load() == r.acked.Load() && !r.gate.closed() {
			progress, moved = p, now
		}
		if now.Sub(moved) > r.sc.Timeout {
			return r.stall(during)
		}
		if every := r.opts.ProgressEvery; every > 0 && during == "measuring" && now.Sub(reported) >= every {
			reported = now
			r.announce(PhaseProgress, r.now())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (r *run) progress() int64 {
	n := r.acked.Load()
	for _, a := range r.apps {
		n += a.track.unique.Load()
	}
	return n
}

func (r *run) stall(during string) error {
	s := &stalled{during: during, timeout: r.sc.Timeout, sent: r.sent.Load(), acked: r.acked.Load()}
	for _, a := range r.apps {
		s.missing = max(s.missing, s.acked-a.track.unique.Load())
	}
	return s
}

func (r *run) announce(p Phase, at int64) {
	if r.opts.Events == nil {
		return
	}
	e := Event{Phase: p, UnixNs: r.unixNs(at), Sent: r.sent.Load(), Published: r.acked.Load()}
	for _, a := range r.apps {
		e.Delivered = append(e.Delivered, a.track.unique.Load())
	}
	r.opts.Events(e)
}
