package broker

import (
	"io"
	"net"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

// FuzzConnection feeds what follows CONNECT to a connection of a running
// broker: whatever it is, the connection ends when its client does, and another
// connection goes on.
func FuzzConnection(f *testing.F) {
	md := wire.Metadata{ProducerName: []byte("p"), PartitionKey: []byte("k")}
	producer := (&wire.Producer{Topic: "t", ProducerID: 1, RequestID: 1}).AppendFrame(nil)
	subscribe := (&wire.Subscribe{Topic: "t", Subscription: "s", Type: wire.KeyShared, ConsumerID: 1, RequestID: 2}).AppendFrame(nil)
	flow := (&wire.Flow{ConsumerID: 1, Permits: 1000}).AppendFrame(nil)
	send := wire.AppendSend(nil, &wire.Send{ProducerID: 1, NumMessages: -5}, &md, []byte("x"))
	ack := (&wire.Ack{ConsumerID: 1, IDs: []wire.MessageID{wire.NewMessageID(0, 0), wire.NewMessageID(0, 1<<63)}, ValidationError: -1}).AppendFrame(nil)
	for _, seed := range [][][]byte{
		{producer, send, send},
		{subscribe, flow, producer, send, ack},
		{subscribe, producer, flow, flow, send, (&wire.Redeliver{ConsumerID: 1}).AppendFrame(nil), ack},
		{subscribe, (&wire.Unsubscribe{ConsumerID: 1, RequestID: 3}).AppendFrame(nil), flow, ack},
		{producer, producer, (&wire.Close{ID: 1, RequestID: 4}).AppendProducerFrame(nil), send},
		{subscribe, subscribe, (&wire.Close{ID: 1, RequestID: 5}).AppendConsumerFrame(nil)},
		{(&wire.Lookup{Topic: "t/\x00//", RequestID: 6}).AppendFrame(nil), (&wire.Ping{}).AppendFrame(nil), (&wire.Seek{ConsumerID: 1, RequestID: 7}).AppendFrame(nil)},
		{{0, 0, 0, 4, 0, 0, 0, 0}, {255, 255, 255, 255}},
	} {
		var b []byte
		for _, frame := range seed {
			b = append(b, frame...)
		}
		f.Add(b)
	}
	connect := (&wire.Connect{ClientVersion: "fuzz"}).AppendFrame(nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := startServer(t, func(c *Config) { c.AdminListen, c.MaxTopics = "", 10 })
		other := dial(t, s)
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		c := newConn(s, 1000, theirs)
		if !s.register(c) {
			t.Fatal("not registered")
		}
		go func() { s.serve(c); close(ended) }()
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		_, _ = ours.Write(connect)
		_, _ = ours.Write(data) // fails when the broker has closed its end
		_ = ours.Close()
		<-ended
		other.write((&wire.Ping{}).AppendFrame(nil))
		other.expect(wire.TypePong)
	})
}
