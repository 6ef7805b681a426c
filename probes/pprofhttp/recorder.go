package pprofhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/probes/internal/httpget"
	"github.com/contention-toolkit/contention/profile"
)

// Options says what to record. Only BaseURL has no default.
type Options struct {
	// BaseURL is the index of the target's net/http/pprof, such as
	// http://127.0.0.1:6060/debug/pprof; that path is added to a bare host.
	BaseURL string

	// Sources are of SourceMutex, SourceBlock, SourceCPU and SourceFgprof;
	// none means mutex and block.
	Sources []profile.Source

	// Duration is the expected length of the window, so that the CPU and fgprof
	// profiles can be asked for up to its end. 0 means not known: they are then
	// recorded in pieces of five seconds until Stop, which loses the last one.
	// Stop ends the window in any case.
	Duration time.Duration

	// Client reads from the target; nil means one that uses no proxy.
	Client *http.Client

	// Timeout is how long the target may take for an answer, beyond the seconds
	// that it was asked to record; 0 means 10 s.
	Timeout time.Duration

	// Refresh is the time between interim reads of the mutex and block profiles:
	// they find a restart, and keep what was recorded when the target ends
	// early. 0 means 10 s, negative means none.
	Refresh time.Duration

	// GoVersion is the target's Go release, such as "go1.26.8", from its build
	// information; "" means to guess it from the profile's file names. It
	// decides the warnings about what that release's profiles get wrong.
	GoVersion string
}

// Recorder is a recording under way. Its methods may be called from any
// goroutine.
type Recorder struct {
	parts    []part
	client   *http.Client // closed at Stop; nil when the caller brought it
	cancel   context.CancelFunc
	stopping chan struct{} // closed when Stop begins
	done     chan struct{}
	doneOnce sync.Once
	stopOnce sync.Once
	running  sync.WaitGroup
	stopCtx  context.Context // for the last reads: does not end with Start's
	captures []*profile.Capture
	absent   []profile.Absent
}

// part records one source.
type part interface {
	// begin opens the window; after an error the part is not used again.
	begin(ctx context.Context) error
	// run works in the background until stopping is closed or ctx ends.
	run(ctx context.Context, stopping <-chan struct{})
	// finish closes the window. Exactly one result is not nil.
	finish(ctx context.Context) (*profile.Capture, *profile.Absent)
}

// Start opens the window: it returns when the first reads are done. Sources that
// the target does not serve are reported by Stop. It fails on options that make
// no sense, and when not one source could be begun, with every reason. Ending
// ctx ends what runs in the background; Stop still makes the last reads.
func Start(ctx context.Context, o Options) (*Recorder, error) {
	base, err := parseBase(o.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("record pprof: %w", err)
	}
	if o.Duration < 0 {
		return nil, fmt.Errorf("record pprof: the duration %s is negative; leave it 0 when it is not known", o.Duration)
	}
	if len(o.Sources) == 0 {
		o.Sources = []profile.Source{profile.SourceMutex, profile.SourceBlock}
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Refresh == 0 {
		o.Refresh = 10 * time.Second
	}
	r := &Recorder{stopping: make(chan struct{}), done: make(chan struct{}), stopCtx: context.WithoutCancel(ctx)}
	if o.Client == nil {
		r.client = httpget.NewClient()
		o.Client = r.client
	}
	parts, err := r.newParts(o, base)
	if err != nil {
		return nil, fmt.Errorf("record pprof: %w", err)
	}
	if err := r.begin(ctx, parts, o.Sources); err != nil {
		r.closeIdle()
		return nil, fmt.Errorf("record pprof: %w", err)
	}
	ctx, r.cancel = context.WithCancel(ctx)
	for _, p := range r.parts {
		r.running.Go(func() { p.run(ctx, r.stopping) })
	}
	return r, nil
}

func (r *Recorder) newParts(o Options, base *url.URL) ([]part, error) {
	var parts []part
	for i, s := range o.Sources {
		if slices.Contains(o.Sources[:i], s) {
			return nil, fmt.Errorf("source %q is given twice", s)
		}
		switch s {
		case profile.SourceMutex, profile.SourceBlock:
			parts = append(parts, &cumulative{source: s, o: o, url: endpoint(base, string(s)), gone: r.targetGone})
		case profile.SourceCPU:
			parts = append(parts, &timed{source: s, o: o, url: endpoint(base, "profile"), gone: r.targetGone})
		case profile.SourceFgprof:
			u := *base
			u.Path = path.Join(path.Dir(base.Path), "fgprof")
			parts = append(parts, &timed{source: s, o: o, url: &u, gone: r.targetGone})
		default:
			return nil, fmt.Errorf("source %q does not come over pprof; mutex, block, cpu and fgprof do", s)
		}
	}
	return parts, nil
}

// begin opens all windows at once, so that they start together.
func (r *Recorder) begin(ctx context.Context, parts []part, sources []profile.Source) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { errs[i] = p.begin(ctx) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			r.absent = append(r.absent, profile.Absent{Source: sources[i], Reason: err.Error()})
			continue
		}
		r.parts = append(r.parts, parts[i])
	}
	if len(r.parts) == 0 {
		return errors.Join(errs...)
	}
	return nil
}

// Done is closed when the target turns out to be gone: nothing listens at its
// address any more. It is closed by Stop too.
func (r *Recorder) Done() <-chan struct{} { return r.done }

func (r *Recorder) targetGone() { r.doneOnce.Do(func() { close(r.done) }) }

// Stop closes the window and returns what was recorded, and for each source that
// was not the reason and what to do. It takes as long as the target needs to
// answer, at most Options.Timeout and a second. Further calls return the same.
func (r *Recorder) Stop() ([]*profile.Capture, []profile.Absent, error) {
	r.stopOnce.Do(func() {
		close(r.stopping)
		type result struct {
			c *profile.Capture
			a *profile.Absent
		}
		results := make([]result, len(r.parts))
		var wg sync.WaitGroup
		for i, p := range r.parts {
			wg.Go(func() { results[i].c, results[i].a = p.finish(r.stopCtx) })
		}
		wg.Wait()
		r.cancel()
		r.running.Wait()
		r.closeIdle()
		r.targetGone()
		for _, x := range results {
			if x.a != nil {
				r.absent = append(r.absent, *x.a)
			} else {
				r.captures = append(r.captures, x.c)
			}
		}
	})
	var err error
	for _, c := range r.captures {
		if e := c.Profile.CheckValid(); e != nil {
			err = errors.Join(err, fmt.Errorf("record pprof: %s: %w", c.Source, e))
		}
	}
	return r.captures, r.absent, err
}

// until returns a context that ends when ctx or stop does.
func until(ctx context.Context, stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (r *Recorder) closeIdle() {
	if r.client != nil {
		r.client.CloseIdleConnections()
	}
}

// parseBase accepts http://host:port[/debug/pprof[/]] and host:port.
func parseBase(s string) (*url.URL, error) {
	if s == "" {
		return nil, errors.New("no address of the target's pprof is given; it looks like http://127.0.0.1:6060/debug/pprof")
	}
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("pprof address: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("pprof address %q is not an http URL; it looks like http://127.0.0.1:6060/debug/pprof", s)
	}
	u.Fragment = ""
	if u.Path = strings.TrimRight(u.Path, "/"); u.Path == "" {
		u.Path = "/debug/pprof"
	}
	return u, nil
}

// endpoint is the URL of one profile; a query of the base, such as a token, stays.
func endpoint(base *url.URL, name string) *url.URL {
	u := *base
	u.Path += "/" + name
	return &u
}

// with returns u with one more query parameter.
func with(u *url.URL, key, value string) string {
	q := u.Query()
	q.Set(key, value)
	v := *u
	v.RawQuery = q.Encode()
	return v.String()
}
