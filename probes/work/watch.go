package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/probes/internal/httpget"
	"github.com/contention-toolkit/contention/profile"
)

// between is the time between reads inside the window: they find a restart, and
// keep a count when the target ends early.
const between = 10 * time.Second

// Watcher holds the counters of a window under way. Its methods may be called
// from any goroutine.
type Watcher struct {
	counters []Counter
	client   *http.Client
	cancel   context.CancelFunc
	stopCtx  context.Context // for the last read: does not end with Watch's
	ended    chan struct{}   // closed when poll returns
	once     sync.Once

	state    []profile.WorkCounter
	warnings []string
}

// Watch reads the counters at the start of the window. It fails when one of them
// cannot be read, since work that is not counted would make every figure per
// message wrong.
func Watch(ctx context.Context, counters []Counter) (*Watcher, error) {
	return watch(ctx, counters, between)
}

func watch(ctx context.Context, counters []Counter, every time.Duration) (*Watcher, error) {
	w := &Watcher{counters: counters, client: httpget.NewClient(), stopCtx: context.WithoutCancel(ctx), ended: make(chan struct{})}
	w.state = make([]profile.WorkCounter, len(counters))
	var failed []error
	for i, v := range w.read(ctx) {
		if v.err != nil {
			failed = append(failed, v.err)
			continue
		}
		c := counters[i]
		w.state[i] = profile.WorkCounter{Role: c.Role, URL: httpget.Redact(c.URL), Metric: c.Metric, Start: v.value, End: v.value, StartTime: v.at, EndTime: v.at}
		if c.Note != "" {
			w.warnings = append(w.warnings, fmt.Sprintf("work counter %s (%s): %s", c.Metric, c.Role, c.Note))
		}
	}
	if len(failed) > 0 {
		w.client.CloseIdleConnections()
		return nil, fmt.Errorf("watch work counters: %w", errors.Join(failed...))
	}
	ctx, w.cancel = context.WithCancel(ctx)
	go w.poll(ctx, every)
	return w, nil
}

// reading is one counter's value, or why there is none.
type reading struct {
	value float64
	at    time.Time
	err   error
}

// read reads all counters, each page once, so that counters of one page are of
// one instant.
func (w *Watcher) read(ctx context.Context) []reading {
	type answer struct {
		p   page
		at  time.Time
		err error
	}
	pages := map[string]answer{}
	out := make([]reading, len(w.counters))
	for i, c := range w.counters {
		a, ok := pages[c.URL]
		if !ok {
			a.p, a.at, a.err = readPage(ctx, w.client, c.URL)
			pages[c.URL] = a
		}
		out[i] = reading{at: a.at, err: a.err}
		if a.err != nil {
			continue
		}
		v, err := a.p.value(c.Metric)
		if err != nil {
			err = fmt.Errorf("GET %s: %w", httpget.Redact(c.URL), err)
		}
		out[i].value, out[i].err = v, err
	}
	return out
}

func (w *Watcher) poll(ctx context.Context, every time.Duration) {
	defer close(w.ended)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			w.observe(w.read(ctx))
		}
	}
}

// observe takes further values; one that could not be read changes nothing.
func (w *Watcher) observe(values []reading) {
	for i, v := range values {
		if v.err != nil {
			continue
		}
		s := &w.state[i]
		if v.value < s.End && !s.Reset {
			s.Reset = true
			w.warnings = append(w.warnings, fmt.Sprintf("work counter %s (%s) went down from %.0f to %.0f: the target restarted, and nothing per message can be told of this window",
				s.Metric, s.Role, s.End, v.value))
		}
		s.End, s.EndTime = v.value, v.at
	}
}

// Stop reads the counters at the end of the window. A counter that cannot be
// read any more ends at its last value inside the window, and is left out when
// there is none; Warnings tells both. Further calls return the same.
func (w *Watcher) Stop() []profile.WorkCounter {
	w.once.Do(w.stop)
	return w.state
}

func (w *Watcher) stop() {
	w.cancel()
	<-w.ended
	last := w.read(w.stopCtx)
	w.observe(last)
	w.client.CloseIdleConnections()
	kept := w.state[:0]
	for i, s := range w.state {
		if err := last[i].err; err != nil && s.EndTime.Equal(s.StartTime) {
			w.warnings = append(w.warnings, fmt.Sprintf("work counter %s (%s) is left out: it could not be read at the end of the window: %v", s.Metric, s.Role, err))
			continue
		} else if err != nil {
			w.warnings = append(w.warnings, fmt.Sprintf("work counter %s (%s) ends %s after the start: it could not be read at the end of the window: %v",
				s.Metric, s.Role, s.EndTime.Sub(s.StartTime).Round(time.Millisecond), err))
		}
		kept = append(kept, s)
	}
	w.state = kept
}

// Warnings returns what a reader of the counts must know: notes on what they
// count, resets, failed reads. Call it after Stop, which it does itself.
func (w *Watcher) Warnings() []string {
	w.Stop()
	return w.warnings
}
