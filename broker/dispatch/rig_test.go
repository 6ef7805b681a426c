package dispatch

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tb is what testing.TB and rapid.T share.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// rig is a ledger with one subscription, on a real executor.
type rig struct {
	t       tb
	e       *executor.Executor
	workers *executor.Ordered
	l       *ledger.Ledger
	d       *Dispatcher
	added   sync.WaitGroup
}

func newRig(t tb, cfg Config) (*rig, func()) {
	t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	r := &rig{t: t, e: executor.New(executor.Options{Logger: quiet}), workers: executor.NewOrdered(2, executor.Options{Logger: quiet})}
	var err error
	if r.l, err = ledger.OpenLedger(1, "l", r.e, ledger.Config{MaxBatchItems: 16}); err != nil {
		t.Fatalf("%v", err)
	}
	cfg.Workers, cfg.Logger = r.workers, quiet
	if r.d, err = New(r.l, r.e, "s", ledger.Earliest, true, cfg); err != nil {
		t.Fatalf("%v", err)
	}
	return r, func() {
		r.d.Close()
		r.l.Close()
		_ = r.workers.Shutdown(context.Background())
		_ = r.e.Shutdown(context.Background())
	}
}

func start(t *testing.T, cfg Config) *rig {
	t.Helper()
	r, stop := newRig(t, cfg)
	t.Cleanup(stop)
	return r
}

type add struct {
	ledger.Add
	r *rig
}

func (a *add) AddCompleted(int64)  { a.r.added.Done() }
func (a *add) AddFailed(err error) { a.r.t.Errorf("add failed: %v", err); a.r.added.Done() }

// publish appends one message with a key and waits for it.
func (r *rig) publish(key string) {
	r.t.Helper()
	r.publishMessage(&wire.Metadata{ProducerName: []byte("p"), PartitionKey: []byte(key)})
}

func (r *rig) publishMessage(md *wire.Metadata) {
	r.t.Helper()
	a := &add{r: r}
	a.Data, a.Messages, a.Done = wire.AppendHeadersAndPayload(nil, md, md.PartitionKey), max(md.NumMessages, 1), a
	r.added.Add(1)
	if err := r.l.AsyncAddEntry(&a.Add); err != nil {
		r.t.Fatalf("%v", err)
	}
	r.added.Wait()
}

// settle waits until no task is left that an earlier one may have submitted.
func (r *rig) settle() {
	for {
		before := r.e.Stats().Submitted
		for _, e := range append(r.workers.All(), r.e) {
			done := make(chan struct{})
			if e.Execute(executor.Other, executor.Func(func() { close(done) })) != nil {
				return
			}
			<-done
		}
		if r.e.Stats().Submitted == before+1 && r.e.Stats().Queued == 0 {
			return
		}
	}
}

// between runs f on the executor: no send loop runs at the same time.
func (r *rig) between(f func()) {
	done := make(chan struct{})
	if err := r.e.Execute(executor.Other, executor.Func(func() { defer close(done); f() })); err != nil {
		r.t.Fatalf("%v", err)
	}
	<-done
}

// sink records what a consumer is sent.
type sink struct {
	mu      sync.Mutex
	got     []Message
	sizes   []int // messages per delivery
	blocked atomic.Bool
	flaky   uint32 // one in so many calls of Writable returns false; 0 = none
	calls   atomic.Uint32
	seen    func(Message) // called under the dispatcher's lock
	hold    bool          // deliveries are kept until release
	once    bool          // unwritable after the first one
	held    []*Delivery
	active  []bool // what ActiveChanged said
}

func (s *sink) Deliver(d *Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range d.Messages {
		if s.seen != nil {
			s.seen(m)
		}
		s.got = append(s.got, m)
	}
	s.sizes = append(s.sizes, len(d.Messages))
	if s.once {
		s.blocked.Store(true)
	}
	if s.hold {
		s.held = append(s.held, d)
		return
	}
	d.Release()
}

// release is the connection having written what it was given.
func (s *sink) release() {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	for _, d := range held {
		d.Release()
	}
}

func (s *sink) Writable() bool {
	if s.flaky > 0 && murmur32(binary.BigEndian.AppendUint32(nil, s.calls.Add(1)))%s.flaky == 0 {
		return false
	}
	return !s.blocked.Load()
}

func (s *sink) ActiveChanged(_ uint64, active bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = append(s.active, active)
}

// told returns what ActiveChanged said so far.
func (s *sink) told() []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active)
}

func (s *sink) ids() (ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.got {
		ids = append(ids, m.Entry.ID)
	}
	return ids
}

func (s *sink) count() int { return len(s.ids()) }

func (r *rig) join(name string, typ wire.SubType) (*Consumer, *sink) {
	r.t.Helper()
	s := &sink{}
	c, err := r.d.AddConsumer(ConsumerOptions{ID: 1, Name: name, Type: typ, Sink: s})
	if err != nil {
		r.t.Fatalf("%s cannot join: %v", name, err)
	}
	return c, s
}

// keyOf returns a key that c owns.
func (r *rig) keyOf(c *Consumer) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("key-%d", i)
		if r.d.selector.owner(keyHash([]byte(key))) == c {
			return key
		}
	}
}

func waitUntil(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}
