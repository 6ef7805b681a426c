package conformance

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/contention-toolkit/contention/broker"
)

func TestConformanceMessageIndex(t *testing.T) {
	for name, batching := range batchings {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(c *broker.Config) { c.BrokerEntryMetadata = true })
			c := r.client()
			sub := r.consumer(c, pulsar.ConsumerOptions{})
			p := r.producer(c, batching)
			before := time.Now().Truncate(time.Millisecond)
			r.sendAll(p, messages(texts(0, 25)))
			after := time.Now()
			for i := range 25 {
				m := r.receive(sub)
				if m.Index() == nil || *m.Index() != uint64(i) {
					t.Fatalf("message %d has index %v", i, m.Index())
				}
				if at := m.BrokerPublishTime(); at == nil || at.Before(before) || at.After(after) {
					t.Fatalf("message %d: broker publish time %v, not between %v and %v", i, at, before, after)
				}
			}
		})
	}
}

func TestConformanceNoMessageIndexByDefault(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{})
	r.send(r.producer(c, pulsar.ProducerOptions{}), &pulsar.ProducerMessage{Payload: []byte("x")})
	if m := r.receive(sub); m.Index() != nil || m.BrokerPublishTime() != nil {
		t.Errorf("index %v, broker publish time %v", m.Index(), m.BrokerPublishTime())
	}
}

func TestConformanceChunking(t *testing.T) {
	eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
		r := start(t, func(c *broker.Config) { c.MaxMessageSize = 32 << 10 })
		c := r.client()
		var consumers []pulsar.Consumer
		for i := range 2 {
			if i == 0 || typ != pulsar.Exclusive {
				consumers = append(consumers, r.consumer(c, pulsar.ConsumerOptions{Type: typ, Name: fmt.Sprint("c", i), AckWithResponse: true}))
			}
		}
		all := r.gather(consumers...)
		const producers, each = 3, 4
		payload := randomBytes(300 << 10)
		for i := range producers {
			p := r.producer(c, pulsar.ProducerOptions{EnableChunking: true, DisableBatching: true})
			go func() {
				for range each {
					_, err := p.Send(r.ctx, &pulsar.ProducerMessage{Key: fmt.Sprint("k", i), Payload: payload})
					if err != nil {
						t.Errorf("sending in chunks: %v", err)
					}
				}
			}()
		}
		for range producers * each {
			if m := r.fromChannel(all); !bytes.Equal(m.Payload(), payload) {
				t.Fatalf("%d other bytes came", len(m.Payload()))
			}
		}
	})
}

func TestConformanceBatchIndexAck(t *testing.T) {
	for _, typ := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared, pulsar.KeyShared} {
		t.Run(fmt.Sprint("type ", typ), func(t *testing.T) {
			r := start(t, nil)
			c := r.client()
			o := pulsar.ConsumerOptions{Type: typ, EnableBatchIndexAcknowledgment: true, AckWithResponse: true, NackRedeliveryDelay: 100 * time.Millisecond}
			sub := r.consumer(c, o)
			r.sendAll(r.producer(c, batchings["batched"]), messages(texts(0, 10)))
			var rest []string
			for i := range 10 {
				m := r.receive(sub)
				if i%3 == 0 {
					r.ack(sub, m)
				} else {
					rest = append(rest, string(m.Payload()))
				}
			}
			sub.Close()
			// The rest of the batch comes to the next consumer, and nothing else.
			again := r.consumer(c, o)
			r.wantTexts(again, rest)
			r.sendAll(r.producer(c, batchings["single"]), messages([]string{"after"}))
			r.wantTexts(again, []string{"after"})
			again.Close()
			r.sendAll(r.producer(c, batchings["single"]), messages([]string{"last"}))
			r.wantTexts(r.consumer(c, o), []string{"last"})
		})
	}
}

func TestConformanceCumulativeAckWithinABatch(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	o := pulsar.ConsumerOptions{EnableBatchIndexAcknowledgment: true, AckWithResponse: true}
	sub := r.consumer(c, o)
	r.sendAll(r.producer(c, batchings["batched"]), messages(texts(0, 30)))
	for i := range 30 {
		if m := r.receive(sub); i == 14 {
			if err := sub.AckCumulative(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	sub.Close()
	r.wantTexts(r.consumer(c, o), texts(15, 30))
}

func TestConformanceDeadLetterTopic(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	dead := r.topic() + "-dead"
	sub := r.consumer(c, pulsar.ConsumerOptions{
		Type: pulsar.Shared, NackRedeliveryDelay: 50 * time.Millisecond,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: dead, InitialSubscriptionName: "kept"},
	})
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	r.send(p, &pulsar.ProducerMessage{Payload: []byte("bad")})
	for want := range uint32(2) {
		m := r.receive(sub)
		if m.RedeliveryCount() != want {
			t.Errorf("redelivery count %d, want %d", m.RedeliveryCount(), want)
		}
		sub.Nack(m)
	}
	r.send(p, &pulsar.ProducerMessage{Payload: []byte("good")})
	r.wantTexts(sub, []string{"good"})
	// The initial subscription keeps it until somebody comes.
	r.wantTexts(r.consumer(c, pulsar.ConsumerOptions{Topic: dead, SubscriptionName: "kept"}), []string{"bad"})
}

func TestConformanceRetryTopic(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{
		Type: pulsar.Shared, RetryEnable: true, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: r.topic() + "-dead", RetryLetterTopic: r.topic() + "-retry"},
	})
	r.send(r.producer(c, pulsar.ProducerOptions{DisableBatching: true}), &pulsar.ProducerMessage{Payload: []byte("later")})
	m := r.receive(sub)
	sub.ReconsumeLater(m, 0)
	if m = r.receive(sub); string(m.Payload()) != "later" || m.Topic() != r.topic()+"-retry" {
		t.Errorf("got %s from %s", m.Payload(), m.Topic())
	}
	r.ack(sub, m)
}

func TestConformanceZeroQueueConsumer(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, EnableZeroQueueConsumer: true})
	r.sendAll(r.producer(c, pulsar.ProducerOptions{DisableBatching: true}), messages(texts(0, 20)))
	r.wantTexts(sub, texts(0, 20))
}

func TestConformanceNackBackoff(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, NackBackoffPolicy: soon{}})
	r.send(r.producer(c, pulsar.ProducerOptions{}), &pulsar.ProducerMessage{Payload: []byte("x")})
	for want := range uint32(4) {
		m := r.receive(sub)
		if m.RedeliveryCount() != want {
			t.Fatalf("redelivery count %d, want %d", m.RedeliveryCount(), want)
		}
		sub.Nack(m)
	}
}

type soon struct{}

func (soon) Next(uint32) time.Duration { return 10 * time.Millisecond }

func TestConformanceConsumerPriority(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	first := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, PriorityLevel: 0, Name: "first", AckWithResponse: true})
	second := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, PriorityLevel: 1, Name: "second", AckWithResponse: true})
	all := r.gather(first, second)
	r.sendAll(r.producer(c, pulsar.ProducerOptions{DisableBatching: true}), messages(texts(0, 100)))
	for range 100 {
		if m := r.fromChannel(all); m.Consumer != first {
			t.Fatalf("%s went to the consumer of the lower priority", m.Payload())
		}
	}
}
