package broker

import (
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/stats"
	"github.com/prometheus/client_golang/prometheus"
)

// blockProfileRate mirrors the runtime's setting, which cannot be read back; it
// is process-wide as the setting is.
var blockProfileRate atomic.Int64

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("contention_broker_"+name, help, labels, nil)
}

var (
	descPublished = desc("messages_published_total", "Messages acknowledged to producers.")
	descDelivered = desc("messages_delivered_total", "Messages sent to consumers, redeliveries included.")
	descAcked     = desc("messages_acked_total", "Messages acknowledged by consumers.")
	descDelay     = desc("queue_delay_seconds", "Time from submission to run on the ledger executors; a batched add counts from its append to the batch queue.", "kind")
	descQueue     = desc("executor_queue_length", "Tasks in the ledger executors' queues.")
	descTasks     = desc("executor_tasks_total", "Tasks started by the ledger executors.", "kind")
	descFailed    = desc("executor_tasks_failed_total", "Tasks that panicked.")
	descRejected  = desc("executor_tasks_rejected_total", "Tasks refused by a full or closed executor.")
	descBatch     = desc("handoff_batch_size", "Adds run by one hand-over batch.")
	descConns     = desc("connections", "Open client connections.")
	descThrottles = desc("publish_throttles_total", "Times a connection was not read until its receipts were written.")
	descRefused   = desc("connections_refused_total", "Connections refused because of the limit.")
	descTopics    = desc("topics", "Topics.")
	descSubs      = desc("subscriptions", "Subscriptions.")
	descConsumers = desc("consumers", "Connected consumers.")
	descBacklog   = desc("backlog_entries", "Entries not acknowledged, over all subscriptions.")
	descReplay    = desc("replay_entries", "Entries read and waiting to be sent, over all subscriptions.")
	descPermits   = desc("permits", "Messages that consumers may still be sent.")
	descUnacked   = desc("unacked_messages", "Messages sent and not acknowledged.")
	descStored    = desc("stored_bytes", "Bytes of entries in memory.")
	descInfo      = desc("info", "The switches this broker runs with.", "handoff", "flow")
)

// collector reads the server's counters when it is scraped.
type collector struct{ s *Server }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descPublished, descDelivered, descAcked, descDelay, descQueue, descTasks, descFailed, descRejected, descBatch, descConns,
		descThrottles, descRefused, descTopics, descSubs, descConsumers, descBacklog, descReplay, descPermits, descUnacked, descStored, descInfo,
	} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.s
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	counter(descPublished, s.published.Load())
	counter(descDelivered, s.delivered.Load())
	counter(descAcked, s.acked.Load())
	counter(descThrottles, s.throttled.total())
	counter(descRefused, s.refused.Load())
	c.executors(ch, counter, gauge)
	ch <- histogram(descBatch, s.batchSizes.Snapshot(), 1)
	c.topics(gauge)
	ch <- prometheus.MustNewConstMetric(descInfo, prometheus.GaugeValue, 1, string(s.ledgerConfigNow().EffectiveHandover()), string(s.cfg.Flow))
}

func (c collector) executors(ch chan<- prometheus.Metric, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, int64)) {
	var delay [executor.NumKinds]stats.Snapshot
	var started [executor.NumKinds]uint64
	var queued int
	var failed, rejected uint64
	for _, e := range c.s.executors.All() {
		st := e.Stats()
		for k := range st.Delay {
			delay[k].Merge(st.Delay[k])
			started[k] += st.Started[k]
		}
		queued, failed, rejected = queued+st.Queued, failed+st.Failed, rejected+st.Rejected
	}
	for k := range delay {
		kind := executor.Kind(k).String()
		ch <- histogram(descDelay, delay[k], 1e-9, kind)
		counter(descTasks, started[k], kind)
	}
	gauge(descQueue, int64(queued))
	counter(descFailed, failed)
	counter(descRejected, rejected)
}

func (c collector) topics(gauge func(*prometheus.Desc, int64)) {
	s := c.s
	s.mu.Lock()
	conns := len(s.conns)
	topics := make([]*topic, 0, len(s.topics))
	for _, t := range s.topics {
		topics = append(topics, t)
	}
	s.mu.Unlock()
	var subs, consumers, backlog, replay, permits, unacked, stored int64
	for _, t := range topics {
		stored += t.ledger.Stats().Bytes
		t.mu.Lock()
		for _, d := range t.subs {
			st := d.Stats()
			subs++
			consumers, backlog, replay = consumers+int64(st.Consumers), backlog+st.Backlog, replay+int64(st.Replay)
			permits, unacked = permits+st.Permits, unacked+st.Unacked
		}
		t.mu.Unlock()
	}
	gauge(descConns, int64(conns))
	gauge(descTopics, int64(len(topics)))
	gauge(descSubs, subs)
	gauge(descConsumers, consumers)
	gauge(descBacklog, backlog)
	gauge(descReplay, replay)
	gauge(descPermits, permits)
	gauge(descUnacked, unacked)
	gauge(descStored, stored)
}

// histogram converts a snapshot whose values are in units of scale.
func histogram(d *prometheus.Desc, s stats.Snapshot, scale float64, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(s.Bounds))
	var n uint64
	for i, b := range s.Bounds {
		n += s.Counts[i]
		buckets[float64(b)*scale] = n
	}
	return prometheus.MustNewConstHistogram(d, s.Count(), float64(s.Sum)*scale, buckets, labels...)
}
