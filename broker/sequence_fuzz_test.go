package broker

import (
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

// ops are bytes that a fuzzed sequence takes its commands and their fields
// from.
type ops struct{ b []byte }

func (o *ops) next() byte {
	if len(o.b) == 0 {
		return 0
	}
	v := o.b[0]
	o.b = o.b[1:]
	return v
}

// id returns one of few numbers, so that commands meet.
func (o *ops) id() uint64 { return uint64(o.next() % 3) }

func (o *ops) topic() string {
	return []string{"t", "u", "p-partition-0", "p-partition-1", "p", "a/b"}[o.next()%6]
}

func (o *ops) messageID() wire.MessageID {
	id := wire.NewMessageID(uint64(o.next()%4), uint64(o.next()%16))
	switch o.next() % 8 {
	case 0:
		id.Ledger, id.Entry = 1<<64-1, 1<<64-1
	case 1:
		id.Ledger, id.Entry = 1<<63-1, 1<<63-1
	case 2:
		id.AckSet = []int64{int64(o.next()), int64(o.next())}
	case 3:
		id.AckSet = []int64{int64(o.next())}
	}
	return id
}

func (o *ops) messageIDs() (ids []wire.MessageID) {
	for range o.next() % 4 {
		ids = append(ids, o.messageID())
	}
	return ids
}

func (o *ops) schema() *wire.Schema {
	if o.next()%4 != 0 {
		return nil
	}
	return &wire.Schema{Name: "s", Type: int32(o.next() % 5), Data: []byte{o.next() % 3}}
}

// frame returns the next command.
func (o *ops) frame() []byte {
	switch kind := o.next() % 20; kind {
	case 0:
		m := wire.Producer{
			Topic: o.topic(), ProducerID: o.id(), RequestID: 1, Epoch: o.id(), AccessMode: wire.AccessMode(o.next() % 5), Schema: o.schema(),
			Name: []string{"", "a", "b"}[o.id()], TopicEpoch: o.id(), HasTopicEpoch: o.next()%2 == 0,
			InitialSubscription: []string{"", "", "sub0"}[o.id()],
		}
		return m.AppendFrame(nil)
	case 1, 2:
		return o.subscribe()
	case 3, 4, 5:
		m := wire.Send{ProducerID: o.id(), SequenceID: uint64(o.next()), NumMessages: int32(o.next() % 8)}
		md := wire.Metadata{ProducerName: []byte("p"), PublishTime: uint64(o.next()), PartitionKey: []byte{'a' + o.next()%4}, Batched: m.NumMessages > 1, NumMessages: m.NumMessages}
		if o.next()%8 == 0 {
			md.UUID, md.NumChunks, md.ChunkID = []byte("u"), int32(o.next()%4), int32(o.next()%4)
		}
		return wire.AppendSend(nil, &m, &md, []byte("payload"))
	case 6, 7:
		return (&wire.Flow{ConsumerID: o.id(), Permits: uint32(o.next()) * uint32(o.next())}).AppendFrame(nil)
	case 8, 9:
		m := wire.Ack{ConsumerID: o.id(), Type: wire.AckType(o.next() % 2), IDs: o.messageIDs(), ValidationError: int32(o.next()%4) - 1, HasRequestID: o.next()%2 == 0}
		return m.AppendFrame(nil)
	case 10:
		return (&wire.Redeliver{ConsumerID: o.id(), IDs: o.messageIDs()}).AppendFrame(nil)
	case 11:
		m := wire.Seek{ConsumerID: o.id(), RequestID: 2, PublishTime: uint64(o.next()), HasPublishTime: o.next()%2 == 0}
		if id := o.messageID(); !m.HasPublishTime {
			m.MessageID = &id
		}
		return m.AppendFrame(nil)
	case 12:
		return (&wire.Unsubscribe{ConsumerID: o.id(), RequestID: 3, Force: o.next()%2 == 0}).AppendFrame(nil)
	case 13:
		return (&wire.Close{ID: o.id(), RequestID: 4}).AppendConsumerFrame(nil)
	case 14:
		return (&wire.Close{ID: o.id(), RequestID: 5}).AppendProducerFrame(nil)
	case 15:
		return (&wire.GetLastMessageID{ConsumerID: o.id(), RequestID: 6}).AppendFrame(nil)
	case 16:
		return (&wire.PartitionedMetadata{Topic: o.topic(), RequestID: 7}).AppendFrame(nil)
	case 17:
		return (&wire.GetTopics{RequestID: 8, Namespace: "public/default", Mode: int32(o.next() % 3)}).AppendFrame(nil)
	case 18:
		return (&wire.GetSchema{RequestID: 9, Topic: o.topic(), Version: [][]byte{nil, schemaVersion(int(o.id())), {1}}[o.id()]}).AppendFrame(nil)
	default:
		m := wire.GetOrCreateSchema{RequestID: 10, Topic: o.topic()}
		if s := o.schema(); s != nil {
			m.Schema = *s
		}
		return m.AppendFrame(nil)
	}
}

func (o *ops) subscribe() []byte {
	m := wire.Subscribe{
		Topic: o.topic(), Subscription: []string{"sub0", "sub1", "sub2"}[o.id()], Type: wire.SubType(o.next() % 4), ConsumerID: o.id(), RequestID: 11,
		ConsumerName: []string{"", "c", "d"}[o.id()], PriorityLevel: int32(o.next() % 3), NonDurable: o.next()%3 == 0, Schema: o.schema(),
		InitialPosition: wire.InitialPosition(o.next() % 2), NoTopicCreation: o.next()%8 == 0, StartRollback: uint64(o.next() / 128),
	}
	if id := o.messageID(); o.next()%2 == 0 {
		m.StartMessageID = &id
	}
	if o.next()%4 == 0 {
		k := wire.KeySharedMeta{Mode: wire.KeySharedMode(o.next() % 2), AllowOutOfOrder: o.next()%2 == 0}
		for range o.next() % 3 {
			k.Ranges = append(k.Ranges, wire.HashRange{Start: int32(o.next()) << 8, End: int32(o.next())<<8 + 255})
		}
		m.KeyShared = &k
	}
	return m.AppendFrame(nil)
}

// FuzzSequence runs commands that make sense, in orders that need not, on three
// connections of a broker.
func FuzzSequence(f *testing.F) {
	for seed := range byte(24) { // a start: anything, of every kind of command
		b := make([]byte, 300)
		x := uint32(seed)*2654435761 + 1
		for i := range b {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			b[i] = byte(x >> 11)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := startFuzz(t)
		if err := r.s.CreatePartitionedTopic("p", 2); err != nil {
			t.Fatal(err)
		}
		o := ops{data[:min(len(data), 1000)]}
		pipes := make([]*pipe, 3)
		for len(o.b) > 0 {
			what := o.next()
			i := what % 3
			if p := pipes[i]; p == nil {
				pipes[i] = r.connect()
			} else if what > 250 {
				p.close(t)
				pipes[i] = nil
				continue
			}
			if _, err := pipes[i].Write(o.frame()); err != nil {
				pipes[i].close(t) // the broker has closed its end
				pipes[i] = nil
				continue
			}
			if what&0x40 != 0 {
				pipes[i].sync(t)
			}
			if what&0x80 != 0 {
				r.settle()
			}
		}
		for _, p := range pipes {
			if p != nil {
				p.sync(t)
			}
		}
		r.settle()
		r.checkTopics()
		for _, p := range pipes {
			if p != nil {
				p.close(t)
			}
		}
		r.check()
		r.checkEmpty()
	})
}

// checkTopics checks what must hold at any time.
func (r *fuzzRig) checkTopics() {
	r.t.Helper()
	for _, top := range r.s.allTopics() {
		top.mu.Lock()
		w := &top.writers
		if w.exclusive != nil && (len(w.open) != 1 || w.open[w.exclusive.name] != w.exclusive) {
			r.t.Errorf("%s has an exclusive producer among %d", top.name, len(w.open))
		}
		if len(w.waiting) > 0 && len(w.open) == 0 {
			r.t.Errorf("%s: %d producers wait for nobody", top.name, len(w.waiting))
		}
		top.mu.Unlock()
		for name, sub := range top.subscriptions() {
			st := sub.Stats()
			if st.Backlog < 0 || st.Unacked < 0 {
				r.t.Errorf("%s of %s: %+v", name, top.name, st)
			}
			if n := len(sub.partial.sets); n > maxPartial {
				r.t.Errorf("%s of %s has %d partial acknowledgements", name, top.name, n)
			}
		}
	}
}

// checkEmpty checks what closed connections leave.
func (r *fuzzRig) checkEmpty() {
	r.t.Helper()
	for _, top := range r.s.allTopics() {
		if top.name == "persistent://x/y/other" {
			continue
		}
		if n := len(top.producers()); n > 0 {
			r.t.Errorf("%s has %d producers of closed connections", top.name, n)
		}
		for name, sub := range top.subscriptions() {
			if st := sub.Stats(); st.Consumers != 0 || !sub.durable || st.Permits != 0 || st.Unacked != 0 {
				r.t.Errorf("%s of %s, durable %t, is left with %+v", name, top.name, sub.durable, st)
			}
		}
	}
}
