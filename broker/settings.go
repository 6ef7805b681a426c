package broker

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/ledger"
)

// limits are the settings that may change while the broker runs.
type limits struct {
	batchItems int
	batchBytes int64
	readItems  int
	readBytes  int64
}

// settings are the limits in force. They are read without a lock, and changed
// as a whole.
type settings struct {
	initial limits
	current atomic.Pointer[limits]
	mu      sync.Mutex // held by changes
}

func (s *settings) init(c *Config) {
	s.initial = limits{c.HandoverMaxBatchItems, c.HandoverMaxBatchBytes, c.MaxReadBatchSize, c.MaxReadSizeBytes}
	now := s.initial
	s.current.Store(&now)
}

// setting is a limit that can be changed, with Pulsar's name for it.
type setting struct {
	name string
	get  func(*limits) int64
	set  func(*limits, int64)
	// atOnce: open subscriptions follow. Otherwise a ledger keeps what it was
	// opened with.
	atOnce bool
}

var dynamicSettings = []setting{
	{
		"managedLedgerAddEntryHandoverMaxBatchItems",
		func(l *limits) int64 { return int64(l.batchItems) }, func(l *limits, v int64) { l.batchItems = int(v) }, false,
	},
	{
		"managedLedgerAddEntryHandoverMaxBatchBytesSize",
		func(l *limits) int64 { return l.batchBytes }, func(l *limits, v int64) { l.batchBytes = v }, false,
	},
	{
		"dispatcherMaxReadBatchSize",
		func(l *limits) int64 { return int64(l.readItems) }, func(l *limits, v int64) { l.readItems = int(v) }, true,
	},
	{
		"dispatcherMaxReadSizeBytes",
		func(l *limits) int64 { return l.readBytes }, func(l *limits, v int64) { l.readBytes = v }, true,
	},
}

func findSetting(name string) (setting, error) {
	i := slices.IndexFunc(dynamicSettings, func(d setting) bool { return d.name == name })
	if i < 0 {
		return setting{}, fmt.Errorf("setting %.100q is not known or cannot be changed while the broker runs; GET /admin/v2/brokers/configuration lists those that can", name)
	}
	return dynamicSettings[i], nil
}

// ChangeSetting changes a limit, by Pulsar's name for it, and refuses a bad
// value with the reason. Limits of reads hold at once, limits of the hand-over
// for ledgers opened from then on.
func (s *Server) ChangeSetting(name, value string) error {
	d, err := findSetting(name)
	if err != nil {
		return err
	}
	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %.100q is not a whole number", name, value)
	}
	return s.changeSetting(d, v)
}

// ResetSetting gives a limit the value that the broker was started with.
func (s *Server) ResetSetting(name string) error {
	d, err := findSetting(name)
	if err != nil {
		return err
	}
	return s.changeSetting(d, d.get(&s.settings.initial))
}

func (s *Server) changeSetting(d setting, v int64) error {
	st := &s.settings
	st.mu.Lock()
	defer st.mu.Unlock()
	was := d.get(st.current.Load())
	next := *st.current.Load()
	d.set(&next, v)
	if d.get(&next) != v {
		return fmt.Errorf("%s: %d is out of range", d.name, v)
	}
	lc, dc := next.ledgerConfig(s.ledgerConfig), next.dispatchConfig(s.dispatchConfig)
	if err := lc.Validate(); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if err := dc.Validate(); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	st.current.Store(&next)
	s.log.Info("setting changed", "name", d.name, "was", was, "now", v)
	if !d.atOnce {
		return nil
	}
	// A subscription made meanwhile with the limits of before is in its topic's
	// map before the topic's lock can be had here.
	for _, t := range s.allTopics() {
		for _, sub := range t.subscriptions() {
			sub.SetReadLimits(next.readItems, next.readBytes)
		}
	}
	return nil
}

// ledgerConfigNow is what a ledger that is opened now captures.
func (s *Server) ledgerConfigNow() ledger.Config {
	return s.settings.current.Load().ledgerConfig(s.ledgerConfig)
}

// dispatchConfigNow is what a subscription starts with. The topic's lock must
// be held from before until the subscription is in its map, so that a change
// reaches it one way or the other.
func (s *Server) dispatchConfigNow() dispatch.Config {
	return s.settings.current.Load().dispatchConfig(s.dispatchConfig)
}

func (l *limits) ledgerConfig(c ledger.Config) ledger.Config {
	c.MaxBatchItems, c.MaxBatchBytes = l.batchItems, l.batchBytes
	return c
}

func (l *limits) dispatchConfig(c dispatch.Config) dispatch.Config {
	c.MaxReadBatchSize, c.MaxReadSizeBytes = l.readItems, l.readBytes
	return c
}
