package broker

import (
	"errors"
	"slices"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/wire"
)

// maxAsking bounds the subscriptions of one connection that wait for others'
// clients to answer.
const maxAsking = 16

// subscribeAgain goes on after a subscription was refused because of other
// consumers. Their connections may be dead without the broker having noticed,
// as when their client has connected anew: they are asked, and if none answers
// the client gets its subscription. It returns the refusal if there is nothing
// to wait for; otherwise the client is answered later.
func (c *conn) subscribeAgain(m *wire.Subscribe, refusal error) error {
	if !errors.Is(refusal, dispatch.ErrConsumerBusy) || c.asking == maxAsking {
		return refusal
	}
	holders := c.server.holders(m, c)
	if len(holders) == 0 {
		return refusal
	}
	again := *m
	again.Schema = nil // kept already
	c.asking++
	c.server.wg.Go(func() {
		alive := slices.ContainsFunc(holders, (*conn).answers)
		c.onReader(func() error {
			c.asking--
			err := refusal
			if !alive {
				err = c.subscribe(&again)
			}
			if err != nil {
				c.refuseRequest(again.RequestID, err)
			}
			return nil
		})
	})
	return nil
}

// holders returns the connections, other than c, of a subscription's consumers;
// nil if one of them is on c.
func (s *Server) holders(m *wire.Subscribe, c *conn) []*conn {
	t, err := s.openTopic(m.Topic, false)
	if err != nil {
		return nil
	}
	t.mu.Lock()
	sub := t.subs[m.Subscription]
	t.mu.Unlock()
	if sub == nil {
		return nil
	}
	var conns []*conn
	for _, dc := range sub.Members() {
		o, ok := dc.Sink.(*conn)
		if !ok || o == c {
			return nil
		}
		conns = append(conns, o)
	}
	return conns
}

// answers pings the client and reports whether it answered in time. A connection
// that did not is closed and cleaned up by then.
func (c *conn) answers() bool {
	pong := make(chan struct{})
	c.control.mu.Lock()
	first := len(c.pongs) == 0
	c.pongs = append(c.pongs, pong)
	c.control.mu.Unlock()
	if first { // one that is on its way answers for all
		c.tell((&wire.Ping{}).AppendFrame(nil))
	}
	timer := time.NewTimer(c.server.cfg.LivenessTimeout)
	defer timer.Stop()
	select {
	case <-pong:
		return true
	case <-c.server.stop:
		return true
	case <-c.gone:
		return false
	case <-timer.C:
	}
	if c.heldBack(false) {
		return true // its answer may wait where the broker does not read
	}
	c.server.log.Warn("closing a connection", "conn", c.id, "client", c.net.RemoteAddr().String(),
		"reason", "it does not answer, and another client wants its subscription")
	c.close()
	<-c.gone
	return false
}

// ponged tells those who wait for it that the client answers.
func (c *conn) ponged() {
	c.control.mu.Lock()
	defer c.control.mu.Unlock()
	for _, pong := range c.pongs {
		close(pong)
	}
	c.pongs = nil
}
