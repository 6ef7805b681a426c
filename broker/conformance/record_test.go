package conformance

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contention-toolkit/contention/broker"
	"github.com/contention-toolkit/contention/broker/wire"
)

var record = flag.Bool("record", false, "write the client's bytes as fuzz seeds of the broker")

const (
	seedDir   = "../testdata/fuzz/FuzzConnection"
	seedLimit = 2 << 10 // bytes of a seed
	seedFrame = 512     // bytes of a frame in it: longer ones teach nothing more
)

// recorder passes connections on to the broker and keeps what clients send.
type recorder struct {
	l       net.Listener
	target  func() string
	mu      sync.Mutex
	streams []*stream
	wg      sync.WaitGroup
}

type stream struct {
	mu    sync.Mutex
	bytes []byte
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bytes) < 1<<20 {
		s.bytes = append(s.bytes, p...)
	}
	return len(p), nil
}

// recordedListen prepares cfg so that clients reach the broker through a
// recorder, if there is to be one; what it returns gives the URL for clients.
func recordedListen(t *testing.T, cfg *broker.Config) func(*broker.Server) string {
	if !*record {
		return func(s *broker.Server) string { return s.URL() }
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.AdvertisedURL = "pulsar://" + l.Addr().String()
	return func(s *broker.Server) string {
		addr := s.Addr().String() // that of a restarted broker too
		rec := &recorder{l: l, target: func() string { return addr }}
		rec.wg.Go(rec.accept)
		t.Cleanup(func() {
			_ = l.Close()
			rec.wg.Wait()
			rec.write(t)
		})
		return cfg.AdvertisedURL
	}
}

func (r *recorder) accept() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", r.target())
		if err != nil {
			_ = c.Close()
			continue
		}
		s := &stream{}
		r.mu.Lock()
		r.streams = append(r.streams, s)
		r.mu.Unlock()
		r.wg.Go(func() {
			_, _ = io.Copy(io.MultiWriter(b, s), c)
			_ = b.Close()
		})
		r.wg.Go(func() {
			_, _ = io.Copy(c, b)
			_ = c.Close()
		})
	}
}

// best are the longest seeds so far, by test without its subtests.
var best = struct {
	sync.Mutex
	seeds map[string][]byte
}{seeds: map[string][]byte{}}

// write makes one seed of the test: the stream that has most in it.
func (r *recorder) write(t *testing.T) {
	if t.Failed() {
		return
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), "TestConformance"), "/")
	best.Lock()
	defer best.Unlock()
	had := len(best.seeds[name])
	for _, s := range r.streams {
		if seed := seedOf(s.bytes); len(seed) > len(best.seeds[name]) {
			best.seeds[name] = seed
		}
	}
	if len(best.seeds[name]) == had {
		return
	}
	if err := os.MkdirAll(seedDir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", best.seeds[name])
	if err := os.WriteFile(filepath.Join(seedDir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// seedOf cuts a stream into frames and returns the first of them, without the
// CONNECT, without long ones, and with ledgers numbered from 1.
func seedOf(b []byte) []byte {
	var seed []byte
	var cmd wire.Command
	var ledgers []uint64
	for len(b) >= 8 {
		n := 4 + int(binary.BigEndian.Uint32(b))
		if n > len(b) {
			break
		}
		frame := b[:n]
		b = b[n:]
		if wire.Parse(frame[8:8+binary.BigEndian.Uint32(frame[4:])], &cmd) != nil || cmd.Type == wire.TypeConnect {
			continue
		}
		if frame = renumber(frame, &cmd, &ledgers); len(frame) > seedFrame {
			continue
		}
		if len(seed)+len(frame) > seedLimit {
			break
		}
		seed = append(seed, frame...)
	}
	return seed
}

// renumber replaces the ledgers of a frame's message ids.
func renumber(frame []byte, cmd *wire.Command, ledgers *[]uint64) []byte {
	fix := func(id *wire.MessageID) {
		if id == nil || int64(id.Ledger) < 0 || id.Ledger == 1<<63-1 {
			return
		}
		if !slices.Contains(*ledgers, id.Ledger) {
			*ledgers = append(*ledgers, id.Ledger)
		}
		id.Ledger = 1 + uint64(slices.Index(*ledgers, id.Ledger)) // 0 is the fuzz test's own
	}
	switch cmd.Type {
	case wire.TypeAck:
		for i := range cmd.Ack.IDs {
			fix(&cmd.Ack.IDs[i])
		}
		return cmd.Ack.AppendFrame(nil)
	case wire.TypeRedeliver:
		for i := range cmd.Redeliver.IDs {
			fix(&cmd.Redeliver.IDs[i])
		}
		return cmd.Redeliver.AppendFrame(nil)
	case wire.TypeSeek:
		fix(cmd.Seek.MessageID)
		return cmd.Seek.AppendFrame(nil)
	case wire.TypeSubscribe:
		fix(cmd.Subscribe.StartMessageID)
		return cmd.Subscribe.AppendFrame(nil)
	}
	return frame
}
