package broker

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
)

// The values of Config.Sync.
const (
	syncAlways   = "always"
	syncInterval = "interval"
	syncNever    = "never"
)

// What is allocated at once, so that a slip of the finger does not take the
// machine's memory.
const (
	maxExecutors = 4096    // each has a goroutine and its buffers, 100 KiB about
	maxQueued    = 1 << 20 // slots of a queue
)

// Validate returns what is wrong with c, all of it, or nil.
func (c *Config) Validate() error {
	errs := append(c.addressErrors(), c.limitErrors()...)
	errs = append(errs, c.storageErrors()...)
	if c.BacklogQuotaPolicy != "" && !slices.Contains(QuotaPolicies(), c.BacklogQuotaPolicy) {
		errs = append(errs, fmt.Errorf("backlog quota policy %q is not known: use one of %v", c.BacklogQuotaPolicy, QuotaPolicies()))
	}
	l, d := c.ledgerConfig(), c.dispatchConfig()
	errs = append(errs, l.Validate(), d.Validate())
	if l.Validate() == nil { // else the mode may not be one
		errs = append(errs, c.executorOptions().Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("broker configuration: %w", err)
	}
	return nil
}

func (c *Config) addressErrors() (errs []error) {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		errs = append(errs, fmt.Errorf("listen address %q: %w", c.Listen, err))
	}
	if c.AdminListen != "" {
		switch on, err := loopback(c.AdminListen); {
		case err != nil:
			errs = append(errs, fmt.Errorf("admin address %q: %w", c.AdminListen, err))
		case !on && c.AdminTokenFile == "":
			errs = append(errs, fmt.Errorf("admin address %q: others can reach it, and the admin server can profile and change the broker: use a loopback address, or an admin token file", c.AdminListen))
		}
	}
	if !utf8.ValidString(c.ClusterName) {
		errs = append(errs, fmt.Errorf("cluster name %q is not UTF-8", c.ClusterName))
	}
	if c.AdvertisedURL != "" {
		if u, err := url.Parse(c.AdvertisedURL); err != nil || u.Scheme == "" || u.Host == "" {
			errs = append(errs, fmt.Errorf("advertised URL %q: use a full one such as pulsar://host:6650", c.AdvertisedURL))
		}
	}
	return errs
}

// loopback reports whether only this machine can reach an address.
func loopback(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, err
	}
	return loopbackHost(host), nil
}

func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *Config) limitErrors() (errs []error) {
	for _, n := range []struct {
		name  string
		value int64
		least int64
		most  int64 // 0 = any
	}{
		{"executors", int64(c.Executors), 1, maxExecutors},
		{"workers", int64(c.Workers), 1, maxExecutors},
		{"executor queue limit", int64(c.ExecutorQueueLimit), 0, 0},
		{"hand-over channel size", int64(c.HandoverChannelSize), 0, maxQueued},
		{"hand-over queue chunk", int64(c.HandoverQueueChunk), 0, maxQueued},
		{"max message size", int64(c.MaxMessageSize), 1, 0},
		{"max connections", int64(c.MaxConnections), 0, 0},
		{"max topics", int64(c.MaxTopics), 0, 0},
		{"max pending publishes", int64(c.MaxPendingPublishes), 1, 0},
		{"max publish bytes in flight", c.MaxPublishBytesInFlight, 0, 0},
		{"write high water", c.WriteHighWater, 1, 0},
		{"keep-alive", int64(c.KeepAlive), 0, 0},
		{"liveness timeout", int64(c.LivenessTimeout), 0, 0},
		{"sync interval", int64(c.SyncInterval), 0, 0},
		{"retention bytes", c.RetentionBytes, -1, 0},
		{"backlog quota bytes", c.BacklogQuotaBytes, -1, 0},
		{"backlog quota check interval", int64(c.BacklogQuotaCheckInterval), 0, 0},
		{"default partitions", int64(c.DefaultPartitions), 0, maxPartitions},
		{"mutex profile fraction", int64(c.MutexProfileFraction), 0, 0},
		{"block profile rate", int64(c.BlockProfileRate), 0, 0},
	} {
		if n.value < n.least {
			errs = append(errs, fmt.Errorf("%s is %d: use %d or more", n.name, n.value, n.least))
		} else if n.most > 0 && n.value > n.most {
			errs = append(errs, fmt.Errorf("%s is %d: use %d or less", n.name, n.value, n.most))
		}
	}
	if c.MaxPublishBytesInFlight > 0 && c.MaxPublishBytesInFlight < int64(c.MaxMessageSize) {
		errs = append(errs, fmt.Errorf("max publish bytes in flight is %d, less than one message of %d may have: use that or more", c.MaxPublishBytesInFlight, c.MaxMessageSize))
	}
	return errs
}

func (c *Config) storageErrors() (errs []error) {
	switch {
	case c.Storage != "" && c.Storage != Memory && c.Storage != Disk:
		errs = append(errs, fmt.Errorf("storage %q is not known: use %q or %q", c.Storage, Memory, Disk))
	case c.Storage == Disk && c.DataDir == "":
		errs = append(errs, fmt.Errorf("storage %q has no data directory: name one", Disk))
	case c.Storage != Disk && c.DataDir != "":
		errs = append(errs, fmt.Errorf("data directory %q: storage %q keeps nothing there: use storage %q, or no directory", c.DataDir, Memory, Disk))
	}
	if !slices.Contains([]string{"", syncAlways, syncInterval, syncNever}, c.Sync) {
		errs = append(errs, fmt.Errorf("sync mode %q is not known: use %q, %q or %q", c.Sync, syncAlways, syncInterval, syncNever))
	}
	return errs
}

// executorOptions are those of the ledger executors, whose queue is part of the
// hand-over.
func (c *Config) executorOptions() executor.Options {
	o := executor.Options{Name: "ledger", MaxTasks: c.ExecutorQueueLimit, ChannelSize: c.HandoverChannelSize, Logger: c.Logger}
	switch c.Handover {
	case ledger.Parking:
		o.Queue = executor.QueueParking
	case ledger.Channel:
		o.Queue = executor.QueueChannel
	}
	return o
}
