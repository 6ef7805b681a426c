package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/contention-toolkit/contention/broker"
)

func TestConformanceProduceConsume(t *testing.T) {
	eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
		r := start(t, nil)
		c := r.client()
		sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ})
		p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
		sent := time.Now().Truncate(time.Millisecond)
		id := r.send(p, &pulsar.ProducerMessage{
			Payload: []byte("hello"), Key: "k", Properties: map[string]string{"a": "b"}, EventTime: time.UnixMilli(1234567),
		})
		m := r.receive(sub)
		if string(m.Payload()) != "hello" || m.Key() != "k" || m.Properties()["a"] != "b" || m.EventTime().UnixMilli() != 1234567 {
			t.Errorf("got %q, key %q, properties %v, event time %v", m.Payload(), m.Key(), m.Properties(), m.EventTime())
		}
		if m.Topic() != r.topic() || m.ProducerName() != p.Name() || m.PublishTime().Before(sent) {
			t.Errorf("topic %s, producer %s (sent by %s), published %v, sent %v", m.Topic(), m.ProducerName(), p.Name(), m.PublishTime(), sent)
		}
		if m.ID().LedgerID() != id.LedgerID() || m.ID().EntryID() != id.EntryID() || m.RedeliveryCount() != 0 {
			t.Errorf("received %v, receipt said %v; %d redeliveries", m.ID(), id, m.RedeliveryCount())
		}
		r.ack(sub, m)
	})
}

func TestConformanceBatching(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{})
	p := r.producer(c, pulsar.ProducerOptions{BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Hour})
	ids := r.sendAll(p, messages(texts(0, 95)))
	if a, b := ids[0], ids[9]; a.EntryID() != b.EntryID() || b.BatchIdx() != 9 || b.BatchSize() != 10 {
		t.Errorf("the first ten have ids %v … %v: not one batch of ten", a, b)
	}
	if last := ids[94]; last.EntryID() != 9 || last.BatchIdx() != 4 || last.BatchSize() != 5 {
		t.Errorf("the last of 95 has id %v, want entry 9, index 4 of 5", last)
	}
	for i := range 95 {
		m := r.receive(sub)
		if want := fmt.Sprint("m", i); string(m.Payload()) != want || m.ID().BatchIdx() != int32(i%10) {
			t.Fatalf("got %q with id %v, want %s", m.Payload(), m.ID(), want)
		}
		r.ack(sub, m)
	}
}

func TestConformanceKeyBasedBatching(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	const consumers, keys, each = 3, 12, 20
	received := make(chan pulsar.ConsumerMessage, keys*each)
	for i := range consumers {
		r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.KeyShared, Name: fmt.Sprint("c", i), MessageChannel: received})
	}
	p := r.producer(c, pulsar.ProducerOptions{BatcherBuilderType: pulsar.KeyBasedBatchBuilder, BatchingMaxMessages: 60, BatchingMaxPublishDelay: time.Hour})
	var msgs []*pulsar.ProducerMessage
	for n := range each {
		for k := range keys {
			msgs = append(msgs, &pulsar.ProducerMessage{Key: fmt.Sprint("k", k), Payload: fmt.Append(nil, n)})
		}
	}
	r.sendAll(p, msgs)
	next, owner := map[string]int{}, map[string]string{}
	for range keys * each {
		m := r.fromChannel(received)
		if want := fmt.Sprint(next[m.Key()]); string(m.Payload()) != want {
			t.Fatalf("key %s: got %s, want %s", m.Key(), m.Payload(), want)
		}
		next[m.Key()]++
		if o := owner[m.Key()]; o != "" && o != m.Consumer.Name() {
			t.Fatalf("key %s went to %s and to %s", m.Key(), o, m.Consumer.Name())
		}
		owner[m.Key()] = m.Consumer.Name()
		r.ack(m.Consumer, m)
	}
}

func (r *rig) fromChannel(ch chan pulsar.ConsumerMessage) pulsar.ConsumerMessage {
	r.t.Helper()
	select {
	case m := <-ch:
		return m
	case <-r.ctx.Done():
		r.t.Fatal("no message came")
		return pulsar.ConsumerMessage{}
	}
}

func TestConformanceCompression(t *testing.T) {
	for name, typ := range map[string]pulsar.CompressionType{
		"none": pulsar.NoCompression, "lz4": pulsar.LZ4, "zlib": pulsar.ZLib, "zstd": pulsar.ZSTD, "snappy": pulsar.SNAPPY,
	} {
		for _, batching := range []string{"single", "batched"} {
			t.Run(name+"/"+batching, func(t *testing.T) {
				r := start(t, nil)
				c := r.client()
				sub := r.consumer(c, pulsar.ConsumerOptions{})
				p := r.producer(c, pulsar.ProducerOptions{CompressionType: typ, DisableBatching: batching == "single"})
				payload := bytes.Repeat([]byte("abcdefgh"), 4<<10)
				for range 3 {
					r.send(p, &pulsar.ProducerMessage{Payload: payload})
					m := r.receive(sub)
					if !bytes.Equal(m.Payload(), payload) {
						t.Fatalf("got %d other bytes", len(m.Payload()))
					}
					r.ack(sub, m)
				}
			})
		}
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(b) // never fails
	return b
}

// The client learns the limit from CONNECTED and refuses by itself what is
// longer with its metadata; the largest that it sends must get through.
func TestConformanceMaxMessageSize(t *testing.T) {
	const limit = 128 << 10
	r := start(t, func(c *broker.Config) { c.MaxMessageSize = limit })
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{})
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	refused := 0
	for n := limit + 1; ; n-- {
		payload := randomBytes(n)
		_, err := p.Send(r.ctx, &pulsar.ProducerMessage{Payload: payload})
		if tooLarge := errors.Is(err, pulsar.ErrMessageTooLarge) || err != nil && strings.Contains(err.Error(), "exceeds MaxMessageSize"); tooLarge && limit-n < 200 {
			refused++
			continue
		}
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if m := r.receive(sub); !bytes.Equal(m.Payload(), payload) {
			t.Fatalf("of %d bytes, %d came, not the same", n, len(m.Payload()))
		}
		break
	}
	if refused == 0 {
		t.Error("a message above the limit was sent")
	}
}

func TestConformanceLargeMessages(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{ReceiverQueueSize: 2})
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	for _, n := range []int{1, 64 << 10, 1 << 20, 5<<20 - 100} {
		payload := randomBytes(n)
		r.send(p, &pulsar.ProducerMessage{Payload: payload})
		m := r.receive(sub)
		if !bytes.Equal(m.Payload(), payload) {
			t.Fatalf("of %d bytes, %d came, not the same", n, len(m.Payload()))
		}
		r.ack(sub, m)
	}
}

// Sixteen producers on a connection each, and all on one.
func TestConformanceManyProducers(t *testing.T) {
	for _, conns := range []int{1, 16} {
		t.Run(fmt.Sprint(conns, " connections"), func(t *testing.T) {
			r := start(t, nil)
			c := r.clientWith(pulsar.ClientOptions{MaxConnectionsPerBroker: conns})
			sub := r.consumer(c, pulsar.ConsumerOptions{})
			const producers, each = 16, 50
			next := map[string]int{}
			for range producers {
				p := r.producer(c, pulsar.ProducerOptions{})
				if _, twice := next[p.Name()]; twice {
					t.Fatalf("the generated name %s came twice", p.Name())
				}
				next[p.Name()] = 0
				go func() {
					for i := range each {
						p.SendAsync(r.ctx, &pulsar.ProducerMessage{Payload: fmt.Append(nil, i)}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
							if err != nil {
								t.Errorf("sending: %v", err)
							}
						})
					}
				}()
			}
			for range producers * each {
				m := r.receive(sub)
				if want := fmt.Sprint(next[m.ProducerName()]); string(m.Payload()) != want {
					t.Fatalf("producer %s: got %s, want %s", m.ProducerName(), m.Payload(), want)
				}
				next[m.ProducerName()]++
				r.ack(sub, m)
			}
		})
	}
}

func TestConformanceProducerNameBusy(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	p := r.producer(c, pulsar.ProducerOptions{Name: "same"})
	if _, err := c.CreateProducer(pulsar.ProducerOptions{Topic: r.topic(), Name: "same"}); err == nil {
		t.Fatal("two producers of one name")
	}
	p.Close()
	r.send(r.producer(c, pulsar.ProducerOptions{Name: "same"}), &pulsar.ProducerMessage{Payload: []byte("x")})
}
