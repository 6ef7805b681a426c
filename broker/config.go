package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

// Config is everything a broker can be told. Start from DefaultConfig.
type Config struct {
	// Listen is the address for clients, host:port; port 0 picks one.
	Listen string
	// AdminListen is the address of the admin and metrics HTTP server, which
	// must be a loopback address; "" = no such server.
	AdminListen string
	// AdvertisedURL is what lookups answer. Clients compare it, as text, with
	// the URL they dialled; "" = pulsar:// and the address listened on.
	AdvertisedURL string

	// Handover is how connections hand adds to the ledger executor.
	Handover ledger.Handover
	// HandoverMaxBatchItems is the most adds of a batch; 0 or 1 = no batching.
	HandoverMaxBatchItems int
	// HandoverMaxBatchBytes ends a batch by its entries' bytes; 0 = no limit.
	HandoverMaxBatchBytes int64
	// HandoverQueueChunk is the adds per chunk of the batched queue; 0 = 512.
	HandoverQueueChunk int

	// Flow is how consumers' permits reach the dispatcher.
	Flow dispatch.FlowMode
	// MaxReadBatchSize is the most entries of one read; 0 = 500.
	MaxReadBatchSize int
	// MaxReadSizeBytes bounds the bytes of one read; 0 = no limit.
	MaxReadSizeBytes int64
	// NewEntriesCheckDelay is how long a read at the tail waits before it looks
	// again and registers to be woken; 0 = it registers at once.
	NewEntriesCheckDelay time.Duration
	// MaxUnackedPerConsumer and MaxUnackedPerSubscription, in messages; 0 =
	// 50,000 and 200,000, negative = no limit.
	MaxUnackedPerConsumer     int64
	MaxUnackedPerSubscription int64

	// Executors is the number of ledger executors; a ledger stays on one.
	Executors int
	// ExecutorQueueLimit bounds one executor's tasks; adds beyond it fail.
	// 0 = no limit.
	ExecutorQueueLimit int
	// Workers is the number of goroutines that run Flow in mode monitor.
	Workers int

	// MaxMessageSize bounds a message with its headers, in bytes.
	MaxMessageSize int
	// MaxConnections; further ones are closed at once. 0 = no limit.
	MaxConnections int
	// MaxTopics bounds the topics that clients may create. 0 = no limit.
	MaxTopics int
	// MaxPendingPublishes is the most sends of one connection without a receipt
	// written; beyond it the connection is not read until half are done.
	MaxPendingPublishes int
	// WriteHighWater is the bytes of messages queued for one connection above
	// which its consumers get no more, until half are written.
	WriteHighWater int64
	// KeepAlive is how long a connection may be silent before it is pinged;
	// after twice that it is closed. 0 = never.
	KeepAlive time.Duration

	// MutexProfileFraction and BlockProfileRate are the runtime's settings
	// (runtime.SetMutexProfileFraction, runtime.SetBlockProfileRate in ns);
	// 0 = off. PUT /admin/profiling changes them.
	MutexProfileFraction int
	BlockProfileRate     int

	// Logger; nil = slog.Default().
	Logger *slog.Logger
}

// DefaultConfig returns the defaults: batched hand-over, atomic flow.
func DefaultConfig() Config {
	return Config{
		Listen:                    "127.0.0.1:6650",
		AdminListen:               "127.0.0.1:0",
		Handover:                  ledger.Batched,
		HandoverMaxBatchItems:     1024,
		HandoverMaxBatchBytes:     5 << 20,
		HandoverQueueChunk:        512,
		Flow:                      dispatch.Atomic,
		MaxReadBatchSize:          500,
		MaxReadSizeBytes:          5 << 20,
		NewEntriesCheckDelay:      10 * time.Millisecond,
		MaxUnackedPerConsumer:     50_000,
		MaxUnackedPerSubscription: 200_000,
		Executors:                 runtime.GOMAXPROCS(0),
		Workers:                   2 * runtime.GOMAXPROCS(0),
		MaxMessageSize:            wire.DefaultMaxMessageSize,
		MaxTopics:                 10_000,
		MaxPendingPublishes:       1000,
		WriteHighWater:            1 << 20,
		KeepAlive:                 30 * time.Second,
	}
}

// Validate returns what is wrong with c, or nil.
func (c *Config) Validate() error {
	var errs []error
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		errs = append(errs, fmt.Errorf("listen address %q: %w", c.Listen, err))
	}
	if c.AdminListen != "" {
		if err := loopback(c.AdminListen); err != nil {
			errs = append(errs, err)
		}
	}
	if c.AdvertisedURL != "" {
		if u, err := url.Parse(c.AdvertisedURL); err != nil || u.Scheme == "" || u.Host == "" {
			errs = append(errs, fmt.Errorf("advertised URL %q: use a full one such as pulsar://host:6650", c.AdvertisedURL))
		}
	}
	for _, n := range []struct {
		name  string
		value int64
		least int64
	}{
		{"executors", int64(c.Executors), 1},
		{"workers", int64(c.Workers), 1},
		{"executor queue limit", int64(c.ExecutorQueueLimit), 0},
		{"max message size", int64(c.MaxMessageSize), 1},
		{"max connections", int64(c.MaxConnections), 0},
		{"max topics", int64(c.MaxTopics), 0},
		{"max pending publishes", int64(c.MaxPendingPublishes), 1},
		{"write high water", c.WriteHighWater, 1},
		{"keep-alive", int64(c.KeepAlive), 0},
		{"mutex profile fraction", int64(c.MutexProfileFraction), 0},
		{"block profile rate", int64(c.BlockProfileRate), 0},
	} {
		if n.value < n.least {
			errs = append(errs, fmt.Errorf("%s is %d: use %d or more", n.name, n.value, n.least))
		}
	}
	l, d := c.ledgerConfig(), c.dispatchConfig()
	if err := errors.Join(append(errs, l.Validate(), d.Validate())...); err != nil {
		return fmt.Errorf("broker configuration: %w", err)
	}
	return nil
}

// loopback refuses an admin address that others could reach.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("admin address %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("admin address %q: use a loopback address, the admin server has no access control", addr)
	}
	return nil
}

func (c *Config) ledgerConfig() ledger.Config {
	return ledger.Config{
		Handover: c.Handover, MaxBatchItems: c.HandoverMaxBatchItems, MaxBatchBytes: c.HandoverMaxBatchBytes,
		QueueChunk: c.HandoverQueueChunk, NewEntriesCheckDelay: c.NewEntriesCheckDelay, Logger: c.Logger,
	}
}

func (c *Config) dispatchConfig() dispatch.Config {
	return dispatch.Config{
		Flow: c.Flow, MaxReadBatchSize: c.MaxReadBatchSize, MaxReadSizeBytes: c.MaxReadSizeBytes,
		MaxUnackedPerConsumer: c.MaxUnackedPerConsumer, MaxUnackedPerSubscription: c.MaxUnackedPerSubscription, Logger: c.Logger,
	}
}
