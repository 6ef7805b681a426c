package broker

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

// The broker does not read a connection that others' sends hold back: it is not
// the client that is silent then.
func TestKeepAliveSparesAConnectionThatIsHeldBack(t *testing.T) {
	s := startServer(t, func(c *Config) { c.KeepAlive = 0 })
	c := dial(t, s)
	c.producer("t", 1)
	limit := s.cfg.MaxPublishBytesInFlight
	s.flight.add(limit) // sends of others
	c.send(1, 0, "k", []byte("x"))
	c.expect(wire.TypeSendReceipt)
	conn := s.connections()[0]
	waitUntil(t, "held back", func() bool { return conn.held.Load() != 0 })
	for range 5 {
		conn.checkAlive()
	}
	if !conn.heldBack(false) {
		t.Error("taken for silent")
	}
	s.flight.add(-limit)
	c.send(1, 1, "k", []byte("x"))
	c.expect(wire.TypeSendReceipt)
}

func TestKeepAliveClosesAConnectionWhoseClientTakesNothing(t *testing.T) {
	s := startServer(t, func(c *Config) { c.KeepAlive = 0 })
	c := dial(t, s)
	conn := s.connections()[0]
	conn.heard.Store(false)
	conn.wrote.Store(false)
	conn.held.Add(1)
	defer conn.held.Add(-1)
	conn.writing.Store(true)
	conn.checkAlive()
	conn.checkAlive()
	c.expectClosed()
}

// A block that messages are cut from belongs to one topic, or the few entries
// that one topic keeps would keep the many of another in memory.
func TestEntriesDoNotKeepThoseOfOtherTopics(t *testing.T) {
	s := startServer(t, nil)
	keeps := dial(t, s)
	keeps.subscribe("kept", "s", 1, wire.Shared, 0)
	c := dial(t, s)
	c.producer("gone", 1)
	c.producer("kept", 2)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const rounds, others = 500, 100
	payload := make([]byte, 100)
	for i := range uint64(rounds * others) {
		if c.send(1, i, "k", payload); i%others == 0 {
			c.send(2, i, "k", payload)
			c.expect(wire.TypeSendReceipt)
		}
		c.expect(wire.TypeSendReceipt)
	}
	if grown := heap() - before; grown > 3<<20 { // 8 MiB in blocks of all topics
		t.Errorf("%d kept entries of %d bytes hold %d bytes", rounds, len(payload), grown)
	}
}

func TestLogsWithoutMetadataAreRefused(t *testing.T) {
	dir := t.TempDir()
	disk := func(c *Config) { c.Storage, c.DataDir, c.RetentionBytes = Disk, dir, -1 }
	s := startServer(t, disk)
	c := dial(t, s)
	c.producer("t", 1)
	c.send(1, 0, "k", []byte("x"))
	c.expect(wire.TypeSendReceipt)
	stopServer(t, s)
	if err := os.Mkdir(filepath.Join(dir, ledgersDir, "77"), 0o700); err != nil { // nothing in it
		t.Fatal(err)
	}
	stopServer(t, startServer(t, disk))
	if err := os.Remove(filepath.Join(dir, "meta.db")); err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	disk(&cfg)
	if s, err := Start(t.Context(), cfg); err == nil {
		stopServer(t, s)
		t.Error("started: another topic would get the log")
	} else if !strings.Contains(err.Error(), "is of no topic that the metadata has") {
		t.Error(err)
	}
}
