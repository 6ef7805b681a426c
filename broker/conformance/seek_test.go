package conformance

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// keep makes the topic keep its messages, acknowledged by others or not.
func (r *rig) keep(c pulsar.Client) {
	r.t.Helper()
	r.consumer(c, pulsar.ConsumerOptions{SubscriptionName: "keeper"}).Close()
}

func TestConformanceSeekByID(t *testing.T) {
	for _, inclusive := range []bool{false, true} {
		name, first := "exclusive of the id", 6
		if inclusive {
			name, first = "inclusive of the id", 5
		}
		t.Run(name, func(t *testing.T) {
			eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
				r := start(t, nil)
				c := r.client()
				r.keep(c)
				sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ, StartMessageIDInclusive: inclusive})
				p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
				ids := r.sendAll(p, messages(texts(0, 20)))
				r.wantTexts(sub, texts(0, 20))
				if err := sub.Seek(withPartition(ids[5])); err != nil {
					t.Fatal(err)
				}
				r.wantTexts(sub, texts(first, 20))
				// Forward, over what was never received.
				ids = r.sendAll(p, messages(texts(20, 40)))
				if err := sub.Seek(withPartition(ids[15])); err != nil {
					t.Fatal(err)
				}
				r.wantTexts(sub, texts(30+first, 40))
			})
		})
	}
}

// withPartition makes an id what the client accepts for a topic without
// partitions.
func withPartition(id pulsar.MessageID) pulsar.MessageID {
	return pulsar.NewMessageID(id.LedgerID(), id.EntryID(), id.BatchIdx(), 0)
}

func TestConformanceSeekWithinABatch(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	r.keep(c)
	sub := r.consumer(c, pulsar.ConsumerOptions{})
	ids := r.sendAll(r.producer(c, pulsar.ProducerOptions{BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Hour}), messages(texts(0, 30)))
	r.wantTexts(sub, texts(0, 30))
	if err := sub.Seek(withPartition(ids[13])); err != nil {
		t.Fatal(err)
	}
	r.wantTexts(sub, texts(14, 30))
}

func TestConformanceSeekToTheEnds(t *testing.T) {
	eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
		r := start(t, nil)
		c := r.client()
		r.keep(c)
		sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ})
		p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
		r.sendAll(p, messages(texts(0, 10)))
		r.wantTexts(sub, texts(0, 10))
		if err := sub.Seek(withPartition(pulsar.EarliestMessageID())); err != nil {
			t.Fatal(err)
		}
		r.wantTexts(sub, texts(0, 5))
		if err := sub.Seek(withPartition(pulsar.LatestMessageID())); err != nil {
			t.Fatal(err)
		}
		r.sendAll(p, messages(texts(10, 12)))
		r.wantTexts(sub, texts(10, 12))
	})
}

// nextMillisecond waits until the clock that stamps messages has moved on, and
// returns what it says.
func nextMillisecond(t *testing.T) time.Time {
	t.Helper()
	before := time.Now().UnixMilli()
	eventually(t, "the clock moves", func() bool { return time.Now().UnixMilli() > before })
	return time.Now().Truncate(time.Millisecond)
}

func TestConformanceSeekByTime(t *testing.T) {
	for _, batching := range []string{"single", "batched"} {
		t.Run(batching, func(t *testing.T) {
			eachType(t, func(t *testing.T, typ pulsar.SubscriptionType) {
				r := start(t, nil)
				c := r.client()
				r.keep(c)
				sub := r.consumer(c, pulsar.ConsumerOptions{Type: typ})
				p := r.producer(c, pulsar.ProducerOptions{DisableBatching: batching == "single"})
				begin := nextMillisecond(t)
				r.sendAll(p, messages(texts(0, 10)))
				middle := nextMillisecond(t)
				r.sendAll(p, messages(texts(10, 20)))
				end := nextMillisecond(t)
				r.wantTexts(sub, texts(0, 20))
				for _, step := range []struct {
					to   time.Time
					from int
				}{{middle, 10}, {begin, 0}, {time.UnixMilli(0), 0}} {
					if err := sub.SeekByTime(step.to); err != nil {
						t.Fatal(err)
					}
					r.wantTexts(sub, texts(step.from, 20))
				}
				if err := sub.SeekByTime(end); err != nil {
					t.Fatal(err)
				}
				r.sendAll(p, messages(texts(20, 22)))
				r.wantTexts(sub, texts(20, 22))
			})
		})
	}
}

// The other consumers of a subscription that one of them seeks come back too.
// (With grouped acknowledgements the client would send those of before the seek
// after it, for the messages to be received again.)
func TestConformanceSeekWithOthersConnected(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	r.keep(c)
	a := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, StartMessageIDInclusive: true, AckWithResponse: true, Name: "a"})
	b := r.consumer(r.client(), pulsar.ConsumerOptions{Type: pulsar.Shared, AckWithResponse: true, Name: "b"})
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true})
	ids := r.sendAll(p, messages(texts(0, 50)))
	all := r.gather(a, b)
	for range 50 {
		r.fromChannel(all)
	}
	if err := a.Seek(withPartition(ids[0])); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for len(seen) < 50 {
		seen[string(r.fromChannel(all).Payload())] = true
	}
}

// gather receives and acknowledges on all consumers until the test ends. Unlike
// a channel given to consumers, what it returns is not emptied by their Seek.
func (r *rig) gather(consumers ...pulsar.Consumer) chan pulsar.ConsumerMessage {
	all := make(chan pulsar.ConsumerMessage, 1000)
	for _, c := range consumers {
		go func() {
			for {
				m, err := c.Receive(r.ctx)
				if err != nil {
					return
				}
				if err := c.Ack(m); err != nil {
					return
				}
				select {
				case all <- pulsar.ConsumerMessage{Consumer: c, Message: m}:
				case <-r.ctx.Done():
					return
				}
			}
		}()
	}
	return all
}
