package load

import (
	"bytes"
	"errors"
	"hash/fnv"
	"net"
	"sync"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

// verdict is what the fake broker does with one message.
type verdict int

const (
	deliver verdict = iota
	drop
	twice
	corrupt
	hold   // keep it back until the key's next message went out
	rename // deliver under another key
	refuse // SEND_ERROR
	mute   // never acknowledge, but deliver
	hangUp // close the connection
	forget // acknowledge in the wrong order
)

// fakeBroker keeps the rules of Key_Shared with one lock around everything,
// and breaks them where a test says so.
type fakeBroker struct {
	ln net.Listener
	wg sync.WaitGroup

	// judge sees every SEND, numbered from 0 in order of arrival.
	judge func(n int, key string) verdict
	// answer, if set, may replace the answer to a command; nil bytes mean the
	// usual one.
	answer func(*wire.Command) (frame []byte, silent bool)
	// backlog is delivered to every consumer on its first FLOW.
	backlog []byte

	mu    sync.Mutex
	conns map[*fakeConn]bool
	subs  map[string]*fakeSub
	sends int
	entry uint64
	pongs int
	acked map[string]int // by subscription
	held  map[string][]byte
}

type fakeSub struct{ members []*fakeConn }

type fakeConn struct {
	b    *fakeBroker
	nc   net.Conn
	sub  string // of the consumer on it
	perm int
	wait [][]byte // MESSAGE frames for which permits are missing
	out  []byte
	wake *sync.Cond
	done bool
}

func startFake(t *testing.T, b *fakeBroker) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.ln, b.conns, b.subs = ln, map[*fakeConn]bool{}, map[string]*fakeSub{}
	b.acked, b.held = map[string]int{}, map[string][]byte{}
	if b.judge == nil {
		b.judge = func(int, string) verdict { return deliver }
	}
	b.wg.Go(b.accept)
	t.Cleanup(func() {
		ln.Close()
		b.mu.Lock()
		for c := range b.conns {
			c.nc.Close()
		}
		b.mu.Unlock()
		b.wg.Wait()
	})
	return ln.Addr().String()
}

func (b *fakeBroker) accept() {
	for {
		nc, err := b.ln.Accept()
		if err != nil {
			return
		}
		b.serve(nc)
	}
}

func (b *fakeBroker) serve(nc net.Conn) {
	c := &fakeConn{b: b, nc: nc, wake: sync.NewCond(&b.mu)}
	b.mu.Lock()
	b.conns[c] = true
	b.mu.Unlock()
	b.wg.Go(c.read)
	b.wg.Go(c.write)
}

func (c *fakeConn) write() {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	for {
		for len(c.out) == 0 && !c.done {
			c.wake.Wait()
		}
		if c.done {
			return
		}
		out := c.out
		c.out = nil
		c.b.mu.Unlock()
		_, err := c.nc.Write(out)
		c.b.mu.Lock()
		if err != nil {
			return
		}
	}
}

func (c *fakeConn) read() {
	fr := wire.NewFrameReader(c.nc, wire.ReaderOptions{VerifyChecksum: true})
	var f wire.Frame
	var cmd wire.Command
	var err error
	for err == nil {
		if err = fr.Next(&f); err == nil {
			err = wire.Parse(f.Command, &cmd)
		}
		if err == nil {
			c.b.mu.Lock()
			err = c.handle(&cmd, f.HeadersAndPayload)
			c.wake.Signal()
			c.b.mu.Unlock()
		}
	}
	c.nc.Close()
	c.b.mu.Lock()
	c.done = true
	c.wake.Signal()
	delete(c.b.conns, c)
	c.b.mu.Unlock()
}

var errHangUp = errors.New("the test wants the connection closed")

func (c *fakeConn) handle(cmd *wire.Command, hp []byte) error {
	if c.b.answer != nil {
		frame, silent := c.b.answer(cmd)
		c.out = append(c.out, frame...)
		if silent || frame != nil {
			return nil
		}
	}
	switch cmd.Type {
	case wire.TypeConnect:
		c.out = (&wire.Ping{}).AppendFrame(c.out)
		c.out = (&wire.Connected{ServerVersion: "fake", ProtocolVersion: 20}).AppendFrame(c.out)
	case wire.TypeLookup:
		m := wire.LookupResponse{RequestID: cmd.Lookup.RequestID, Response: wire.LookupConnect, BrokerURL: "pulsar://" + c.b.ln.Addr().String()}
		c.out = m.AppendFrame(c.out)
	case wire.TypeProducer:
		m := wire.ProducerSuccess{RequestID: cmd.Producer.RequestID, Name: "fake-producer", LastSequenceID: -1}
		c.out = m.AppendFrame(c.out)
	case wire.TypeSubscribe:
		c.subscribe(&cmd.Subscribe)
	case wire.TypeFlow:
		if c.perm == 0 && c.b.backlog != nil {
			c.give(c.b.backlog)
		}
		c.perm += int(cmd.Flow.Permits)
		c.deliverWaiting()
	case wire.TypeAck:
		c.b.acked[c.sub] += len(cmd.Ack.IDs)
	case wire.TypeCloseProducer, wire.TypeCloseConsumer:
		c.out = (&wire.Success{RequestID: cmd.Close.RequestID}).AppendFrame(c.out)
	case wire.TypePong:
		c.b.pongs++
	case wire.TypeSend:
		if c.b.sends%50 == 0 {
			for other := range c.b.conns {
				other.out = (&wire.Ping{}).AppendFrame(other.out)
				other.wake.Signal()
			}
		}
		return c.publish(&cmd.Send, bytes.Clone(hp))
	}
	return nil
}

func (c *fakeConn) subscribe(m *wire.Subscribe) {
	s := c.b.subs[m.Subscription]
	if s == nil {
		s = &fakeSub{}
		c.b.subs[m.Subscription] = s
	}
	s.members = append(s.members, c)
	c.sub = m.Subscription
	c.out = (&wire.Success{RequestID: m.RequestID}).AppendFrame(c.out)
}

func (c *fakeConn) publish(m *wire.Send, hp []byte) error {
	var md wire.Metadata
	raw, payload, err := wire.SplitPayload(hp)
	if err == nil {
		err = wire.ParseMetadata(raw, &md)
	}
	if err != nil {
		return err
	}
	key := string(md.PartitionKey)
	v := c.b.judge(c.b.sends, key)
	c.b.sends++
	receipt := wire.SendReceipt{ProducerID: m.ProducerID, SequenceID: m.SequenceID, HasMessageID: true, MessageID: wire.NewMessageID(1, c.b.entry)}
	switch v {
	case hangUp:
		return errHangUp
	case refuse:
		e := wire.SendError{ProducerID: m.ProducerID, SequenceID: m.SequenceID, Code: wire.ErrorPersistence, Message: "disk full"}
		c.out = e.AppendFrame(c.out)
		return nil
	case forget:
		receipt.SequenceID++
	case corrupt:
		hp[len(hp)-1] ^= 0xff
	case rename:
		md.PartitionKey = []byte("d99999999")
		hp = wire.AppendHeadersAndPayload(nil, &md, payload)
	}
	if v != mute {
		c.out = receipt.AppendFrame(c.out)
	}
	switch v {
	case drop:
		return nil
	case hold:
		c.b.held[key] = hp
		return nil
	case twice:
		c.b.route(key, hp)
	}
	c.b.route(key, hp)
	if late := c.b.held[key]; late != nil {
		delete(c.b.held, key)
		c.b.route(key, late)
	}
	return nil
}

func (b *fakeBroker) route(key string, hp []byte) {
	h := fnv.New32a()
	h.Write([]byte(key))
	for _, s := range b.subs {
		m := s.members[int(h.Sum32()>>1)%len(s.members)]
		m.give(wire.AppendMessage(nil, &wire.Message{ConsumerID: consumerID, ID: wire.NewMessageID(1, b.entry)}, hp))
	}
	b.entry++
}

func (c *fakeConn) give(frame []byte) {
	c.wait = append(c.wait, frame)
	c.deliverWaiting()
}

func (c *fakeConn) deliverWaiting() {
	for c.perm > 0 && len(c.wait) > 0 {
		c.out = append(c.out, c.wait[0]...)
		c.wait = c.wait[1:]
		c.perm--
	}
	c.wake.Signal()
}
