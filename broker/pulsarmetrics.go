package broker

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// subscriptionsPerTopic bounds the subscriptions with series of their own:
// so many times Config.MetricsTopics.
const subscriptionsPerTopic = 10

// Pulsar's metrics, under its names, as far as this broker has what they say.
// Rates are per second, averages since the scrape before.
//
// Those of topics and subscriptions may be many, so they are written as text
// without the detour over the client library's metrics.

const (
	counterType = "counter"
	gaugeType   = "gauge"
)

// family is a metric of every topic, or of every subscription.
type family[T any] struct {
	name, kind, help string
	value            func(*T) float64
}

var topicFamilies = []family[topicFigures]{
	{"pulsar_rate_in", gaugeType, "Messages a second from producers.", func(f *topicFigures) float64 { return f.rates.in }},
	{"pulsar_rate_out", gaugeType, "Messages a second to consumers.", func(f *topicFigures) float64 { return f.rates.out }},
	{"pulsar_throughput_in", gaugeType, "Bytes a second from producers.", func(f *topicFigures) float64 { return f.rates.inBytes }},
	{"pulsar_throughput_out", gaugeType, "Bytes a second to consumers.", func(f *topicFigures) float64 { return f.rates.outBytes }},
	{"pulsar_in_messages_total", counterType, "Messages from producers.", func(f *topicFigures) float64 { return f.counts.in }},
	{"pulsar_in_bytes_total", counterType, "Bytes from producers.", func(f *topicFigures) float64 { return f.counts.inBytes }},
	{"pulsar_average_msg_size", gaugeType, "Bytes of a message, on average.", func(f *topicFigures) float64 { return f.counts.inBytes / max(f.counts.in, 1) }},
	{"pulsar_msg_backlog", gaugeType, "Entries not acknowledged, over the topic's subscriptions.", func(f *topicFigures) float64 { return float64(f.allBacklogs) }},
	{"pulsar_storage_size", gaugeType, "Bytes of entries kept.", func(f *topicFigures) float64 { return float64(f.storage) }},
	{"pulsar_storage_backlog_size", gaugeType, "Bytes kept for the slowest subscription, an estimate.", func(f *topicFigures) float64 { return float64(f.backlog * f.perItem) }},
	{"pulsar_producers_count", gaugeType, "Connected producers.", func(f *topicFigures) float64 { return float64(f.producers) }},
	{"pulsar_consumers_count", gaugeType, "Connected consumers.", func(f *topicFigures) float64 { return float64(f.consumers) }},
	{"pulsar_subscriptions_count", gaugeType, "Subscriptions.", func(f *topicFigures) float64 { return float64(len(f.subs)) }},
}

var subscriptionFamilies = []family[subscriptionFigures]{
	{"pulsar_subscription_back_log", gaugeType, "Entries not acknowledged.", func(s *subscriptionFigures) float64 { return float64(s.Backlog) }},
	{"pulsar_subscription_unacked_messages", gaugeType, "Messages sent and not acknowledged.", func(s *subscriptionFigures) float64 { return float64(s.Unacked) }},
	{"pulsar_subscription_blocked_on_unacked_messages", gaugeType, "1 while the limit of unacknowledged messages stops it.", func(s *subscriptionFigures) float64 {
		if s.Blocked {
			return 1
		}
		return 0
	}},
	{"pulsar_subscription_msg_rate_out", gaugeType, "Messages a second to consumers.", func(s *subscriptionFigures) float64 { return s.rates.out }},
	{"pulsar_subscription_msg_throughput_out", gaugeType, "Bytes a second to consumers.", func(s *subscriptionFigures) float64 { return s.rates.outBytes }},
	{"pulsar_subscription_msg_rate_redeliver", gaugeType, "Entries a second sent again.", func(s *subscriptionFigures) float64 { return s.rates.redelivered }},
	{"pulsar_subscription_msg_ack_rate", gaugeType, "Messages a second acknowledged.", func(s *subscriptionFigures) float64 { return s.rates.acked }},
	{"pulsar_subscription_consumers_count", gaugeType, "Connected consumers.", func(s *subscriptionFigures) float64 { return float64(s.Consumers) }},
	{"pulsar_subscription_in_replay", gaugeType, "Entries read that wait to be sent.", func(s *subscriptionFigures) float64 { return float64(s.Replay) }},
	{"pulsar_subscription_available_permits", gaugeType, "Messages that consumers may still be sent.", func(s *subscriptionFigures) float64 { return float64(s.Permits) }},
	{"pulsar_out_messages_total", counterType, "Messages to consumers, redelivered ones each time.", func(s *subscriptionFigures) float64 { return s.counts.out }},
	{"pulsar_out_bytes_total", counterType, "Bytes to consumers.", func(s *subscriptionFigures) float64 { return s.counts.outBytes }},
}

// labelEscapes are those of label values in the text format.
var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// label returns a client's name for something as a label value, which must be
// valid UTF-8.
func label(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

func escapedLabel(name string) string { return labelEscapes.Replace(label(name)) }

// appendTopicSeries appends the series of topics and subscriptions, of no more
// than most topics.
func appendTopicSeries(dst []byte, cluster string, most int, topics []topicFigures) []byte {
	topics = topics[:min(max(most, 0), len(topics))]
	subsLeft := len(topics) * subscriptionsPerTopic
	labels := make([]string, len(topics))
	var subs []*subscriptionFigures
	var subLabels []string
	for i := range topics {
		f := &topics[i]
		common := `{cluster="` + escapedLabel(cluster) + `",namespace="` + escapedLabel(f.topic.namespace) + `",`
		topic := `topic="` + escapedLabel(f.topic.name) + `"} `
		labels[i] = common + topic
		for j := range f.subs[:min(subsLeft, len(f.subs))] {
			subs = append(subs, &f.subs[j])
			subLabels = append(subLabels, common+`subscription="`+escapedLabel(f.subs[j].name)+`",`+topic)
			subsLeft--
		}
	}
	for i := range topicFamilies {
		m := &topicFamilies[i]
		dst = appendHead(dst, m.name, m.kind, m.help, len(topics))
		for j := range topics {
			dst = appendSample(dst, m.name, labels[j], m.value(&topics[j]))
		}
	}
	for i := range subscriptionFamilies {
		m := &subscriptionFamilies[i]
		dst = appendHead(dst, m.name, m.kind, m.help, len(subs))
		for j, s := range subs {
			dst = appendSample(dst, m.name, subLabels[j], m.value(s))
		}
	}
	return dst
}

func appendHead(dst []byte, name, kind, help string, series int) []byte {
	if series == 0 {
		return dst
	}
	dst = append(append(append(dst, "# HELP "...), name...), ' ')
	dst = append(append(append(dst, help...), "\n# TYPE "...), name...)
	return append(append(append(dst, ' '), kind...), '\n')
}

func appendSample(dst []byte, name, labels string, v float64) []byte {
	dst = append(append(dst, name...), labels...)
	return append(strconv.AppendFloat(dst, v, 'g', -1, 64), '\n')
}

var pulsarDescs []*prometheus.Desc

func pulsar(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("pulsar_"+name, help, append([]string{"cluster"}, labels...), nil)
	pulsarDescs = append(pulsarDescs, d)
	return d
}

var (
	pTopics            = pulsar("topics_count", "Topics of the namespace.", "namespace")
	pBrokerTopics      = pulsar("broker_topics_count", "Topics.")
	pBrokerSubs        = pulsar("broker_subscriptions_count", "Subscriptions.")
	pBrokerProducers   = pulsar("broker_producers_count", "Connected producers.")
	pBrokerConsumers   = pulsar("broker_consumers_count", "Connected consumers.")
	pBrokerRateIn      = pulsar("broker_rate_in", "Messages a second from producers.")
	pBrokerRateOut     = pulsar("broker_rate_out", "Messages a second to consumers.")
	pBrokerThroughIn   = pulsar("broker_throughput_in", "Bytes a second from producers.")
	pBrokerThroughOut  = pulsar("broker_throughput_out", "Bytes a second to consumers.")
	pBrokerStorage     = pulsar("broker_storage_size", "Bytes of entries kept.")
	pBrokerBacklog     = pulsar("broker_msg_backlog", "Entries not acknowledged, over all subscriptions.")
	pConnections       = pulsar("active_connections", "Open client connections.")
	pConnectionsOpened = pulsar("connection_created_total_count", "Connections accepted.")
	pThrottledConns    = pulsar("broker_throttled_connections", "Connections not read because of their own sends without a receipt.")
	pThrottledGlobal   = pulsar("broker_throttled_connections_global_limit", "Connections not read because of the bytes in flight of all.")
)

// sums are of all topics, whether or not they have series.
type sums struct {
	namespaces map[string]int64 // topics

	topics, subs, producers, consumers, storage, backlog int64
	replay, permits, unacked                             int64
	rates                                                counts
}

func sumUp(topics []topicFigures) sums {
	u := sums{namespaces: map[string]int64{}, topics: int64(len(topics))}
	for i := range topics {
		f := &topics[i]
		u.namespaces[f.topic.namespace]++
		u.subs += int64(len(f.subs))
		u.producers += int64(f.producers)
		u.consumers += f.consumers
		u.storage += f.storage
		u.backlog += f.allBacklogs
		u.rates.add(f.rates)
		for j := range f.subs {
			s := &f.subs[j]
			u.replay, u.permits, u.unacked = u.replay+int64(s.Replay), u.permits+s.Permits, u.unacked+s.Unacked
		}
	}
	return u
}

func (u *sums) emit(e emitter, s *Server) {
	cluster := s.cfg.ClusterName
	for namespace, n := range u.namespaces {
		e.gauge(pTopics, n, cluster, label(namespace))
	}
	e.gauge(pBrokerTopics, u.topics, cluster)
	e.gauge(pBrokerSubs, u.subs, cluster)
	e.gauge(pBrokerProducers, u.producers, cluster)
	e.gauge(pBrokerConsumers, u.consumers, cluster)
	e.gauged(pBrokerRateIn, u.rates.in, cluster)
	e.gauged(pBrokerRateOut, u.rates.out, cluster)
	e.gauged(pBrokerThroughIn, u.rates.inBytes, cluster)
	e.gauged(pBrokerThroughOut, u.rates.outBytes, cluster)
	e.gauge(pBrokerStorage, u.storage, cluster)
	e.gauge(pBrokerBacklog, u.backlog, cluster)
	e.count(pConnectionsOpened, s.nextConn.Load(), cluster)
	e.gauge(pThrottledConns, s.throttled[throttlePending].now.Load(), cluster)
	e.gauge(pThrottledGlobal, s.throttled[throttleBytes].now.Load(), cluster)
	conns := int64(len(s.connections()))
	e.gauge(pConnections, conns, cluster)
	e.gauge(descConns, conns)
	e.gauge(descTopics, u.topics)
	e.gauge(descSubs, u.subs)
	e.gauge(descConsumers, u.consumers)
	e.gauge(descBacklog, u.backlog)
	e.gauge(descReplay, u.replay)
	e.gauge(descPermits, u.permits)
	e.gauge(descUnacked, u.unacked)
	e.gauge(descStored, u.storage)
}
