package pprofhttp

import (
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// difference is what a pair of cumulative reads says about the time between.
type difference struct {
	p    *profile.Profile // stacks that grew
	down int              // stacks with a counter below its earlier value
	ex   string           // one of them
}

// subtract returns after − before, stack by symbolised stack; before may be nil
// for "nothing yet". Equal stacks that either read holds twice are one. Stacks
// that did not change are left out, those that went down are counted, not kept.
func subtract(after, before *profile.Profile) difference {
	all := profile.New(after.SampleTypes...)
	addTo(all, after, 1)
	if before != nil {
		addTo(all, before, -1)
	}
	d := difference{p: profile.New(after.SampleTypes...)}
	for _, s := range all.Samples {
		grew, fell := false, false
		for _, v := range s.Values {
			grew = grew || v > 0
			fell = fell || v < 0
		}
		if fell {
			d.down++
			if d.ex == "" {
				d.ex = stackName(all.Frames(s.Stack))
			}
		} else if grew {
			d.p.Add(d.p.InternFrames(all.Frames(s.Stack)), d.p.InternLabels(all.Labels(s.Labels)...), s.Values...)
		}
	}
	return d
}

// addTo adds every sample of src, times sign, to dst, which has the same sample
// types.
func addTo(dst, src *profile.Profile, sign int64) {
	values := make([]int64, len(src.SampleTypes))
	for _, s := range src.Samples {
		for i, v := range s.Values {
			values[i] = sign * v
		}
		dst.Add(dst.InternFrames(src.Frames(s.Stack)), dst.InternLabels(src.Labels(s.Labels)...), values...)
	}
}

// stackName is a short name of a stack for messages: its two leaf-most frames.
func stackName(frames []profile.Frame) string {
	names := make([]string, 0, 2)
	for _, f := range frames[:min(2, len(frames))] {
		names = append(names, f.Function)
	}
	return strings.Join(names, " ← ")
}
