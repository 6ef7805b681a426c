package broker

import (
	"sync"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
)

// counts are what rates are made of.
type counts struct {
	in, inBytes, out, outBytes, redelivered, acked float64
}

func (c *counts) add(o counts) {
	c.in += o.in
	c.inBytes += o.inBytes
	c.out += o.out
	c.outBytes += o.outBytes
	c.redelivered += o.redelivered
	c.acked += o.acked
}

func (c counts) per(o counts, seconds float64) counts {
	return counts{
		(c.in - o.in) / seconds, (c.inBytes - o.inBytes) / seconds, (c.out - o.out) / seconds, (c.outBytes - o.outBytes) / seconds,
		(c.redelivered - o.redelivered) / seconds, (c.acked - o.acked) / seconds,
	}
}

// rateWindow is the least time that a rate is an average of.
const rateWindow = time.Second

// meter turns counts into rates: averages since it was read before, at least
// rateWindow ago. The first time they are 0.
type meter struct {
	mu    sync.Mutex
	at    int64
	last  counts
	rates counts
}

func (m *meter) read(now int64, c counts) counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch d := now - m.at; {
	case m.at == 0:
		m.last, m.at = c, now
	case d >= int64(rateWindow):
		m.rates = c.per(m.last, float64(d)/float64(time.Second))
		m.last, m.at = c, now
	}
	return m.rates
}

// subscriptionFigures are one subscription's at one time.
type subscriptionFigures struct {
	name string
	sub  *subscription
	dispatch.Stats
	counts, rates counts
}

// topicFigures are one topic's at one time.
type topicFigures struct {
	topic         *topic
	producers     int
	entries, kept int64
	storage       int64 // bytes
	perItem       int64 // bytes of an entry, on average
	backlog       int64 // entries of the slowest subscription
	allBacklogs   int64 // entries, over the subscriptions
	consumers     int64
	subs          []subscriptionFigures
	counts, rates counts
}

// figures reads a topic's. It takes no lock for longer than a few loads and
// never waits for a dispatcher's.
func (t *topic) figures(now int64) topicFigures {
	st := t.ledger.Stats()
	f := topicFigures{
		topic: t, entries: st.Entries, kept: st.Kept, storage: max(st.Bytes, st.Stored),
		counts: counts{in: float64(st.Messages), inBytes: float64(st.Appended)},
	}
	if st.Kept > 0 {
		f.perItem = f.storage / st.Kept
	}
	t.mu.Lock()
	f.producers = len(t.writers.open)
	f.counts.add(t.gone)
	f.subs = make([]subscriptionFigures, 0, len(t.subs))
	for name, sub := range t.subs {
		f.subs = append(f.subs, subscriptionFigures{name: name, sub: sub})
	}
	t.mu.Unlock()
	for i := range f.subs {
		s := &f.subs[i]
		s.Stats = s.sub.figures()
		s.counts = s.sub.counts()
		s.rates = s.sub.meter.read(now, s.counts)
		f.counts.add(s.counts)
		f.backlog = max(f.backlog, s.Backlog)
		f.allBacklogs += s.Backlog
		f.consumers += int64(s.Consumers)
	}
	f.rates = t.meter.read(now, f.counts)
	return f
}

func (sub *subscription) counts() counts {
	c := sub.Counters()
	return counts{out: float64(c.Delivered), outBytes: float64(c.Bytes), redelivered: float64(c.Redelivered), acked: float64(c.Acked)}
}

// figures are the subscription's now. Where its dispatcher is in a send loop,
// what only that knows is as it was read the time before.
func (sub *subscription) figures() dispatch.Stats {
	sub.figuresMu.Lock()
	defer sub.figuresMu.Unlock()
	if st, ok := sub.TryStats(); ok {
		sub.last = st
		return st
	}
	st := &sub.last
	st.Consumers, st.Permits, st.Unacked, st.Active = 0, 0, 0, ""
	for _, c := range sub.ConsumerStats() {
		st.Consumers++
		st.Type = c.Type
		st.Permits += c.Permits
		st.Unacked += c.Unacked
		if c.Active {
			st.Active = c.Name
		}
	}
	st.Backlog = sub.Cursor().Backlog()
	return *st
}
