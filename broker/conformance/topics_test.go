package conformance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/contention-toolkit/contention/broker"
)

func TestConformancePartitionedTopic(t *testing.T) {
	eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
		r := start(t, nil)
		if err := r.s.CreatePartitionedTopic(r.topic(), 4); err != nil {
			t.Fatal(err)
		}
		c := r.client()
		names, err := c.TopicPartitions(r.topic())
		if err != nil || len(names) != 4 || names[3] != r.topic()+"-partition-3" {
			t.Fatalf("partitions %v, error %v", names, err)
		}
		sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ})
		p := r.producer(c, pulsar.ProducerOptions{
			DisableBatching: true,
			MessageRouter: func(m *pulsar.ProducerMessage, md pulsar.TopicMetadata) int {
				return len(m.Key) % int(md.NumPartitions())
			},
		})
		perPartition := map[int32][]string{}
		for i := range 40 {
			m := &pulsar.ProducerMessage{Key: "abcd"[:i%4+1], Payload: fmt.Append(nil, i)}
			id := r.send(p, m)
			if want := int32(len(m.Key) % 4); id.PartitionIdx() != want {
				t.Fatalf("message %d went to partition %d, want %d", i, id.PartitionIdx(), want)
			}
			perPartition[id.PartitionIdx()] = append(perPartition[id.PartitionIdx()], fmt.Sprint(i))
		}
		got := map[int32][]string{}
		for range 40 {
			m := r.receive(sub)
			got[m.ID().PartitionIdx()] = append(got[m.ID().PartitionIdx()], string(m.Payload()))
			r.ack(sub, m)
		}
		for i, want := range perPartition {
			if !slices.Equal(got[i], want) {
				t.Errorf("partition %d: got %v, want %v", i, got[i], want)
			}
		}
	})
}

func TestConformanceDefaultPartitions(t *testing.T) {
	r := start(t, func(c *broker.Config) { c.DefaultPartitions = 3 })
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared})
	p := r.producer(c, pulsar.ProducerOptions{})
	if names, err := c.TopicPartitions(r.topic()); err != nil || len(names) != 3 {
		t.Fatalf("partitions %v, error %v", names, err)
	}
	r.sendAll(p, messages(texts(0, 30)))
	got := r.receiveAck(sub, 30)
	slices.Sort(got)
	want := texts(0, 30)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// Clients that poll see the partitions that a topic gets later.
func TestConformanceMorePartitions(t *testing.T) {
	r := start(t, nil)
	if err := r.s.CreatePartitionedTopic(r.topic(), 1); err != nil {
		t.Fatal(err)
	}
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{
		Type: pulsar.Shared, AutoDiscoveryPeriod: 20 * time.Millisecond, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	p := r.producer(c, pulsar.ProducerOptions{
		DisableBatching: true, PartitionsAutoDiscoveryInterval: 20 * time.Millisecond,
		MessageRouter: func(_ *pulsar.ProducerMessage, md pulsar.TopicMetadata) int { return int(md.NumPartitions()) - 1 },
	})
	if err := r.s.CreatePartitionedTopic(r.topic(), 3); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the producer sends to the last partition", func() bool {
		return r.send(p, &pulsar.ProducerMessage{Payload: []byte("x")}).PartitionIdx() == 2
	})
	eventually(t, "the consumer receives from it", func() bool {
		m := r.receive(sub)
		r.ack(sub, m)
		return m.ID().PartitionIdx() == 2
	})
	if err := r.s.CreatePartitionedTopic(r.topic(), 2); err == nil {
		t.Error("partitions were taken away")
	}
}

func TestConformanceRegexConsumer(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	send := func(topic, text string) {
		r.send(r.producer(c, pulsar.ProducerOptions{Topic: topic}), &pulsar.ProducerMessage{Payload: []byte(text)})
	}
	r.producer(c, pulsar.ProducerOptions{Topic: r.topic() + "-a"})
	r.producer(c, pulsar.ProducerOptions{Topic: "persistent://other/ns/" + t.Name() + "-b"})
	if err := r.s.CreatePartitionedTopic(r.topic()+"-p", 2); err != nil {
		t.Fatal(err)
	}
	sub := r.consumer(c, pulsar.ConsumerOptions{
		TopicsPattern: r.topic() + "-.*", Type: pulsar.Shared, AutoDiscoveryPeriod: 20 * time.Millisecond,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	send("persistent://other/ns/"+t.Name()+"-b", "not of this namespace")
	send("persistent://public/default/elsewhere", "no match")
	send(r.topic()+"-a", "a")
	send(r.topic()+"-p", "p")
	send(r.topic()+"-new", "new")
	got := r.receiveAck(sub, 3)
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "new", "p"}) {
		t.Errorf("got %v", got)
	}
}

func TestConformanceBadTopicName(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	if _, err := c.CreateProducer(pulsar.ProducerOptions{Topic: "non-persistent://public/default/x"}); err == nil {
		t.Error("a producer of a topic that is not persistent")
	}
	if _, err := c.Subscribe(pulsar.ConsumerOptions{Topic: "non-persistent://public/default/x", SubscriptionName: "s"}); err == nil {
		t.Error("a consumer of a topic that is not persistent")
	}
}

func TestConformanceTransactionsAreRefused(t *testing.T) {
	r := start(t, nil)
	c, err := pulsar.NewClient(pulsar.ClientOptions{URL: r.url, EnableTransaction: true, OperationTimeout: patience, Logger: plog.DefaultNopLogger()})
	if err == nil {
		_, err = c.NewTransaction(patience)
		c.Close()
	}
	if err == nil {
		t.Error("a transaction was begun")
	}
}
