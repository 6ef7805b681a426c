package natstest

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPublish: what the publisher counts as acknowledged is what the stream
// stored, and nothing is left when the server is stopped.
func TestPublish(t *testing.T) {
	s := Start(t, Options{})
	p := s.Publish(t, Load{Conns: 20, InFlight: 16, Subscribers: 1})
	for deadline := time.Now().Add(30 * time.Second); p.Counts().Acked < 5000; {
		if time.Now().After(deadline) {
			t.Fatalf("only %+v within 30s", p.Counts())
		}
		time.Sleep(time.Millisecond)
	}
	got := p.Stop(t)
	if again := p.Stop(t); again != got {
		t.Errorf("a second Stop returns %+v after %+v", again, got)
	}
	if got.Refused != 0 || got.Acked < 5000 || got.Sent-got.Acked > 20*16 {
		t.Errorf("counts %+v: want no refusal and at most %d unacknowledged", got, 20*16)
	}
	if got.Delivered == 0 || got.Delivered > got.Sent {
		t.Errorf("the subscriber received %d of %d", got.Delivered, got.Sent)
	}
	if stored := lastSequence(t, s); stored < got.Acked || stored > got.Sent {
		t.Errorf("the stream stored %d, of %d sent and %d acknowledged", stored, got.Sent, got.Acked)
	}
	s.Stop(t)
	select {
	case <-s.Exited():
	default:
		t.Error("the server still runs after Stop")
	}
	if _, err := net.Dial("tcp", s.Addr); err == nil {
		t.Errorf("something still listens on %s", s.Addr)
	}
}

func lastSequence(t *testing.T, s *Server) int64 {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := c.Get(strings.TrimSuffix(s.VarzURL, "/varz") + "/jsz?streams=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Accounts []struct {
			Streams []struct {
				State struct {
					Last int64 `json:"last_seq"`
				} `json:"state"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	if len(a.Accounts) != 1 || len(a.Accounts[0].Streams) != 1 {
		t.Fatalf("accounts and streams: %+v", a)
	}
	return a.Accounts[0].Streams[0].State.Last
}

// TestServerIsUnmodified: the executable is the pinned release, built as it is.
func TestServerIsUnmodified(t *testing.T) {
	s := Start(t, Options{})
	if err := check(s.Exe); err != nil {
		t.Error(err)
	}
	exe, err := os.Readlink("/proc/" + strconv.Itoa(s.PID) + "/exe")
	if err == nil && exe != s.Exe {
		t.Errorf("PID %d runs %s, want %s", s.PID, exe, s.Exe)
	}
}

// TestServerDies: a server that ends under the load is told, nothing hangs.
func TestServerDies(t *testing.T) {
	s := Start(t, Options{})
	p := s.Publish(t, Load{Conns: 5})
	if err := s.process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if len(p.errs) == 0 {
		t.Error("no connection reports that the server died")
	}
	p.errs = nil // expected; Stop would fail the test
	<-s.Exited()
}
