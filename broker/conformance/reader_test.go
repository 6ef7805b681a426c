package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func (r *rig) reader(c pulsar.Client, o pulsar.ReaderOptions) pulsar.Reader {
	r.t.Helper()
	if o.Topic == "" {
		o.Topic = r.topic()
	}
	rd, err := c.CreateReader(o)
	if err != nil {
		r.t.Fatalf("creating a reader: %v", err)
	}
	r.t.Cleanup(rd.Close)
	return rd
}

func (r *rig) wantNext(rd pulsar.Reader, want []string) {
	r.t.Helper()
	for _, w := range want {
		m, err := rd.Next(r.ctx)
		if err != nil {
			r.t.Fatalf("reading %s: %v", w, err)
		}
		if string(m.Payload()) != w {
			r.t.Fatalf("read %s, want %s", m.Payload(), w)
		}
	}
}

var batchings = map[string]pulsar.ProducerOptions{
	"single":  {DisableBatching: true},
	"batched": {BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Hour},
}

func TestConformanceReaderStart(t *testing.T) {
	for name, batching := range batchings {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			c := r.client()
			r.keep(c)
			p := r.producer(c, batching)
			ids := r.sendAll(p, messages(texts(0, 30)))
			latest := r.reader(c, pulsar.ReaderOptions{StartMessageID: pulsar.LatestMessageID()})
			lastOne := r.reader(c, pulsar.ReaderOptions{StartMessageID: pulsar.LatestMessageID(), StartMessageIDInclusive: true})
			earliest := r.reader(c, pulsar.ReaderOptions{StartMessageID: pulsar.EarliestMessageID()})
			after := r.reader(c, pulsar.ReaderOptions{StartMessageID: ids[12]})
			from := r.reader(c, pulsar.ReaderOptions{StartMessageID: ids[12], StartMessageIDInclusive: true})
			r.sendAll(p, messages(texts(30, 40)))
			r.wantNext(latest, texts(30, 40))
			r.wantNext(lastOne, texts(29, 40))
			r.wantNext(earliest, texts(0, 40))
			r.wantNext(after, texts(13, 40))
			r.wantNext(from, texts(12, 40))
		})
	}
}

func TestConformanceReaderHasNext(t *testing.T) {
	for name, batching := range batchings {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			c := r.client()
			r.keep(c)
			p := r.producer(c, batching)
			empty := r.reader(c, pulsar.ReaderOptions{StartMessageID: pulsar.EarliestMessageID()})
			if empty.HasNext() {
				t.Error("an empty topic has a next message")
			}
			ids := r.sendAll(p, messages(texts(0, 25)))
			for _, rd := range []pulsar.Reader{empty, r.reader(c, pulsar.ReaderOptions{StartMessageID: pulsar.EarliestMessageID()})} {
				n := 0
				for ; rd.HasNext(); n++ {
					r.wantNext(rd, texts(n, n+1))
				}
				if n != 25 {
					t.Errorf("%d messages until HasNext was false, want 25", n)
				}
			}
			if r.reader(c, pulsar.ReaderOptions{StartMessageID: ids[24]}).HasNext() {
				t.Error("something comes after the last message")
			}
			if !r.reader(c, pulsar.ReaderOptions{StartMessageID: ids[24], StartMessageIDInclusive: true}).HasNext() {
				t.Error("the last message does not come after itself, inclusive")
			}
			last, err := empty.GetLastMessageID()
			if err != nil || last.EntryID() != ids[24].EntryID() || last.LedgerID() != ids[24].LedgerID() {
				t.Errorf("last message id %v, error %v, want %v", last, err, ids[24])
			}
		})
	}
}

func TestConformanceReaderSeek(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	r.keep(c)
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	ids := r.sendAll(p, messages(texts(0, 10)))
	middle := nextMillisecond(t)
	r.sendAll(p, messages(texts(10, 20)))
	rd := r.reader(c, pulsar.ReaderOptions{StartMessageID: pulsar.EarliestMessageID()})
	r.wantNext(rd, texts(0, 20))
	if err := rd.Seek(withPartition(ids[3])); err != nil {
		t.Fatal(err)
	}
	r.wantNext(rd, texts(4, 20))
	if err := rd.SeekByTime(middle); err != nil {
		t.Fatal(err)
	}
	n := 10
	for ; rd.HasNext(); n++ {
		r.wantNext(rd, texts(n, n+1))
	}
	if n != 20 {
		t.Errorf("after a seek by time HasNext was false at %d, want 20", n)
	}
	if err := rd.Seek(withPartition(pulsar.EarliestMessageID())); err != nil {
		t.Fatal(err)
	}
	r.wantNext(rd, texts(0, 20))
}

// A consumer that is not durable leaves nothing behind.
func TestConformanceNonDurableSubscription(t *testing.T) {
	eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
		r := start(t, nil)
		c := r.client()
		r.keep(c)
		o := pulsar.ConsumerOptions{Type: typ, SubscriptionMode: pulsar.NonDurable, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}
		p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
		r.sendAll(p, messages(texts(0, 10)))
		for range 2 {
			sub := r.consumer(c, o)
			r.wantTexts(sub, texts(0, 10))
			sub.Close()
		}
		durable := r.consumer(c, pulsar.ConsumerOptions{Type: typ})
		if _, err := c.Subscribe(pulsar.ConsumerOptions{Topic: r.topic(), SubscriptionName: "sub", Type: typ, SubscriptionMode: pulsar.NonDurable}); err == nil {
			t.Error("a consumer that is not durable on a durable subscription")
		}
		durable.Close()
	})
}

func TestConformanceTableView(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	p := r.producer(c, pulsar.ProducerOptions{Schema: pulsar.NewStringSchema(nil)})
	tv, err := c.CreateTableView(pulsar.TableViewOptions{Topic: r.topic(), Schema: pulsar.NewStringSchema(nil), SchemaValueType: stringPointer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tv.Close)
	for i := range 20 {
		r.send(p, &pulsar.ProducerMessage{Key: fmt.Sprint("k", i%5), Value: fmt.Sprint("v", i)})
	}
	eventually(t, "the view has the last value of every key", func() bool {
		for k := range 5 {
			v, ok := tv.Get(fmt.Sprint("k", k)).(*string)
			if !ok || *v != fmt.Sprint("v", 15+k) {
				return false
			}
		}
		return tv.Size() == 5
	})
}
