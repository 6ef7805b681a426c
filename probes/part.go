package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/probes/discover"
	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/probes/work"
	"github.com/contention-toolkit/contention/profile"
)

// part is the recording of one process image, from its start, or the window's,
// to its end. The supervisor of its session has it to itself, but for what mu
// guards.
type part struct {
	mu      sync.Mutex // what describes the part: opt, target, names, absent, warn
	opt     Options    // of this part: what discovery found is filled in
	pid     int
	target  profile.Target
	image   image
	sources []source
	names   []string // of the sources that are recorded
	absent  []profile.Absent
	warn    []string
	watch   *work.Watcher
	symbols *symbol.Process
	limits  *throttle
	before  edge
	seen    edge // the last time that the process was there
	fate    fate // when it had ended
	kids    children

	named     bool      // its sources were named: no others are begun later
	http      bool      // what the target serves itself is recorded
	lookUntil time.Time // until when endpoints are looked for again

	done    chan struct{}  // closed when a source has ended
	quit    chan struct{}  // closed by finish
	endOnce sync.Once      // closes done
	ended   sync.WaitGroup // the goroutines that wait for sources to end

	out chan outcome // what finish gave, once it was called
}

// outcome is what a part leaves.
type outcome struct {
	captures []*profile.Capture
	counters []profile.WorkCounter
	why      []string // it is incomplete
}

// startPart begins to record a process. It fails when not one source can be had;
// the error then holds the reason of each.
func startPart(ctx context.Context, o Options, pid int) (*part, error) {
	target, err := describe(pid)
	if err != nil {
		return nil, err
	}
	p := &part{opt: o, pid: pid, target: target, image: readImage(pid), done: make(chan struct{}), quit: make(chan struct{}), out: make(chan outcome, 1)}
	p.find(ctx)
	p.named = p.opt.Sources != nil
	if !p.named {
		p.opt.Sources = DefaultSources()
		if p.opt.PprofURL != "" {
			p.opt.Sources = append(p.opt.Sources, profile.SourceMutex, profile.SourceBlock, profile.SourceCPU)
		}
	}
	for _, src := range p.opt.Beside {
		if !slices.Contains(p.opt.Sources, src) {
			p.opt.Sources = append(slices.Clip(p.opt.Sources), src)
		}
	}
	// Symbols are opened before the window, while the target surely lives. A
	// target without any still gives stacks of addresses.
	if p.symbols, err = symbol.OpenProcess(pid); err != nil {
		p.warn = append(p.warn, fmt.Sprintf("no symbols: %v", err))
	} else {
		p.target.BuildID = p.symbols.BuildID()
	}
	if err := p.start(ctx); err != nil {
		p.closeSymbols()
		return p, err
	}
	return p, nil
}

func (p *part) start(ctx context.Context) error {
	reasons := p.startSources(ctx, p.opt.Sources)
	if len(p.sources) == 0 {
		return fmt.Errorf("record process %d: nothing can be recorded: %w", p.pid, errors.Join(reasons...))
	}
	p.startWork(ctx)
	p.kids.begin(p.pid)
	p.before = readEdge(p.pid)
	p.seen = p.before
	p.limits = startThrottle(p.pid)
	p.await(p.sources)
	return nil
}

// noWork begins the warning that work is not counted.
const noWork = "work counters: "

func (p *part) startWork(ctx context.Context) {
	var err error
	if p.watch, err = work.Watch(ctx, p.opt.Work); err != nil {
		p.warn = append(p.warn, fmt.Sprintf(noWork+"%v; figures per message are not given", err))
	}
}

// await closes done when one of the sources has ended.
func (p *part) await(sources []source) {
	for _, src := range sources {
		p.ended.Go(func() {
			select {
			case <-src.Done():
				p.endOnce.Do(func() { close(p.done) })
			case <-p.quit:
			}
		})
	}
}

// find fills in what the options leave to discovery.
func (p *part) find(ctx context.Context) {
	if p.opt.NoDiscover || p.opt.PprofURL != "" && p.opt.Work != nil {
		return
	}
	ends, err := discover.Find(ctx, p.pid)
	if err != nil {
		p.warn = append(p.warn, fmt.Sprintf("looking for the target's endpoints: %v; name them with --pprof and --work", err))
		return
	}
	p.warn = append(p.warn, ends.Notes...)
	if p.opt.PprofURL == "" && len(ends.Pprof) > 0 {
		p.opt.PprofURL = ends.Pprof[0]
	}
	if p.opt.Work == nil {
		if p.opt.Work, err = work.Find(ctx, work.Hints{Metrics: ends.Metrics, Varz: ends.Varz}); err != nil {
			p.warn = append(p.warn, fmt.Sprintf("looking for work counters: %v; name them with --work URL#metric", err))
		}
	}
}

// look looks once more for the endpoints of a process that was young when its
// part began, and starts what needs them.
func (p *part) look(ctx context.Context) {
	if p.lookUntil.IsZero() {
		return
	}
	if time.Now().After(p.lookUntil) {
		p.lookUntil = time.Time{}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	found, warned := len(p.opt.Work) > 0 && p.watch != nil, len(p.warn)
	p.find(ctx)
	if !p.http && p.opt.PprofURL != "" {
		p.lateHTTP(ctx)
	}
	if !found && len(p.opt.Work) > 0 {
		if p.watch != nil {
			p.watch.Stop()
		}
		p.startWork(ctx)
	}
	p.warn = p.warn[:warned] // said before, or true of a process that is not ready
	if !found && p.watch != nil && len(p.opt.Work) > 0 {
		p.warn = slices.DeleteFunc(p.warn, func(w string) bool { return strings.HasPrefix(w, noWork) })
	}
	if (p.http || len(p.laterHTTP()) == 0) && len(p.opt.Work) > 0 && p.watch != nil {
		p.lookUntil = time.Time{}
	}
}

// laterHTTP lists what is to be recorded of what the target serves itself.
func (p *part) laterHTTP() []profile.Source {
	list := slices.Clip(p.opt.Sources)
	if !p.named {
		list = append(list, profile.SourceMutex, profile.SourceBlock, profile.SourceCPU)
	}
	var out []profile.Source
	for _, src := range list {
		if isHTTP(src) && !slices.Contains(out, src) {
			out = append(out, src)
		}
	}
	return out
}

// lateHTTP starts the sources that the target serves itself.
func (p *part) lateHTTP(ctx context.Context) {
	list := p.laterHTTP()
	if len(list) == 0 {
		return
	}
	p.absent = slices.DeleteFunc(p.absent, func(a profile.Absent) bool { return isHTTP(a.Source) })
	n := len(p.sources)
	p.startSources(ctx, list)
	p.await(p.sources[n:])
}

// finish ends the part, detaches its sources and hands its outcome to out. It is
// called once.
func (p *part) finish() {
	close(p.quit)
	var o outcome
	var warn []string
	if p.watch != nil {
		o.counters = p.watch.Stop()
		warn = append(warn, p.watch.Warnings()...)
	}
	after := readEdge(p.pid)
	limits := p.limits.stop()
	captures, absents, errs := p.stopSources()
	p.ended.Wait()
	p.closeSymbols()
	for _, err := range errs {
		warn = append(warn, err.Error())
		o.why = append(o.why, err.Error())
	}
	if w := p.kids.warning(p.pid); w != "" {
		warn = append(warn, w)
	}
	if p.opt.Annotate != nil {
		for _, c := range captures {
			p.opt.Annotate(p.target, c)
		}
	}
	o.captures = captures
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absent, p.warn = append(p.absent, absents...), append(p.warn, warn...)
	p.target.CPULimits = limits
	p.target.Part = profile.Window{Start: p.before.at, End: after.at, DurationNs: int64(after.at.Sub(p.before.at))}
	if p.fate == gone || !after.targetKnown {
		after = p.seen // another process may have the id by now
	}
	if p.before.targetKnown && after.targetKnown {
		p.target.CPUNs = int64(after.targetCPU - p.before.targetCPU)
	}
	p.out <- o
}

func (p *part) stopSources() (all []*profile.Capture, absent []profile.Absent, failed []error) {
	var (
		wg       sync.WaitGroup
		captures = make([][]*profile.Capture, len(p.sources))
		absents  = make([][]profile.Absent, len(p.sources))
		errs     = make([]error, len(p.sources))
	)
	for i, src := range p.sources {
		wg.Go(func() { captures[i], absents[i], errs[i] = src.stop() })
	}
	wg.Wait()
	for i := range p.sources {
		all = append(all, captures[i]...)
		absent = append(absent, absents[i]...)
		if errs[i] != nil {
			failed = append(failed, errs[i])
		}
	}
	return all, absent, failed
}

func (p *part) closeSymbols() {
	if p.symbols != nil {
		p.symbols.Close()
	}
}
