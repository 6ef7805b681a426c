package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"

	"github.com/contention-toolkit/contention/probes/internal/httpget"
	"github.com/contention-toolkit/contention/profile"
)

// Hints are pages that the target serves, as package discover finds them.
type Hints struct {
	Metrics []string // Prometheus pages
	Varz    []string // nats-server's /varz
}

// broker is one that is known by the names of its metrics.
type broker struct {
	published, delivered         string // "" for none that counts it
	publishedNote, deliveredNote string
}

// brokers are the known ones; the first that a page fits is taken.
var brokers = []broker{
	{published: "contention_broker_messages_published_total", delivered: "contention_broker_messages_delivered_total"},
	{published: "pulsar_in_messages_total", delivered: "pulsar_out_messages_total"},
	{published: "rabbitmq_global_messages_confirmed_total",
		publishedNote: "confirmed messages only: publishers that use no confirms are not counted"},
}

// Find returns the known work counters on the pages. It returns at most one
// counter per role, from the first page that has one. The error names the pages
// that could not be read; counters may have been found on others all the same.
// None at all, without an error, means that no page is of a known broker.
func Find(ctx context.Context, h Hints) ([]Counter, error) {
	client := httpget.NewClient()
	defer client.CloseIdleConnections()
	var found []Counter
	var errs []error
	add := func(cs []Counter, err error) {
		if err != nil {
			errs = append(errs, err)
		}
		for _, c := range cs {
			if !has(found, c.Role) {
				found = append(found, c)
			}
		}
	}
	for _, u := range h.Varz {
		add(findNATS(ctx, client, u))
	}
	for _, u := range h.Metrics {
		add(findKnown(ctx, client, u))
	}
	if len(errs) > 0 {
		return found, fmt.Errorf("find work counters: %w", errors.Join(errs...))
	}
	return found, nil
}

func has(cs []Counter, role string) bool {
	for _, c := range cs {
		if c.Role == role {
			return true
		}
	}
	return false
}

func findKnown(ctx context.Context, client *http.Client, pageURL string) ([]Counter, error) {
	p, _, err := readPage(ctx, client, pageURL)
	if err != nil {
		return nil, err
	}
	for _, b := range brokers {
		if _, err := p.value(b.published); err != nil {
			continue
		}
		found := []Counter{{Role: profile.WorkPublished, URL: pageURL, Metric: b.published, Note: b.publishedNote}}
		if _, err := p.value(b.delivered); b.delivered != "" && err == nil {
			found = append(found, Counter{Role: profile.WorkDelivered, URL: pageURL, Metric: b.delivered, Note: b.deliveredNote})
		}
		return found, nil
	}
	return nil, nil
}

// Where nats-server counts work. /varz counts every message that crosses a
// connection: a JetStream publisher's acknowledgement is one of out_msgs, and a
// request to the JetStream API one of in_msgs. What was acknowledged to
// publishers is what the streams stored, which only /jsz tells: the sum of the
// streams' last sequence numbers, which, unlike their message counts, never goes
// down when a stream drops old messages.
const (
	natsStored    = "account_details.*.stream_detail.*.state.last_seq"
	natsConsumed  = "account_details.*.stream_detail.*.consumer_detail.*.delivered.consumer_seq"
	natsIn        = "in_msgs"
	natsOut       = "out_msgs"
	natsInNote    = "all messages received on any connection; core NATS acknowledges none of them"
	natsOutNote   = "all messages sent on any connection, replies included"
	natsStoreNote = "messages stored by JetStream streams, which is what publishers were acknowledged; subjects without a stream are not counted, a copy in a mirror or source stream counts again, and a deleted stream looks like a restart"
	natsReadNote  = "deliveries by JetStream consumers, redeliveries included; a consumer that is removed looks like a restart"
)

func findNATS(ctx context.Context, client *http.Client, varz string) ([]Counter, error) {
	p, _, err := readPage(ctx, client, varz)
	if err != nil {
		return nil, err
	}
	if _, err := p.value(natsIn); err != nil {
		return nil, nil // another server's /varz
	}
	u, err := url.Parse(varz)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawQuery = path.Join(path.Dir(u.Path), "jsz"), "consumers=true"
	jsz := u.String()
	if p, _, err := readPage(ctx, client, jsz); err == nil {
		if _, err := p.value(natsStored); err == nil {
			found := []Counter{{Role: profile.WorkPublished, URL: jsz, Metric: natsStored, Note: natsStoreNote}}
			// Without a consumer out_msgs would pass acknowledgements off as
			// deliveries: then nothing is known of deliveries.
			if _, err := p.value(natsConsumed); err == nil {
				found = append(found, Counter{Role: profile.WorkDelivered, URL: jsz, Metric: natsConsumed, Note: natsReadNote})
			}
			return found, nil
		}
	}
	return []Counter{
		{Role: profile.WorkPublished, URL: varz, Metric: natsIn, Note: natsInNote},
		{Role: profile.WorkDelivered, URL: varz, Metric: natsOut, Note: natsOutNote},
	}, nil
}
