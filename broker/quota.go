package broker

import (
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
)

// quotaTarget is how far eviction goes below a quota, so that it is not due
// again at once.
const quotaTarget = 0.9

// backlog is an estimate of what a topic keeps for its slowest subscription.
type backlog struct {
	slowest string // subscription; "" = there is none
	first   int64  // entry, the first not acknowledged
	next    int64  // entry, after the last
	perItem int64  // bytes of an entry, on average
}

func (b backlog) bytes() int64 { return (b.next - b.first) * b.perItem }

// backlog reads the topic's; it waits for nothing but the ledger's and the
// topic's own short locks.
func (t *topic) backlog() backlog {
	st := t.ledger.Stats()
	b := backlog{next: st.Entries, first: st.Entries}
	if st.Kept > 0 {
		b.perItem = max(st.Bytes, st.Stored) / st.Kept
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, sub := range t.subs {
		if first := sub.Cursor().MarkDeletePosition() + 1; first < b.first {
			b.first, b.slowest = first, name
		}
	}
	return b
}

// checkQuota refuses a producer while its topic's backlog is above the quota,
// with the codes that Pulsar has for it.
func (s *Server) checkQuota(t *topic) error {
	limit := s.cfg.BacklogQuotaBytes
	if limit <= 0 || s.cfg.BacklogQuotaPolicy == QuotaEviction {
		return nil
	}
	b := t.backlog()
	if b.bytes() <= limit {
		return nil
	}
	s.quotaRefused.Add(1)
	const format = "%s: the backlog of subscription %s of %s is %d bytes, above the quota of %d"
	if s.cfg.BacklogQuotaPolicy == QuotaException {
		return refuse(wire.ErrorQuotaExceeded, format, "ProducerBlockedQuotaExceededException", b.slowest, t.name, b.bytes(), limit)
	}
	return refuse(wire.ErrorQuotaBlocked, format, "ProducerBlockedQuotaExceededError", b.slowest, t.name, b.bytes(), limit)
}

// watchQuotas looks at every topic's backlog, again and again.
func (s *Server) watchQuotas() {
	tick := time.NewTicker(s.cfg.BacklogQuotaCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.enforceQuotas()
		case <-s.stop:
			return
		}
	}
}

func (s *Server) enforceQuotas() {
	for _, t := range s.allTopics() {
		b := t.backlog()
		switch {
		case b.bytes() <= s.cfg.BacklogQuotaBytes:
		case s.cfg.BacklogQuotaPolicy == QuotaEviction:
			s.evict(t, b)
		default:
			s.disconnectProducers(t, b)
		}
	}
}

// evict skips the oldest entries of every subscription that has them, down to
// below the quota.
func (s *Server) evict(t *topic, b backlog) {
	keep := int64(float64(s.cfg.BacklogQuotaBytes) * quotaTarget)
	before := b.next - keep/max(b.perItem, 1)
	for name, sub := range t.subscriptions() {
		n := sub.Cursor().MarkDelete(before - 1)
		if n == 0 {
			continue
		}
		s.evicted.Add(uint64(n))
		s.log.Warn("backlog quota exceeded, entries skipped", "topic", t.name, "subscription", name, "entries", n,
			"backlog_bytes", b.bytes(), "quota_bytes", s.cfg.BacklogQuotaBytes)
	}
}

// disconnectProducers closes the topic's producers. Their clients try again, and
// are refused until the backlog is smaller.
func (s *Server) disconnectProducers(t *topic, b backlog) {
	producers := t.producers()
	if len(producers) == 0 {
		return
	}
	s.log.Warn("backlog quota exceeded, producers are disconnected", "topic", t.name, "subscription", b.slowest, "producers", len(producers),
		"backlog_bytes", b.bytes(), "quota_bytes", s.cfg.BacklogQuotaBytes, "policy", string(s.cfg.BacklogQuotaPolicy))
	for _, p := range producers {
		p.conn.onReader(func() error { p.conn.disconnectProducer(p); return nil })
	}
}

// disconnectProducer closes a producer on the connection's reader, once the
// receipts of all that it sent are written: what is receipted later than its
// CLOSE would be sent again.
func (c *conn) disconnectProducer(p *producer) {
	if c.producers[p.id] != p || p.state.Load() == producerClosed || !c.waitForOwed(0) {
		return
	}
	p.topic.removeProducer(p) // the connection keeps it, to drop what is on its way
	c.tell((&wire.Close{ID: p.id, RequestID: noRequest}).AppendProducerFrame(nil))
}

// producers returns those that are open or wait to be.
func (t *topic) producers() []*producer {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*producer, 0, len(t.writers.open))
	for _, p := range t.writers.open {
		all = append(all, p)
	}
	return append(all, t.writers.waiting...)
}

// subscriptions returns those open now.
func (t *topic) subscriptions() map[string]*subscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]*subscription, len(t.subs))
	for name, sub := range t.subs {
		all[name] = sub
	}
	return all
}
