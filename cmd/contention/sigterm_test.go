package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
	"github.com/contention-toolkit/contention/experiment"
	"github.com/contention-toolkit/contention/internal/child"
)

// asCommand makes the test binary be the command.
const asCommand = "CONTENTION_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// brokerProcess starts the command as a process of its own and waits until it
// serves.
func brokerProcess(t *testing.T, args ...string) (*child.Child, experiment.Ready, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"broker", "--ready-json", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var log bytes.Buffer // read once the process is gone
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := child.Start(cmd, child.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Kill(); <-c.Exited() })
	lines := make(chan []byte, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadBytes('\n')
		lines <- line
	}()
	var ready experiment.Ready
	select {
	case line := <-lines:
		if err := json.Unmarshal(line, &ready); err != nil {
			t.Fatalf("the broker said %q: %v", line, err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the broker does not start")
	}
	return c, ready, &log
}

// publishUntilEnd publishes on one connection until the broker ends it, counts
// receipts in received and returns whether the producer was told to close.
func publishUntilEnd(t *testing.T, addr string, received *atomic.Int64) (told bool) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return false
	}
	defer nc.Close()
	hello := (&wire.Connect{ClientVersion: "test", ProtocolVersion: 20}).AppendFrame(nil)
	hello = (&wire.Producer{Topic: "t", ProducerID: 1, RequestID: 1, InitialSubscription: "sub"}).AppendFrame(hello)
	if _, err := nc.Write(hello); err != nil {
		t.Error(err)
		return false
	}
	var sender sync.WaitGroup
	defer sender.Wait()
	sender.Go(func() {
		md := wire.Metadata{ProducerName: []byte("p"), PublishTime: 1}
		for n := uint64(0); ; n++ {
			if _, err := nc.Write(wire.AppendSend(nil, &wire.Send{ProducerID: 1, SequenceID: n}, &md, make([]byte, 100))); err != nil {
				return
			}
		}
	})
	defer nc.Close()
	fr := wire.NewFrameReader(nc, wire.ReaderOptions{})
	var f wire.Frame
	var cmd wire.Command
	for fr.Next(&f) == nil {
		if err := wire.Parse(f.Command, &cmd); err != nil {
			t.Error(err)
			return told
		}
		switch cmd.Type {
		case wire.TypeSendReceipt:
			received.Add(1)
		case wire.TypeCloseProducer:
			told = true
		case wire.TypeSendError, wire.TypeError:
			t.Errorf("%v: %s%s", cmd.Type, cmd.SendError.Message, cmd.Error.Message)
		}
	}
	return told
}

// A broker that is told to stop under load writes the receipt of everything it
// stored, tells its clients, ends with status 0, and has it all when it is back.
func TestSIGTERMUnderLoad(t *testing.T) {
	for _, mode := range []string{"batched", "direct"} {
		t.Run(mode, func(t *testing.T) {
			args := []string{"--storage", "disk", "--data-dir", filepath.Join(t.TempDir(), "data"), "--handoff", mode, "--drain-timeout", "60s"}
			c, ready, log := brokerProcess(t, args...)
			var received atomic.Int64
			var load sync.WaitGroup
			const connections = 4
			for range connections {
				load.Go(func() {
					if !publishUntilEnd(t, strings.TrimPrefix(ready.Broker, "pulsar://"), &received) {
						t.Error("a producer was not told")
					}
				})
			}
			deadline := time.Now().Add(30 * time.Second)
			for received.Load() < 2000 && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
			if err := syscall.Kill(c.PID, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			load.Wait()
			if err := c.Err(); err != nil {
				t.Fatalf("the broker ended with %v:\n%s", err, log)
			}
			_, ready, _ = brokerProcess(t, args...)
			resp, err := http.Get(ready.Admin + "/admin/v2/persistent/public/default/t/stats")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var stats struct {
				Subscriptions map[string]struct{ MsgBacklog int64 }
			}
			if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
				t.Fatal(err)
			}
			if got := stats.Subscriptions["sub"].MsgBacklog; got != received.Load() || got < 2000 {
				t.Errorf("%d receipts, %d messages kept", received.Load(), got)
			}
		})
	}
}
