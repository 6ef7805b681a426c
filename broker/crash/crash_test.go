//go:build !race

// The official client has data races of its own when it reconnects.

package crash

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker"
	"github.com/contention-toolkit/contention/broker/storage"
	"github.com/contention-toolkit/contention/internal/child"
)

var (
	kills = flag.Int("kills", 3, "times the broker is killed in each sync mode")
	seed  = flag.Uint64("seed", 0, "of the random moments; 0 = by the clock")
)

// brokerEnv holds the child's configuration, as JSON.
const brokerEnv = "CONTENTION_CRASH_BROKER"

func TestMain(m *testing.M) {
	if text := os.Getenv(brokerEnv); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type childConfig struct {
	Listen, DataDir string
	Sync            storage.Sync
}

// serve is the broker's process.
func serve(text string) error {
	var o childConfig
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := broker.DefaultConfig()
	cfg.Listen, cfg.AdminListen = o.Listen, ""
	cfg.Storage, cfg.DataDir, cfg.Sync = broker.Disk, o.DataDir, string(o.Sync)
	cfg.ReadCacheBytes = 64 << 10 // most of a backlog is read from the disk
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := broker.Start(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Println(s.Addr())
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return s.Shutdown(end)
}

// run starts the broker's process and returns its address.
func run(t *testing.T, o childConfig, log io.Writer) (*child.Child, string) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), brokerEnv+"="+string(text))
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := child.Start(cmd, child.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Kill() })
	line := make(chan string, 1)
	go func() {
		buf := make([]byte, 100)
		n, _ := out.Read(buf)
		line <- strings.TrimSpace(string(buf[:n]))
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case addr := <-line:
		if addr == "" {
			t.Fatalf("the broker did not start: %v", c.Err())
		}
		return c, addr
	case <-time.After(time.Minute):
		t.Fatal("the broker does not start within a minute")
	}
	return nil, ""
}

func TestKilledBrokerLosesNothingAcknowledged(t *testing.T) {
	for _, sync := range []storage.Sync{storage.SyncAlways, storage.SyncInterval, storage.SyncNever} {
		t.Run(string(sync), func(t *testing.T) { crashAndCheck(t, sync) })
	}
}

func crashAndCheck(t *testing.T, sync storage.Sync) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	rng := rand.New(rand.NewPCG(s, 0))
	logs := newTail(64 << 10)
	defer func() {
		if t.Failed() {
			t.Logf("the brokers' last words:\n%s", logs)
		}
	}()
	o := childConfig{Listen: "127.0.0.1:0", DataDir: t.TempDir(), Sync: sync}
	c, addr := run(t, o, logs)
	o.Listen = addr
	w := startWorkload(t, "pulsar://"+addr)
	for range *kills {
		before := w.acked.Load()
		w.waitFor(func() bool { return w.acked.Load() > before+500 })
		wait := time.Duration(rng.Int64N(int64(500 * time.Millisecond)))
		select { // the moment of the crash is the point of it
		case <-time.After(wait):
		case <-c.Exited():
			t.Fatalf("the broker ended by itself: %v", c.Err())
		}
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		<-c.Exited()
		w.crashed()
		c, _ = run(t, o, logs)
	}
	w.finish()
	if err := c.Stop(30 * time.Second); err != nil {
		t.Errorf("the broker's orderly end: %v", err)
	}
	t.Logf("%d kills: %d messages acknowledged, %d received, of these %d sent again by the client and %d delivered again by the broker",
		*kills, w.acked.Load(), w.received, w.resent, w.redelivered)
}
