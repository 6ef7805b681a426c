package main

import (
	"slices"
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// oneTarget leaves in a recording of several targets what was recorded of one:
// its samples, its locks and its part of the window.
func oneTarget(rec *profile.Recording, id string) error {
	t := rec.Meta.Target(id)
	if t == nil || id == "" {
		var ids []string
		for _, t := range rec.Meta.Targets {
			if t.ID != "" {
				ids = append(ids, t.ID)
			}
		}
		if len(ids) == 0 {
			return usageError("--target %s: recording %s has one target only; leave --target out", id, rec.Dir)
		}
		return usageError("--target %s: recording %s has no such target; it has %s", id, rec.Dir, strings.Join(ids, ", "))
	}
	target := *t
	for s, p := range rec.Profiles {
		rec.Profiles[s] = p.Select(func(_ []profile.Frame, l profile.Labels) bool { return l.Get(profile.LabelTarget) == id })
		info := rec.Meta.Info(s)
		if info.Window.Start.Before(target.Part.Start) {
			info.Window.Start = target.Part.Start
		}
		if info.Window.End.After(target.Part.End) {
			info.Window.End = target.Part.End
		}
		info.Window.DurationNs = max(0, int64(info.Window.End.Sub(info.Window.Start)))
		info.Accounting = nil // known for all targets together only
	}
	rec.Slices = map[profile.Source]*profile.Slices{}
	rec.Distributions = map[profile.Source][]profile.Distribution{}
	rec.Locks = slices.DeleteFunc(rec.Locks, func(l profile.Lock) bool { return l.Target != id })
	rec.Meta.Targets = []profile.Target{target}
	if len(rec.Meta.Work) > 0 {
		rec.Meta.Work = nil
		rec.Meta.Warnings = append(rec.Meta.Warnings, "work is counted for all targets together: nothing per message is told of one")
	}
	return nil
}
