package drive

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	pulsarTopic        = "persistent://public/default/bench"
	pulsarSubscription = "group"
	pulsarID           = 1 // of the producer or consumer of a connection
)

// pulsar speaks Pulsar's binary protocol to a reference broker.
type pulsar struct{ run *run }

func (p *pulsar) prepare(context.Context) error { return nil } // topics appear when used

// ordered: the group is a Key_Shared subscription.
func (p *pulsar) ordered() bool { return true }

// pulsarLink is a connection with its frames.
type pulsarLink struct {
	nc    net.Conn
	fr    *wire.FrameReader
	frame wire.Frame
	cmd   wire.Command
}

func (p *pulsar) open(nc net.Conn, bufferSize int) (*pulsarLink, error) {
	l := &pulsarLink{nc: nc, fr: wire.NewFrameReader(nc, wire.ReaderOptions{BufferSize: bufferSize})}
	m := wire.Connect{ClientVersion: "brokerbench", ProtocolVersion: 20}
	return l, l.request(m.AppendFrame(nil), wire.TypeConnected)
}

func (l *pulsarLink) request(frame []byte, want wire.CommandType) error {
	if _, err := l.nc.Write(frame); err != nil {
		return err
	}
	for {
		if err := l.next(); err != nil {
			return err
		}
		switch l.cmd.Type {
		case want:
			return nil
		case wire.TypeActiveConsumerChange:
		default:
			return l.unexpected()
		}
	}
}

func (l *pulsarLink) next() error {
	if err := l.fr.Next(&l.frame); err != nil {
		return err
	}
	return wire.Parse(l.frame.Command, &l.cmd)
}

func (l *pulsarLink) unexpected() error {
	switch c := &l.cmd; c.Type {
	case wire.TypeError:
		return fmt.Errorf("the broker answers %v: %q", c.Error.Code, c.Error.Message)
	case wire.TypeSendError:
		return fmt.Errorf("the broker refuses a message, %v: %q", c.SendError.Code, c.SendError.Message)
	}
	return fmt.Errorf("the broker sends an unexpected %v", l.cmd.Type)
}

var pong = (&wire.Pong{}).AppendFrame(nil)

func (p *pulsar) publisher(nc net.Conn, index int) (publisherCodec, error) {
	l, err := p.open(nc, 16<<10)
	if err != nil {
		return nil, err
	}
	m := wire.Producer{Topic: pulsarTopic, ProducerID: pulsarID, RequestID: 1, GeneratedName: true}
	if err := l.request(m.AppendFrame(nil), wire.TypeProducerSuccess); err != nil {
		return nil, err
	}
	c := &pulsarPublisher{pulsarLink: l, index: index, window: uint32(p.run.job.InFlight)}
	c.md.ProducerName = []byte(l.cmd.ProducerSuccess.Name)
	c.first = uint64(l.cmd.ProducerSuccess.LastSequenceID + 1)
	c.oldest = c.first
	return c, nil
}

type pulsarPublisher struct {
	*pulsarLink
	index  int
	window uint32
	md     wire.Metadata
	key    []byte
	first  uint64 // sequence id of message 0
	oldest uint64 // sequence id of the next receipt
	reply  []byte
}

func (c *pulsarPublisher) appendMessage(dst []byte, n uint32, unixMs uint64, payload []byte) []byte {
	key := uint32(c.index)*c.window + n%c.window
	c.key = appendPadded(append(c.key[:0], 'd'), key)
	c.md.PartitionKey = c.key
	c.md.SequenceID = c.first + uint64(n)
	c.md.PublishTime = unixMs
	return wire.AppendSend(dst, &wire.Send{ProducerID: pulsarID, SequenceID: c.md.SequenceID}, &c.md, payload)
}

// appendPadded appends n in eight digits.
func appendPadded(b []byte, n uint32) []byte {
	var digits [8]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(b, digits[:]...)
}

func (c *pulsarPublisher) receipts() (n int, reply []byte, err error) {
	c.reply = c.reply[:0]
	for {
		if err := c.next(); err != nil {
			return n, nil, err
		}
		switch c.cmd.Type {
		case wire.TypeSendReceipt:
			if got := c.cmd.SendReceipt.SequenceID; got != c.oldest {
				return n, nil, fmt.Errorf("a receipt for sequence id %d, the oldest without one is %d", got, c.oldest)
			}
			c.oldest++
			n++
		case wire.TypePing:
			c.reply = append(c.reply, pong...)
		case wire.TypePong:
		default:
			return n, nil, c.unexpected()
		}
		if !c.fr.Buffered() {
			return n, c.reply, nil
		}
	}
}

func (p *pulsar) consumer(nc net.Conn, index int) (consumerCodec, error) {
	l, err := p.open(nc, 256<<10)
	if err != nil {
		return nil, err
	}
	m := wire.Subscribe{
		Topic: pulsarTopic, Subscription: pulsarSubscription, Type: wire.KeyShared, ConsumerID: pulsarID, RequestID: 1,
		ConsumerName: fmt.Sprintf("member-%d", index), InitialPosition: wire.Earliest,
	}
	if err := l.request(m.AppendFrame(nil), wire.TypeSuccess); err != nil {
		return nil, err
	}
	window := p.run.job.Window
	_, err = nc.Write((&wire.Flow{ConsumerID: pulsarID, Permits: uint32(window)}).AppendFrame(nil))
	return &pulsarConsumer{pulsarLink: l, window: window, ack: wire.Ack{ConsumerID: pulsarID, Type: wire.AckIndividual}}, err
}

type pulsarConsumer struct {
	*pulsarLink
	window   int
	ack      wire.Ack
	consumed int // since the last FLOW
	pings    int
}

func (c *pulsarConsumer) wait() error { return c.next() }

func (c *pulsarConsumer) receive(visit func([]byte)) error {
	for {
		switch c.cmd.Type {
		case wire.TypeMessage:
			if err := wire.VerifyChecksum(c.frame.HeadersAndPayload); err != nil {
				return err
			}
			_, payload, err := wire.SplitPayload(c.frame.HeadersAndPayload)
			if err != nil {
				return err
			}
			visit(payload)
			id := c.cmd.Message.ID
			id.AckSet = nil // aliases the command
			c.ack.IDs = append(c.ack.IDs, id)
			c.consumed++
		case wire.TypePing:
			c.pings++
		case wire.TypePong, wire.TypeActiveConsumerChange, wire.TypeAckResponse:
		default:
			return c.unexpected()
		}
		if !c.fr.Buffered() {
			return nil
		}
		if err := c.next(); err != nil {
			return err
		}
	}
}

func (c *pulsarConsumer) pending() (acks int, urgent bool) {
	return len(c.ack.IDs), c.pings > 0 || c.consumed >= c.window/2
}

func (c *pulsarConsumer) appendReply(dst []byte) []byte {
	for ; c.pings > 0; c.pings-- {
		dst = append(dst, pong...)
	}
	if len(c.ack.IDs) > 0 {
		dst = c.ack.AppendFrame(dst)
		c.ack.IDs = c.ack.IDs[:0]
	}
	if c.consumed >= c.window/2 {
		dst = (&wire.Flow{ConsumerID: pulsarID, Permits: uint32(c.consumed)}).AppendFrame(dst)
		c.consumed = 0
	}
	return dst
}

// Counters of a reference broker.
const (
	counterAcked = "contention_broker_messages_acked_total"
	counterBusy  = "contention_broker_executor_busy_seconds_total" // by executor
)

// leftOver asks the broker how many of the messages of the run its consumers
// have not acknowledged.
func (p *pulsar) leftOver(ctx context.Context) (int64, error) {
	acked, err := p.counter(ctx, counterAcked)
	return p.run.sent.Load() - int64(acked), err
}

// busy is how long the broker's ledger executors have run tasks, in seconds.
func (p *pulsar) busy(ctx context.Context) (float64, error) { return p.counter(ctx, counterBusy) }

// counter adds up the series of a counter in the broker's metrics.
func (p *pulsar) counter(ctx context.Context, name string) (sum float64, err error) {
	text, err := get(ctx, p.run.job.StateURL)
	if err != nil {
		return 0, err
	}
	found := false
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		f := strings.Fields(rest) // labels have no spaces
		n, err := strconv.ParseFloat(f[len(f)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %q: %w", p.run.job.StateURL, line, err)
		}
		sum, found = sum+n, true
	}
	if !found {
		return 0, fmt.Errorf("%s does not have %s", p.run.job.StateURL, name)
	}
	return sum, nil
}
