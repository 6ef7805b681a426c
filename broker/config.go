package broker

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// Storage is where entries are kept.
type Storage string

const (
	Memory Storage = "memory" // gone with the process
	Disk   Storage = "disk"   // in a log below Config.DataDir
)

// QuotaPolicy is what happens to a topic whose backlog is above its quota.
type QuotaPolicy string

// The policies, with Pulsar's names.
const (
	// QuotaHold disconnects the topic's producers and refuses new ones with an
	// error that makes clients try again.
	QuotaHold QuotaPolicy = "producer_request_hold"
	// QuotaException does the same with an error that makes clients fail what
	// they have not sent.
	QuotaException QuotaPolicy = "producer_exception"
	// QuotaEviction skips the oldest entries of the slowest subscriptions.
	QuotaEviction QuotaPolicy = "consumer_backlog_eviction"
)

// QuotaPolicies are all of them.
func QuotaPolicies() []QuotaPolicy { return []QuotaPolicy{QuotaHold, QuotaException, QuotaEviction} }

// Config is everything a broker can be told. Start from DefaultConfig. Sizes
// are in bytes.
type Config struct {
	// Listen is the address for clients, host:port; port 0 picks one.
	Listen string
	// AdminListen is the address of the admin and metrics HTTP server; "" = no
	// such server. One that is not loopback needs AdminTokenFile.
	AdminListen string
	// AdminTokenFile names a file whose content, at least 16 bytes without the
	// white space around it, requests must show as a bearer token. "" = none,
	// and then only requests that name a loopback host are served.
	AdminTokenFile string
	// AdvertisedURL is what lookups answer. Clients compare it, as text, with
	// the URL they dialled; "" = pulsar:// and the address listened on.
	AdvertisedURL string
	// ClusterName is the label cluster of Pulsar's metrics; "" = standalone.
	ClusterName string

	// Handover is how connections hand adds to the ledger executor.
	Handover ledger.Handover
	// HandoverMaxBatchItems is the most adds of a batch; 0 or 1 = no batching.
	HandoverMaxBatchItems int
	// HandoverMaxBatchBytes ends a batch by its entries' bytes; 0 = no limit.
	HandoverMaxBatchBytes int64
	// HandoverQueueChunk is the adds per chunk of the batched queue; 0 = 512.
	HandoverQueueChunk int
	// HandoverQueueCreate is when a ledger's batched queue is made; "" = lazy.
	HandoverQueueCreate ledger.QueueCreate
	// HandoverChannelSize is the tasks that the executor's queue holds with
	// hand-over channel; 0 = 1,024.
	HandoverChannelSize int

	// Flow is how consumers' permits reach the dispatcher.
	Flow dispatch.FlowMode
	// MaxReadBatchSize is the most entries of one read; 0 = 500.
	MaxReadBatchSize int
	// MaxReadSizeBytes bounds the bytes of one read; 0 = no limit.
	MaxReadSizeBytes int64
	// ReadCompletion is when a read that found less than it asked for ends; "" =
	// last-confirmed.
	ReadCompletion ledger.ReadCompletion
	// NextRead is what the next read waits for; "" = none.
	NextRead string
	// NewEntriesCheckDelay is how long a read at the tail waits before it looks
	// again and registers to be woken; 0 = it registers at once.
	NewEntriesCheckDelay time.Duration
	// MaxRoundRobinBatch is the most entries a Shared consumer gets in a row; 0
	// = 20.
	MaxRoundRobinBatch int
	// MaxUnackedPerConsumer and MaxUnackedPerSubscription, in messages; 0 =
	// 50,000 and 200,000, negative = no limit.
	MaxUnackedPerConsumer     int64
	MaxUnackedPerSubscription int64
	// LookAheadPerConsumer and LookAheadPerSubscription bound the entries read
	// that cannot be sent; 0 = 4,000 and 40,000.
	LookAheadPerConsumer     int
	LookAheadPerSubscription int

	// Executors is the number of ledger executors; a ledger stays on one.
	Executors int
	// ExecutorQueueLimit bounds one executor's tasks; adds beyond it fail.
	// 0 = no limit.
	ExecutorQueueLimit int
	// Workers is the number of goroutines that run Flow in mode monitor.
	Workers int

	// Storage; "" = memory.
	Storage Storage
	// DataDir is the directory of storage disk, and of it only. Two brokers
	// cannot share one.
	DataDir string
	// Sync is when the log reaches the disk itself: always, before an entry is
	// acknowledged; interval, every SyncInterval; never, when the system likes.
	// An acknowledged entry survives the process in every mode. "" = interval.
	Sync string
	// SyncInterval; 0 = 1 s.
	SyncInterval time.Duration
	// WriteCacheBytes bounds a ledger's entries that are not in its log yet.
	// Its executor waits for room up to WriteCacheTimeout, then the add fails.
	// 0 = 64 MiB and 10 s.
	WriteCacheBytes   int64
	WriteCacheTimeout time.Duration
	// ReadCacheBytes is how much of a ledger's newest entries stays in memory;
	// 0 = 64 MiB.
	ReadCacheBytes int64
	// SkipCorrupt passes over entries that a log has damaged, as if they were
	// acknowledged; otherwise their subscriptions stop there.
	SkipCorrupt bool
	// RetentionBytes is how much of what every subscription has acknowledged a
	// topic keeps; 0 = nothing, −1 = all.
	RetentionBytes int64

	// BacklogQuotaBytes bounds each topic's backlog, which is that of its
	// slowest subscription; negative = no limit, 0 = half of the memory that
	// the process may use with storage memory, no limit with disk. It is looked at every
	// BacklogQuotaCheckInterval (0 = 1 s), so it is passed by what is published
	// in between.
	BacklogQuotaBytes         int64
	BacklogQuotaPolicy        QuotaPolicy // "" = producer_request_hold
	BacklogQuotaCheckInterval time.Duration

	// MaxMessageSize bounds a message with its headers.
	MaxMessageSize int
	// MaxConnections; further ones are closed at once. 0 = no limit.
	MaxConnections int
	// MaxTopics bounds the topics that clients may create. 0 = no limit.
	MaxTopics int
	// MaxPendingPublishes is the most sends of one connection without a receipt
	// written; beyond it the connection is not read until half are done.
	MaxPendingPublishes int
	// MaxPublishBytesInFlight bounds the sends of all connections together
	// without a receipt written: beyond it no connection that publishes is read
	// until half are done. A connection counts in steps of 4 KiB. 0 = no limit.
	MaxPublishBytesInFlight int64
	// WriteHighWater is the bytes of messages queued for one connection above
	// which its consumers get no more, until half are written.
	WriteHighWater int64
	// KeepAlive is how long a connection may be silent before it is pinged;
	// after twice that it is closed. 0 = never.
	KeepAlive time.Duration
	// LivenessTimeout is how long a client has to answer when another one wants
	// the exclusive subscription that it holds; then it is taken for dead.
	LivenessTimeout time.Duration

	// DefaultPartitions is the number of partitions of topics that clients
	// create; 0 = not partitioned.
	DefaultPartitions int
	// BrokerEntryMetadata sends an entry's index and the time the broker took
	// it to clients that can read them.
	BrokerEntryMetadata bool

	// MetricsTopics bounds the topics with series of their own; the aggregates
	// count all. 0 = 1,000, negative = none.
	MetricsTopics int
	// MutexProfileFraction and BlockProfileRate are the runtime's settings
	// (runtime.SetMutexProfileFraction, runtime.SetBlockProfileRate in ns);
	// 0 = off. PUT /admin/profiling changes them.
	MutexProfileFraction int
	BlockProfileRate     int

	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// DefaultConfig returns the defaults: batched hand-over, atomic flow, memory.
func DefaultConfig() Config {
	return Config{
		Listen:                    "127.0.0.1:6650",
		AdminListen:               "127.0.0.1:0",
		ClusterName:               "standalone",
		Handover:                  ledger.Batched,
		HandoverMaxBatchItems:     1024,
		HandoverMaxBatchBytes:     5 << 20,
		HandoverQueueChunk:        512,
		HandoverQueueCreate:       ledger.Lazy,
		HandoverChannelSize:       1024,
		Flow:                      dispatch.Atomic,
		MaxReadBatchSize:          500,
		MaxReadSizeBytes:          5 << 20,
		ReadCompletion:            ledger.LastConfirmed,
		NextRead:                  dispatch.NextReadNone,
		NewEntriesCheckDelay:      10 * time.Millisecond,
		MaxRoundRobinBatch:        20,
		MaxUnackedPerConsumer:     50_000,
		MaxUnackedPerSubscription: 200_000,
		LookAheadPerConsumer:      4_000,
		LookAheadPerSubscription:  40_000,
		Executors:                 runtime.GOMAXPROCS(0),
		Workers:                   2 * runtime.GOMAXPROCS(0),
		Storage:                   Memory,
		Sync:                      syncInterval,
		SyncInterval:              time.Second,
		WriteCacheBytes:           64 << 20,
		WriteCacheTimeout:         10 * time.Second,
		ReadCacheBytes:            64 << 20,
		BacklogQuotaPolicy:        QuotaHold,
		BacklogQuotaCheckInterval: time.Second,
		MaxMessageSize:            wire.DefaultMaxMessageSize,
		MaxTopics:                 10_000,
		MaxPendingPublishes:       1000,
		MaxPublishBytesInFlight:   256 << 20,
		WriteHighWater:            1 << 20,
		KeepAlive:                 30 * time.Second,
		LivenessTimeout:           5 * time.Second,
		MetricsTopics:             1000,
	}
}

// setDefaults fills in what a configuration of the caller's own may leave
// empty and the server itself needs.
func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Flow == "" {
		c.Flow = dispatch.Atomic
	}
	if c.ReadCompletion == "" {
		c.ReadCompletion = ledger.LastConfirmed
	}
	if c.Storage == "" {
		c.Storage = Memory
	}
	if c.Sync == "" {
		c.Sync = syncInterval
	}
	if c.SyncInterval == 0 {
		c.SyncInterval = time.Second
	}
	if c.BacklogQuotaBytes == 0 && c.Storage == Memory {
		c.BacklogQuotaBytes = usableMemory() / 2
	}
	if c.BacklogQuotaPolicy == "" {
		c.BacklogQuotaPolicy = QuotaHold
	}
	if c.BacklogQuotaCheckInterval == 0 {
		c.BacklogQuotaCheckInterval = time.Second
	}
	if c.ClusterName == "" {
		c.ClusterName = "standalone"
	}
	if c.MetricsTopics == 0 {
		c.MetricsTopics = 1000
	}
}

func (c *Config) ledgerConfig() ledger.Config {
	return ledger.Config{
		Handover: c.Handover, MaxBatchItems: c.HandoverMaxBatchItems, MaxBatchBytes: c.HandoverMaxBatchBytes,
		QueueChunk: c.HandoverQueueChunk, QueueCreate: c.HandoverQueueCreate,
		NewEntriesCheckDelay: c.NewEntriesCheckDelay, ReadCompletion: c.ReadCompletion,
		RetentionBytes: c.RetentionBytes, SkipCorrupt: c.SkipCorrupt, Timestamps: c.BrokerEntryMetadata,
		WriteCacheBytes: c.WriteCacheBytes, WriteCacheTimeout: c.WriteCacheTimeout, ReadCacheBytes: c.ReadCacheBytes,
		Logger: c.Logger,
	}
}

func (c *Config) dispatchConfig() dispatch.Config {
	return dispatch.Config{
		Flow: c.Flow, MaxReadBatchSize: c.MaxReadBatchSize, MaxReadSizeBytes: c.MaxReadSizeBytes, NextRead: c.NextRead,
		MaxRoundRobinBatch:    c.MaxRoundRobinBatch,
		MaxUnackedPerConsumer: c.MaxUnackedPerConsumer, MaxUnackedPerSubscription: c.MaxUnackedPerSubscription,
		LookAheadPerConsumer: c.LookAheadPerConsumer, LookAheadPerSubscription: c.LookAheadPerSubscription, Logger: c.Logger,
	}
}
