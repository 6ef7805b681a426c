package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/wire"
)

const topicsPath = "/admin/v2/persistent/public/default"

func topicStatsOf(t *testing.T, s *Server, topic string) topicStats {
	t.Helper()
	code, body := request(t, "GET", s.AdminURL()+topicsPath+"/"+topic+"/stats")
	var st topicStats
	if err := json.Unmarshal([]byte(body), &st); code != http.StatusOK || err != nil {
		t.Fatalf("status %d, %v: %s", code, err, body)
	}
	return st
}

func TestTopicStats(t *testing.T) {
	s := startServer(t, nil)
	consumer, c := dial(t, s), dial(t, s)
	consumer.subscribe("t", "keys", 1, wire.KeyShared, 30)
	consumer.subscribe("t", "one", 2, wire.Exclusive, 0)
	c.producer("t", 1)
	fill(c, 1, 50, 100)
	var ids []wire.MessageID
	for range 30 {
		ids = append(ids, consumer.expect(wire.TypeMessage).Message.ID)
	}
	consumer.ack(1, ids[:10]...)
	waitUntil(t, "the acknowledgement is in", func() bool { return topicStatsOf(t, s, "t").Subscriptions["keys"].UnackedMessages == 20 })
	st := topicStatsOf(t, s, "t")
	keys, one := st.Subscriptions["keys"], st.Subscriptions["one"]
	if st.MsgInCounter != 50 || st.MsgOutCounter != 30 || st.BytesInCounter < 5000 || st.AverageMsgSize != float64(st.BytesInCounter)/50 ||
		st.StorageSize != st.BytesInCounter || st.BacklogSize < 50*100 || len(st.Publishers) != 1 || st.Publishers[0].ProducerName == "" {
		t.Errorf("topic %+v", st)
	}
	if keys.Type != "Key_Shared" || keys.MsgBacklog != 40 || keys.MsgOutCounter != 30 || len(keys.Consumers) != 1 || !keys.Durable ||
		keys.Consumers[0].AvailablePermits != 0 || keys.Consumers[0].UnackedMessages != 20 || keys.Consumers[0].MsgOutCounter != 30 {
		t.Errorf("subscription %+v", keys)
	}
	if one.Type != "Exclusive" || one.MsgBacklog != 50 || one.ActiveConsumerName == "" || one.ActiveConsumerName != one.Consumers[0].ConsumerName {
		t.Errorf("subscription %+v", one)
	}
	// Pulsar's tools read these names.
	_, body := request(t, "GET", s.AdminURL()+topicsPath+"/t/stats")
	for _, name := range []string{
		"msgRateIn", "msgThroughputIn", "averageMsgSize", "storageSize", "backlogSize", "publishers", "subscriptions", "msgBacklog", "unackedMessages",
		"type", "activeConsumerName", "consumers", "availablePermits", "consumerName", "blockedConsumerOnUnackedMsgs",
	} {
		if !strings.Contains(body, `"`+name+`":`) {
			t.Errorf("no %q in %s", name, body)
		}
	}
	if code, body := request(t, "GET", s.AdminURL()+topicsPath+"/none/stats"); code != http.StatusNotFound || !strings.Contains(body, "does not exist") {
		t.Errorf("status %d: %s", code, body)
	}
}

func TestPartitionsOverAdmin(t *testing.T) {
	s := startServer(t, nil)
	do := func(method, path, body string) (int, string) {
		return requestWith(t, method, s.AdminURL()+topicsPath+path, "", http.Header{"Content-Type": {"application/json"}}, body)
	}
	for _, tc := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "/p/partitions", "2", http.StatusNotFound, "PUT creates one"},
		{"PUT", "/p/partitions", "many", http.StatusBadRequest, "number of partitions"},
		{"PUT", "/p/partitions", strings.Repeat("1", 100), http.StatusBadRequest, "number of partitions"},
		{"PUT", "/p/partitions", "0", http.StatusPreconditionFailed, "use 1 to"},
		{"PUT", "/p/partitions", "3", http.StatusNoContent, ""},
		{"PUT", "/p/partitions", "3", http.StatusConflict, "already"},
		{"GET", "/p/partitions", "", http.StatusOK, `{"partitions":3}`},
		{"POST", "/p/partitions", "2", http.StatusConflict, "cannot become 2"},
		{"POST", "/p/partitions", "4", http.StatusNoContent, ""},
		{"GET", "/p/partitions", "", http.StatusOK, `{"partitions":4}`},
		{"GET", "/other/partitions", "", http.StatusOK, `{"partitions":0}`},
		{"GET", "/p/nonsense", "", http.StatusNotFound, ""},
		{"PUT", "/p/stats", "1", http.StatusNotFound, ""},
	} {
		if code, body := do(tc.method, tc.path, tc.body); code != tc.code || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s %.20q: status %d, %s; want %d with %q", tc.method, tc.path, tc.body, code, body, tc.code, tc.want)
		}
	}
	dial(t, s).producer("plain", 1)
	_, body := do("GET", "", "")
	var names []string
	if err := json.Unmarshal([]byte(body), &names); err != nil || len(names) != 5 ||
		!slices.Contains(names, "persistent://public/default/p-partition-3") || !slices.Contains(names, "persistent://public/default/plain") {
		t.Errorf("topics: %s", body)
	}
	if _, body := request(t, "GET", s.AdminURL()+"/admin/v2/persistent/no/body"); strings.TrimSpace(body) != "[]" {
		t.Errorf("an empty namespace: %s", body)
	}
}

func TestPulsarMetrics(t *testing.T) {
	s := startServer(t, func(c *Config) { c.MetricsTopics, c.ClusterName = 2, "here" })
	consumer, c := dial(t, s), dial(t, s)
	consumer.subscribe("a", "sub", 1, wire.Shared, 5)
	for i := range uint64(3) {
		c.producer(string(rune('a'+i)), i)
		fill(c, i, 10, 100)
	}
	for range 5 {
		consumer.expect(wire.TypeMessage)
	}
	const label = `cluster="here",namespace="public/default",`
	a := `{` + label + `topic="persistent://public/default/a"}`
	sub := `{` + label + `subscription="sub",topic="persistent://public/default/a"}`
	scrape := func() string {
		code, text := request(t, "GET", s.AdminURL()+"/metrics")
		if code != http.StatusOK {
			t.Fatalf("status %d", code)
		}
		return text
	}
	text := scrape()
	for _, line := range []string{
		"pulsar_in_messages_total" + a + " 10", "pulsar_producers_count" + a + " 1", "pulsar_consumers_count" + a + " 1",
		"pulsar_subscriptions_count" + a + " 1", "pulsar_msg_backlog" + a + " 10", "pulsar_subscription_back_log" + sub + " 10",
		"pulsar_subscription_unacked_messages" + sub + " 5", "pulsar_out_messages_total" + sub + " 5",
		`pulsar_topics_count{cluster="here",namespace="public/default"} 3`, `pulsar_broker_topics_count{cluster="here"} 3`,
		`pulsar_broker_producers_count{cluster="here"} 3`, `pulsar_active_connections{cluster="here"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if !strings.Contains(text, `default/b"`) || strings.Contains(text, `default/c"`) {
		t.Error("series are not of the first two topics, and of those only")
	}
	// Rates need a scrape before.
	waitUntil(t, "there is a rate", func() bool {
		fill(c, 0, 10, 100)
		return !strings.Contains(scrape(), "pulsar_rate_in"+a+" 0\n")
	})
}

// A client's names must not make a scrape fail, whatever is in them.
func TestMetricsOfHostileNames(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	for i, name := range []string{"bad\xffutf8", "new\nline", `quo"te`, `back\slash`} {
		c.write((&wire.Producer{Topic: name, ProducerID: uint64(i), RequestID: 1}).AppendFrame(nil))
		if !c.next() {
			t.Fatal("the connection ended")
		}
		c.write((&wire.Subscribe{Topic: "t", Subscription: name, Type: wire.Shared, ConsumerID: uint64(i), RequestID: 2}).AppendFrame(nil))
		if !c.next() {
			t.Fatal("the connection ended")
		}
	}
	code, text := request(t, "GET", s.AdminURL()+"/metrics")
	if code != http.StatusOK || !strings.Contains(text, "contention_broker_info{") || !strings.Contains(text, `quo\"te`) {
		t.Errorf("status %d:\n%.2000s", code, text)
	}
	if strings.Contains(text, "\xff") {
		t.Error("bytes that are not UTF-8")
	}
}

// holdingSink holds the dispatcher's lock from when its consumer becomes the
// active one until hold is closed.
type holdingSink struct {
	once       sync.Once
	held, hold chan struct{}
}

func (h *holdingSink) Deliver(d *dispatch.Delivery) { d.Release() }
func (h *holdingSink) Writable() bool               { return true }
func (h *holdingSink) ActiveChanged(uint64, bool) {
	h.once.Do(func() { close(h.held) })
	<-h.hold
}

// A scrape does not wait for a dispatcher's lock.
func TestScrapeDoesNotWaitForTheMonitor(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	c.subscribe("t", "sub", 1, wire.Shared, 0)
	c.subscribe("t", "held", 2, wire.Shared, 0)
	c.write((&wire.Close{ID: 2, RequestID: 1}).AppendConsumerFrame(nil))
	c.expect(wire.TypeSuccess)
	heldBack := s.topics["persistent://public/default/t"].subs["held"].Dispatcher
	sink := &holdingSink{held: make(chan struct{}), hold: make(chan struct{})}
	var joined sync.WaitGroup
	joined.Go(func() {
		if _, err := heldBack.AddConsumer(dispatch.ConsumerOptions{ID: 9, Name: "x", Type: wire.Failover, Sink: sink}); err != nil {
			t.Error(err)
		}
	})
	defer joined.Wait()
	defer close(sink.hold)
	select {
	case <-sink.held:
	case <-time.After(patience):
		t.Fatal("the lock is not held")
	}
	if _, ok := heldBack.TryStats(); ok {
		t.Fatal("the lock is not held")
	}
	if code, text := request(t, "GET", s.AdminURL()+"/metrics"); code != http.StatusOK || !strings.Contains(text, "pulsar_subscription_back_log{") {
		t.Errorf("status %d", code)
	}
	// What its consumers tell is right although the subscription was never read.
	if held := topicStatsOf(t, s, "t").Subscriptions["held"]; held.Type != "Failover" || len(held.Consumers) != 1 {
		t.Errorf("the subscription whose lock is held: %+v", held)
	}
}

func benchmarkScrape(b *testing.B, topics int) {
	s := startServer(b, func(c *Config) { c.MaxTopics = topics + 1 })
	c := dial(b, s)
	for i := range topics {
		name := fmt.Sprintf("topic-%d", i)
		c.producer(name, uint64(i))
		c.subscribe(name, "sub", uint64(i), wire.Shared, 10)
	}
	_ = c.nc.SetDeadline(time.Time{})
	m := newCollector(s)
	b.ReportAllocs()
	for b.Loop() {
		text, err := m.text()
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(text)))
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(5*time.Second)*100, "%/5s")
}

// The percentage is of one CPU, with a scrape every 5 s.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("topics=%d", n), func(b *testing.B) { benchmarkScrape(b, n) })
	}
}
