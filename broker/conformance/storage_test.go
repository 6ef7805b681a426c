package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/contention-toolkit/contention/broker"
)

func onDisk(t *testing.T) func(*broker.Config) {
	dir := t.TempDir()
	return func(c *broker.Config) { c.Storage, c.DataDir = broker.Disk, dir }
}

func TestConformanceStorageSurvivesRestart(t *testing.T) {
	r := start(t, onDisk(t))
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AckWithResponse: true})
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	ids := r.sendAll(p, messages(texts(0, 100)))
	r.wantTexts(sub, texts(0, 40))
	sub.Close()
	c.Close()
	r.restart()

	// Nothing that was acknowledged comes again, nothing else is missing, and
	// entries go on where they were.
	c = r.client()
	sub = r.consumer(c, pulsar.ConsumerOptions{})
	p = r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	next := r.send(p, &pulsar.ProducerMessage{Payload: []byte("m100")})
	if last := ids[99]; next.LedgerID() != last.LedgerID() || next.EntryID() != last.EntryID()+1 {
		t.Errorf("entry %v follows %v", next, last)
	}
	r.wantTexts(sub, texts(40, 101))
}

func TestConformanceStorageKeepsSeeksSchemasAndPartitions(t *testing.T) {
	r := start(t, onDisk(t))
	const parts = "persistent://public/default/parts"
	if err := r.s.CreatePartitionedTopic(parts, 3); err != nil {
		t.Fatal(err)
	}
	schema := pulsar.NewJSONSchema(`{"type":"record","name":"R","fields":[{"name":"A","type":"int"}]}`, map[string]string{"k": "v"})
	type record struct{ A int }
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	p := r.producer(c, pulsar.ProducerOptions{Schema: schema, DisableBatching: true})
	var ids []pulsar.MessageID
	for i := range 10 {
		ids = append(ids, r.send(p, &pulsar.ProducerMessage{Value: record{i}}))
	}
	for range 10 {
		r.ack(sub, r.receive(sub))
	}
	if err := sub.Seek(ids[7]); err != nil {
		t.Fatal(err)
	}
	c.Close()
	r.restart()

	c = r.client()
	names, err := c.TopicPartitions(parts)
	if err != nil || len(names) != 3 {
		t.Errorf("partitions after the restart: %v, %v", names, err)
	}
	sub = r.consumer(c, pulsar.ConsumerOptions{Schema: schema})
	for i := 7; i < 10; i++ {
		var got record
		m := r.receive(sub)
		if err := m.GetSchemaValue(&got); err != nil || got.A != i {
			t.Fatalf("got %+v, %v, want %d", got, err, i)
		}
	}
	other := pulsar.NewJSONSchema(`{"type":"record","name":"R","fields":[{"name":"B","type":"int"}]}`, nil)
	r.producer(c, pulsar.ProducerOptions{Schema: other}) // a second version, stored beside
}

func TestConformanceStorageUnsubscribedIsGone(t *testing.T) {
	r := start(t, onDisk(t))
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{})
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	r.sendAll(r.producer(c, pulsar.ProducerOptions{DisableBatching: true}), messages(texts(0, 10)))
	c.Close()
	r.restart()
	c = r.client()
	sub = r.consumer(c, pulsar.ConsumerOptions{}) // from the latest message on
	r.send(r.producer(c, pulsar.ProducerOptions{}), &pulsar.ProducerMessage{Payload: []byte("new")})
	r.wantTexts(sub, []string{"new"})
}

func TestConformanceStorageReadsBacklogFromDisk(t *testing.T) {
	disk := onDisk(t)
	r := start(t, func(c *broker.Config) { disk(c); c.ReadCacheBytes = 1000 })
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	sub.Close()
	want := texts(0, 5000)
	r.sendAll(r.producer(c, pulsar.ProducerOptions{DisableBatching: true, MaxPendingMessages: 5000}), messages(want))
	sub = r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared})
	got := r.receiveAck(sub, len(want))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("%d messages, not those sent", len(got))
	}
}

func TestConformanceStorageDirectoryIsLocked(t *testing.T) {
	r := start(t, onDisk(t))
	cfg := r.cfg
	cfg.Listen = "127.0.0.1:0"
	s, err := broker.Start(r.ctx, cfg)
	if err == nil {
		_ = s.Shutdown(r.ctx)
		t.Fatal("two brokers share a data directory")
	}
	if !strings.Contains(err.Error(), cfg.DataDir) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the reason does not say which and why: %v", err)
	}
}
