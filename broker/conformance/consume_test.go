package conformance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func TestConformanceInitialPosition(t *testing.T) {
	eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
		r := start(t, nil)
		c := r.client()
		p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
		// A subscription that keeps what is published before the others.
		r.consumer(c, pulsar.ConsumerOptions{SubscriptionName: "keeper"})
		r.sendAll(p, messages(texts(0, 3)))
		late := r.consumer(c, pulsar.ConsumerOptions{SubscriptionName: "latest", Type: typ})
		early := r.consumer(c, pulsar.ConsumerOptions{SubscriptionName: "earliest", Type: typ, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		r.sendAll(p, messages(texts(3, 5)))
		r.wantTexts(late, texts(3, 5))
		r.wantTexts(early, texts(0, 5))
	})
}

func TestConformanceExclusiveBusy(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	first := r.consumer(c, pulsar.ConsumerOptions{})
	o := pulsar.ConsumerOptions{Topic: r.topic(), SubscriptionName: "sub"}
	if _, err := c.Subscribe(o); err == nil {
		t.Fatal("two exclusive consumers")
	}
	first.Close()
	second, err := c.Subscribe(o)
	if err != nil {
		t.Fatalf("after the first has closed: %v", err)
	}
	second.Close()
}

func TestConformanceOtherTypeIsRefused(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared})
	if _, err := c.Subscribe(pulsar.ConsumerOptions{Topic: r.topic(), SubscriptionName: "sub", Type: pulsar.Failover}); err == nil {
		t.Fatal("a Failover consumer on a Shared subscription")
	}
}

// Consumers of a Shared subscription share it: together they get everything
// once, and each gets some.
func TestConformanceSharedRoundRobin(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	const n = 300
	received := make(chan pulsar.ConsumerMessage, n)
	for i := range 3 {
		r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, Name: fmt.Sprint("c", i), MessageChannel: received, ReceiverQueueSize: 100})
	}
	r.sendAll(r.producer(c, pulsar.ProducerOptions{DisableBatching: true}), messages(texts(0, n)))
	seen, by := map[string]bool{}, map[string]int{}
	for range n {
		m := r.fromChannel(received)
		if seen[string(m.Payload())] {
			t.Fatalf("%s came twice", m.Payload())
		}
		seen[string(m.Payload())] = true
		by[m.Consumer.Name()]++
		r.ack(m.Consumer, m)
	}
	if len(by) != 3 {
		t.Errorf("messages by consumer: %v, want all three to have some", by)
	}
}

func TestConformanceFailover(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	active := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Failover, Name: "a"})
	standby := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Failover, Name: "b"})
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	r.sendAll(p, messages(texts(0, 10)))
	r.wantTexts(active, texts(0, 4))
	for i := 4; i < 7; i++ { // received and not acknowledged
		r.receive(active)
	}
	active.Close() // sends its acknowledgements first
	r.sendAll(p, messages(texts(10, 12)))
	r.wantTexts(standby, texts(4, 12))
}

// Closing sends what is grouped; a new consumer gets only the rest.
func TestConformanceSubscriptionKeepsItsPlace(t *testing.T) {
	eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
		r := start(t, nil)
		c := r.client()
		sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ})
		p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
		r.sendAll(p, messages(texts(0, 10)))
		r.wantTexts(sub, texts(0, 6))
		sub.Close()
		r.sendAll(p, messages(texts(10, 12)))
		r.wantTexts(r.consumer(c, pulsar.ConsumerOptions{Type: typ}), texts(6, 12))
	})
}

func TestConformanceUnsubscribe(t *testing.T) {
	eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
		r := start(t, nil)
		c := r.client()
		sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ})
		p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
		r.sendAll(p, messages(texts(0, 3)))
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
		again := r.consumer(c, pulsar.ConsumerOptions{Type: typ}) // at the end: the subscription is a new one
		r.sendAll(p, messages(texts(3, 4)))
		r.wantTexts(again, texts(3, 4))
	})
}

func TestConformanceNack(t *testing.T) {
	for _, batching := range []string{"single", "batched"} {
		t.Run(batching, func(t *testing.T) {
			eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
				r := start(t, nil)
				c := r.client()
				sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ, NackRedeliveryDelay: 100 * time.Millisecond})
				p := r.producer(c, pulsar.ProducerOptions{DisableBatching: batching == "single", BatchingMaxPublishDelay: time.Hour})
				r.sendAll(p, messages(texts(0, 4)))
				for range 4 {
					sub.Nack(r.receive(sub))
				}
				for range 4 {
					m := r.receive(sub)
					if m.RedeliveryCount() == 0 {
						t.Errorf("%s came again with redelivery count 0", m.Payload())
					}
					r.ack(sub, m)
				}
			})
		})
	}
}

func TestConformanceAckWithResponse(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{AckWithResponse: true})
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	r.sendAll(p, messages(texts(0, 5)))
	r.wantTexts(sub, texts(0, 3))
	last := r.receive(sub)
	if err := sub.AckIDList([]pulsar.MessageID{last.ID(), r.receive(sub).ID()}); err != nil {
		t.Fatalf("acknowledging a list: %v", err)
	}
	sub.Close()
	r.sendAll(p, messages(texts(5, 6)))
	r.wantTexts(r.consumer(c, pulsar.ConsumerOptions{AckWithResponse: true}), texts(5, 6))
}

func TestConformanceCumulativeAck(t *testing.T) {
	for _, typ := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
		for _, response := range []bool{false, true} {
			t.Run(fmt.Sprintf("type %d response %v", typ, response), func(t *testing.T) {
				r := start(t, nil)
				c := r.client()
				sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ, AckWithResponse: response})
				p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
				r.sendAll(p, messages(texts(0, 10)))
				for i := range 10 {
					if m := r.receive(sub); i == 6 {
						if err := sub.AckCumulative(m); err != nil {
							t.Fatal(err)
						}
					}
				}
				sub.Close()
				r.wantTexts(r.consumer(c, pulsar.ConsumerOptions{Type: typ}), texts(7, 10))
			})
		}
	}
}

func TestConformanceMultiTopicConsumer(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	var topics []string
	for i := range 3 {
		topics = append(topics, fmt.Sprint(r.topic(), "-", i))
	}
	sub := r.consumer(c, pulsar.ConsumerOptions{Topics: topics, Type: pulsar.Shared})
	var want []string
	for i, topic := range topics {
		p := r.producer(c, pulsar.ProducerOptions{Topic: topic})
		part := texts(i*10, i*10+10)
		r.sendAll(p, messages(part))
		want = append(want, part...)
	}
	got := r.receiveAck(sub, len(want))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("got %v", got)
	}
}
