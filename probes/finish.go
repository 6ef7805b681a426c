package probes

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// finish ends the parts that are under way, and writes the recording.
func (s *Session) finish() (profile.Meta, error) {
	end := readEdge(0)
	for _, p := range s.live {
		go p.finish()
	}
	several := len(s.parts) > 1
	bySource := map[profile.Source][]*profile.Capture{}
	var order []profile.Source
	var counters []profile.WorkCounter
	var why []string
	for _, p := range s.parts {
		o := <-p.out
		counters = append(counters, o.counters...)
		why = append(why, o.why...)
		for _, c := range o.captures {
			if p.fate != lives && s.succeeded(p) {
				c.Incomplete = false // the next part goes on from there
			}
			if c.Incomplete {
				why = append(why, fmt.Sprintf("%s ended before the window did", c.Source))
			}
			if several {
				c.SetTarget(p.target.ID)
			}
			if bySource[c.Source] == nil {
				order = append(order, c.Source)
			}
			bySource[c.Source] = append(bySource[c.Source], c)
		}
	}
	var failed []error
	for _, src := range order {
		c, err := profile.MergeCaptures(bySource[src])
		if err == nil {
			err = s.writer.Capture(c)
		}
		failed = append(failed, err)
	}
	var meta profile.Meta
	err := s.writer.Finish(func(m *profile.Meta) {
		s.complete(m, end, counters)
		if len(why) > 0 {
			m.Incomplete, m.Why = true, why[0]
		}
		meta = *m
	})
	return meta, errors.Join(append(failed, err)...)
}

// succeeded says whether another part took the place of one that ended.
func (s *Session) succeeded(p *part) bool {
	for _, q := range s.parts {
		if q.target.Before == p.target.ID && q.target.Began != profile.BeganFork {
			return true
		}
	}
	return false
}

// complete fills in everything that is known when the window has ended.
func (s *Session) complete(m *profile.Meta, end edge, counters []profile.WorkCounter) {
	m.Window = profile.Window{Start: s.begin.at, End: end.at, DurationNs: int64(end.at.Sub(s.begin.at))}
	m.Absent = s.Absent()
	if counters != nil {
		m.Work = counters
	}
	m.Host = profile.Host{Kernel: KernelRelease(), Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	m.Warnings = append(m.Warnings, s.warn...)
	several := len(s.parts) > 1
	m.Targets = nil
	for _, p := range s.parts {
		t := p.target
		for _, w := range p.warn {
			if several {
				w = "target " + t.ID + ": " + w
			}
			m.Warnings = append(m.Warnings, w)
		}
		m.Warnings = append(m.Warnings, story(t, m.Window)...)
		for _, l := range t.CPULimits {
			m.Host.ThrottledNs = max(m.Host.ThrottledNs, l.NanosLost)
		}
		if !several && t.Ended == "" {
			t.ID, t.Part = "", profile.Window{}
		}
		m.Targets = append(m.Targets, t)
	}
	m.Warnings = append(m.Warnings, s.uncounted()...)
	if s.left > 0 {
		m.Warnings = append(m.Warnings, fmt.Sprintf("%d more processes are not recorded: at most %d are at one time, and %d in one window", s.left, maxTargets, maxParts))
	}
	if s.why != "" && len(s.live) > 0 {
		m.Warnings = append(m.Warnings, "the window ended early: "+s.why)
	}
	m.Recorder.CPUNs = int64(end.selfCPU - s.begin.selfCPU)
	for _, src := range m.Sources {
		m.Recorder.BPFNs += src.Cost.BPFNs
		m.Recorder.ProbeHits += src.Cost.ProbeHits
		m.Recorder.ProbeNs += src.Cost.ProbeNs
		m.Recorder.MemBytes += src.Cost.MemBytes
	}
}

// uncounted names the targets that took the place of one whose work was counted,
// and whose own was not: figures per message lack their messages.
func (s *Session) uncounted() []string {
	var out []string
	counted := map[string]bool{}
	for _, p := range s.parts {
		own := p.watch != nil && len(p.opt.Work) > 0
		if t := p.target; !own && counted[t.Before] && t.Began != profile.BeganFork {
			out = append(out, fmt.Sprintf("target %s: its work is not counted, that of target %s before it is: figures per message are too high; look at one target with --target", t.ID, t.Before))
		}
		counted[p.target.ID] = own
	}
	return out
}

// story says what a reader must know of one target's part.
func story(t profile.Target, w profile.Window) []string {
	var out []string
	at := func(x time.Time) string { return fmt.Sprintf("%.1f s", x.Sub(w.Start).Seconds()) }
	switch t.Began {
	case profile.BeganExec:
		out = append(out, fmt.Sprintf("target %s is process %d after it ran another program (%s), from %s of the window on", t.ID, t.PID, t.Executable, at(t.Part.Start)))
	case profile.BeganRestart:
		out = append(out, fmt.Sprintf("target %s took the place of %s at %s of the window", t.ID, t.Before, at(t.Part.Start)))
	case profile.BeganFork:
		out = append(out, fmt.Sprintf("target %s was started by %s and is recorded from %s of the window on", t.ID, t.Before, at(t.Part.Start)))
	}
	if t.Ended == profile.EndedExit {
		out = append(out, fmt.Sprintf("process %d ended at %s of the window", t.PID, at(t.Part.End)))
	}
	for _, l := range t.CPULimits {
		if l.NanosLost > 0 {
			out = append(out, fmt.Sprintf("the CPU quota of cgroup %s, %.2f CPUs, kept process %d from running in %d of %d periods, for %v of CPU time in all: that is in its runnable time",
				l.Cgroup, float64(l.QuotaNs)/float64(l.PeriodNs), t.PID, l.Throttled, l.Periods, time.Duration(l.NanosLost).Round(time.Millisecond)))
		}
	}
	return out
}
