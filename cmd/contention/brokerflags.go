package main

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/contention-toolkit/contention/broker"
	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/load"
)

func (f *brokerFlags) addServerFlags(fl *pflag.FlagSet) {
	c := &f.config
	fl.StringVar(&c.Listen, "listen", c.Listen, "address for clients; port 0 picks one")
	fl.StringVar(&c.AdvertisedURL, "advertised-url", c.AdvertisedURL, "what lookups answer (default: the address listened on)")
	fl.StringVar(&c.AdminListen, "admin", c.AdminListen, "address for metrics, pprof and settings, loopback unless there is a token; empty for none")
	fl.StringVar(&c.AdminTokenFile, "admin-token-file", c.AdminTokenFile, "`file` with the bearer token that admin requests must show, 16 bytes or more")
	fl.StringVar(&c.ClusterName, "cluster-name", c.ClusterName, "label cluster of Pulsar's metrics")
	fl.IntVar(&c.MetricsTopics, "metrics-topics", c.MetricsTopics, "topics with metrics of their own, negative for none; sums count all")
	fl.IntVar(&c.MutexProfileFraction, "mutex-profile-fraction", c.MutexProfileFraction, "runtime.SetMutexProfileFraction, 0 is off")
	fl.IntVar(&c.BlockProfileRate, "block-profile-rate", c.BlockProfileRate, "runtime.SetBlockProfileRate in nanoseconds, 0 is off")
}

// addPathFlags adds the switches of the hot paths.
func (f *brokerFlags) addPathFlags(fl *pflag.FlagSet) {
	c := &f.config
	fl.Var(choice[ledger.Handover]{&c.Handover, ledger.Handovers()}, "handoff", "direct, parking, channel or batched: how adds reach the ledger executor")
	fl.IntVar(&c.HandoverMaxBatchItems, "handoff-max-batch-items", c.HandoverMaxBatchItems, "adds of a batch, 0 or 1 turns batching off")
	fl.Var(size[int64]{&c.HandoverMaxBatchBytes}, "handoff-max-batch-bytes", "bytes that end a batch, such as 5MB; 0B for no limit")
	fl.IntVar(&c.HandoverQueueChunk, "handoff-queue-chunk", c.HandoverQueueChunk, "adds per chunk of the batched queue")
	fl.Var(choice[ledger.QueueCreate]{&c.HandoverQueueCreate, []ledger.QueueCreate{ledger.Eager, ledger.Lazy}}, "handoff-queue-create", "eager or lazy: the batched queue is made when the ledger opens, or by its first add")
	fl.IntVar(&c.HandoverChannelSize, "handoff-channel-size", c.HandoverChannelSize, "tasks that the channel of --handoff channel holds")
	fl.Var(choice[dispatch.FlowMode]{&c.Flow, []dispatch.FlowMode{dispatch.Monitor, dispatch.Atomic}}, "flow", "monitor or atomic: how consumers' permits reach the dispatcher")
	fl.IntVar(&c.MaxReadBatchSize, "max-read-batch-size", c.MaxReadBatchSize, "entries of one read")
	fl.Var(size[int64]{&c.MaxReadSizeBytes}, "max-read-size-bytes", "bytes of one read, at least one entry; 0B for no limit")
	fl.Var(choice[ledger.ReadCompletion]{&c.ReadCompletion, []ledger.ReadCompletion{ledger.Extend, ledger.LastConfirmed}}, "read-completion", "extend or last-confirmed: a read that found less asks again, or ends")
	fl.Var(choice[string]{&c.NextRead, []string{dispatch.NextReadNone, dispatch.NextReadAnyWritten}}, "next-read", "none or any-written: what the read after a dispatch waits for")
	fl.DurationVar(&c.NewEntriesCheckDelay, "new-entries-check-delay", c.NewEntriesCheckDelay, "how long a read at the tail waits before it registers to be woken")
	fl.IntVar(&c.Executors, "executors", c.Executors, "ledger executors")
	fl.IntVar(&c.ExecutorQueueLimit, "executor-queue-limit", c.ExecutorQueueLimit, "tasks of one executor's queue, 0 for no limit")
	fl.IntVar(&c.Workers, "workers", c.Workers, "goroutines that run --flow monitor")
	fl.IntVar(&c.MaxRoundRobinBatch, "max-round-robin-batch-size", c.MaxRoundRobinBatch, "entries that a Shared consumer gets in a row")
	fl.Int64Var(&c.MaxUnackedPerConsumer, "max-unacked-per-consumer", c.MaxUnackedPerConsumer, "messages, negative for no limit")
	fl.Int64Var(&c.MaxUnackedPerSubscription, "max-unacked-per-subscription", c.MaxUnackedPerSubscription, "messages, negative for no limit")
	fl.IntVar(&c.LookAheadPerConsumer, "look-ahead-per-consumer", c.LookAheadPerConsumer, "entries read that cannot be sent, for each consumer")
	fl.IntVar(&c.LookAheadPerSubscription, "look-ahead-per-subscription", c.LookAheadPerSubscription, "entries read that cannot be sent, at most")
}

func (f *brokerFlags) addStorageFlags(fl *pflag.FlagSet) {
	c := &f.config
	fl.Var(choice[broker.Storage]{&c.Storage, []broker.Storage{broker.Memory, broker.Disk}}, "storage", "memory or disk")
	fl.StringVar(&c.DataDir, "data-dir", c.DataDir, "`directory` of --storage disk, this broker's alone")
	fl.Var(choice[string]{&c.Sync, []string{"always", "interval", "never"}}, "sync", "always, interval or never: when the log is synced to the disk; a broker that is killed loses nothing acknowledged in any")
	fl.BoolVar(&c.SkipCorrupt, "skip-corrupt", c.SkipCorrupt, "pass over entries that a log has damaged; otherwise their subscriptions stop there")
	fl.DurationVar(&c.SyncInterval, "sync-interval", c.SyncInterval, "of --sync interval")
	fl.Var(size[int64]{&c.WriteCacheBytes}, "write-cache-bytes", "a topic's entries not in its log yet, beyond which adds wait")
	fl.DurationVar(&c.WriteCacheTimeout, "write-cache-timeout", c.WriteCacheTimeout, "how long an add waits for the write cache before it fails")
	fl.Var(size[int64]{&c.ReadCacheBytes}, "read-cache-bytes", "a topic's newest entries kept in memory with --storage disk")
	fl.Var(bounded{&c.RetentionBytes, "all"}, "retention-bytes", "acknowledged entries that a topic keeps: 0B for none, all for all")
	fl.Var(bounded{&c.BacklogQuotaBytes, "none"}, "backlog-quota-bytes", "a topic's backlog, beyond which --backlog-quota-policy holds; none for no limit, 0B for half of the memory with --storage memory, no limit with disk")
	fl.Var(choice[broker.QuotaPolicy]{&c.BacklogQuotaPolicy, broker.QuotaPolicies()}, "backlog-quota-policy", "producer_request_hold, producer_exception or consumer_backlog_eviction")
	fl.DurationVar(&c.BacklogQuotaCheckInterval, "backlog-quota-check-interval", c.BacklogQuotaCheckInterval, "how often backlogs are looked at")
}

func (f *brokerFlags) addLimitFlags(fl *pflag.FlagSet) {
	c := &f.config
	fl.Var(size[int]{&c.MaxMessageSize}, "max-message-size", "largest message with its headers")
	fl.IntVar(&c.MaxConnections, "max-connections", c.MaxConnections, "0 for no limit")
	fl.IntVar(&c.MaxTopics, "max-topics", c.MaxTopics, "topics that clients may create, 0 for no limit")
	fl.IntVar(&c.MaxPendingPublishes, "max-pending-publishes", c.MaxPendingPublishes, "sends of one connection without a receipt, beyond which it is not read")
	fl.Var(size[int64]{&c.MaxPublishBytesInFlight}, "max-publish-bytes-in-flight", "sends of all connections without a receipt, beyond which none is read; 0B for no limit")
	fl.Var(size[int64]{&c.WriteHighWater}, "write-high-water", "bytes queued for one connection above which its consumers get no more")
	fl.DurationVar(&c.LivenessTimeout, "liveness-timeout", c.LivenessTimeout, "time a client has to answer when another wants its exclusive subscription")
	fl.DurationVar(&c.KeepAlive, "keep-alive", c.KeepAlive, "silence after which a connection is pinged, 0 for never")
	fl.IntVar(&c.DefaultPartitions, "default-partitions", c.DefaultPartitions, "partitions of topics that clients create, 0 for none")
	fl.BoolVar(&c.BrokerEntryMetadata, "broker-entry-metadata", c.BrokerEntryMetadata, "send entries with their index and the time the broker took them")
}

// choice is a flag that takes one of several words.
type choice[T ~string] struct {
	value *T
	of    []T
}

func (c choice[T]) String() string {
	if c.value == nil { // as pflag makes one to compare with
		return ""
	}
	return string(*c.value)
}

func (c choice[T]) Set(s string) error {
	if !slices.Contains(c.of, T(s)) {
		return fmt.Errorf("%q is not known: use one of %v", s, c.of)
	}
	*c.value = T(s)
	return nil
}

func (choice[T]) Type() string { return "word" }

// size is a flag that takes bytes with their unit.
type size[T int | int64] struct{ value *T }

func (s size[T]) String() string {
	if s.value == nil {
		return ""
	}
	return load.Size(*s.value).String()
}

func (s size[T]) Set(text string) error {
	n, err := load.ParseSize(text)
	if err == nil {
		*s.value = T(n)
	}
	return err
}

func (size[T]) Type() string { return "size" }

// bounded is a size of which a negative number, written as a word, is no bound.
type bounded struct {
	bytes *int64
	word  string
}

func (b bounded) String() string {
	if b.bytes == nil {
		return ""
	}
	if *b.bytes < 0 {
		return b.word
	}
	return load.Size(*b.bytes).String()
}

func (b bounded) Set(text string) error {
	if text == b.word || text == "-1" {
		*b.bytes = -1
		return nil
	}
	n, err := load.ParseSize(text)
	if err != nil {
		return fmt.Errorf("%w, or %s", err, b.word)
	}
	*b.bytes = int64(n)
	return nil
}

func (bounded) Type() string { return "size" }
