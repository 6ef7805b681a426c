//go:build linux && amd64

package exact

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/exp/trace"

	"github.com/contention-toolkit/contention/profile"
)

var (
	tracePID = flag.Int("exact.pid", 0, "TestAgainstTraceOf: a live Go process to record")
	traceURL = flag.String("exact.pprof", "", "TestAgainstTraceOf: its net/http/pprof, such as http://127.0.0.1:6060/debug/pprof")
	traceFor = flag.Duration("exact.duration", 10*time.Second, "TestAgainstTraceOf: how long")
)

// traceWords are an execution trace's words for wait reasons: it tells fewer apart.
var traceWords = map[string]string{
	"sync.Mutex.Lock": "sync", "sync.RWMutex.Lock": "sync", "sync.RWMutex.RLock": "sync", "semacquire": "sync", "sync.WaitGroup.Wait": "sync",
	"sync.Cond.Wait": "sync.(*Cond).Wait", "IO wait": "network", "chan receive": "chan receive", "chan send": "chan send",
	"select": "select", "sleep": "sleep", "select (no cases)": "forever",
}

// parkedIn says by a function of the stack why a goroutine waits that did so
// before the trace began: the trace has no reason for it.
var parkedIn = map[string]string{
	"runtime.netpollblock": "network", "runtime.chanrecv": "chan receive", "runtime.chanrecv1": "chan receive", "runtime.chanrecv2": "chan receive",
	"runtime.chansend": "chan send", "runtime.chansend1": "chan send", "runtime.selectgo": "select", "time.Sleep": "sleep",
	"runtime.semacquire1": "sync", "sync.runtime_notifyListWait": "sync.(*Cond).Wait", "runtime.block": "forever",
	"internal/poll.runtime_pollWait": "network", "sync.runtime_SemacquireMutex": "sync", "internal/sync.runtime_SemacquireMutex": "sync",
	"sync.runtime_SemacquireWaitGroup": "sync", "sync.(*Cond).Wait": "sync.(*Cond).Wait",
}

// offCPU is off-CPU time by the trace's words, and how many waits it is of.
type offCPU map[string]struct{ ns, waits int64 }

func (o offCPU) add(word string, ns, waits int64) {
	v := o[word]
	v.ns, v.waits = v.ns+ns, v.waits+waits
	o[word] = v
}

func (o offCPU) capture(c *profile.Capture) {
	for _, s := range c.Profile.Samples {
		if w := traceWords[c.Profile.Labels(s.Labels).Get(profile.LabelReason)]; w != "" {
			o.add(w, s.Values[0]+s.Values[1], s.Values[2])
		}
	}
}

// trace reads an execution trace, whose clock is the one of the window.
func (o offCPU) trace(in io.Reader, start, end uint64) error {
	type wait struct {
		since uint64
		word  string
	}
	waits := map[trace.GoID]wait{}
	done := func(w wait, at uint64) {
		from, to := max(w.since, start), min(at, end)
		if to > from {
			o.add(w.word, int64(to-from), 1)
		}
	}
	r, err := trace.NewReader(bufio.NewReader(in))
	if err != nil {
		return err
	}
	for {
		e, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if e.Kind() != trace.EventStateTransition || e.StateTransition().Resource.Kind != trace.ResourceGoroutine {
			continue
		}
		st := e.StateTransition()
		g := st.Resource.Goroutine()
		switch from, to := st.Goroutine(); {
		case to == trace.GoWaiting && from != trace.GoWaiting:
			w := wait{uint64(e.Time()), st.Reason}
			if from == trace.GoUndetermined {
				w = wait{0, ""}
				for f := range st.Stack.Frames() {
					if w.word == "" {
						w.word = parkedIn[f.Func]
					}
				}
			}
			waits[g] = w
		case to == trace.GoRunning:
			if w, ok := waits[g]; ok {
				done(w, uint64(e.Time()))
			}
			delete(waits, g)
		}
	}
	for _, w := range waits {
		done(w, end)
	}
	return nil
}

// compare holds both against each other by reason, where there is enough of one.
func (o offCPU) compare(t *testing.T, traced offCPU, least time.Duration) {
	t.Helper()
	n := 0
	for word, want := range traced {
		known := false
		for _, w := range traceWords {
			known = known || w == word
		}
		if !known || want.ns < int64(least) {
			continue
		}
		n++
		got := o[word]
		ratio := float64(got.ns) / float64(want.ns)
		t.Logf("%-18s %10.3f s of the trace's %10.3f s: %8.3f %%; %d waits, the trace has %d", word, float64(got.ns)/1e9, float64(want.ns)/1e9, 100*ratio, got.waits, want.waits)
		if math.Abs(ratio-1) > 0.02 {
			t.Errorf("%s: off-CPU time is %.2f %% of the execution trace's", word, 100*ratio)
		}
	}
	if n == 0 {
		t.Errorf("nothing to compare: %v, the trace has %v", o, traced)
	}
}

// Off-CPU time by reason is the execution trace's within 2 %.
func TestAgainstTrace(t *testing.T) {
	s := startTarget(t)
	path := filepath.Join(t.TempDir(), "trace")
	s.do("park 3")
	if n, _ := s.do("trace %s", path); n != 0 {
		t.Fatal("the target does not trace itself")
	}
	r := record(t, Options{PID: s.pid, Waits: true})
	for _, command := range []string{"mutex 100 2ms", "rwmutex 50 2ms", "channel 100 2ms", "cond 100 2ms", "group 100 2ms", "select 100 2ms", "sleep 100 2ms", "network 100 2ms"} {
		s.do("%s", command)
	}
	got, traced := offCPU{}, offCPU{}
	got.capture(stop(t, r)[profile.SourceExact])
	s.do("untrace")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := traced.trace(f, r.start, r.end); err != nil {
		t.Fatal(err)
	}
	got.compare(t, traced, 50*time.Millisecond)
	for _, word := range []string{"sync", "network", "forever", "select", "sleep", "chan receive", "sync.(*Cond).Wait"} {
		if traced[word].ns == 0 {
			t.Errorf("the trace has no time of %s: %v", word, traced)
		}
	}
}

// TestAgainstTraceOf does the same with a live process, on demand:
//
//	go test ./probes/exact -run TestAgainstTraceOf -v -exact.pid PID -exact.pprof http://127.0.0.1:6060/debug/pprof
func TestAgainstTraceOf(t *testing.T) {
	if *tracePID == 0 || *traceURL == "" {
		t.Skip("on demand: -exact.pid and -exact.pprof name a process")
	}
	seconds := int(traceFor.Seconds()) + 4 // attaching takes a while
	type answer struct {
		path string
		err  error
	}
	path := filepath.Join(t.TempDir(), "trace")
	answers := make(chan answer, 1)
	go func() {
		answers <- answer{path, download(fmt.Sprintf("%s/trace?seconds=%d", *traceURL, seconds), path)}
	}()
	time.Sleep(time.Second) // the trace is under way, or its window does not hold ours: see below
	r := record(t, Options{PID: *tracePID, Waits: true, Budget: 1 << 30})
	time.Sleep(*traceFor)
	c := stop(t, r)[profile.SourceExact]
	got, traced := offCPU{}, offCPU{}
	got.capture(c)
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	f, err := os.Open(a.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := traced.trace(f, r.start, r.end); err != nil {
		t.Fatal(err)
	}
	t.Logf("%v, %s hits of probes per second", c.Profile.Duration, c.Settings["hits_per_second"])
	got.compare(t, traced, c.Profile.Duration/100)
}

func download(url, path string) error {
	defer http.DefaultClient.CloseIdleConnections()
	res, err := http.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, res.Body)
	return errors.Join(err, f.Close())
}
