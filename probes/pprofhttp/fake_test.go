package pprofhttp

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// encode makes a contention profile of stack → {contentions, delay}.
func encode(t testing.TB, stacks map[string][2]int64) []byte {
	t.Helper()
	p := profile.New(contentions, delay)
	for s, v := range stacks {
		var frames []profile.Frame
		for f := range strings.SplitSeq(s, ";") {
			frames = append(frames, profile.Frame{Function: f, File: "x.go", Line: 1})
		}
		p.Add(p.InternFrames(frames), p.InternLabels(), v[0], v[1])
	}
	var b bytes.Buffer
	if err := profile.Write(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// script serves one body after the other; the last one again and again.
type script struct {
	bodies [][]byte
	asked  atomic.Int64
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("debug") != "" {
		http.NotFound(w, r) // does not tell its fraction
		return
	}
	i := min(int(s.asked.Add(1))-1, len(s.bodies)-1)
	w.Write(s.bodies[i])
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestRestart(t *testing.T) {
	h := &script{bodies: [][]byte{
		encode(t, map[string][2]int64{"a;root": {10, 1000}, "b;root": {5, 500}}),
		encode(t, map[string][2]int64{"a;root": {2, 200}, "c;root": {1, 50}}),
	}}
	r := start(t, Options{BaseURL: serve(t, h), Sources: []profile.Source{profile.SourceBlock}, Refresh: -1})
	captures, _ := stop(t, r)
	c := captures[0]
	if got, want := c.Profile.String(), "contentions/count delay/nanoseconds\nroot:1;a:1 2 200\nroot:1;c:1 1 50\n"; got != want {
		t.Errorf("got %s want what was counted since the restart: %s", got, want)
	}
	if !c.Incomplete || c.Loss["restarts"] != 1 || c.Loss["reset_stacks"] != 2 {
		t.Errorf("incomplete %v, loss %v", c.Incomplete, c.Loss)
	}
	if w := strings.Join(c.Warnings, "\n"); !strings.Contains(w, "reset") || !strings.Contains(w, "2 stacks") {
		t.Errorf("warnings %q do not tell the reset", w)
	}
}

func TestRestartBetweenInterimReads(t *testing.T) {
	h := &script{bodies: [][]byte{
		encode(t, map[string][2]int64{"a;root": {10, 1000}}), // window opens
		encode(t, map[string][2]int64{"a;root": {13, 1300}}), // +3
		encode(t, map[string][2]int64{"a;root": {4, 400}}),   // restarted: 4
		encode(t, map[string][2]int64{"a;root": {9, 900}}),   // +5
	}}
	r := start(t, Options{BaseURL: serve(t, h), Sources: []profile.Source{profile.SourceBlock}, Refresh: time.Millisecond})
	waitUntil(t, "all reads", func() bool { return h.asked.Load() > 4 })
	captures, _ := stop(t, r)
	if got := at(captures[0].Profile, "a"); got[0] != 12 || got[1] != 1200 {
		t.Errorf("got %v, want 3 before the restart and 9 after it", got)
	}
	if n := captures[0].Loss["restarts"]; n != 1 {
		t.Errorf("%d restarts, want 1", n)
	}
}

func TestBlockNeverCounted(t *testing.T) {
	h := &script{bodies: [][]byte{encode(t, nil)}}
	r := start(t, Options{BaseURL: serve(t, h)})
	captures, absent := stop(t, r)
	if len(captures) != 0 || len(absent) != 2 {
		t.Fatalf("captures %v, absent %v; want both off", captures, absent)
	}
	for _, a := range absent {
		if !strings.Contains(a.Reason, "off in the target") || !strings.Contains(a.Reason, "runtime.Set") {
			t.Errorf("%s: %s", a.Source, a.Reason)
		}
	}
}

func TestBlockCountedOnlyBefore(t *testing.T) {
	h := &script{bodies: [][]byte{encode(t, map[string][2]int64{"a;root": {10, 1000}})}}
	r := start(t, Options{BaseURL: serve(t, h), Sources: []profile.Source{profile.SourceBlock}})
	captures, _ := stop(t, r)
	if len(captures) != 1 || len(captures[0].Profile.Samples) != 0 {
		t.Fatalf("captures %v, want one without samples", captures)
	}
	if w := strings.Join(captures[0].Warnings, "\n"); !strings.Contains(w, "does not tell which") {
		t.Errorf("warnings %q", w)
	}
}

func TestTargetEndsEarly(t *testing.T) {
	h := &script{bodies: [][]byte{
		encode(t, map[string][2]int64{"a;root": {10, 1000}}),
		encode(t, map[string][2]int64{"a;root": {13, 1300}}),
	}}
	s := httptest.NewServer(h)
	defer s.Close()
	r := start(t, Options{BaseURL: s.URL, Sources: []profile.Source{profile.SourceBlock}, Refresh: 5 * time.Millisecond})
	waitUntil(t, "an interim read", func() bool { return h.asked.Load() > 2 })
	s.CloseClientConnections()
	s.Close()
	select {
	case <-r.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("Done stays open though the target is gone")
	}
	captures, absent := stop(t, r)
	if len(captures) != 1 {
		t.Fatalf("absent %v, want what was recorded", absent)
	}
	c := captures[0]
	if got := at(c.Profile, "a"); got[0] != 3 || !c.Incomplete || c.Loss["failed_reads"] == 0 {
		t.Errorf("values %v, incomplete %v, loss %v", got, c.Incomplete, c.Loss)
	}
	if w := strings.Join(c.Warnings, "\n"); !strings.Contains(w, "connection refused") {
		t.Errorf("warnings %q", w)
	}
}

func TestTargetEndsBeforeSecondRead(t *testing.T) {
	h := &script{bodies: [][]byte{encode(t, map[string][2]int64{"a;root": {10, 1000}})}}
	s := httptest.NewServer(h)
	defer s.Close()
	r := start(t, Options{BaseURL: s.URL, Sources: []profile.Source{profile.SourceBlock}, Refresh: -1})
	s.Close()
	captures, absent := stop(t, r)
	if len(captures) != 0 || len(absent) != 1 || !strings.Contains(absent[0].Reason, "nothing to subtract") {
		t.Errorf("captures %v, absent %v", captures, absent)
	}
}

func TestStopTwiceAtOnce(t *testing.T) {
	h := &script{bodies: [][]byte{encode(t, nil), encode(t, map[string][2]int64{"a;root": {1, 10}})}}
	r := start(t, Options{BaseURL: serve(t, h), Sources: []profile.Source{profile.SourceBlock}})
	var wg sync.WaitGroup
	results := make([][]*profile.Capture, 4)
	for i := range results {
		wg.Go(func() { results[i], _, _ = r.Stop() })
	}
	wg.Wait()
	for _, c := range results {
		if len(c) != 1 || c[0] != results[0][0] {
			t.Fatalf("results differ: %v", results)
		}
	}
	if n := h.asked.Load(); n != 2 {
		t.Errorf("the target was read %d times, want 2", n)
	}
}

func TestTimedPieces(t *testing.T) {
	p := func(o time.Duration, elapsed time.Duration) time.Duration {
		return (&timed{o: Options{Duration: o}}).piece(elapsed)
	}
	for _, c := range []struct{ window, elapsed, want time.Duration }{
		{0, 0, openPiece},
		{0, time.Hour, openPiece},
		{3 * time.Second, 0, 3 * time.Second},
		{25 * time.Second, 0, longestPiece},
		{25 * time.Second, 20200 * time.Millisecond, 4 * time.Second},
		{25 * time.Second, 24200 * time.Millisecond, 0},
		{25 * time.Second, 30 * time.Second, 0},
	} {
		if got := p(c.window, c.elapsed); max(got, 0) != c.want {
			t.Errorf("window %s, %s gone: piece %s, want %s", c.window, c.elapsed, got, c.want)
		}
	}
}

func TestTimedKeepsWholePieces(t *testing.T) {
	asked := make(chan string, 8)
	body := cpuProfile(t)
	r := start(t, Options{
		BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.FormValue("seconds")
			if len(asked) < 3 {
				w.Write(body)
				return
			}
			<-r.Context().Done() // the third piece never comes
		})),
		Sources: []profile.Source{profile.SourceCPU},
	})
	waitUntil(t, "three pieces asked for", func() bool { return len(asked) == 3 })
	captures, absent := stop(t, r)
	if len(captures) != 1 {
		t.Fatalf("absent %v", absent)
	}
	c := captures[0]
	if got := at(c.Profile, "work"); got[0] != 4 || got[1] != 40 || c.Settings["pieces"] != "2" {
		t.Errorf("values %v, settings %v; want two pieces of 2 samples", got, c.Settings)
	}
	if s := <-asked; s != "5" || c.Loss["lost_pieces"] != 1 || c.Incomplete {
		t.Errorf("asked for %s s, loss %v, incomplete %v", s, c.Loss, c.Incomplete)
	}
}

func cpuProfile(t *testing.T) []byte {
	t.Helper()
	p := profile.New(profile.Samples, profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	p.Duration = 5 * time.Second
	p.Add(p.InternFrames([]profile.Frame{{Function: "work"}}), p.InternLabels(profile.Label{Key: "k", Value: "v"}), 2, 20)
	var b bytes.Buffer
	if err := profile.Write(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "no address"},
		{Options{BaseURL: "ftp://x/"}, "not an http URL"},
		{Options{BaseURL: "http://%zz"}, "pprof address"},
		{Options{BaseURL: "http://127.0.0.1:1", Sources: []profile.Source{"threads"}}, "does not come over pprof"},
		{Options{BaseURL: "http://127.0.0.1:1", Sources: []profile.Source{"cpu", "cpu"}}, "given twice"},
		{Options{BaseURL: "http://127.0.0.1:1", Sources: []profile.Source{"cpu"}, Duration: time.Millisecond}, "whole seconds"},
		{Options{BaseURL: "http://127.0.0.1:1", Duration: -1}, "negative"},
	} {
		_, err := Start(t.Context(), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.o, err, c.want)
		}
	}
}

func TestBaseURLs(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:6060":                        "http://127.0.0.1:6060/debug/pprof/mutex",
		"http://h:1/":                           "http://h:1/debug/pprof/mutex",
		"http://h:1/debug/pprof/":               "http://h:1/debug/pprof/mutex",
		"https://h/x/debug/pprof?token=a#top":   "https://h/x/debug/pprof/mutex?token=a",
		"http://user:pass@h:1/debug/pprof?a=%2": "",
	} {
		u, err := parseBase(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := endpoint(u, "mutex").String(); want != "" && got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if s := fmt.Sprint(endpoint(u, "mutex").Redacted()); strings.Contains(s, "pass@") {
			t.Errorf("%s shows the password", s)
		}
	}
}
