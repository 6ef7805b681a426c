package conformance

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
)

func TestConformanceExclusiveProducer(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	o := pulsar.ProducerOptions{Topic: r.topic(), ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	p := r.producer(c, o)
	r.send(p, &pulsar.ProducerMessage{Payload: []byte("x")})
	for _, mode := range []pulsar.ProducerAccessMode{pulsar.ProducerAccessModeExclusive, pulsar.ProducerAccessModeShared} {
		if _, err := c.CreateProducer(pulsar.ProducerOptions{Topic: r.topic(), ProducerAccessMode: mode}); err == nil {
			t.Errorf("a producer of access mode %v beside an exclusive one", mode)
		}
	}
	p.Close()
	p = r.producer(c, pulsar.ProducerOptions{}) // a shared one
	if _, err := c.CreateProducer(o); err == nil {
		t.Error("an exclusive producer beside a shared one")
	}
	p.Close()
	r.send(r.producer(c, o), &pulsar.ProducerMessage{Payload: []byte("x")})
}

func TestConformanceWaitForExclusiveProducer(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	shared := pulsar.ProducerOptions{Topic: r.topic()}
	first := r.producer(c, shared)
	got := make(chan pulsar.Producer, 1)
	go func() {
		p, err := c.CreateProducer(pulsar.ProducerOptions{Topic: r.topic(), ProducerAccessMode: pulsar.ProducerAccessModeWaitForExclusive})
		if err != nil {
			t.Errorf("waiting for exclusive access: %v", err)
		}
		got <- p
	}()
	eventually(t, "no more shared producers, since one waits for exclusive access", func() bool {
		p, err := c.CreateProducer(shared)
		if err == nil {
			p.Close()
		}
		return err != nil
	})
	r.send(first, &pulsar.ProducerMessage{Payload: []byte("x")})
	select {
	case <-got:
		t.Fatal("two producers, one of them exclusive")
	default:
	}
	first.Close()
	select {
	case p := <-got:
		if p == nil {
			t.FailNow()
		}
		r.send(p, &pulsar.ProducerMessage{Payload: []byte("x")})
		p.Close()
	case <-r.ctx.Done():
		t.Fatal("the producer still waits for exclusive access")
	}
}

// An exclusive producer whose connection breaks has its place again.
func TestConformanceExclusiveProducerReconnects(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	p := r.producer(c, pulsar.ProducerOptions{ProducerAccessMode: pulsar.ProducerAccessModeExclusive})
	r.send(p, &pulsar.ProducerMessage{Payload: []byte("x")})
	r.restart()
	r.send(p, &pulsar.ProducerMessage{Payload: []byte("x")})
	if _, err := c.CreateProducer(pulsar.ProducerOptions{Topic: r.topic()}); err == nil {
		t.Error("a producer beside an exclusive one")
	}
}

type activity chan string

func (a activity) BecameActive(c pulsar.Consumer, _ string, _ int32)   { a <- c.Name() + " active" }
func (a activity) BecameInactive(c pulsar.Consumer, _ string, _ int32) { a <- c.Name() + " inactive" }

func TestConformanceActiveConsumerChange(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	events := make(activity, 100)
	want := func(s string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if e == s {
					return
				}
			case <-r.ctx.Done():
				t.Fatalf("never: %s", s)
			}
		}
	}
	a := r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Failover, Name: "a", EventListener: events})
	want("a active")
	r.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Failover, Name: "b", EventListener: events})
	want("b inactive")
	a.Close()
	want("b active")
}
