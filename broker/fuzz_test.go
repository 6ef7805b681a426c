package broker

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
)

// fuzzRig is a small broker under a fuzz test, which watches it.
type fuzzRig struct {
	t     testing.TB
	s     *Server
	log   *panicLog
	other *client // a connection that must not notice anything
	seq   uint64
}

// fuzzHeap bounds the memory that whatever is sent may make a broker take,
// in bytes.
const fuzzHeap = 256 << 20

func startFuzz(t testing.TB) *fuzzRig {
	log := &panicLog{}
	s := startServer(t, func(c *Config) {
		c.AdminListen, c.MaxTopics, c.Executors, c.BrokerEntryMetadata = "", 20, 1, true
		c.NewEntriesCheckDelay, c.WriteHighWater = 0, 64<<10
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	s.firstLedger = 0 // as in recorded ids
	r := &fuzzRig{t: t, s: s, log: log, other: dial(t, s)}
	r.other.producer("x/y/other", 1)
	r.other.subscribe("x/y/other", "sub", 1, wire.Exclusive, 1<<20)
	return r
}

// panicLog notes what executors say of a task that panicked.
type panicLog struct {
	mu  sync.Mutex
	bad string
}

func (l *panicLog) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "panic") {
		l.mu.Lock()
		l.bad = string(p)
		l.mu.Unlock()
	}
	return len(p), nil
}

// settle waits until the executors have done what they had to.
func (r *fuzzRig) settle() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, top := range r.s.allTopics() {
		if err := top.ledger.Flush(ctx); err != nil {
			r.t.Fatalf("the broker hangs: %v", err)
		}
	}
}

// check fails if the broker is not well.
func (r *fuzzRig) check() {
	r.t.Helper()
	r.other.send(1, r.seq, "k", number(r.seq))
	r.seq++
	for receipt, message := false, false; !receipt || !message; {
		if !r.other.next() {
			r.t.Fatal("the other connection has ended")
		}
		receipt = receipt || r.other.cmd.Type == wire.TypeSendReceipt
		if r.other.cmd.Type == wire.TypeMessage {
			message = true
			r.other.ack(1, r.other.cmd.Message.ID)
		}
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.log.bad != "" {
		r.t.Fatalf("a task panicked: %s", r.log.bad)
	}
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	if ms.HeapAlloc > fuzzHeap { // with what is garbage
		runtime.GC()
		runtime.ReadMemStats(&ms)
	}
	if ms.HeapAlloc > fuzzHeap {
		r.t.Fatalf("the broker has %d bytes on its heap", ms.HeapAlloc)
	}
}

// pipe is a fuzzed client's end of a connection.
type pipe struct {
	net.Conn
	ended chan struct{} // when the broker is done with it
	pongs chan struct{}
}

func (r *fuzzRig) connect() *pipe {
	ours, theirs := net.Pipe()
	p := &pipe{Conn: ours, ended: make(chan struct{}), pongs: make(chan struct{}, 1<<16)}
	c := newConn(r.s, 1000+r.s.nextConn.Add(1), theirs)
	if !r.s.register(c) {
		r.t.Fatal("not registered")
	}
	go func() { r.s.serve(c); close(p.ended) }()
	go p.read()
	_, _ = p.Write((&wire.Connect{ClientVersion: "fuzz", Features: wire.FeatureFlags{BrokerEntryMetadata: true}}).AppendFrame(nil))
	return p
}

// read takes what the broker sends, which must be well formed.
func (p *pipe) read() {
	fr := wire.NewFrameReader(p, wire.ReaderOptions{VerifyChecksum: true})
	var f wire.Frame
	var cmd wire.Command
	for fr.Next(&f) == nil {
		if err := wire.Parse(f.Command, &cmd); err != nil {
			panic(err)
		}
		if cmd.Type == wire.TypePong {
			p.pongs <- struct{}{}
		}
	}
	_, _ = io.Copy(io.Discard, p)
}

var ping = (&wire.Ping{}).AppendFrame(nil)

// sync returns when the broker has served all that was written, or has ended
// the connection.
func (p *pipe) sync(t testing.TB) {
	t.Helper()
	_ = p.SetWriteDeadline(time.Now().Add(patience))
	if _, err := p.Write(ping); err != nil {
		return
	}
	select {
	case <-p.pongs:
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("the broker hangs")
	}
}

func (p *pipe) close(t testing.TB) {
	t.Helper()
	_ = p.Close()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("the connection does not end")
	}
}

// FuzzConnection feeds what follows CONNECT to a connection of a running
// broker, frame by frame. Whatever it is, the broker answers or ends that
// connection, and does not do anything else. Its seeds are what the official
// client sends in the conformance tests; see package conformance.
func FuzzConnection(f *testing.F) {
	md := wire.Metadata{ProducerName: []byte("p"), PartitionKey: []byte("k")}
	producer := (&wire.Producer{Topic: "t", ProducerID: 1, RequestID: 1}).AppendFrame(nil)
	send := wire.AppendSend(nil, &wire.Send{ProducerID: 1, NumMessages: -5}, &md, []byte("x"))
	for _, frames := range [][][]byte{
		{producer, send, send},
		{(&wire.Lookup{Topic: "t/\x00//", RequestID: 6}).AppendFrame(nil), ping, (&wire.Seek{ConsumerID: 1, RequestID: 7}).AppendFrame(nil)},
		{{0, 0, 0, 4, 0, 0, 0, 0}, {255, 255, 255, 255}},
	} {
		var b []byte
		for _, frame := range frames {
			b = append(b, frame...)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := startFuzz(t)
		p := r.connect()
		for len(data) >= 4 {
			n := 4 + int(binary.BigEndian.Uint32(data))
			if n > len(data) || n < 4 {
				break
			}
			if _, err := p.Write(data[:n]); err != nil {
				break // the broker has closed its end
			}
			data = data[n:]
			p.sync(t)
			r.settle()
		}
		_ = p.SetWriteDeadline(time.Now().Add(patience))
		_, _ = p.Write(data)
		p.close(t)
		r.check()
	})
}
