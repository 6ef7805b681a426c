package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/probes/discover"
	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/probes/work"
	"github.com/contention-toolkit/contention/profile"
)

// Options says what to record.
type Options struct {
	PID      int
	Dir      string           // recording directory to make
	Sources  []profile.Source // nil means DefaultSources, and mutex, block and cpu where the target serves pprof
	Duration time.Duration    // length of the window, for sources that must say so in advance; 0 when not known
	Hz       int              // ticks of the goroutine sampler per second, 0 means its default
	Threads  thread.Options   // settings of the thread plane; its PIDs and symbols are filled in
	// Beside are sources to record beside Sources, such as those that no default includes.
	Beside []profile.Source
	// ProbeBudget is how many hits of uprobes per second the target may pay for,
	// above which they are detached; 0 means the default of package exact.
	ProbeBudget int
	// Notify is told at once of what changes while recording, such as probes that
	// are detached for their cost; nil for nobody. It may be called by another goroutine.
	Notify   func(string)
	PprofURL string         // base URL of the target's pprof; "" lets discovery find it
	Work     []work.Counter // counters of work done; nil lets discovery find them
	// NoDiscover keeps the recorder from connecting to the target's ports.
	NoDiscover bool
	// Annotate completes a capture before it is written, such as with the
	// labels class and idle; nil leaves it as recorded.
	Annotate func(profile.Target, *profile.Capture)
	Tool     profile.Tool
	Command  []string // the command that records, for the recording
}

// DefaultSources are those that cost a saturated target nothing that can be
// measured.
func DefaultSources() []profile.Source {
	return []profile.Source{profile.SourceGoroutines, profile.SourceThreads}
}

// Session is a recording under way. Its methods are safe for concurrent use.
type Session struct {
	opt     Options
	target  profile.Target
	writer  *profile.Writer
	sources []source
	names   []string // of the sources that are recorded
	absent  []profile.Absent
	warn    []string
	watch   *work.Watcher
	symbols *symbol.Process
	before  edge
	done    chan struct{}
	quit    chan struct{}  // closed by Stop
	endOnce sync.Once      // closes done
	ended   sync.WaitGroup // the goroutines that wait for sources to end

	once sync.Once
	meta profile.Meta
	err  error
}

// Start begins to record. It fails when not one source can be had; the error
// then holds the reason of each.
func Start(ctx context.Context, o Options) (*Session, error) {
	target, err := describe(o.PID)
	if err != nil {
		return nil, err
	}
	s := &Session{opt: o, target: target, done: make(chan struct{}), quit: make(chan struct{})}
	s.find(ctx)
	if s.opt.Sources == nil {
		s.opt.Sources = DefaultSources()
		if s.opt.PprofURL != "" {
			s.opt.Sources = append(s.opt.Sources, profile.SourceMutex, profile.SourceBlock, profile.SourceCPU)
		}
	}
	for _, src := range s.opt.Beside {
		if !slices.Contains(s.opt.Sources, src) {
			s.opt.Sources = append(slices.Clip(s.opt.Sources), src)
		}
	}
	// Symbols are opened before the window, while the target surely lives. A
	// target without any still gives stacks of addresses.
	if s.symbols, err = symbol.OpenProcess(o.PID); err != nil {
		s.warn = append(s.warn, fmt.Sprintf("no symbols: %v", err))
	} else {
		s.target.BuildID = s.symbols.BuildID()
	}
	if err := s.start(ctx); err != nil {
		s.closeSymbols()
		return nil, err
	}
	return s, nil
}

func (s *Session) start(ctx context.Context) error {
	w, err := profile.Create(s.opt.Dir, profile.Meta{
		Tool: s.opt.Tool, Command: s.opt.Command, Targets: []profile.Target{s.target}, Warnings: []string{}, Work: []profile.WorkCounter{},
	})
	if err != nil {
		return err
	}
	s.writer = w
	reasons := s.startSources(ctx)
	if len(s.sources) == 0 {
		err := fmt.Errorf("record process %d: nothing can be recorded: %w", s.opt.PID, errors.Join(reasons...))
		return errors.Join(err, s.writer.Finish(func(m *profile.Meta) {
			m.Incomplete, m.Why, m.Absent = true, err.Error(), s.absent
		}))
	}
	if s.watch, err = work.Watch(ctx, s.opt.Work); err != nil {
		s.warn = append(s.warn, fmt.Sprintf("work counters: %v; figures per message are not given", err))
	}
	s.before = readEdge(s.opt.PID)
	s.ended.Add(len(s.sources))
	for _, src := range s.sources {
		go func() {
			defer s.ended.Done()
			select {
			case <-src.Done():
				s.endOnce.Do(func() { close(s.done) })
			case <-s.quit:
			}
		}()
	}
	return nil
}

// find fills in what the options leave to discovery.
func (s *Session) find(ctx context.Context) {
	if s.opt.NoDiscover || s.opt.PprofURL != "" && s.opt.Work != nil {
		return
	}
	ends, err := discover.Find(ctx, s.opt.PID)
	if err != nil {
		s.warn = append(s.warn, fmt.Sprintf("looking for the target's endpoints: %v; name them with --pprof and --work", err))
		return
	}
	s.warn = append(s.warn, ends.Notes...)
	if s.opt.PprofURL == "" && len(ends.Pprof) > 0 {
		s.opt.PprofURL = ends.Pprof[0]
	}
	if s.opt.Work == nil {
		if s.opt.Work, err = work.Find(ctx, work.Hints{Metrics: ends.Metrics, Varz: ends.Varz}); err != nil {
			s.warn = append(s.warn, fmt.Sprintf("looking for work counters: %v; name them with --work URL#metric", err))
		}
	}
}

// Target describes the process that is recorded.
func (s *Session) Target() profile.Target { return s.target }

// Recording lists the sources that are recorded.
func (s *Session) Recording() []string { return s.names }

// Absent lists what was asked for and cannot be recorded, with reasons.
func (s *Session) Absent() []profile.Absent { return s.absent }

// Work lists the counters of work done that are read at the window's edges.
func (s *Session) Work() []work.Counter { return s.opt.Work }

// Done is closed when the target has ended; what was recorded until then is
// kept by Stop.
func (s *Session) Done() <-chan struct{} { return s.done }

// Stop ends the window, detaches everything, writes the recording and returns
// its description. Later calls return the same.
func (s *Session) Stop() (profile.Meta, error) {
	s.once.Do(func() { s.meta, s.err = s.finish() })
	return s.meta, s.err
}

func (s *Session) finish() (profile.Meta, error) {
	close(s.quit)
	var counters []profile.WorkCounter
	var warnings []string
	if s.watch != nil {
		counters = s.watch.Stop()
		warnings = append(warnings, s.watch.Warnings()...)
	}
	after := readEdge(s.opt.PID)
	captures, errs := s.stopSources()
	s.ended.Wait()
	var why []string
	var result []error
	for _, c := range captures {
		if s.opt.Annotate != nil {
			s.opt.Annotate(s.target, c)
		}
		if c.Incomplete {
			why = append(why, fmt.Sprintf("%s ended before the window did", c.Source))
		}
		if err := s.writer.Capture(c); err != nil {
			result = append(result, err)
		}
	}
	for _, err := range errs {
		warnings = append(warnings, err.Error())
		why = append(why, err.Error())
	}
	s.closeSymbols()
	var meta profile.Meta
	err := s.writer.Finish(func(m *profile.Meta) {
		s.complete(m, after, counters, append(s.warn, warnings...))
		if len(why) > 0 {
			m.Incomplete, m.Why = true, why[0]
		}
		meta = *m
	})
	return meta, errors.Join(append(result, err)...)
}

func (s *Session) stopSources() ([]*profile.Capture, []error) {
	var (
		wg       sync.WaitGroup
		captures = make([][]*profile.Capture, len(s.sources))
		absents  = make([][]profile.Absent, len(s.sources))
		errs     = make([]error, len(s.sources))
	)
	for i, src := range s.sources {
		wg.Add(1)
		go func() {
			defer wg.Done()
			captures[i], absents[i], errs[i] = src.stop()
		}()
	}
	wg.Wait()
	var all []*profile.Capture
	var failed []error
	for i := range s.sources {
		all = append(all, captures[i]...)
		s.absent = append(s.absent, absents[i]...)
		if errs[i] != nil {
			failed = append(failed, errs[i])
		}
	}
	return all, failed
}

func (s *Session) closeSymbols() {
	if s.symbols != nil {
		s.symbols.Close()
	}
}
