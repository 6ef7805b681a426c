//go:build !race

// The official client has data races of its own when it reconnects.

package crash

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
)

const (
	producers       = 4
	keysPerProducer = 25
	consumers       = 3
	inFlight        = 200 // per producer
	topic           = "crash"
	patience        = 2 * time.Minute
)

// workload sends numbered messages of many keys and checks what comes back.
type workload struct {
	t       *testing.T
	client  pulsar.Client
	stop    chan struct{}
	sending sync.WaitGroup
	reading sync.WaitGroup
	cancel  context.CancelFunc
	acked   atomic.Int64
	wake    chan struct{} // something was acknowledged or received

	mu          sync.Mutex
	sent        map[string]int  // messages acknowledged, per key: 0 … n−1
	got         map[string]int  // next number expected, per key
	copies      map[message]int // distinct entries that brought it
	deliveries  map[entry]delivery
	crashes     int
	received    int
	resent      int // entries that repeat an earlier one: the client's
	redelivered int // entries delivered again: the broker's
	problems    []string
}

type message struct {
	key    string
	number int
}

type entry struct {
	ledger, entry int64
	batch         int32
}

// delivery is how often an entry came since the last crash it came after.
type delivery struct{ crashes, times int }

func startWorkload(t *testing.T, url string) *workload {
	t.Helper()
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: url, MaxConnectionsPerBroker: producers + consumers, Logger: plog.DefaultNopLogger(), OperationTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &workload{
		t: t, client: client, stop: make(chan struct{}), cancel: cancel, wake: make(chan struct{}, 1),
		sent: map[string]int{}, got: map[string]int{}, copies: map[message]int{}, deliveries: map[entry]delivery{},
	}
	for i := range consumers {
		w.consume(ctx, i)
	}
	for i := range producers {
		w.produce(i)
	}
	return w
}

func (w *workload) problem(format string, args ...any) {
	if len(w.problems) < 20 {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

// produce sends every key's numbers in order, many in flight; the client keeps
// the order and sends again what has no receipt after a reconnect.
func (w *workload) produce(i int) {
	p, err := w.client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: i%2 == 0, BatcherBuilderType: pulsar.KeyBasedBatchBuilder,
		BatchingMaxPublishDelay: time.Millisecond, MaxPendingMessages: inFlight, SendTimeout: -1,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.sending.Go(func() {
		defer p.Close()
		var open sync.WaitGroup
		for n := 0; ; n++ {
			select {
			case <-w.stop:
				if err := p.FlushWithCtx(context.Background()); err != nil {
					w.t.Errorf("flush: %v", err)
				}
				open.Wait()
				return
			default:
			}
			key := fmt.Sprintf("p%d-k%d", i, n%keysPerProducer)
			number := n / keysPerProducer
			open.Add(1)
			p.SendAsync(context.Background(), &pulsar.ProducerMessage{Key: key, Payload: []byte(strconv.Itoa(number))},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
					defer open.Done()
					w.acknowledged(key, number, err)
				})
		}
	})
}

func (w *workload) acknowledged(key string, number int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.problem("sending %s/%d failed: %v", key, number, err)
		return
	}
	if w.sent[key] != number {
		w.problem("%s/%d was acknowledged, %d was due", key, number, w.sent[key])
	}
	w.sent[key] = number + 1
	w.acked.Add(1)
	w.notify()
}

func (w *workload) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *workload) consume(ctx context.Context, i int) {
	c, err := w.client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: pulsar.KeyShared, Name: fmt.Sprintf("c%d", i),
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.reading.Go(func() {
		defer c.Close()
		for {
			m, err := c.Receive(ctx)
			if err != nil {
				return
			}
			w.receive(m)
			if err := c.Ack(m); err != nil {
				w.t.Errorf("ack: %v", err)
			}
		}
	})
}

// receive checks one delivery: the first delivery of each number comes in the
// order of its key; an entry comes again only after a crash, where once more may
// be what the client still had from before; a number comes in two entries only
// if the client may have sent it again after a crash.
func (w *workload) receive(m pulsar.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.notify()
	w.received++
	number, err := strconv.Atoi(string(m.Payload()))
	if err != nil {
		w.problem("payload %q of key %q", m.Payload(), m.Key())
		return
	}
	id := entry{m.ID().LedgerID(), m.ID().EntryID(), m.ID().BatchIdx()}
	d, again := w.deliveries[id]
	if again {
		w.redelivered++
	} else {
		w.newEntry(message{m.Key(), number})
	}
	if d.crashes != w.crashes {
		d = delivery{crashes: w.crashes}
	}
	d.times++
	if d.times > 2 || d.times > 1 && w.crashes == 0 {
		w.problem("entry %v came %d times after crash %d", id, d.times, w.crashes)
	}
	w.deliveries[id] = d
	switch next := w.got[m.Key()]; {
	case number == next:
		w.got[m.Key()] = next + 1
	case number > next:
		w.problem("%s/%d came before %d", m.Key(), number, next)
	}
}

// newEntry counts an entry that brings m.
func (w *workload) newEntry(m message) {
	if w.copies[m]++; w.copies[m] > 1 {
		w.resent++
	}
	if w.copies[m] > w.crashes+1 {
		w.problem("%v is stored %d times after %d crashes", m, w.copies[m], w.crashes)
	}
}

func (w *workload) crashed() {
	w.mu.Lock()
	w.crashes++
	w.mu.Unlock()
}

// waitFor waits until ok is true, which is looked at whenever something was
// acknowledged or received.
func (w *workload) waitFor(ok func() bool) {
	w.t.Helper()
	end := time.After(patience)
	for !ok() {
		select {
		case <-w.wake:
		case <-end:
			w.report()
			w.t.Fatalf("nothing comes any more: %d acknowledged", w.acked.Load())
		}
	}
}

// finish ends the load, waits for every acknowledged message and reports.
func (w *workload) finish() {
	close(w.stop)
	w.sending.Wait()
	w.waitFor(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for key, n := range w.sent {
			if w.got[key] < n {
				return false
			}
		}
		return true
	})
	w.cancel()
	w.reading.Wait()
	w.client.Close()
	w.report()
}

func (w *workload) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, n := range w.sent {
		if w.got[key] < n {
			w.problem("%s: %d acknowledged, received up to %d", key, n, w.got[key])
		}
	}
	if len(w.problems) > 0 {
		w.t.Errorf("%s", strings.Join(w.problems, "\n"))
	}
}

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	keep int
	data []byte
}

func newTail(keep int) *tail { return &tail{keep: keep} }

func (b *tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	if len(b.data) > 2*b.keep {
		b.data = append([]byte(nil), b.data[len(b.data)-b.keep:]...)
	}
	return len(p), nil
}

func (b *tail) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.data)
}
