package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
)

const (
	natsStream   = "B"
	natsConsumer = "C"
	natsSubject  = "b" // of messages
	natsDeliver  = "d" // of pushed deliveries
)

// nats speaks the NATS protocol to a server with JetStream.
type nats struct{ run *run }

// ordered: members of a queue group work side by side, a key has no order.
func (p *nats) ordered() bool { return false }

func (p *nats) subject(index int) string {
	if p.run.job.JetStream.OneSubject {
		return natsSubject
	}
	return natsSubject + "." + strconv.Itoa(index)
}

// prepare makes the stream and its durable consumer.
func (p *nats) prepare(ctx context.Context) error {
	j := &p.run.job
	s := &j.JetStream
	stream := map[string]any{
		"name": natsStream, "subjects": []string{natsSubject, natsSubject + ".*"}, "storage": s.Storage, "retention": s.Retention,
		"discard": "old", "max_msgs": -1, "max_bytes": -1, "max_consumers": -1, "num_replicas": 1,
	}
	if s.Retention == "limits" {
		stream["max_msgs"] = s.KeepMessages
	}
	config := map[string]any{
		"durable_name": natsConsumer, "deliver_policy": "all", "ack_policy": "explicit", "replay_policy": "instant",
		"max_ack_pending": s.MaxAckPending, "ack_wait": int64(j.Timeout) * 4,
	}
	if !s.Pull {
		config["deliver_subject"], config["deliver_group"] = natsDeliver, "g"
	}
	if _, err := p.ask(ctx, "STREAM.CREATE."+natsStream, stream); err != nil {
		return fmt.Errorf("create a stream: %w", err)
	}
	_, err := p.ask(ctx, "CONSUMER.DURABLE.CREATE."+natsStream+"."+natsConsumer, map[string]any{"stream_name": natsStream, "config": config})
	if err != nil {
		return fmt.Errorf("create a consumer: %w", err)
	}
	return nil
}

// ask makes one request to JetStream over a connection of its own.
func (p *nats) ask(ctx context.Context, what string, request any) (json.RawMessage, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	nc, release, err := p.run.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	defer nc.Close()
	l, err := openNATS(nc, 16<<10)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(nc, "SUB _INBOX.a 1\r\nPUB $JS.API.%s _INBOX.a %d\r\n%s\r\n", what, len(body), body); err != nil {
		return nil, err
	}
	for {
		var m natsMsg
		ok, err := l.next(&m)
		if err == nil && !ok {
			err = l.fill()
		}
		switch {
		case err != nil:
			return nil, err
		case !ok || m.op != 'M':
		case len(m.header) > 0:
			return nil, fmt.Errorf("the server answers %.80q: is JetStream on", m.header)
		default:
			return bytes.Clone(m.payload), natsError(m.payload)
		}
	}
}

// natsError is the error that an answer of JetStream holds, nil for none.
func natsError(payload []byte) error {
	if !bytes.Contains(payload, []byte(`"error"`)) {
		return nil // the common case, without parsing
	}
	var a struct {
		Error *struct {
			Code        int
			Description string
		}
	}
	if err := json.Unmarshal(payload, &a); err != nil || a.Error == nil {
		return fmt.Errorf("the server answers %.200q", payload)
	}
	return fmt.Errorf("the server answers %d: %s", a.Error.Code, a.Error.Description)
}

func (p *nats) publisher(nc net.Conn, index int) (publisherCodec, error) {
	l, err := openNATS(nc, 16<<10)
	if err != nil {
		return nil, err
	}
	inbox := "_INBOX." + strconv.Itoa(index)
	head := fmt.Sprintf("PUB %s %s %d\r\n", p.subject(index), inbox, p.run.job.Size)
	_, err = fmt.Fprintf(nc, "SUB %s 1\r\n", inbox)
	return &natsPublisher{natsLink: l, head: []byte(head)}, err
}

// natsPublisher has one inbox for all its receipts. They come in the order of
// its messages, as one goroutine of the server stores a stream.
type natsPublisher struct {
	*natsLink
	head  []byte
	reply []byte
	last  uint64 // stream sequence of the last receipt
}

func (c *natsPublisher) appendMessage(dst []byte, _ uint32, _ uint64, payload []byte) []byte {
	dst = append(dst, c.head...)
	dst = append(dst, payload...)
	return append(dst, '\r', '\n')
}

func (c *natsPublisher) receipts() (n int, reply []byte, err error) {
	c.reply = c.reply[:0]
	if err := c.fill(); err != nil {
		return 0, nil, err
	}
	var m natsMsg
	for {
		ok, err := c.next(&m)
		switch {
		case err != nil:
			return n, nil, err
		case !ok:
			return n, c.reply, nil
		case m.op == 'P':
			c.reply = append(c.reply, "PONG\r\n"...)
			continue
		case m.op == 'O':
			continue
		case len(m.header) > 0:
			return n, nil, fmt.Errorf("a publish is answered with %.80q", m.header)
		}
		if err := natsError(m.payload); err != nil {
			return n, nil, err
		}
		if err := c.inOrder(m.payload); err != nil {
			return n, nil, err
		}
		n++
	}
}

// inOrder reads {"stream":"B","seq":12}: sequences of one connection rise.
func (c *natsPublisher) inOrder(receipt []byte) error {
	const key = `"seq":`
	i := bytes.Index(receipt, []byte(key))
	var seq uint64
	if i >= 0 {
		for _, d := range receipt[i+len(key):] {
			if d < '0' || d > '9' {
				break
			}
			seq = 10*seq + uint64(d-'0')
		}
	}
	if seq <= c.last {
		return fmt.Errorf("receipt %.80q after sequence %d", receipt, c.last)
	}
	c.last = seq
	return nil
}

func (p *nats) consumer(nc net.Conn, index int) (consumerCodec, error) {
	l, err := openNATS(nc, 256<<10)
	if err != nil {
		return nil, err
	}
	c := &natsMember{natsLink: l}
	if !p.run.job.JetStream.Pull {
		_, err = fmt.Fprintf(nc, "SUB %s g 1\r\n", natsDeliver)
		return c, err
	}
	// A pull stands until its batch is delivered. Two of half the window each
	// keep the server supplied.
	c.half = p.run.job.Window / 2
	inbox := "_INBOX.m" + strconv.Itoa(index)
	body := fmt.Sprintf("{\"batch\":%d}", c.half)
	c.pull = fmt.Appendf(nil, "PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s %s %d\r\n%s\r\n", natsStream, natsConsumer, inbox, len(body), body)
	_, err = fmt.Fprintf(nc, "SUB %s 1\r\n%s%s", inbox, c.pull, c.pull)
	return c, err
}

// natsMember is one member of the queue group, or one that pulls.
type natsMember struct {
	*natsLink
	acks  []byte // encoded
	count int    // of them
	pings int

	half     int // batch of a pull; 0 = pushed
	pull     []byte
	received int // since the last pull
}

func (c *natsMember) wait() error { return c.fill() }

func (c *natsMember) receive(visit func([]byte)) error {
	var m natsMsg
	for {
		ok, err := c.next(&m)
		switch {
		case err != nil || !ok:
			return err
		case m.op == 'P':
			c.pings++
			continue
		case m.op == 'O':
			continue
		case len(m.header) > 0 || len(m.reply) == 0:
			return fmt.Errorf("a message without an acknowledgement's subject, or a status: %.80q", m.header)
		}
		visit(m.payload)
		c.acks = append(append(append(c.acks, "PUB "...), m.reply...), " 0\r\n\r\n"...)
		c.count++
		c.received++
	}
}

func (c *natsMember) pending() (acks int, urgent bool) {
	return c.count, c.pings > 0 || c.half > 0 && c.received >= c.half
}

func (c *natsMember) appendReply(dst []byte) []byte {
	for ; c.pings > 0; c.pings-- {
		dst = append(dst, "PONG\r\n"...)
	}
	dst = append(dst, c.acks...)
	c.acks, c.count = c.acks[:0], 0
	for c.half > 0 && c.received >= c.half {
		dst = append(dst, c.pull...)
		c.received -= c.half
	}
	return dst
}

// busy: a stream has several goroutines and no counter of them.
func (p *nats) busy(context.Context) (float64, error) { return 0, nil }

// leftOver asks the server what its consumer has not delivered or not had
// acknowledged.
func (p *nats) leftOver(ctx context.Context) (int64, error) {
	answer, err := p.ask(ctx, "CONSUMER.INFO."+natsStream+"."+natsConsumer, struct{}{})
	if err != nil {
		return 0, err
	}
	var info struct {
		NumAckPending  *int64 `json:"num_ack_pending"`
		NumPending     int64  `json:"num_pending"`
		NumRedelivered int64  `json:"num_redelivered"`
	}
	if err := json.Unmarshal(answer, &info); err != nil {
		return 0, fmt.Errorf("the consumer's state: %w", err)
	}
	if info.NumAckPending == nil {
		return 0, errors.New("the consumer's state lacks num_ack_pending")
	}
	return *info.NumAckPending + info.NumPending, nil
}
