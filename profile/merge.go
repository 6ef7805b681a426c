package profile

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// MergeCaptures returns one capture of what one source saw of several targets.
// Samples stay apart where their labels do, which is what LabelTarget is for (see
// Capture.SetTarget). Times are laid over each other: second k of the result is
// that second of the longest window, to the nearest slice. The captures are not
// changed; one alone is returned as it is.
//
// It fails where the captures are of different sources or sample types.
func MergeCaptures(cs []*Capture) (*Capture, error) {
	if len(cs) == 0 {
		return nil, fmt.Errorf("merge captures: none is given")
	}
	if len(cs) == 1 {
		return cs[0], nil
	}
	first := cs[0]
	out := &Capture{Source: first.Source, Start: first.Start, End: first.End, Settings: map[string]string{}, Loss: map[string]int64{}}
	for _, c := range cs {
		if c.Source != out.Source || !slices.Equal(c.Profile.SampleTypes, first.Profile.SampleTypes) {
			return nil, fmt.Errorf("merge captures: %s with %v and %s with %v are not alike", first.Source, first.Profile.SampleTypes, c.Source, c.Profile.SampleTypes)
		}
		if c.Start.Before(out.Start) {
			out.Start = c.Start
		}
		if c.End.After(out.End) {
			out.End = c.End
		}
	}
	out.Profile = New(first.Profile.SampleTypes...)
	p := out.Profile
	p.Default, p.PeriodType, p.Period, p.Comments = first.Profile.Default, first.Profile.PeriodType, first.Profile.Period, first.Profile.Comments
	p.Start, p.Duration = out.Start, out.End.Sub(out.Start)
	sl := slicesOf(cs)
	for _, c := range cs {
		index := p.add(c.Profile)
		if sl != nil {
			sl.addAll(c, out.Start, index)
		}
		for _, d := range c.Distributions {
			d.Sample = index[d.Sample]
			out.Distributions = append(out.Distributions, d)
		}
		out.Locks = append(out.Locks, c.Locks...)
		out.sum(c)
	}
	if sl != nil {
		out.Slices = sl.Slices()
	}
	out.Busiest = busiest(out.Busiest)
	return out, nil
}

// slicesOf returns a builder where one of the captures has slices.
func slicesOf(cs []*Capture) *SliceBuilder {
	for _, c := range cs {
		if c.Slices != nil {
			return NewSliceBuilder(c.Slices.Width)
		}
	}
	return nil
}

func (b *SliceBuilder) addAll(c *Capture, start time.Time, index []int) {
	if c.Slices == nil {
		return
	}
	shift := c.Start.Sub(start).Round(b.width)
	for _, e := range c.Slices.Entries {
		b.Add(shift+time.Duration(e.Slice)*c.Slices.Width, index[e.Sample], e.Values...)
	}
}

// add adds every sample of q and returns where each went.
func (p *Profile) add(q *Profile) []int {
	frames := make([]FrameID, len(q.frames))
	for i, f := range q.frames {
		frames[i] = p.InternFrame(f)
	}
	index := make([]int, len(q.Samples))
	var ids []FrameID
	for i, s := range q.Samples {
		ids = ids[:0]
		for _, f := range q.stacks[s.Stack] {
			ids = append(ids, frames[f])
		}
		index[i] = p.Add(p.InternStack(ids), p.InternLabels(q.labels[s.Labels]...), s.Values...)
	}
	return index
}

// sum adds what c says beside its samples.
func (c *Capture) sum(o *Capture) {
	for k, v := range o.Loss {
		c.Loss[k] += v
	}
	for k, v := range o.Settings {
		if was, ok := c.Settings[k]; ok && !slices.Contains(strings.Split(was, "; "), v) {
			v = was + "; " + v
		} else if ok {
			v = was
		}
		c.Settings[k] = v
	}
	if a := o.Accounting; a != nil {
		if c.Accounting == nil {
			c.Accounting = &Accounting{}
		}
		c.Accounting.add(a)
	}
	c.Cost.CPUNs += o.Cost.CPUNs
	c.Cost.BPFNs += o.Cost.BPFNs
	c.Cost.ProbeHits += o.Cost.ProbeHits
	c.Cost.ProbeNs += o.Cost.ProbeNs
	c.Cost.MemBytes += o.Cost.MemBytes
	c.Busiest = append(c.Busiest, o.Busiest...)
	c.Warnings = append(c.Warnings, o.Warnings...)
	c.Incomplete = c.Incomplete || o.Incomplete
}

func (a *Accounting) add(o *Accounting) {
	a.TotalNs += o.TotalNs
	a.RunningNs += o.RunningNs
	a.RunnableNs += o.RunnableNs
	a.BlockedNs += o.BlockedNs
	a.SyscallNs += o.SyscallNs
	a.UnknownNs += o.UnknownNs
	a.LostNs += o.LostNs
}

// mostBusy is how many of the busiest units a merged capture lists.
const mostBusy = 20

func busiest(b []Busy) []Busy {
	slices.SortStableFunc(b, func(x, y Busy) int { return int(min(1, max(-1, y.RunningNs-x.RunningNs))) })
	return b[:min(len(b), mostBusy)]
}

// SetTarget gives every sample and lock of the capture the ID of its target,
// and names it in warnings and units.
func (c *Capture) SetTarget(id string) {
	c.Profile.Relabel(func(_ []Frame, l Labels) Labels { return l.With(LabelTarget, id) })
	for i := range c.Locks {
		c.Locks[i].Target = id
	}
	for i, w := range c.Warnings {
		c.Warnings[i] = fmt.Sprintf("target %s: %s", id, w)
	}
	for i := range c.Busiest {
		c.Busiest[i].Target = id
	}
}
