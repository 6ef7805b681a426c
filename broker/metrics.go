package broker

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/stats"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
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
	descThrottles = desc("publish_throttles_total", "Times a connection was not read because of back-pressure.")
	descCause     = desc("publish_throttles_by_cause_total", "Times a connection was not read, per cause; one that goes on because of another cause counts again.", "cause")
	descFlight    = desc("publish_bytes_in_flight", "Bytes of sends without a receipt written; not counted without a limit.")
	descRefused   = desc("connections_refused_total", "Connections refused because of the limit.")
	descTopics    = desc("topics", "Topics.")
	descSubs      = desc("subscriptions", "Subscriptions.")
	descConsumers = desc("consumers", "Connected consumers.")
	descBacklog   = desc("backlog_entries", "Entries not acknowledged, over all subscriptions.")
	descReplay    = desc("replay_entries", "Entries read and waiting to be sent, over all subscriptions.")
	descPermits   = desc("permits", "Messages that consumers may still be sent.")
	descUnacked   = desc("unacked_messages", "Messages sent and not acknowledged.")
	descStored    = desc("stored_bytes", "Bytes of entries in memory.")
	descBusy      = desc("executor_busy_seconds_total", "Time that the ledger executors spent running tasks; over the time elapsed, the serial stage's busy share.", "executor")
	descEvicted   = desc("backlog_evicted_entries_total", "Entries skipped because of a backlog quota.")
	descQuota     = desc("backlog_quota_refusals_total", "Producers refused because of a backlog quota.")
	descThrottled = desc("storage_throttled_writes_total", "Times an executor waited for room in a write cache.")
	descThrotSec  = desc("storage_throttled_write_seconds_total", "Time that executors waited for room in a write cache.")
	descCommit    = desc("storage_commit_seconds", "Time that a group commit took.")
	descCommitN   = desc("storage_commit_entries", "Entries of a group commit.")
	descCommitB   = desc("storage_commit_bytes_total", "Bytes of entries stored.")
	descCommitBad = desc("storage_commit_failures_total", "Group commits that failed.")
	descMisses    = desc("storage_read_cache_misses_total", "Reads that went to the log.")
	descSkipped   = desc("storage_damaged_entries_skipped_total", "Entries passed over because their log is damaged, once per subscription.")
	descWriteC    = desc("storage_write_cache_bytes", "Bytes of entries that are not in a log yet.")
	descInfo      = desc("info", "The switches this broker runs with.", "handoff", "flow")
)

// collector reads the server's counters when it is scraped. It waits for no
// lock that is held for longer than a few loads.
type collector struct {
	s   *Server
	reg *prometheus.Registry

	mu   sync.Mutex // one scrape at a time reads
	size int        // of the last one
	sums sums       // of the topics, for Collect
}

func newCollector(s *Server) *collector {
	c := &collector{s: s, reg: prometheus.NewRegistry()}
	c.reg.MustRegister(c)
	return c
}

// textFormat is the type of what ServeHTTP answers.
const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// ServeHTTP answers a scrape.
func (c *collector) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := c.text()
	if err != nil {
		http.Error(w, fmt.Sprintf("reading the metrics: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", textFormat)
	_, _ = w.Write(text) // the client went away
}

func (c *collector) text() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	topics := c.s.figures()
	c.sums = sumUp(topics)
	families, err := c.reg.Gather()
	if err != nil {
		return nil, err
	}
	buf := bytes.NewBuffer(make([]byte, 0, c.size+c.size/8))
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(buf, f); err != nil {
			return nil, err
		}
	}
	cfg := &c.s.cfg
	text := appendTopicSeries(buf.Bytes(), cfg.ClusterName, cfg.MetricsTopics, topics)
	c.size = len(text)
	return text, nil
}

// figures reads every topic, by name.
func (s *Server) figures() []topicFigures {
	topics, now := s.allTopics(), stats.Now()
	slices.SortFunc(topics, func(a, b *topic) int { return strings.Compare(a.name, b.name) })
	all := make([]topicFigures, len(topics))
	for i, t := range topics {
		all[i] = t.figures(now)
	}
	return all
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descPublished, descDelivered, descAcked, descDelay, descQueue, descTasks, descFailed, descRejected, descBatch, descConns,
		descThrottles, descRefused, descTopics, descSubs, descConsumers, descBacklog, descReplay, descPermits, descUnacked, descStored, descInfo,
		descCause, descFlight, descBusy, descEvicted, descQuota, descThrottled, descThrotSec, descCommit, descCommitN, descCommitB,
		descCommitBad, descMisses, descSkipped, descWriteC,
	} {
		ch <- d
	}
	for _, d := range pulsarDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s, e := c.s, emitter{ch}
	e.count(descPublished, s.published.Load())
	e.count(descDelivered, s.delivered.Load())
	e.count(descAcked, s.acked.Load())
	e.count(descThrottles, s.throttled.total())
	for i := range s.throttled {
		e.count(descCause, s.throttled[i].times.Load(), throttleCause(i).String())
	}
	e.gauge(descFlight, s.flight.used.Load())
	e.count(descRefused, s.refused.Load())
	e.count(descEvicted, s.evicted.Load())
	e.count(descQuota, s.quotaRefused.Load())
	c.executors(e)
	ch <- histogram(descBatch, s.batchSizes.Snapshot(), 1)
	c.storage(e)
	c.sums.emit(e, s)
	ch <- prometheus.MustNewConstMetric(descInfo, prometheus.GaugeValue, 1, string(s.ledgerConfigNow().EffectiveHandover()), string(s.cfg.Flow))
}

// emitter sends metrics to a scrape.
type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) count(d *prometheus.Desc, v uint64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (e emitter) counted(d *prometheus.Desc, v float64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func (e emitter) gauge(d *prometheus.Desc, v int64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
}

func (e emitter) gauged(d *prometheus.Desc, v float64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (c *collector) storage(e emitter) {
	st := c.s.ledgerConfig.Storage
	e.count(descThrottled, st.Throttles.Load())
	e.counted(descThrotSec, st.Throttled().Seconds())
	e.ch <- histogram(descCommit, st.CommitTime.Snapshot(), 1e-9)
	e.ch <- histogram(descCommitN, st.Commits.Snapshot(), 1)
	e.count(descCommitB, st.CommitBytes.Load())
	e.count(descCommitBad, st.Failures.Load())
	e.count(descMisses, st.CacheMisses.Load())
	e.count(descSkipped, st.Skipped.Load())
	e.gauge(descWriteC, st.Pending.Load())
}

func (c *collector) executors(e emitter) {
	var delay [executor.NumKinds]stats.Snapshot
	var started [executor.NumKinds]uint64
	var queued int
	var failed, rejected uint64
	for i, x := range c.s.executors.All() {
		st := x.Stats()
		e.counted(descBusy, st.Busy.Seconds(), strconv.Itoa(i))
		for k := range st.Delay {
			delay[k].Merge(st.Delay[k])
			started[k] += st.Started[k]
		}
		queued, failed, rejected = queued+st.Queued, failed+st.Failed, rejected+st.Rejected
	}
	for k := range delay {
		kind := executor.Kind(k).String()
		e.ch <- histogram(descDelay, delay[k], 1e-9, kind)
		e.count(descTasks, started[k], kind)
	}
	e.gauge(descQueue, int64(queued))
	e.count(descFailed, failed)
	e.count(descRejected, rejected)
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
