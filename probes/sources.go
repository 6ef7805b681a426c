package probes

import (
	"context"
	"fmt"

	"github.com/contention-toolkit/contention/probes/exact"
	"github.com/contention-toolkit/contention/probes/goroutine"
	"github.com/contention-toolkit/contention/probes/pprofhttp"
	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/profile"
)

// source is one thing under way that turns the window into captures.
type source interface {
	// Done is closed when the target has ended.
	Done() <-chan struct{}
	// stop ends the window; it is called once.
	stop() ([]*profile.Capture, []profile.Absent, error)
}

// The sources that the target itself serves over HTTP.
var overHTTP = []profile.Source{profile.SourceMutex, profile.SourceBlock, profile.SourceCPU, profile.SourceFgprof}

// Known says whether a source can be asked for.
func Known(s profile.Source) bool {
	return s == profile.SourceGoroutines || s == profile.SourceThreads || isExact(s) || isHTTP(s)
}

// isExact says whether a source comes from uprobes on the Go runtime. Wakers
// come with goroutines-exact and are not asked for by themselves.
func isExact(s profile.Source) bool {
	return s == profile.SourceExact || s == profile.SourceLocks
}

func isHTTP(s profile.Source) bool {
	for _, h := range overHTTP {
		if s == h {
			return true
		}
	}
	return false
}

// startSources starts what was asked for. Everything that the target serves
// over HTTP is one recorder, and so is what uprobes see. What cannot be started
// is noted as absent.
func (p *part) startSources(ctx context.Context, list []profile.Source) []error {
	var http, uprobes []profile.Source
	var reasons []error
	fail := func(src profile.Source, err error) {
		p.absent = append(p.absent, profile.Absent{Source: src, Reason: err.Error()})
		reasons = append(reasons, err)
	}
	for _, src := range list {
		var started source
		var err error
		switch {
		case isHTTP(src):
			http = append(http, src)
			continue
		case isExact(src):
			uprobes = append(uprobes, src)
			continue
		case src == profile.SourceGoroutines:
			started, err = p.startGoroutines(ctx)
		case src == profile.SourceThreads:
			started, err = p.startThreads(ctx)
		default:
			err = fmt.Errorf("source %q is not known", src)
		}
		if err != nil {
			fail(src, err)
			continue
		}
		p.sources = append(p.sources, started)
		p.names = append(p.names, string(src))
	}
	group := func(list []profile.Source, start func(context.Context, []profile.Source) (source, error)) {
		if len(list) == 0 {
			return
		}
		started, err := start(ctx, list)
		for _, src := range list {
			if err != nil {
				fail(src, err)
			} else {
				p.names = append(p.names, string(src))
			}
		}
		if err == nil {
			p.sources = append(p.sources, started)
		}
	}
	// Uprobes come last: attaching them takes a while.
	group(http, p.startHTTP)
	group(uprobes, p.startExact)
	return reasons
}

type goroutineSource struct{ *goroutine.Sampler }

func (p *part) startGoroutines(ctx context.Context) (source, error) {
	sampler, err := goroutine.Start(ctx, goroutine.Options{PID: p.pid, Hz: p.opt.Hz, Process: p.symbols})
	if err != nil {
		return nil, err
	}
	return goroutineSource{sampler}, nil
}

func (g goroutineSource) stop() ([]*profile.Capture, []profile.Absent, error) {
	return one(g.Stop())
}

func one(c *profile.Capture, err error) ([]*profile.Capture, []profile.Absent, error) {
	if c == nil {
		return nil, nil, err
	}
	return []*profile.Capture{c}, nil, err
}

type threadSource struct{ *thread.Recorder }

func (p *part) startThreads(ctx context.Context) (source, error) {
	opt := p.opt.Threads
	opt.PIDs = []int{p.pid}
	if symbols := p.symbols; symbols != nil {
		opt.Symbols = func(int) (thread.Resolver, error) { return symbols, nil }
	}
	rec, err := thread.Start(ctx, opt)
	if err != nil {
		return nil, err
	}
	return threadSource{rec}, nil
}

func (t threadSource) stop() ([]*profile.Capture, []profile.Absent, error) {
	captures, err := t.Stop()
	return captures, nil, err
}

type exactSource struct{ *exact.Recorder }

func (p *part) startExact(ctx context.Context, sources []profile.Source) (source, error) {
	opt := exact.Options{PID: p.pid, Budget: p.opt.ProbeBudget, Process: p.symbols, Notify: p.opt.Notify}
	for _, src := range sources {
		opt.Waits = opt.Waits || src == profile.SourceExact
		opt.Locks = opt.Locks || src == profile.SourceLocks
	}
	rec, err := exact.Start(ctx, opt)
	if err != nil {
		return nil, err
	}
	return exactSource{rec}, nil
}

func (e exactSource) stop() ([]*profile.Capture, []profile.Absent, error) {
	captures, err := e.Stop()
	return captures, nil, err
}

type httpSource struct{ *pprofhttp.Recorder }

func (p *part) startHTTP(ctx context.Context, sources []profile.Source) (source, error) {
	if p.opt.PprofURL == "" {
		return nil, fmt.Errorf("process %d serves no net/http/pprof that was found on its ports; name it with --pprof URL", p.pid)
	}
	rec, err := pprofhttp.Start(ctx, pprofhttp.Options{
		BaseURL: p.opt.PprofURL, Sources: sources, Duration: p.opt.Duration, GoVersion: p.target.GoVersion,
	})
	if err != nil {
		return nil, err
	}
	p.http = true
	return httpSource{rec}, nil
}

func (h httpSource) stop() ([]*profile.Capture, []profile.Absent, error) { return h.Stop() }
