package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/contention-toolkit/contention/probes/cgroup"
	"github.com/contention-toolkit/contention/probes/work"
	"github.com/contention-toolkit/contention/profile"
)

// Session is a recording under way. Its methods are safe for concurrent use.
type Session struct {
	opt    Options
	writer *profile.Writer
	begin  edge // the recorder's own
	warn   []string

	mu    sync.Mutex
	parts []*part // every one that began, in that order
	live  []*part // that have not ended; the supervisor's, once it runs
	why   string  // the window ended early

	awaited []*part // ended, and nothing has taken their place yet
	left    int     // processes not recorded for the bound on targets
	own     ownUse

	done       chan struct{} // closed when there is nothing left to record
	quit       chan struct{} // closed by Stop
	supervised chan struct{} // closed when the supervisor has returned
	endOnce    sync.Once     // closes done

	once sync.Once
	meta profile.Meta
	err  error
}

// Start begins to record. It fails when of one of the processes not one source
// can be had; the error then holds the reason of each.
func Start(ctx context.Context, o Options) (*Session, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Session{opt: o, done: make(chan struct{}), quit: make(chan struct{}), supervised: make(chan struct{})}
	var targets []profile.Target
	for _, pid := range o.PIDs {
		t, err := describe(pid)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
		s.shared(pid)
	}
	meta := profile.Meta{Tool: o.Tool, Command: o.Command, Targets: targets, Warnings: []string{}, Work: []profile.WorkCounter{}}
	var err error
	if o.Out != nil {
		s.writer, err = profile.CreateStream(o.Out, meta)
	} else {
		s.writer, err = profile.Create(o.Dir, meta)
	}
	if err != nil {
		return nil, err
	}
	s.begin = readEdge(0)
	for i, pid := range o.PIDs {
		p, err := startPart(ctx, s.partOptions(i == 0), pid)
		if err != nil {
			return nil, errors.Join(err, s.abandon(p, err))
		}
		p.target.ID = strconv.Itoa(pid)
		s.parts = append(s.parts, p)
	}
	s.live = slices.Clone(s.parts)
	s.begin = readEdge(0)
	s.own.begin(s.begin)
	go s.supervise(ctx)
	return s, nil
}

// partOptions are those of one part. Counters of work that the caller named are
// read for the first target and what takes its place: they are not each process's.
func (s *Session) partOptions(counts bool) Options {
	o := s.opt
	if !counts && o.Work != nil {
		o.Work = []work.Counter{}
	}
	return o
}

// shared warns where the recorder's own use counts against the target's limits.
func (s *Session) shared(pid int) {
	path, same := cgroup.Same("", "self", strconv.Itoa(pid))
	if !same {
		return
	}
	limits, _ := cgroup.Limits("", "self") // none that can be read
	if len(limits) > 0 || cgroup.MemoryLimited("", "self") {
		s.warn = append(s.warn, fmt.Sprintf("the recorder runs inside the cgroup of process %d (%s), which is limited: its CPU and memory count against the target's; run it outside, or bound it with --max-cpu and --max-memory", pid, path))
	}
}

// abandon ends what was begun where Start fails, and leaves the reason in the
// recording; p is the part that could not be started, nil where it has no process.
func (s *Session) abandon(p *part, why error) error {
	var absent []profile.Absent
	if p != nil {
		absent = p.absent
	}
	for _, started := range s.parts {
		started.finish()
	}
	return s.writer.Finish(func(m *profile.Meta) { m.Incomplete, m.Why, m.Absent = true, why.Error(), absent })
}

// each calls f for every part, while none can be added.
func (s *Session) each(f func(*part)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		p.mu.Lock()
		f(p)
		p.mu.Unlock()
	}
}

// Targets describes the processes that are recorded, those of the past too.
func (s *Session) Targets() []profile.Target {
	var out []profile.Target
	s.each(func(p *part) { out = append(out, p.target) })
	return out
}

// Recording lists the sources that are recorded of any target.
func (s *Session) Recording() []string {
	var out []string
	s.each(func(p *part) {
		for _, n := range p.names {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	})
	return out
}

// Absent lists what was asked for and cannot be recorded, with reasons.
func (s *Session) Absent() []profile.Absent {
	s.mu.Lock()
	several := len(s.parts) > 1
	s.mu.Unlock()
	var out []profile.Absent
	s.each(func(p *part) {
		for _, a := range p.absent {
			if several {
				a.Reason = "process " + p.target.ID + ": " + a.Reason
			}
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	})
	return out
}

// Work lists the counters of work done that are read at the window's edges.
func (s *Session) Work() []work.Counter {
	var out []work.Counter
	s.each(func(p *part) { out = append(out, p.opt.Work...) })
	return out
}

// Done is closed when there is nothing left to record, and Why says why: mostly
// that the target has ended. What was recorded until then is kept by Stop.
func (s *Session) Done() <-chan struct{} { return s.done }

// Why says why Done was closed, "" while it is not.
func (s *Session) Why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

func (s *Session) endEarly(why string) {
	s.endOnce.Do(func() {
		s.mu.Lock()
		s.why = why
		s.mu.Unlock()
		close(s.done)
	})
}

// Stop ends the window, detaches everything, writes the recording and returns
// its description. Later calls return the same.
func (s *Session) Stop() (profile.Meta, error) {
	s.once.Do(func() {
		close(s.quit)
		<-s.supervised
		s.meta, s.err = s.finish()
	})
	return s.meta, s.err
}
