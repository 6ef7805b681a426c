package broker

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func request(t testing.TB, method, url string) (int, string) {
	t.Helper()
	return requestWith(t, method, url, "", nil, "")
}

func requestWith(t testing.TB, method, url, host string, h http.Header, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	for name, v := range h {
		req.Header[name] = v
	}
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func TestMetrics(t *testing.T) {
	s := startServer(t, func(c *Config) { c.Handover, c.NewEntriesCheckDelay = ledger.Direct, 0 })
	c, p := dial(t, s), dial(t, s)
	c.subscribe("t", "sub", 1, wire.KeyShared, 1000)
	c.subscribe("t", "sub", 2, wire.KeyShared, 0)
	waitUntil(t, "the first read has been asked for", func() bool {
		return s.topics["persistent://public/default/t"].executor.Stats().Started[executor.Dispatch] > 0
	})
	c.flow(2, 1000)
	p.producer("t", 1)
	for i := range uint64(100) {
		p.send(1, i, fmt.Sprint(i), number(i))
		p.expect(wire.TypeSendReceipt)
	}
	for range 100 {
		c.expect(wire.TypeMessage)
	}
	code, text := request(t, "GET", s.AdminURL()+"/metrics")
	if code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"contention_broker_messages_published_total": 100,
		"contention_broker_messages_delivered_total": 100,
		"contention_broker_connections":              2,
		"contention_broker_consumers":                2,
		"contention_broker_topics":                   1,
	} {
		f := families[name]
		if f == nil || len(f.Metric) != 1 {
			t.Errorf("%s is missing", name)
			continue
		}
		if got := f.Metric[0].GetCounter().GetValue() + f.Metric[0].GetGauge().GetValue(); got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	kinds := map[string]uint64{}
	for _, m := range families["contention_broker_queue_delay_seconds"].GetMetric() {
		kinds[m.Label[0].GetValue()] = m.GetHistogram().GetSampleCount()
	}
	if kinds["add"] != 100 || kinds["read"] == 0 || kinds["wake"] == 0 || kinds["dispatch"] == 0 {
		t.Errorf("times in queue per kind: %v", kinds)
	}
	for _, line := range []string{
		`contention_broker_info{flow="atomic",handoff="direct"} 1`, `contention_broker_executor_tasks_total{kind="add"} 100`,
		"contention_broker_handoff_batch_size_count 0", "contention_broker_executor_queue_length 0",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
}

func TestAdminEndpoints(t *testing.T) {
	s := startServer(t, nil)
	defer setProfiling(runtime.SetMutexProfileFraction(-1), int(blockProfileRate.Load()))
	for _, path := range []string{"/healthz", "/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/mutex", "/debug/pprof/block",
		"/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=0.1", "/debug/fgprof?seconds=1"} {
		if code, body := request(t, "GET", s.AdminURL()+path); code != http.StatusOK || body == "" {
			t.Errorf("%s: status %d, %d bytes", path, code, len(body))
		}
	}
	if code, body := request(t, "PUT", s.AdminURL()+"/admin/profiling?mutex=5&block=7"); code != http.StatusOK || body != "mutex=5 block=7\n" {
		t.Errorf("status %d, %q", code, body)
	}
	if got := runtime.SetMutexProfileFraction(-1); got != 5 {
		t.Errorf("mutex profile fraction %d", got)
	}
	if _, body := request(t, "PUT", s.AdminURL()+"/admin/profiling?block=0"); body != "mutex=5 block=0\n" {
		t.Errorf("what is not named must stay: %q", body)
	}
	if code, _ := request(t, "PUT", s.AdminURL()+"/admin/profiling?mutex=-1"); code != http.StatusBadRequest {
		t.Errorf("a negative fraction: status %d", code)
	}
}

func TestConfigIsRefusedWithReasons(t *testing.T) {
	good := DefaultConfig()
	if err := good.Validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	for want, change := range map[string]func(*Config){
		"listen address":          func(c *Config) { c.Listen = "nowhere" },
		"others can reach it":     func(c *Config) { c.AdminListen = "0.0.0.0:80" },
		"quota policy":            func(c *Config) { c.BacklogQuotaPolicy = "hope" },
		"queue creation":          func(c *Config) { c.HandoverQueueCreate = "x" },
		"channel size is -1":      func(c *Config) { c.HandoverChannelSize = -1 },
		"size is 1000000000":      func(c *Config) { c.HandoverChannelSize = 1_000_000_000 },
		"chunk is 1000000000":     func(c *Config) { c.HandoverQueueChunk = 1_000_000_000 },
		"executors is 1000000000": func(c *Config) { c.Executors = 1_000_000_000 },
		"workers is 1000000000":   func(c *Config) { c.Workers = 1_000_000_000 },
		"default partitions is 1": func(c *Config) { c.DefaultPartitions = maxPartitions + 1 },
		"read completion":         func(c *Config) { c.ReadCompletion = "x" },
		"next-read mode":          func(c *Config) { c.NextRead = "x" },
		"has no data directory":   func(c *Config) { c.Storage = Disk },
		"keeps nothing there":     func(c *Config) { c.DataDir = "x" },
		"storage \"tape\"":        func(c *Config) { c.Storage = "tape" },
		"sync mode":               func(c *Config) { c.Sync = "x" },
		"retention bytes is -2":   func(c *Config) { c.RetentionBytes = -2 },
		"less than one message":   func(c *Config) { c.MaxPublishBytesInFlight = 1000 },
		"look-ahead limits":       func(c *Config) { c.LookAheadPerConsumer = -1 },
		"advertised URL":          func(c *Config) { c.AdvertisedURL = "host:1" },
		"hand-over mode":          func(c *Config) { c.Handover = "magic" },
		"batch items are -1":      func(c *Config) { c.HandoverMaxBatchItems = -1 },
		"batch bytes are -1":      func(c *Config) { c.HandoverMaxBatchBytes = -1 },
		"flow mode":               func(c *Config) { c.Flow = "x" },
		"executors is 0":          func(c *Config) { c.Executors = 0 },
		"max pending publishes":   func(c *Config) { c.MaxPendingPublishes = 0 },
		"none may be negative":    func(c *Config) { c.MaxReadBatchSize = -1 },
		"max message size is 0":   func(c *Config) { c.MaxMessageSize = 0 },
		"block profile rate is -": func(c *Config) { c.BlockProfileRate = -1 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want a reason with %q, got %v", want, err)
		}
		if _, err := Start(t.Context(), c); err == nil {
			t.Errorf("%s: started", want)
		}
	}
	s := startServer(t, nil)
	taken := DefaultConfig()
	taken.Listen = s.Addr().String()
	if _, err := Start(t.Context(), taken); err == nil {
		t.Error("started on an address in use")
	}
	noAdmin := startServer(t, func(c *Config) { c.AdminListen = "" })
	if noAdmin.AdminURL() != "" {
		t.Error("an admin server that was not asked for")
	}
	dial(t, noAdmin).subscribe("t", "s", 1, wire.Shared, 0)
}

func TestTokenFileIsRefusedWithReasons(t *testing.T) {
	for content, want := range map[string]string{
		"short":                          "holds 5 bytes",
		" \n":                            "holds 0 bytes",
		strings.Repeat("\x00", 32):       "byte 0 of the token cannot stand in an HTTP header",
		"0123456789 0123456789":          "byte 10 of the token",
		strings.Repeat("a", mostToken+1): "more than 4096 bytes",
	} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readToken(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: want a reason with %q, got %v", content, want, err)
		}
	}
}
