//go:build !race

// The official client has data races of its own when it reconnects.

package conformance

import (
	"fmt"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
)

const probe = "probe"

// probe returns when the producer has found the broker again. Until then the
// client can get ahead of itself: it takes the new connection before its
// producer is open there, so what is sent meanwhile may come before, and again
// after, what was sent earlier and has no receipt.
func (r *rig) probe(p pulsar.Producer) {
	r.t.Helper()
	r.send(p, &pulsar.ProducerMessage{Payload: []byte(probe)})
}

// wantAfterProbes is wantTexts without what probe sent.
func (r *rig) wantAfterProbes(receive func() pulsar.Message, want []string) {
	r.t.Helper()
	for i := 0; i < len(want); {
		switch got := string(receive().Payload()); got {
		case probe:
		case want[i]:
			i++
		default:
			r.t.Fatalf("got %s where %s was due", got, want[i])
		}
	}
}

// With storage in memory a restarted broker is empty; its clients go on.
func TestConformanceReconnectAfterRestart(t *testing.T) {
	eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
		r := start(t, nil)
		c := r.client()
		sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
		for round := range 4 {
			want := texts(round*10, round*10+10)
			r.sendAll(p, messages(want))
			r.wantAfterProbes(func() pulsar.Message {
				m := r.receive(sub)
				r.ack(sub, m)
				return m
			}, want)
			r.restart()
			r.probe(p)
		}
	})
}

func TestConformanceReaderAfterRestart(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	rd := r.reader(c, pulsar.ReaderOptions{StartMessageID: pulsar.EarliestMessageID()})
	r.sendAll(p, messages(texts(0, 50)))
	r.wantNext(rd, texts(0, 50))
	r.restart()
	r.probe(p)
	r.sendAll(p, messages(texts(50, 60)))
	r.wantAfterProbes(func() pulsar.Message { // although the new topic's entries start from 0
		m, err := rd.Next(r.ctx)
		if err != nil {
			t.Fatalf("reading: %v", err)
		}
		return m
	}, texts(50, 60))
}

// Messages sent while the broker is away arrive when it is back. See probe for
// why not in order.
func TestConformanceSendWhileTheBrokerIsAway(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	r.sendAll(p, messages(texts(0, 5)))
	r.wantTexts(sub, texts(0, 5))
	r.cfg.Listen = r.s.Addr().String()
	r.stop()
	const n = 100
	done := make(chan error, n)
	for i := range n {
		p.SendAsync(r.ctx, &pulsar.ProducerMessage{Payload: fmt.Append(nil, i)}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { done <- err })
		if i == n/2 {
			r.run()
		}
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	missing := map[string]bool{}
	for i := range n {
		missing[fmt.Sprint(i)] = true
	}
	for len(missing) > 0 {
		m := r.receive(sub)
		r.ack(sub, m)
		delete(missing, string(m.Payload()))
	}
}
