package broker

import (
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// subscriptionsPerTopic bounds the subscriptions with series of their own:
// so many times Config.MetricsTopics.
const subscriptionsPerTopic = 10

var (
	pulsarCluster      = []string{"cluster"}
	pulsarNamespace    = []string{"cluster", "namespace"}
	pulsarTopic        = []string{"cluster", "namespace", "topic"}
	pulsarSubscription = []string{"cluster", "namespace", "topic", "subscription"}
	pulsarDescs        []*prometheus.Desc
)

func pulsar(name, help string, labels []string) *prometheus.Desc {
	d := prometheus.NewDesc("pulsar_"+name, help, labels, nil)
	pulsarDescs = append(pulsarDescs, d)
	return d
}

// Pulsar's metrics, under its names, as far as this broker has what they say.
// Rates are per second, averages since the scrape before.
var (
	pRateIn        = pulsar("rate_in", "Messages a second from producers.", pulsarTopic)
	pRateOut       = pulsar("rate_out", "Messages a second to consumers.", pulsarTopic)
	pThroughputIn  = pulsar("throughput_in", "Bytes a second from producers.", pulsarTopic)
	pThroughputOut = pulsar("throughput_out", "Bytes a second to consumers.", pulsarTopic)
	pInMessages    = pulsar("in_messages_total", "Messages from producers.", pulsarTopic)
	pInBytes       = pulsar("in_bytes_total", "Bytes from producers.", pulsarTopic)
	pAverageSize   = pulsar("average_msg_size", "Bytes of a message, on average.", pulsarTopic)
	pBacklog       = pulsar("msg_backlog", "Entries not acknowledged, over the topic's subscriptions.", pulsarTopic)
	pStorage       = pulsar("storage_size", "Bytes of entries kept.", pulsarTopic)
	pBacklogSize   = pulsar("storage_backlog_size", "Bytes kept for the slowest subscription, an estimate.", pulsarTopic)
	pQuotaLimit    = pulsar("storage_backlog_quota_limit", "Bytes that the backlog may have, 0 for no limit.", pulsarTopic)
	pProducers     = pulsar("producers_count", "Connected producers.", pulsarTopic)
	pConsumers     = pulsar("consumers_count", "Connected consumers.", pulsarTopic)
	pSubscriptions = pulsar("subscriptions_count", "Subscriptions.", pulsarTopic)
	pTopics        = pulsar("topics_count", "Topics of the namespace.", pulsarNamespace)

	pSubBacklog    = pulsar("subscription_back_log", "Entries not acknowledged.", pulsarSubscription)
	pSubUnacked    = pulsar("subscription_unacked_messages", "Messages sent and not acknowledged.", pulsarSubscription)
	pSubBlocked    = pulsar("subscription_blocked_on_unacked_messages", "1 while the limit of unacknowledged messages stops it.", pulsarSubscription)
	pSubRateOut    = pulsar("subscription_msg_rate_out", "Messages a second to consumers.", pulsarSubscription)
	pSubThroughput = pulsar("subscription_msg_throughput_out", "Bytes a second to consumers.", pulsarSubscription)
	pSubRedeliver  = pulsar("subscription_msg_rate_redeliver", "Entries a second sent again.", pulsarSubscription)
	pSubAckRate    = pulsar("subscription_msg_ack_rate", "Messages a second acknowledged.", pulsarSubscription)
	pSubConsumers  = pulsar("subscription_consumers_count", "Connected consumers.", pulsarSubscription)
	pSubReplay     = pulsar("subscription_in_replay", "Entries read that wait to be sent.", pulsarSubscription)
	pOutMessages   = pulsar("out_messages_total", "Messages to consumers, redelivered ones each time.", pulsarSubscription)
	pOutBytes      = pulsar("out_bytes_total", "Bytes to consumers.", pulsarSubscription)

	pBrokerTopics      = pulsar("broker_topics_count", "Topics.", pulsarCluster)
	pBrokerSubs        = pulsar("broker_subscriptions_count", "Subscriptions.", pulsarCluster)
	pBrokerProducers   = pulsar("broker_producers_count", "Connected producers.", pulsarCluster)
	pBrokerConsumers   = pulsar("broker_consumers_count", "Connected consumers.", pulsarCluster)
	pBrokerRateIn      = pulsar("broker_rate_in", "Messages a second from producers.", pulsarCluster)
	pBrokerRateOut     = pulsar("broker_rate_out", "Messages a second to consumers.", pulsarCluster)
	pBrokerThroughIn   = pulsar("broker_throughput_in", "Bytes a second from producers.", pulsarCluster)
	pBrokerThroughOut  = pulsar("broker_throughput_out", "Bytes a second to consumers.", pulsarCluster)
	pBrokerStorage     = pulsar("broker_storage_size", "Bytes of entries kept.", pulsarCluster)
	pBrokerBacklog     = pulsar("broker_msg_backlog", "Entries not acknowledged, over all subscriptions.", pulsarCluster)
	pConnections       = pulsar("active_connections", "Open client connections.", pulsarCluster)
	pConnectionsOpened = pulsar("connection_created_total_count", "Connections accepted.", pulsarCluster)
	pThrottledConns    = pulsar("broker_throttled_connections", "Connections not read because of their own sends without a receipt.", pulsarCluster)
	pThrottledGlobal   = pulsar("broker_throttled_connections_global_limit", "Connections not read because of the bytes in flight of all.", pulsarCluster)
)

func describePulsar(ch chan<- *prometheus.Desc) {
	for _, d := range pulsarDescs {
		ch <- d
	}
}

// pulsarSeries adds topics up, and sends the series of those within the limit.
type pulsarSeries struct {
	cluster    string
	quota      int64
	topicsLeft int
	subsLeft   int
	namespaces map[string]int64 // topics

	topics, subs, producers, consumers, storage, backlog int64
	rates                                                counts
}

func newPulsarSeries(c *Config) *pulsarSeries {
	most := max(c.MetricsTopics, 0)
	return &pulsarSeries{cluster: c.ClusterName, quota: c.BacklogQuotaBytes, topicsLeft: most, subsLeft: most * subscriptionsPerTopic, namespaces: map[string]int64{}}
}

// topic takes one topic in; those within the limit get series of their own.
func (p *pulsarSeries) topic(e emitter, f *topicFigures) {
	t := f.topic
	var consumers, backlog int64
	for i := range f.subs {
		consumers += int64(f.subs[i].Consumers)
		backlog += f.subs[i].Backlog
	}
	p.namespaces[t.namespace]++
	p.topics++
	p.subs += int64(len(f.subs))
	p.producers += int64(f.producers)
	p.consumers += consumers
	p.storage += f.storage
	p.backlog += backlog
	p.rates.add(f.rates)
	if p.topicsLeft == 0 {
		return
	}
	p.topicsLeft--
	labels := []string{p.cluster, label(t.namespace), label(t.name)}
	e.gauged(pRateIn, f.rates.in, labels...)
	e.gauged(pRateOut, f.rates.out, labels...)
	e.gauged(pThroughputIn, f.rates.inBytes, labels...)
	e.gauged(pThroughputOut, f.rates.outBytes, labels...)
	e.counted(pInMessages, f.counts.in, labels...)
	e.counted(pInBytes, f.counts.inBytes, labels...)
	e.gauged(pAverageSize, f.counts.inBytes/max(f.counts.in, 1), labels...)
	e.gauge(pBacklog, backlog, labels...)
	e.gauge(pStorage, f.storage, labels...)
	e.gauge(pBacklogSize, f.backlog*f.perItem, labels...)
	e.gauge(pQuotaLimit, p.quota, labels...)
	e.gauge(pProducers, int64(f.producers), labels...)
	e.gauge(pConsumers, consumers, labels...)
	e.gauge(pSubscriptions, int64(len(f.subs)), labels...)
	for i := range f.subs {
		if p.subsLeft == 0 {
			return
		}
		p.subsLeft--
		subscriptionSeries(e, &f.subs[i], append(labels[:len(labels):len(labels)], label(f.subs[i].name)))
	}
}

// label returns a client's name for something as a label, which must be valid
// UTF-8.
func label(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

func subscriptionSeries(e emitter, s *subscriptionFigures, labels []string) {
	blocked := int64(0)
	if s.Blocked {
		blocked = 1
	}
	e.gauge(pSubBacklog, s.Backlog, labels...)
	e.gauge(pSubUnacked, s.Unacked, labels...)
	e.gauge(pSubBlocked, blocked, labels...)
	e.gauged(pSubRateOut, s.rates.out, labels...)
	e.gauged(pSubThroughput, s.rates.outBytes, labels...)
	e.gauged(pSubRedeliver, s.rates.redelivered, labels...)
	e.gauged(pSubAckRate, s.rates.acked, labels...)
	e.gauge(pSubConsumers, int64(s.Consumers), labels...)
	e.gauge(pSubReplay, int64(s.Replay), labels...)
	e.counted(pOutMessages, s.counts.out, labels...)
	e.counted(pOutBytes, s.counts.outBytes, labels...)
}

// sums sends what is of all topics, whether or not they have series.
func (p *pulsarSeries) sums(e emitter, s *Server) {
	for namespace, n := range p.namespaces {
		e.gauge(pTopics, n, p.cluster, label(namespace))
	}
	e.gauge(pBrokerTopics, p.topics, p.cluster)
	e.gauge(pBrokerSubs, p.subs, p.cluster)
	e.gauge(pBrokerProducers, p.producers, p.cluster)
	e.gauge(pBrokerConsumers, p.consumers, p.cluster)
	e.gauged(pBrokerRateIn, p.rates.in, p.cluster)
	e.gauged(pBrokerRateOut, p.rates.out, p.cluster)
	e.gauged(pBrokerThroughIn, p.rates.inBytes, p.cluster)
	e.gauged(pBrokerThroughOut, p.rates.outBytes, p.cluster)
	e.gauge(pBrokerStorage, p.storage, p.cluster)
	e.gauge(pBrokerBacklog, p.backlog, p.cluster)
	e.gauge(pConnections, int64(len(s.connections())), p.cluster)
	e.count(pConnectionsOpened, s.nextConn.Load(), p.cluster)
	e.gauge(pThrottledConns, s.throttled[throttlePending].now.Load(), p.cluster)
	e.gauge(pThrottledGlobal, s.throttled[throttleBytes].now.Load(), p.cluster)
}
