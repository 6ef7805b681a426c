package conformance

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
)

// ledgerOfKeys checks deliveries of a Key_Shared subscription: everything comes,
// and of each key the first deliveries are in order.
type ledgerOfKeys struct {
	mu       sync.Mutex
	next     map[string]int
	owners   map[string]map[string]bool // by key
	got      int
	repeated int
	want     int
	done     chan struct{}
	problems []string
}

func newLedgerOfKeys(want int) *ledgerOfKeys {
	return &ledgerOfKeys{next: map[string]int{}, owners: map[string]map[string]bool{}, want: want, done: make(chan struct{})}
}

func (l *ledgerOfKeys) see(consumer string, m pulsar.Message) {
	n, err := strconv.Atoi(string(m.Payload()))
	l.mu.Lock()
	defer l.mu.Unlock()
	key := m.Key()
	if l.owners[key] == nil {
		l.owners[key] = map[string]bool{}
	}
	l.owners[key][consumer] = true
	switch due := l.next[key]; {
	case err != nil || n > due:
		l.problems = append(l.problems, fmt.Sprintf("%s: key %s: %q where %d was due", consumer, key, m.Payload(), due))
	case n < due:
		l.repeated++
		return
	}
	l.next[key] = n + 1
	if l.got++; l.got == l.want {
		close(l.done)
	}
}

// drain receives and acknowledges until the consumer or the test ends.
func (l *ledgerOfKeys) drain(ctx context.Context, c pulsar.Consumer) {
	for {
		m, err := c.Receive(ctx)
		if err != nil {
			return
		}
		l.see(c.Name(), m)
		_ = c.Ack(m) // fails when the consumer is being closed: the message comes again
	}
}

func (l *ledgerOfKeys) wait(t *testing.T, ctx context.Context) {
	t.Helper()
	select {
	case <-l.done:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.got != l.want || len(l.problems) > 0 {
		t.Fatalf("%d of %d messages, problems %.500v", l.got, l.want, l.problems)
	}
}

func (r *rig) produceKeys(p pulsar.Producer, keys, from, to int) {
	for n := from; n < to; n++ {
		for k := range keys {
			p.SendAsync(r.ctx, &pulsar.ProducerMessage{Key: fmt.Sprint("k", k), Payload: fmt.Append(nil, n)},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
					if err != nil {
						r.t.Errorf("sending: %v", err)
					}
				})
		}
	}
	if err := p.FlushWithCtx(r.ctx); err != nil {
		r.t.Errorf("flushing: %v", err)
	}
}

func TestConformanceKeySharedAutoSplit(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	const keys, each = 60, 40
	l := newLedgerOfKeys(keys * each)
	for i := range 4 {
		go l.drain(r.ctx, r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.KeyShared, Name: fmt.Sprint("c", i), ReceiverQueueSize: 50}))
	}
	r.produceKeys(r.producer(c, pulsar.ProducerOptions{DisableBatching: true}), keys, 0, each)
	l.wait(t, r.ctx)
	used := map[string]bool{}
	for key, by := range l.owners {
		if len(by) != 1 {
			t.Errorf("key %s went to %d consumers", key, len(by))
		}
		for name := range by {
			used[name] = true
		}
	}
	if len(used) != 4 || l.repeated != 0 {
		t.Errorf("%d of 4 consumers got something; %d messages came again", len(used), l.repeated)
	}
}

// Order survives consumers that come and go.
func TestConformanceKeySharedMembersChange(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	const keys, each, rounds = 40, 30, 5
	l := newLedgerOfKeys(keys * each * rounds)
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	var members []pulsar.Consumer
	join := func(name string) {
		m := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.KeyShared, Name: name, ReceiverQueueSize: 20})
		members = append(members, m)
		go l.drain(r.ctx, m)
	}
	join("a")
	join("b")
	for round := range rounds {
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			r.produceKeys(p, keys, round*each, (round+1)*each)
		}()
		join(fmt.Sprint("n", round))
		members[0].Close()
		members = members[1:]
		<-sent
	}
	l.wait(t, r.ctx)
}

func TestConformanceKeySharedSticky(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	policy := func(ranges ...int) *pulsar.KeySharedPolicy {
		p, err := pulsar.NewKeySharedPolicySticky(ranges)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const keys, each = 40, 20
	l := newLedgerOfKeys(keys * each)
	o := pulsar.ConsumerOptions{Type: pulsar.KeyShared, Name: "low", KeySharedPolicy: policy(0, 32767)}
	go l.drain(r.ctx, r.consumer(c, o))
	o.Name, o.KeySharedPolicy = "high", policy(32768, 49151, 49152, 65535)
	go l.drain(r.ctx, r.consumer(c, o))
	for what, o := range map[string]pulsar.ConsumerOptions{
		"an overlapping range": {KeySharedPolicy: policy(30000, 40000)},
		"auto-split":           {},
	} {
		o.Topic, o.SubscriptionName, o.Type = r.topic(), "sub", pulsar.KeyShared
		if _, err := c.Subscribe(o); err == nil {
			t.Errorf("%s was accepted beside sticky consumers", what)
		}
	}
	r.produceKeys(r.producer(c, pulsar.ProducerOptions{DisableBatching: true}), keys, 0, each)
	l.wait(t, r.ctx)
	by := map[string]int{}
	for key, owners := range l.owners {
		if len(owners) != 1 {
			t.Errorf("key %s went to %d consumers", key, len(owners))
		}
		for name := range owners {
			by[name]++
		}
	}
	if by["low"] == 0 || by["high"] == 0 {
		t.Errorf("keys by consumer: %v", by)
	}
}

func TestConformanceKeySharedOutOfOrderAllowed(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	policy := &pulsar.KeySharedPolicy{Mode: pulsar.KeySharedPolicyModeAutoSplit, AllowOutOfOrderDelivery: true}
	a := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.KeyShared, KeySharedPolicy: policy, AckWithResponse: true, Name: "a"})
	b := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.KeyShared, KeySharedPolicy: policy, AckWithResponse: true, Name: "b"})
	all := r.gather(a, b)
	r.produceKeys(r.producer(c, pulsar.ProducerOptions{DisableBatching: true}), 20, 0, 10)
	seen := map[string]bool{}
	for range 200 {
		m := r.fromChannel(all)
		if id := m.Key() + "/" + string(m.Payload()); seen[id] {
			t.Fatalf("%s came twice", id)
		} else {
			seen[id] = true
		}
	}
}
