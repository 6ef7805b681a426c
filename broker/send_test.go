package broker

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

func TestSendErrors(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	c.producer("t", 1)
	md := wire.Metadata{ProducerName: []byte("p")}
	frame := wire.AppendSend(nil, &wire.Send{ProducerID: 1, SequenceID: 7}, &md, []byte("payload"))
	frame[len(frame)-1] ^= 1
	c.write(frame)
	if e := c.expect(wire.TypeSendError).SendError; e.Code != wire.ErrorChecksum || e.SequenceID != 7 || e.ProducerID != 1 {
		t.Errorf("bad checksum: %+v", e)
	}
	md.ProducerName = bytes.Repeat([]byte("p"), wire.FramePadding-100)
	c.write(wire.AppendSend(nil, &wire.Send{ProducerID: 1, SequenceID: 7}, &md, make([]byte, s.cfg.MaxMessageSize)))
	if e := c.expect(wire.TypeSendError).SendError; e.Code != wire.ErrorNotAllowed || e.SequenceID != 7 {
		t.Errorf("too large for the MESSAGE that it would become: %+v", e)
	}
	c.send(99, 8, "k", []byte("x"))
	c.send(1, 8, "k", []byte("x"))
	c.expectClosed() // the second must not be stored: the client sends both again
	if s.published.Load() != 0 {
		t.Error("something was published")
	}
}

// A client takes an error for the end of the connection, and sends again what
// has no receipt by then.
func TestSendErrorComesAfterEarlierReceipts(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	c.producer("t", 1)
	hold := make(chan struct{})
	if err := s.topics[topicT].executor.Execute(0, blockTask(hold)); err != nil {
		t.Fatal(err)
	}
	c.send(1, 0, "k", []byte("x"))
	bad := wire.AppendSend(nil, &wire.Send{ProducerID: 1, SequenceID: 1}, &wire.Metadata{}, []byte("payload"))
	bad[len(bad)-1] ^= 1
	c.write(bad)
	waitUntil(t, "the reader waits for the receipt", func() bool { return onlyConn(s).throttled.Load() })
	close(hold)
	if r := c.expect(wire.TypeSendReceipt).SendReceipt; r.SequenceID != 0 {
		t.Errorf("%+v", r)
	}
	c.expect(wire.TypeSendError)
}

func TestRejectedAddIsToldToTheProducer(t *testing.T) {
	for _, mode := range []string{"direct", "batched"} {
		s := startServer(t, func(c *Config) {
			if mode == "direct" {
				c.HandoverMaxBatchItems = 1
			}
		})
		c := dial(t, s)
		c.producer("t", 1)
		if err := s.executors.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.send(1, 3, "k", []byte("x"))
		if e := c.expect(wire.TypeSendError).SendError; e.Code != wire.ErrorPersistence || e.SequenceID != 3 {
			t.Errorf("%s: %+v", mode, e)
		}
		waitUntil(t, "the writer owes nothing", func() bool { return onlyConn(s).owed.Load() == 0 })
	}
}

func TestSendCodes(t *testing.T) {
	for err, want := range map[error]wire.ServerError{
		ledger.ErrTerminated: wire.ErrorTopicTerminated, ledger.ErrClosed: wire.ErrorServiceNotReady, ledger.ErrThrottled: wire.ErrorTooManyRequests,
		ledger.ErrPersistence: wire.ErrorPersistence, ledger.ErrFenced: wire.ErrorPersistence,
	} {
		if got := sendCode(fmt.Errorf("adding: %w", err)); got != want {
			t.Errorf("%v is told as %v, want %v", err, got, want)
		}
	}
}
