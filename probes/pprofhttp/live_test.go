package pprofhttp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixge/fgprof"
	"go.uber.org/goleak"

	"github.com/contention-toolkit/contention/profile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serveSelf serves this process's own profiles, as a target would.
func serveSelf(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.Handle("/debug/fgprof", fgprof.Handler())
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// profileAll turns both contention profiles on, every event counted.
func profileAll(t *testing.T) {
	t.Helper()
	old := runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	t.Cleanup(func() {
		runtime.SetMutexProfileFraction(old)
		runtime.SetBlockProfileRate(0)
	})
}

// contend makes one goroutine wait for a mutex, n times, each at least held long.
func contend(t *testing.T, n int, held time.Duration) {
	t.Helper()
	var mu sync.Mutex
	for range n {
		mu.Lock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			waitForLock(&mu)
		}()
		waitUntil(t, "the waiter is parked", func() bool {
			buf := make([]byte, 1<<20)
			for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
				if strings.Contains(g, "[sync.Mutex.Lock") && strings.Contains(g, "waitForLock") {
					return true
				}
			}
			return false
		})
		for start := time.Now(); time.Since(start) < held; {
			runtime.Gosched()
		}
		releaseLock(&mu)
		<-done
	}
}

//go:noinline
func waitForLock(mu *sync.Mutex) {
	mu.Lock()
	//lint:ignore SA2001 only the wait matters
	mu.Unlock()
}

//go:noinline
func releaseLock(mu *sync.Mutex) { mu.Unlock() }

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func start(t *testing.T, o Options) *Recorder {
	t.Helper()
	r, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Stop() })
	return r
}

func stop(t *testing.T, r *Recorder) ([]*profile.Capture, []profile.Absent) {
	t.Helper()
	c, a, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	return c, a
}

// at sums the values of all stacks that hold a function ending in name.
func at(p *profile.Profile, name string) []int64 {
	sum := make([]int64, len(p.SampleTypes))
	for _, s := range p.Samples {
		for _, f := range p.Frames(s.Stack) {
			if strings.HasSuffix(f.Function, name) {
				for i, v := range s.Values {
					sum[i] += v
				}
				break
			}
		}
	}
	return sum
}

func TestLiveMutexAndBlock(t *testing.T) {
	profileAll(t)
	url := serveSelf(t)
	contend(t, 3, 0) // before the window: must not count
	r := start(t, Options{BaseURL: url + "/debug/pprof/", GoVersion: runtime.Version()})
	const n, held = 5, 20 * time.Millisecond
	before := time.Now()
	contend(t, n, held)
	took := time.Since(before)
	captures, absent := stop(t, r)
	if len(absent) != 0 || len(captures) != 2 {
		t.Fatalf("captures %d, absent %v; want mutex and block", len(captures), absent)
	}
	for i, want := range []struct {
		source  profile.Source
		charged string // the function that the source charges
	}{{profile.SourceMutex, ".releaseLock"}, {profile.SourceBlock, ".waitForLock"}} {
		c := captures[i]
		if c.Source != want.source {
			t.Fatalf("capture %d is %s, want %s", i, c.Source, want.source)
		}
		got := at(c.Profile, want.charged)
		if got[0] != n || got[1] < int64(n*held) || got[1] > int64(took) {
			t.Errorf("%s: %s has %d contentions, %s; want %d, %s to %s", c.Source, want.charged, got[0], time.Duration(got[1]), n, n*held, took)
		}
		if c.Profile.Default != "delay" || c.Profile.Duration != c.End.Sub(c.Start) || c.Profile.Duration < took {
			t.Errorf("%s: default %q, duration %s, window %s", c.Source, c.Profile.Default, c.Profile.Duration, c.End.Sub(c.Start))
		}
		if c.Incomplete || c.Loss["restarts"] != 0 || c.Settings["charges"] == "" {
			t.Errorf("%s: incomplete %v, loss %v, settings %v", c.Source, c.Incomplete, c.Loss, c.Settings)
		}
	}
	if got := captures[0].Settings["fraction"]; got != "1" {
		t.Errorf("mutex fraction %q, want 1", got)
	}
	if w := strings.Join(captures[0].Warnings, "\n"); !strings.Contains(w, "73760") || strings.Contains(w, "61015") {
		t.Errorf("warnings of a present release: %q", w)
	}
	checkFrames(t, captures[1].Profile)
}

// checkFrames looks for the waiter's frame with its file and line.
func checkFrames(t *testing.T, p *profile.Profile) {
	t.Helper()
	for _, s := range p.Samples {
		for _, f := range p.Frames(s.Stack) {
			if strings.HasSuffix(f.Function, ".waitForLock") {
				if !strings.HasSuffix(f.File, "live_test.go") || f.Line == 0 {
					t.Errorf("frame %+v lacks its file or line", f)
				}
				return
			}
		}
	}
	t.Error("no frame of waitForLock")
}

func TestLiveMutexOff(t *testing.T) {
	profileAll(t)
	contend(t, 1, 0) // so that the profile is not empty, though it is off in the window
	runtime.SetMutexProfileFraction(0)
	r := start(t, Options{BaseURL: serveSelf(t), Sources: []profile.Source{profile.SourceMutex}})
	contend(t, 1, 0)
	captures, absent := stop(t, r)
	if len(captures) != 0 || len(absent) != 1 {
		t.Fatalf("captures %v, absent %v", captures, absent)
	}
	for _, want := range []string{"profiling is off in the target", "SetMutexProfileFraction", "from before"} {
		if !strings.Contains(absent[0].Reason, want) {
			t.Errorf("reason %q lacks %q", absent[0].Reason, want)
		}
	}
}

func TestLiveMutexOnButNothingHappened(t *testing.T) {
	profileAll(t)
	r := start(t, Options{BaseURL: serveSelf(t), Sources: []profile.Source{profile.SourceMutex}})
	captures, absent := stop(t, r)
	if len(absent) != 0 {
		t.Fatalf("absent %v, want a capture: the target says that it is on", absent)
	}
	if e := captures[0].Settings["evidence"]; !strings.HasPrefix(e, "on:") {
		t.Errorf("evidence %q", e)
	}
}

func TestLiveFractionChanges(t *testing.T) {
	profileAll(t)
	r := start(t, Options{BaseURL: serveSelf(t), Sources: []profile.Source{profile.SourceMutex}})
	contend(t, 1, 0)
	runtime.SetMutexProfileFraction(7)
	captures, _ := stop(t, r)
	if w := strings.Join(captures[0].Warnings, "\n"); !strings.Contains(w, "from 1 to 7") {
		t.Errorf("warnings %q do not tell the change", w)
	}
}

func TestLiveCPUAndFgprof(t *testing.T) {
	r := start(t, Options{BaseURL: serveSelf(t), Duration: time.Second, Sources: []profile.Source{profile.SourceCPU, profile.SourceFgprof}})
	spin := make(chan struct{})
	go func() {
		defer close(spin)
		for start := time.Now(); time.Since(start) < time.Second; {
			burn()
		}
	}()
	<-spin
	captures, absent := stop(t, r)
	if len(absent) != 0 || len(captures) != 2 {
		t.Fatalf("captures %d, absent %v", len(captures), absent)
	}
	for i, want := range []string{"cpu", "time"} {
		c := captures[i]
		if got := at(c.Profile, ".burn"); got[1] < int64(100*time.Millisecond) {
			t.Errorf("%s: burn has %s", c.Source, time.Duration(got[1]))
		}
		if c.Profile.Default != want || c.Incomplete || c.Loss["lost_pieces"] != 0 {
			t.Errorf("%s: default %q, incomplete %v, loss %v, warnings %v", c.Source, c.Profile.Default, c.Incomplete, c.Loss, c.Warnings)
		}
	}
}

//go:noinline
func burn() {
	x := 1.0
	for range 1000 {
		x *= 1.0000001
	}
	sink = x
}

var sink float64

func TestCPUWindowEndsEarly(t *testing.T) {
	asked := make(chan struct{}, 1)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		pprof.Profile(w, r)
	}))
	r := start(t, Options{BaseURL: url, Duration: time.Hour, Sources: []profile.Source{profile.SourceCPU}})
	<-asked
	begun := time.Now()
	captures, absent := stop(t, r)
	if len(captures) != 0 || len(absent) != 1 || !strings.Contains(absent[0].Reason, "window ended after") {
		t.Fatalf("captures %v, absent %v", captures, absent)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("stopping took %s: it waited for the piece under way", took)
	}
}

func TestStartContextEnds(t *testing.T) {
	profileAll(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := Start(ctx, Options{BaseURL: serveSelf(t), Sources: []profile.Source{profile.SourceMutex}})
	if err != nil {
		t.Fatal(err)
	}
	contend(t, 2, 0)
	cancel() // as when the user interrupts: what happened until now is kept
	captures, absent := stop(t, r)
	if len(absent) != 0 || at(captures[0].Profile, ".releaseLock")[0] != 2 {
		t.Fatalf("captures %v, absent %v", captures, absent)
	}
}
