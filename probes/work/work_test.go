package work

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contention-toolkit/contention/profile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const promText = `# HELP sent_total Messages.
# TYPE sent_total counter
sent_total{topic="a"} 40
sent_total{topic="b"} 2
# TYPE depth gauge
depth 7
# TYPE wait_seconds histogram
wait_seconds_bucket{le="+Inf"} 9
wait_seconds_sum 1.5
wait_seconds_count 9
plain 3
odd NaN
`

const jszText = `{"account_details":[
 {"name":"A","stream_detail":[
  {"name":"s1","state":{"last_seq":10},"consumer_detail":[{"delivered":{"consumer_seq":4}},{"delivered":{"consumer_seq":5}}]},
  {"name":"s2","state":{"last_seq":5}}]},
 {"name":"B"}]}`

func TestPageValues(t *testing.T) {
	for _, c := range []struct {
		body, metric string
		want         float64
		err          string
	}{
		{promText, "sent_total", 42, ""},
		{promText, "depth", 7, ""},
		{promText, "plain", 3, ""},
		{promText, "wait_seconds_count", 9, ""},
		{promText, "wait_seconds", 0, "no finite value"},
		{promText, "odd", 0, "no finite value"},
		{promText, "depth_count", 0, "no finite value"},
		{promText, "send_total", 0, `no metric "send_total" among the 5 of the page; it has "sent_total"`},
		{"this is no metric\n", "x", 0, "neither JSON nor Prometheus"},
		{"<html></html>", "x", 0, "HTML"},
		{" \n", "x", 0, "empty"},
		{`{"in_msgs":`, "in_msgs", 0, "broken JSON"},
		{`{"in_msgs":12,"a":{"b":3}}`, "in_msgs", 12, ""},
		{`{"in_msgs":12,"a":{"b":3}}`, "a.b", 3, ""},
		{`{"in_msgs":12,"a":{"b":3}}`, "a.c", 0, `"a" has no "c"; it has "b"`},
		{`{"in_msgs":12,"a":{"b":3}}`, "in_msgs.x", 0, "single value"},
		{`{"in_msgs":"12"}`, "in_msgs", 0, "not a number"},
		{`{"in_msgs":1e999}`, "in_msgs", 0, "not a number in range"},
		{`[1,2,{"x":3}]`, "1", 2, ""},
		{`[1,2,{"x":3}]`, "x", 0, "list of 3"},
		{`[1,2]`, "*", 3, ""},
		{`{"a":{"n":1},"b":{"n":2},"c":{}}`, "*.n", 3, ""},
		{`{"a":{"n":"x"},"b":{"n":2}}`, "*.n", 0, `"a.n" is not a number`},
		{`[]`, "*.n", 0, "names nothing"},
		{jszText, natsStored, 15, ""},
		{jszText, natsConsumed, 9, ""},
	} {
		v, err := 0.0, error(nil)
		p, err := parsePage([]byte(c.body))
		if err == nil {
			v, err = p.value(c.metric)
		}
		if c.err == "" && (err != nil || v != c.want) {
			t.Errorf("%s of %.30q: %v, %v; want %v", c.metric, c.body, v, err, c.want)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s of %.30q: error %v, want %q", c.metric, c.body, err, c.err)
		}
	}
}

func TestParse(t *testing.T) {
	c, err := Parse("127.0.0.1:8222/varz#in_msgs", "")
	if want := (Counter{Role: profile.WorkPublished, URL: "http://127.0.0.1:8222/varz", Metric: "in_msgs"}); err != nil || c != want {
		t.Errorf("got %+v, %v; want %+v", c, err, want)
	}
	c, err = Parse("https://h/m?x=1#a.*.b", "delivered")
	if err != nil || c.Role != profile.WorkDelivered || c.URL != "https://h/m?x=1" || c.Metric != "a.*.b" {
		t.Errorf("got %+v, %v", c, err)
	}
	for in, want := range map[string]string{
		"http://h/metrics":   "names no metric",
		"http://h/metrics# ": "names no metric",
		"ftp://h#x":          "not an http URL",
		"http://#x":          "not an http URL",
		"http://%zz/#x":      "it looks like",
		"":                   "names no metric",
	} {
		if _, err := Parse(in, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", in, err, want)
		}
	}
	if _, err := Parse("http://h#x", "sent"); err == nil || !strings.Contains(err.Error(), `role "sent"`) {
		t.Errorf("unknown role: error %v", err)
	}
}

// pages serves fixed bodies by path.
func pages(t *testing.T, bodies map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, ok := bodies[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, b)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestFind(t *testing.T) {
	url := pages(t, map[string]string{
		"/js/varz":  `{"in_msgs":100,"out_msgs":90}`,
		"/js/jsz":   jszText,
		"/new/varz": `{"in_msgs":100,"out_msgs":90}`,
		"/new/jsz":  `{"account_details":[{"stream_detail":[{"state":{"last_seq":3}}]}]}`,
		"/core/varz": `{"in_msgs":100,
			"out_msgs":90}`,
		"/core/jsz":   `{"disabled":true}`,
		"/other/varz": `{"uptime":1}`,
		"/ours":       "contention_broker_messages_published_total 8\ncontention_broker_messages_delivered_total 6\n",
		"/pulsar":     "pulsar_in_messages_total{topic=\"x\"} 8\npulsar_in_messages_total{topic=\"y\"} 1\npulsar_out_messages_total 7\n",
		"/unknown":    promText,
	})
	for _, c := range []struct {
		h    Hints
		want string // role metric value, in order
	}{
		{Hints{Varz: []string{url + "/js/varz"}}, "published " + natsStored + " 15; delivered " + natsConsumed + " 9; "},
		{Hints{Varz: []string{url + "/new/varz"}}, "published " + natsStored + " 3; "},
		{Hints{Varz: []string{url + "/core/varz"}}, "published in_msgs 100; delivered out_msgs 90; "},
		{Hints{Varz: []string{url + "/other/varz"}}, ""},
		{Hints{Metrics: []string{url + "/unknown", url + "/ours"}}, "published contention_broker_messages_published_total 8; delivered contention_broker_messages_delivered_total 6; "},
		{Hints{Metrics: []string{url + "/pulsar"}}, "published pulsar_in_messages_total 9; delivered pulsar_out_messages_total 7; "},
		{Hints{Metrics: []string{url + "/ours", url + "/pulsar"}}, "published contention_broker_messages_published_total 8; delivered contention_broker_messages_delivered_total 6; "},
		{Hints{}, ""},
	} {
		found, err := Find(t.Context(), c.h)
		if err != nil {
			t.Errorf("%+v: %v", c.h, err)
		}
		got := ""
		for _, f := range found {
			v, at, err := f.Read(t.Context())
			if err != nil || time.Since(at) > time.Minute {
				t.Errorf("%+v: read at %s: %v", f, at, err)
			}
			got += fmt.Sprintf("%s %s %v; ", f.Role, f.Metric, v)
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.h, got, c.want)
		}
	}
	found, err := Find(t.Context(), Hints{Metrics: []string{url + "/gone", url + "/ours"}})
	if len(found) != 2 || err == nil || !strings.Contains(err.Error(), "/gone: the target answers 404") {
		t.Errorf("one page missing: %v, %v", found, err)
	}
}

// counting serves values that a test sets; negative means no such metric.
type counting struct{ published, delivered, asked atomic.Int64 }

func (c *counting) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.asked.Add(1)
	if v := c.published.Load(); v >= 0 {
		fmt.Fprintf(w, "published %d\n", v)
	}
	fmt.Fprintf(w, "delivered %d\n", c.delivered.Load())
}

func (c *counting) serve(t *testing.T) (*httptest.Server, []Counter) {
	t.Helper()
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	return s, []Counter{
		{Role: profile.WorkPublished, URL: s.URL, Metric: "published", Note: "a note"},
		{Role: profile.WorkDelivered, URL: s.URL, Metric: "delivered"},
	}
}

func startWatch(t *testing.T, cs []Counter, every time.Duration) *Watcher {
	t.Helper()
	w, err := watch(t.Context(), cs, every)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Stop() })
	return w
}

func TestWatchEdges(t *testing.T) {
	var c counting
	c.published.Store(5)
	_, cs := c.serve(t)
	before := time.Now()
	w := startWatch(t, cs, time.Hour)
	c.published.Store(12)
	c.delivered.Store(3)
	got := w.Stop()
	if len(got) != 2 || got[0].Start != 5 || got[0].End != 12 || got[0].Delta() != 7 || got[1].Delta() != 3 || got[0].Reset {
		t.Fatalf("got %+v", got)
	}
	if g := got[0]; g.StartTime.Before(before) || !g.EndTime.After(g.StartTime) || g.EndTime != got[1].EndTime {
		t.Errorf("edges %s to %s and %s", g.StartTime, g.EndTime, got[1].EndTime)
	}
	if n := c.asked.Load(); n != 2 {
		t.Errorf("the page was read %d times, want once per edge", n)
	}
	if w := strings.Join(w.Warnings(), "\n"); !strings.Contains(w, "a note") {
		t.Errorf("warnings %q", w)
	}
}

func TestWatchReset(t *testing.T) {
	var c counting
	c.published.Store(50)
	_, cs := c.serve(t)
	w := startWatch(t, cs, time.Millisecond)
	// The target restarts and soon counts more than before: only reads inside
	// the window can tell.
	c.published.Store(1)
	after := c.asked.Load()
	waitUntil(t, "reads after the restart", func() bool { return c.asked.Load() > after+2 })
	c.published.Store(80)
	got := w.Stop()
	if !got[0].Reset || got[0].Delta() != 0 || got[1].Reset {
		t.Errorf("got %+v", got)
	}
	if w := strings.Join(w.Warnings(), "\n"); !strings.Contains(w, "went down from 50 to 1") {
		t.Errorf("warnings %q", w)
	}
}

func TestWatchTargetEnds(t *testing.T) {
	for _, every := range []time.Duration{time.Hour, time.Millisecond} {
		var c counting
		s, cs := c.serve(t)
		w := startWatch(t, cs, every)
		c.published.Store(12)
		if every < time.Hour {
			after := c.asked.Load()
			waitUntil(t, "reads inside the window", func() bool { return c.asked.Load() > after+2 })
		}
		s.CloseClientConnections()
		s.Close()
		got, warnings := w.Stop(), strings.Join(w.Warnings(), "\n")
		if every == time.Hour && (len(got) != 0 || !strings.Contains(warnings, "is left out")) {
			t.Errorf("without a second read: %+v, %s", got, warnings)
		}
		if every < time.Hour && (len(got) != 2 || got[0].Delta() != 12 || !strings.Contains(warnings, "ends ")) {
			t.Errorf("with one: %+v, %s", got, warnings)
		}
	}
}

func TestWatchRefusesWhatItCannotRead(t *testing.T) {
	var c counting
	c.published.Store(-1)
	_, cs := c.serve(t)
	if _, err := Watch(t.Context(), cs); err == nil || !strings.Contains(err.Error(), `no metric "published"`) {
		t.Errorf("error %v", err)
	}
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func FuzzPage(f *testing.F) {
	f.Add([]byte(promText), "sent_total")
	f.Add([]byte(jszText), natsStored)
	f.Add([]byte(`[[1,2],[3]]`), "*.*")
	f.Fuzz(func(t *testing.T, body []byte, metric string) {
		p, err := parsePage(body)
		if err != nil {
			return
		}
		v, err := p.value(metric)
		if _, again := finite(metric, v); err == nil && again != nil {
			t.Fatalf("value %v", v)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("http://127.0.0.1:1/metrics#x")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Parse(s, "")
		if err != nil {
			return
		}
		if again, err := Parse(c.URL+"#"+c.Metric, ""); err != nil || again != c {
			t.Fatalf("%+v becomes %+v, %v", c, again, err)
		}
	})
}
