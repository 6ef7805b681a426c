package load

import (
	"fmt"
	"slices"

	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	producerID = 1
	// frameOverhead is about what a SEND frame adds to its payload, in bytes.
	frameOverhead = 96
	// roamEvery is how many of a connection's batches go out on the same
	// connection before one goes out on another.
	roamEvery = 8
)

// producer is one publishing connection. The broker acknowledges in order, so
// the unacknowledged messages are a ring.
type producer struct {
	*link
	run   *run
	index int

	// Guarded by link.mu.
	slots  []slot // a power of two; sequence id & mask is the index
	head   uint64 // oldest unacknowledged sequence id
	next   uint64 // next sequence id
	md     wire.Metadata
	body   []byte // payload under construction, padded to size
	closed bool   // the broker confirmed CLOSE_PRODUCER

	// Of the reading goroutine.
	freed    []int32
	samples  []sample
	inWindow int64 // receipts of this read that fall into the window
	batches  int
}

// slot is a message that waits for its receipt.
type slot struct {
	device         int32
	sent, intended int64
}

func newProducer(l *link, r *run, index int) *producer {
	share := 2 * (r.sc.InFlight/r.sc.Connections + 1)
	size := 16
	for size < share {
		size *= 2
	}
	return &producer{link: l, run: r, index: index, slots: make([]slot, size), body: make([]byte, r.sc.MessageSize)}
}

// attach opens the producer on the topic.
func (p *producer) attach() error {
	m := wire.Producer{Topic: p.run.sc.Topic, ProducerID: producerID, RequestID: 1, GeneratedName: true}
	if err := p.request(m.AppendFrame(nil), wire.TypeProducerSuccess); err != nil {
		return err
	}
	p.md.ProducerName = []byte(p.cmd.ProducerSuccess.Name)
	p.next = uint64(p.cmd.ProducerSuccess.LastSequenceID + 1)
	p.head = p.next
	return nil
}

// send queues the next message of each device. With limit > 0 it refuses,
// returning false, when more than limit would then wait for receipts here.
func (p *producer) send(devices []int32, now, intended int64, limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if limit > 0 && int(p.next-p.head)+len(devices) > limit {
		return false
	}
	p.md.PublishTime = p.run.unixMillis(now)
	p.out = slices.Grow(p.out, len(devices)*(len(p.body)+frameOverhead))
	for _, d := range devices {
		p.push(d, now, intended)
	}
	p.signal()
	return true
}

// push appends one SEND frame; p.mu is held.
func (p *producer) push(device int32, now, intended int64) {
	if p.next-p.head == uint64(len(p.slots)) {
		p.grow()
	}
	counter := p.run.sentCount[device]
	p.run.sentCount[device]++
	s := stamp{run: p.run.id, device: device, counter: counter, sent: now, intended: intended}
	s.put(p.body)
	p.md.SequenceID = p.next
	p.md.PartitionKey = appendKey(p.md.PartitionKey[:0], device)
	p.slots[p.next&uint64(len(p.slots)-1)] = slot{device: device, sent: now, intended: intended}
	p.out = wire.AppendSend(p.out, &wire.Send{ProducerID: producerID, SequenceID: p.next}, &p.md, p.body)
	p.next++
}

func (p *producer) grow() {
	bigger := make([]slot, 2*len(p.slots))
	for seq := p.head; seq != p.next; seq++ {
		bigger[seq&uint64(len(bigger)-1)] = p.slots[seq&uint64(len(p.slots)-1)]
	}
	p.slots = bigger
}

// read is the reading goroutine: it takes the receipts that one read returned
// and sends the next messages.
func (p *producer) read() error {
	for {
		if err := p.link.next(); err != nil {
			return err
		}
		now := p.run.now()
		if err := p.take(now); err != nil {
			return err
		}
		p.run.publish.record(p.index, p.samples)
		p.run.published.add(p.index, p.inWindow)
		p.samples, p.inWindow = p.samples[:0], 0
		if len(p.freed) > 0 {
			p.pass()
		}
	}
}

// take handles the frame at hand and those that came with it.
func (p *producer) take(now int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if err := p.handle(now); err != nil {
			return err
		}
		if !p.fr.Buffered() {
			return nil
		}
		if err := p.link.next(); err != nil {
			return err
		}
	}
}

func (p *producer) handle(now int64) error {
	switch p.cmd.Type {
	case wire.TypeSendReceipt:
		return p.receipt(&p.cmd.SendReceipt, now)
	case wire.TypePing:
		p.pong()
	case wire.TypePong:
	case wire.TypeSuccess:
		p.closed = true
	default:
		return p.unexpected("while publishing")
	}
	return nil
}

func (p *producer) receipt(m *wire.SendReceipt, now int64) error {
	if p.head == p.next || m.SequenceID != p.head || m.ProducerID != producerID {
		return fmt.Errorf("%s: broker sent a receipt for message %d of producer %d, the oldest without one is %d of producer %d (%d in flight): receipts must come once and in order",
			p.name, m.SequenceID, m.ProducerID, p.head, producerID, p.next-p.head)
	}
	s := p.slots[p.head&uint64(len(p.slots)-1)]
	p.head++
	p.freed = append(p.freed, s.device)
	if p.run.window.since(s.sent) {
		p.samples = append(p.samples, sample{intended: now - s.intended, sent: now - s.sent})
	}
	if p.run.window.has(now) {
		p.inWindow++
	}
	return nil
}

// pass sends the next messages of the devices whose receipts came, or of
// others that waited longer, or returns the devices to the pool.
func (p *producer) pass() {
	r := p.run
	n := len(p.freed)
	allowed := 0
	if !r.pacing.Load() {
		allowed = r.gate.take(n)
	}
	r.sent.Add(int64(allowed)) // before acked, so that acked = sent means all done
	if allowed < n || r.pool.size.Load() > 0 {
		p.freed = r.pool.exchange(p.freed, allowed) // has that many: n came in
	}
	if len(p.freed) > 0 {
		p.dispatch(p.freed)
	}
	p.freed = p.freed[:0]
	r.acked.Add(int64(n))
}

// dispatch sends through this connection, and now and then through another.
func (p *producer) dispatch(devices []int32) {
	now := p.run.now()
	if p.batches++; p.batches%roamEvery == 0 {
		all := p.run.producers
		other := all[(p.index+1+p.batches/roamEvery)%len(all)]
		if other != p && other.send(devices, now, now, 2*p.run.sc.InFlight/len(all)) {
			return
		}
	}
	p.send(devices, now, now, 0)
}
