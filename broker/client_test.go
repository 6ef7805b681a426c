package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
)

const patience = 20 * time.Second

// startServer starts a broker on loopback with quiet logs; change may be nil.
func startServer(t testing.TB, change func(*Config)) *Server {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	if change != nil {
		change(&cfg)
	}
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopServer(t, s) })
	return s
}

// client speaks the protocol one frame at a time. Its methods fail the test.
type client struct {
	t   testing.TB
	nc  net.Conn
	fr  *wire.FrameReader
	f   wire.Frame
	cmd wire.Command
	wmu sync.Mutex
}

func dial(t testing.TB, s *Server) *client {
	t.Helper()
	c := dialRaw(t, s)
	c.write((&wire.Connect{ClientVersion: "test", ProtocolVersion: 20}).AppendFrame(nil))
	c.expect(wire.TypeConnected)
	if c.cmd.Connected.ServerVersion == "" {
		t.Fatal("CONNECTED without server_version: clients would reconnect for ever")
	}
	return c
}

func dialRaw(t testing.TB, s *Server) *client {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(2 * patience))
	return &client{t: t, nc: nc, fr: wire.NewFrameReader(nc, wire.ReaderOptions{VerifyChecksum: true})}
}

func (c *client) write(frame []byte) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if _, err := c.nc.Write(frame); err != nil && !errors.Is(err, net.ErrClosed) { // closed by this test itself
		c.t.Errorf("writing: %v", err)
	}
}

// next reads one frame; false at the end of the stream.
func (c *client) next() bool {
	if err := c.fr.Next(&c.f); err != nil {
		return false
	}
	if err := wire.Parse(c.f.Command, &c.cmd); err != nil {
		c.t.Errorf("broker sent %v", err)
		return false
	}
	return true
}

func (c *client) expect(want wire.CommandType) *wire.Command {
	c.t.Helper()
	if !c.next() {
		c.t.Fatalf("the connection ended where %v was due", want)
	}
	if c.cmd.Type != want {
		c.t.Fatalf("got %v (error %q), want %v", c.cmd.Type, c.cmd.Error.Message, want)
	}
	return &c.cmd
}

func (c *client) expectClosed() {
	c.t.Helper()
	for c.next() {
		c.t.Logf("before the end: %v", c.cmd.Type)
	}
	if err := c.fr.Next(&c.f); err != io.EOF {
		c.t.Logf("ended with %v", err)
	}
}

func (c *client) producer(topic string, id uint64) {
	c.t.Helper()
	c.write((&wire.Producer{Topic: topic, ProducerID: id, RequestID: 100 + id}).AppendFrame(nil))
	if r := c.expect(wire.TypeProducerSuccess).ProducerSuccess; r.RequestID != 100+id || r.Name == "" || r.LastSequenceID != -1 {
		c.t.Fatalf("PRODUCER_SUCCESS %+v", r)
	}
}

func (c *client) subscribe(topic, sub string, id uint64, typ wire.SubType, permits uint32) {
	c.t.Helper()
	c.write((&wire.Subscribe{Topic: topic, Subscription: sub, Type: typ, ConsumerID: id, RequestID: 200 + id, InitialPosition: wire.Earliest,
		ConsumerName: fmt.Sprintf("%s-%d-%s", sub, id, c.nc.LocalAddr())}).AppendFrame(nil))
	c.expect(wire.TypeSuccess)
	if permits > 0 {
		c.flow(id, permits)
	}
}

func (c *client) flow(id uint64, permits uint32) {
	c.write((&wire.Flow{ConsumerID: id, Permits: permits}).AppendFrame(nil))
}

func (c *client) ack(id uint64, ids ...wire.MessageID) {
	c.write((&wire.Ack{ConsumerID: id, IDs: ids, ValidationError: -1}).AppendFrame(nil))
}

func (c *client) send(id, seq uint64, key string, payload []byte) {
	md := wire.Metadata{ProducerName: []byte("p"), SequenceID: seq, PublishTime: uint64(time.Now().UnixMilli()), PartitionKey: []byte(key)}
	c.write(wire.AppendSend(nil, &wire.Send{ProducerID: id, SequenceID: seq}, &md, payload))
}

// payload returns the payload of the MESSAGE just read, and its key.
func (c *client) payload() (key string, payload []byte) {
	c.t.Helper()
	raw, payload, err := wire.SplitPayload(c.f.HeadersAndPayload)
	if err != nil {
		c.t.Fatal(err)
	}
	var md wire.Metadata
	if err := wire.ParseMetadata(raw, &md); err != nil {
		c.t.Fatal(err)
	}
	return string(md.PartitionKey), payload
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
