// Package broker is the reference broker: Apache Pulsar's hot paths, with a
// switch for each of the designs that the experiments compare. It speaks Pulsar's
// binary protocol, so Pulsar's own clients and tools can use it. Entries are
// kept in memory or in a log on disk.
//
//	connection goroutine: frames → commands ([wire])
//	   SEND → Ledger.AsyncAddEntry ([ledger], hand-over mode) → ledger executor
//	        → append → receipt → connection's writer goroutine
//	   FLOW, ACK → dispatcher ([dispatch]) → read tasks on the ledger executor
//	        → send loop → MESSAGE → connection's writer goroutine
//
// Every wait in the broker is one of these: a connection reads (idle) or writes
// its socket; a writer has nothing to write (idle, in conn.waitForOutput); a
// reader is held back until its receipts, or those of all connections, are
// written (conn.waitForWriter); the executor has no task (idle, in TakeAll of
// its queue) or waits for room in a ledger's write cache; the executor queue's
// lock; a ledger's, a cursor's, a dispatcher's and a consumer's pending
// acknowledgements' lock; a connection's list of consumers, once a delivery; a
// topic's and the schemas' lock, with requests only; a log's commit goroutine has nothing to store (idle)
// or writes. Output is queued without locks.
//
// Differences from the model: unless told so, the next read does not wait for
// the consumers' socket writes of the batch before; there is no deduplication
// and no ledger rollover, and what there is of a metadata store is local.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/stats"
	"github.com/contention-toolkit/contention/broker/wire"
)

// Server is a running broker. Make one with Start.
type Server struct {
	cfg            Config
	log            *slog.Logger
	name           string // prefix of generated names
	advertised     string
	listener       net.Listener
	admin          *adminServer // nil without AdminListen
	executors      *executor.Ordered
	workers        *executor.Ordered
	ledgerConfig   ledger.Config
	dispatchConfig dispatch.Config

	mu     sync.Mutex
	topics map[string]*topic
	// partitioned are the topics with partitions, and how many they have.
	partitioned map[string]int
	// keepPartitions, when set, stores such a number where it survives the broker.
	keepPartitions func(topic string, n int) error
	schemas        schemas
	durable        *durable // nil: memory storage
	// firstLedger is the first ledger id: larger than those of an earlier broker,
	// so that clients' ids of its messages lie before all of this one's.
	firstLedger uint64
	conns       map[*conn]struct{}
	closing     bool

	stop chan struct{}
	wg   sync.WaitGroup // accept, keep-alive, connections

	nextConn     atomic.Uint64
	nextProducer atomic.Uint64
	nextConsumer atomic.Uint64
	published    atomic.Uint64 // messages with a receipt queued
	delivered    atomic.Uint64 // messages queued to consumers' connections
	acked        atomic.Uint64 // messages
	throttled    throttleCounts
	flight       byteBudget
	refused      atomic.Uint64 // connections over the limit
	quotaRefused atomic.Uint64 // producers
	evicted      atomic.Uint64 // entries skipped because of a quota
	settings     settings
	batchSizes   *stats.Histogram
	shutdown     sync.Once
}

// Start starts a broker and returns when it listens. ctx bounds the start only;
// the broker runs until Shutdown.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("broker: listening for clients: %w", err)
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, listener: ln, topics: map[string]*topic{}, partitioned: map[string]int{}, conns: map[*conn]struct{}{}, stop: make(chan struct{}),
		name:       fmt.Sprintf("broker-%x", time.Now().UnixNano()),
		advertised: cfg.AdvertisedURL,
		batchSizes: stats.NewHistogram(stats.Exponential(1, 1<<20, 2)),
	}
	s.schemas.byTopic = map[string][]wire.Schema{}
	s.firstLedger = uint64(time.Now().UnixMilli())
	s.flight.limit = cfg.MaxPublishBytesInFlight
	if s.advertised == "" {
		s.advertised = "pulsar://" + s.Addr().String()
	}
	if cfg.AdminListen != "" {
		if s.admin, err = s.startAdmin(ctx, cfg.AdminListen); err != nil {
			_ = ln.Close()
			return nil, err
		}
	}
	s.executors = executor.NewOrdered(cfg.Executors, cfg.executorOptions())
	s.workers = executor.NewOrdered(cfg.Workers, executor.Options{Name: "worker", Logger: s.log})
	s.ledgerConfig = cfg.ledgerConfig()
	s.ledgerConfig.BatchSizes, s.ledgerConfig.Storage = s.batchSizes, ledger.NewStorageStats()
	s.dispatchConfig = cfg.dispatchConfig()
	s.dispatchConfig.Workers, s.dispatchConfig.Delivered, s.dispatchConfig.Acked = s.workers, &s.delivered, &s.acked
	s.settings.init(&s.cfg)
	if err := s.openDurable(); err != nil {
		return nil, errors.Join(err, s.abandon(ctx))
	}
	setProfiling(cfg.MutexProfileFraction, cfg.BlockProfileRate)
	if s.admin != nil {
		s.admin.serve()
	}
	s.wg.Go(s.accept)
	if s.durable != nil {
		s.wg.Go(s.saveCursors)
	}
	if cfg.KeepAlive > 0 {
		s.wg.Go(s.keepAlive)
	}
	if cfg.BacklogQuotaBytes > 0 {
		s.wg.Go(s.watchQuotas)
	}
	return s, nil
}

// abandon gives up a start.
func (s *Server) abandon(ctx context.Context) error {
	errs := []error{s.listener.Close(), s.workers.Shutdown(ctx), s.executors.Shutdown(ctx)}
	if s.admin != nil {
		errs = append(errs, s.admin.listener.Close())
	}
	return errors.Join(errs...)
}

// Addr returns the address clients connect to.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL returns the service URL that lookups answer.
func (s *Server) URL() string { return s.advertised }

// AdminURL returns the base URL of the admin server, without a slash at the
// end, or "" if there is none.
func (s *Server) AdminURL() string {
	if s.admin == nil {
		return ""
	}
	return s.admin.url
}

func (s *Server) accept() {
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Error("accepting a connection failed", "err", err)
			select { // out of descriptors, most likely: not at once again
			case <-time.After(50 * time.Millisecond):
				continue
			case <-s.stop:
				return
			}
		}
		c := newConn(s, s.nextConn.Add(1), nc)
		if !s.register(c) {
			_ = nc.Close()
			continue
		}
		s.wg.Go(func() { s.serve(c) })
	}
}

func (s *Server) register(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	if s.cfg.MaxConnections > 0 && len(s.conns) >= s.cfg.MaxConnections {
		s.refused.Add(1)
		s.log.Warn("connection refused: the limit is reached", "client", c.net.RemoteAddr().String(), "limit", s.cfg.MaxConnections)
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

// serve runs a connection to its end.
func (s *Server) serve(c *conn) {
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := c.writeLoop(); !ordinaryEnd(err) {
			s.log.Debug("writing failed", "conn", c.id, "err", err)
		}
		c.close()
	})
	err := c.readLoop()
	select {
	case <-c.done:
	default:
		if errors.Is(err, errDraining) {
			c.drain()
		} else if !ordinaryEnd(err) {
			s.log.Warn("closing a connection", "conn", c.id, "client", c.net.RemoteAddr().String(), "reason", err)
		}
	}
	c.close()
	c.cleanUp()
	writer.Wait()
	c.endFlight()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	close(c.gone)
}

// keepAlive pings connections that are silent and closes those that stay so.
func (s *Server) keepAlive() {
	tick := time.NewTicker(s.cfg.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
		for _, c := range s.connections() {
			c.checkAlive()
		}
	}
}
