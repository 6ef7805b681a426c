//go:build !race

// The official client has data races of its own when it reconnects.

package conformance

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/contention-toolkit/contention/broker"
	"github.com/contention-toolkit/contention/internal/testutil"
)

// TestConformanceStorageFullDisk fills a small file system: sends fail, what
// was acknowledged stays, and with room again the same producer goes on.
func TestConformanceStorageFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		testutil.RequireBPF(t, fmt.Errorf("mounting a tmpfs: %w", err))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	log := &lockedBuffer{}
	r := start(t, func(c *broker.Config) {
		c.Storage, c.DataDir, c.Logger = broker.Disk, filepath.Join(dir, "data"), slog.New(slog.NewTextHandler(log, nil))
	})
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AckWithResponse: true})
	p := r.producer(c, pulsar.ProducerOptions{DisableBatching: true, SendTimeout: -1})
	r.sendAll(p, messages(texts(0, 10)))
	r.wantTexts(sub, texts(0, 10))
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	type result struct {
		id  pulsar.MessageID
		err error
	}
	done := make(chan result, 1)
	// It cannot be stored now; the client tries until it can.
	p.SendAsync(r.ctx, &pulsar.ProducerMessage{Payload: make([]byte, 1<<20)}, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
		done <- result{id, err}
	})
	testutil.Eventually(t, 20*time.Second, "the broker notices the full disk", func() bool { return strings.Contains(log.String(), "the ledger is fenced") })
	select {
	case res := <-done:
		t.Fatalf("a message was acknowledged with the disk full: %v, %v", res.id, res.err)
	default:
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if res := <-done; res.err != nil {
		t.Fatalf("with room again: %v", res.err)
	}
	if m := r.receive(sub); len(m.Payload()) != 1<<20 {
		t.Fatalf("received %d bytes", len(m.Payload()))
	}
}

func fill(t *testing.T, path string) {
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	_ = f.Close() // full: that is why
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
