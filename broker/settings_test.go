package broker

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/wire"
)

const configurationPath = "/admin/v2/brokers/configuration"

func settingValues(t *testing.T, s *Server) map[string]string {
	t.Helper()
	code, body := request(t, "GET", s.AdminURL()+configurationPath+"/values")
	var values map[string]string
	if err := json.Unmarshal([]byte(body), &values); code != http.StatusOK || err != nil {
		t.Fatalf("status %d, %v: %s", code, err, body)
	}
	return values
}

// A ledger keeps the hand-over limits that it was opened with; limits of reads
// reach open subscriptions at once.
func TestSettingsAtRunTime(t *testing.T) {
	s := startServer(t, func(c *Config) { c.HandoverMaxBatchItems, c.MaxReadBatchSize = 100, 50 })
	c := dial(t, s)
	c.producer("old", 1)
	c.subscribe("old", "sub", 1, wire.Shared, 10)
	for path, want := range map[string]int{
		"/managedLedgerAddEntryHandoverMaxBatchItems/7":        http.StatusNoContent,
		"/managedLedgerAddEntryHandoverMaxBatchBytesSize/4096": http.StatusNoContent,
		"/dispatcherMaxReadBatchSize/9":                        http.StatusNoContent,
		"/dispatcherMaxReadSizeBytes/0":                        http.StatusNoContent,
	} {
		if code, body := request(t, "POST", s.AdminURL()+configurationPath+path); code != want {
			t.Errorf("%s: status %d: %s", path, code, body)
		}
	}
	c.producer("new", 2)
	c.subscribe("new", "sub", 2, wire.Shared, 10)
	for name, want := range map[string][3]int64{"old": {100, 5 << 20, 9}, "new": {7, 4096, 9}} {
		top := s.topics["persistent://public/default/"+name]
		mode, items, bytes := top.ledger.Handover()
		if read := top.subs["sub"].Stats().ReadBatch; mode != ledger.Batched || int64(items) != want[0] || bytes != want[1] || int64(read) != want[2] {
			t.Errorf("%s: %s with %d items, %d bytes, reads of %d; want %v", name, mode, items, bytes, read, want)
		}
	}
	// 1 turns batching off, for ledgers opened from then on.
	if code, body := request(t, "POST", s.AdminURL()+configurationPath+"/managedLedgerAddEntryHandoverMaxBatchItems/1"); code != http.StatusNoContent {
		t.Fatalf("status %d: %s", code, body)
	}
	c.producer("last", 3)
	if mode, _, _ := s.topics["persistent://public/default/last"].ledger.Handover(); mode != ledger.Direct {
		t.Errorf("a ledger opened with one item a batch is %s", mode)
	}
	if _, text := request(t, "GET", s.AdminURL()+"/metrics"); !strings.Contains(text, `contention_broker_info{flow="atomic",handoff="direct"} 1`) {
		t.Error("the mode in force is not in the metrics")
	}

	if code, _ := request(t, "DELETE", s.AdminURL()+configurationPath+"/managedLedgerAddEntryHandoverMaxBatchItems"); code != http.StatusNoContent {
		t.Errorf("reset: status %d", code)
	}
	want := map[string]string{
		"managedLedgerAddEntryHandoverMaxBatchItems": "100", "managedLedgerAddEntryHandoverMaxBatchBytesSize": "4096",
		"dispatcherMaxReadBatchSize": "9", "dispatcherMaxReadSizeBytes": "0",
	}
	values := settingValues(t, s)
	for name, v := range want {
		if values[name] != v {
			t.Errorf("%s is %q, want %q", name, values[name], v)
		}
	}
	var names []string
	if _, body := request(t, "GET", s.AdminURL()+configurationPath); json.Unmarshal([]byte(body), &names) != nil || len(names) != len(want) || !slices.Contains(names, "dispatcherMaxReadBatchSize") {
		t.Errorf("names: %s", body)
	}
}

func TestBadSettingsAreRefusedWithTheReason(t *testing.T) {
	s := startServer(t, nil)
	before := settingValues(t, s)
	for path, want := range map[string]string{
		"/managedLedgerAddEntryHandoverMaxBatchItems/-1":                  "use 0 or 1 for no batching",
		"/managedLedgerAddEntryHandoverMaxBatchBytesSize/-5":              "use 0 for no limit",
		"/dispatcherMaxReadBatchSize/-1":                                  "none may be negative",
		"/dispatcherMaxReadSizeBytes/5MB":                                 "not a whole number",
		"/managedLedgerAddEntryHandoverMaxBatchItems/9999999999999999999": "not a whole number",
		"/maxMessageSize/5":                                               "cannot be changed",
	} {
		code, body := request(t, "POST", s.AdminURL()+configurationPath+path)
		var answer struct{ Reason string }
		if err := json.Unmarshal([]byte(body), &answer); code != http.StatusPreconditionFailed || err != nil || !strings.Contains(answer.Reason, want) {
			t.Errorf("%s: status %d, %s; want a reason with %q", path, code, body, want)
		}
	}
	if code, _ := request(t, "DELETE", s.AdminURL()+configurationPath+"/nothing"); code != http.StatusPreconditionFailed {
		t.Errorf("resetting what there is not: status %d", code)
	}
	for name, v := range settingValues(t, s) {
		if before[name] != v {
			t.Errorf("%s became %s", name, v)
		}
	}
}

func TestAdminAsksForItsToken(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const token = "0123456789abcdef"
	for want, path := range map[string]string{"16 or more": file("short", "0123456789abcde\n\n\n"), "no such file": filepath.Join(dir, "none")} {
		cfg := DefaultConfig()
		cfg.Listen, cfg.AdminListen, cfg.AdminTokenFile = "127.0.0.1:0", "127.0.0.1:0", path
		if _, err := Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	s := startServer(t, func(c *Config) { c.AdminListen, c.AdminTokenFile = "0.0.0.0:0", file("good", token+"\n") })
	url := strings.Replace(s.AdminURL(), "[::]", "127.0.0.1", 1)
	for auth, want := range map[string]int{
		"": http.StatusUnauthorized, "Bearer ": http.StatusUnauthorized, "Bearer " + token + "x": http.StatusUnauthorized,
		"Basic " + token: http.StatusUnauthorized, "Bearer " + token: http.StatusOK,
	} {
		if code, body := requestWith(t, "GET", url+"/metrics", "", http.Header{"Authorization": {auth}}, ""); code != want {
			t.Errorf("%q: status %d: %.100s", auth, code, body)
		}
	}
	if code, _ := requestWith(t, "POST", url+configurationPath+"/dispatcherMaxReadBatchSize/1", "", nil, ""); code != http.StatusUnauthorized {
		t.Errorf("a change without the token: status %d", code)
	}
}

// A page in a browser can reach a loopback address under a name of its own.
func TestAdminOnLoopbackChecksTheHost(t *testing.T) {
	s := startServer(t, nil)
	for host, want := range map[string]int{
		"": http.StatusOK, "localhost": http.StatusOK, "localhost:99": http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:80": http.StatusOK,
		"evil.example": http.StatusForbidden, "evil.example:6650": http.StatusForbidden, "127.0.0.1.evil.example": http.StatusForbidden, "10.0.0.1": http.StatusForbidden,
	} {
		if code, _ := requestWith(t, "GET", s.AdminURL()+"/admin/profiling", host, nil, ""); code != want {
			t.Errorf("host %q: status %d, want %d", host, code, want)
		}
	}
}
