package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/flamegraph"
	"github.com/contention-toolkit/contention/profile"
)

// Units of a flame graph.
const (
	unitAuto       = "" // per message where the work is known on every side, else per second
	unitTotal      = "total"
	unitShare      = "share"
	unitPerSecond  = "per-second"
	unitPerMessage = "per-message"
)

// graphSpec says what a flame graph shows. Each side holds one recording per run.
type graphSpec struct {
	source        profile.Source
	before, after []*profile.Recording // after is empty for a single graph
	names         [2]string            // of the sides
	title         string
	unit          string
	values        []string // sample types to sum, none for the graph's default
	idle          bool
	application   []string
	sameBuild     bool // both sides ran one executable: names are joined as recorded
	notes         []string
}

// graph is a flame graph ready to be written.
type graph struct {
	spec  graphSpec
	opt   flamegraph.Options
	sides [2][]flamegraph.Run
	notes []string
}

// newGraph reads profiles, scales and filters out of the recordings.
func newGraph(s graphSpec) (*graph, error) {
	g := &graph{spec: s, notes: s.notes}
	all := append(append([]*profile.Recording(nil), s.before...), s.after...)
	c, err := classifierFor(all[0].Meta.Targets, s.application)
	if err != nil {
		return nil, err
	}
	plane := s.source.Plane()
	g.opt = flamegraph.Options{Values: s.values, Application: c.Application, TrimScheduler: true}
	if s.sameBuild {
		g.opt.Names = flamegraph.NamesRaw
	}
	if !s.idle {
		g.opt.Keep = func(frames []profile.Frame, l profile.Labels) bool {
			a := c.Classify(analysis.Stack{Plane: plane, Reason: l.Get(profile.LabelReason), Thread: l.Get(profile.LabelThread), Frames: frames})
			return a.Idle != analysis.IdleYes
		}
	}
	var attrs []*analysis.Attribution
	for _, r := range all {
		a, err := analysis.Attribute(r, s.source, c)
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, a)
	}
	unit, err := chooseUnit(s.unit, attrs)
	if err != nil {
		return nil, err
	}
	g.spec.unit = unit
	g.opt.Per = map[string]string{unitPerSecond: "second", unitPerMessage: "message"}[unit]
	for i, r := range all {
		side := 0
		if i >= len(s.before) {
			side = 1
		}
		run := flamegraph.Run{Profile: r.Profiles[s.source], Scale: 1}
		switch unit {
		case unitPerSecond:
			run.Scale = attrs[i].Window.Seconds()
		case unitPerMessage:
			run.Scale = attrs[i].Published
		case unitShare:
			if run.Scale, err = g.onePercent(run.Profile); err != nil {
				return nil, err
			}
		}
		g.sides[side] = append(g.sides[side], run)
	}
	if unit == unitShare {
		g.opt.Unit = "%"
	}
	return g, nil
}

// onePercent is the hundredth part of what a graph of p shows.
func (g *graph) onePercent(p *profile.Profile) (float64, error) {
	t, err := flamegraph.Build(p, g.opt)
	if err != nil {
		return 0, err
	}
	if t.Shown <= 0 {
		return 1, nil
	}
	return t.Shown / 100, nil
}

// chooseUnit picks the unit, or refuses one that a recording cannot give.
func chooseUnit(unit string, attrs []*analysis.Attribution) (string, error) {
	work, window := true, true
	for _, a := range attrs {
		work = work && a.Published > 0
		window = window && a.Window > 0
	}
	switch unit {
	case unitTotal, unitShare:
		return unit, nil
	case unitAuto:
		if work {
			return unitPerMessage, nil
		}
		if window {
			return unitPerSecond, nil
		}
		return unitTotal, nil
	case unitPerMessage:
		if !work {
			return "", fmt.Errorf("--unit per-message: a recording holds no count of messages; record with --work URL#metric, or use --unit per-second")
		}
	case unitPerSecond:
		if !window {
			return "", fmt.Errorf("--unit per-second: a recording does not say how long its window was; use --unit total")
		}
	default:
		return "", usageError("--unit %q is not known; use total, share, per-second or per-message", unit)
	}
	return unit, nil
}

// svg draws the graph.
func (g *graph) svg() ([]byte, error) {
	o := flamegraph.SVGOptions{
		Title: g.spec.title, Plane: string(g.spec.source.Plane()), Source: string(g.spec.source),
		Before: g.spec.names[0], After: g.spec.names[1], Notes: g.notes,
	}
	var buf bytes.Buffer
	if len(g.sides[1]) == 0 {
		opt := g.opt
		opt.Scale = g.sides[0][0].Scale
		t, err := flamegraph.Build(g.sides[0][0].Profile, opt)
		if err != nil {
			return nil, err
		}
		err = flamegraph.WriteSVG(&buf, t, o)
		return buf.Bytes(), err
	}
	t, err := flamegraph.BuildDiff(g.sides[0], g.sides[1], g.opt)
	if err != nil {
		return nil, err
	}
	err = flamegraph.WriteDiffSVG(&buf, t, o)
	return buf.Bytes(), err
}

// folded writes the only side as folded stacks, in whole units of the source.
func (g *graph) folded() ([]byte, error) {
	var buf bytes.Buffer
	err := flamegraph.WriteFolded(&buf, g.sides[0][0].Profile, g.opt)
	return buf.Bytes(), err
}

// pprof writes the only side as a pprof file, idle waits left out as asked.
func (g *graph) pprof() ([]byte, error) {
	p := g.sides[0][0].Profile
	out := profile.New(p.SampleTypes...)
	out.Default, out.Start, out.Duration, out.PeriodType, out.Period, out.Comments = p.Default, p.Start, p.Duration, p.PeriodType, p.Period, p.Comments
	for _, s := range p.Samples {
		frames, labels := p.Frames(s.Stack), p.Labels(s.Labels)
		if g.opt.Keep == nil || g.opt.Keep(frames, labels) {
			out.Add(out.InternFrames(frames), out.InternLabels(labels...), s.Values...)
		}
	}
	var buf bytes.Buffer
	err := profile.Write(&buf, out)
	return buf.Bytes(), err
}

// merged joins several runs of one side into one recording's worth of profile
// for a graph of that side alone: times and messages are summed.
func mergeRuns(recs []*profile.Recording, source profile.Source) (*profile.Recording, error) {
	first := recs[0]
	if len(recs) == 1 {
		return first, nil
	}
	out := *first
	p := profile.New(first.Profiles[source].SampleTypes...)
	p.Default, p.Start = first.Profiles[source].Default, first.Profiles[source].Start
	info := *first.Meta.Info(source)
	info.Window.DurationNs, info.Accounting = 0, nil
	work := map[string]profile.WorkCounter{}
	for _, r := range recs {
		q, i := r.Profiles[source], r.Meta.Info(source)
		if q == nil || i == nil || strings.Join(typeNames(q), " ") != strings.Join(typeNames(p), " ") {
			return nil, fmt.Errorf("recording %s: its %s differ in kind from those of %s", r.Dir, source, first.Dir)
		}
		for _, s := range q.Samples {
			p.Add(p.InternFrames(q.Frames(s.Stack)), p.InternLabels(q.Labels(s.Labels)...), s.Values...)
		}
		info.Window.DurationNs += i.Window.DurationNs
		for _, w := range r.Meta.Work {
			sum, ok := work[w.Role]
			if !ok {
				sum = profile.WorkCounter{Role: w.Role, URL: w.URL, Metric: w.Metric, StartTime: w.StartTime, EndTime: w.StartTime}
			}
			sum.End += w.Delta()
			sum.EndTime = sum.EndTime.Add(w.EndTime.Sub(w.StartTime))
			sum.Reset = sum.Reset || w.Reset
			work[w.Role] = sum
		}
	}
	out.Profiles = map[profile.Source]*profile.Profile{source: p}
	out.Slices = nil
	out.Meta.Sources = []profile.SourceInfo{info}
	out.Meta.Work = nil
	for _, role := range []string{profile.WorkPublished, profile.WorkDelivered} {
		if w, ok := work[role]; ok {
			out.Meta.Work = append(out.Meta.Work, w)
		}
	}
	return &out, nil
}

func typeNames(p *profile.Profile) []string {
	var out []string
	for _, t := range p.SampleTypes {
		out = append(out, t.Type+"/"+t.Unit)
	}
	return out
}
