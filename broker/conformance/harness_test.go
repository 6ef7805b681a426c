package conformance

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/contention-toolkit/contention/broker"
	"github.com/prometheus/client_golang/prometheus"
)

// patience bounds every wait; nothing that works comes near it.
const patience = 30 * time.Second

// rig is a broker and what a test needs to reach it.
type rig struct {
	t   *testing.T
	cfg broker.Config
	s   *broker.Server
	url string
	ctx context.Context
}

// start starts a broker for one test; change may be nil.
func start(t *testing.T, change func(*broker.Config)) *rig {
	t.Helper()
	t.Parallel()
	cfg := broker.DefaultConfig()
	cfg.Listen, cfg.AdminListen = "127.0.0.1:0", ""
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r := &rig{t: t, cfg: cfg, ctx: ctx}
	listen := recordedListen(t, &r.cfg)
	r.run()
	r.url = listen(r.s)
	t.Cleanup(r.stop)
	return r
}

func (r *rig) run() {
	r.t.Helper()
	s, err := broker.Start(r.ctx, r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.s = s
}

func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.s.Shutdown(ctx); err != nil {
		r.t.Errorf("shutdown: %v", err)
	}
}

// restart stops the broker and starts another at its address.
func (r *rig) restart() {
	r.t.Helper()
	r.cfg.Listen = r.s.Addr().String()
	r.stop()
	r.run()
}

// client connects with the defaults of the official client, but for silence,
// and closes it before the broker stops.
func (r *rig) client() pulsar.Client { return r.clientWith(pulsar.ClientOptions{}) }

func (r *rig) clientWith(o pulsar.ClientOptions) pulsar.Client {
	r.t.Helper()
	o.URL, o.MetricsRegisterer = r.url, prometheus.NewRegistry()
	if o.Logger == nil {
		o.Logger = plog.DefaultNopLogger()
	}
	if o.OperationTimeout == 0 {
		o.OperationTimeout = patience
	}
	c, err := pulsar.NewClient(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// topic returns a full topic name that no other test uses.
func (r *rig) topic() string {
	return "persistent://public/default/" + strings.ReplaceAll(r.t.Name(), "/", "-")
}

func (r *rig) producer(c pulsar.Client, o pulsar.ProducerOptions) pulsar.Producer {
	r.t.Helper()
	if o.Topic == "" {
		o.Topic = r.topic()
	}
	p, err := c.CreateProducer(o)
	if err != nil {
		r.t.Fatalf("creating a producer: %v", err)
	}
	r.t.Cleanup(p.Close)
	return p
}

func (r *rig) consumer(c pulsar.Client, o pulsar.ConsumerOptions) pulsar.Consumer {
	r.t.Helper()
	if o.Topic == "" && o.Topics == nil && o.TopicsPattern == "" {
		o.Topic = r.topic()
	}
	if o.SubscriptionName == "" {
		o.SubscriptionName = "sub"
	}
	s, err := c.Subscribe(o)
	if err != nil {
		r.t.Fatalf("subscribing: %v", err)
	}
	r.t.Cleanup(s.Close)
	return s
}

// send publishes one message and waits for its receipt.
func (r *rig) send(p pulsar.Producer, m *pulsar.ProducerMessage) pulsar.MessageID {
	r.t.Helper()
	id, err := p.Send(r.ctx, m)
	if err != nil {
		r.t.Fatalf("sending %.40q: %v", m.Payload, err)
	}
	return id
}

// sendAll publishes without waiting in between and returns the ids in order.
func (r *rig) sendAll(p pulsar.Producer, msgs []*pulsar.ProducerMessage) []pulsar.MessageID {
	r.t.Helper()
	ids := make([]pulsar.MessageID, len(msgs))
	errs := make([]error, len(msgs))
	var wg sync.WaitGroup
	wg.Add(len(msgs))
	for i, m := range msgs {
		p.SendAsync(r.ctx, m, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			ids[i], errs[i] = id, err
			wg.Done()
		})
	}
	if err := p.FlushWithCtx(r.ctx); err != nil {
		r.t.Fatalf("flushing: %v", err)
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			r.t.Fatalf("sending message %d: %v", i, err)
		}
	}
	return ids
}

func (r *rig) receive(c pulsar.Consumer) pulsar.Message {
	r.t.Helper()
	m, err := c.Receive(r.ctx)
	if err != nil {
		r.t.Fatalf("receiving: %v", err)
	}
	return m
}

// receiveAck receives n messages, acknowledges them and returns their texts.
func (r *rig) receiveAck(c pulsar.Consumer, n int) []string {
	r.t.Helper()
	var got []string
	for range n {
		m := r.receive(c)
		r.ack(c, m)
		got = append(got, string(m.Payload()))
	}
	return got
}

func (r *rig) ack(c pulsar.Consumer, m pulsar.Message) {
	r.t.Helper()
	if err := c.Ack(m); err != nil {
		r.t.Fatalf("acknowledging %v: %v", m.ID(), err)
	}
}

// wantTexts receives and acknowledges what must come, in order.
func (r *rig) wantTexts(c pulsar.Consumer, want []string) {
	r.t.Helper()
	if got := r.receiveAck(c, len(want)); !slices.Equal(got, want) {
		r.t.Fatalf("got  %.400v\nwant %.400v", got, want)
	}
}

// texts returns m0, m1, … for a range of numbers.
func texts(from, to int) []string {
	var s []string
	for i := from; i < to; i++ {
		s = append(s, fmt.Sprint("m", i))
	}
	return s
}

func messages(payloads []string) []*pulsar.ProducerMessage {
	var ms []*pulsar.ProducerMessage
	for _, p := range payloads {
		ms = append(ms, &pulsar.ProducerMessage{Payload: []byte(p)})
	}
	return ms
}

var subTypes = map[string]pulsar.SubscriptionType{
	"Exclusive": pulsar.Exclusive, "Shared": pulsar.Shared, "Failover": pulsar.Failover, "Key_Shared": pulsar.KeyShared,
}

func eachType(t *testing.T, f func(t *testing.T, typ pulsar.SubscriptionType)) {
	for name, typ := range subTypes {
		t.Run(name, func(t *testing.T) { f(t, typ) })
	}
}

// eventually waits for a condition that nothing announces.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond) // between two looks, not for them
	}
}
