package analysis

import (
	"sort"

	"github.com/contention-toolkit/contention/analysis/result"
)

// Compare sets the waits of two sides beside each other, each side being one
// attribution per run of the same source. Values are means over a side's runs.
// The rows of the primary operation come first, with a row of zeros when
// neither side has it; then the largest. Nothing is established here: every
// verdict is undecided.
func Compare(before, after []*Attribution, primary string) []result.Wait {
	b, a := side(before), side(after)
	keys := map[Key]bool{}
	for k := range b {
		keys[k] = true
	}
	for k := range a {
		keys[k] = true
	}
	var any *Attribution
	for _, x := range append(append([]*Attribution(nil), before...), after...) {
		any = x
		break
	}
	if any == nil {
		return nil
	}
	found := false
	var out []result.Wait
	for k := range keys {
		w := result.Wait{
			Operation: k.Operation, Site: k.Site, Class: k.Class, Idle: k.Idle,
			Plane: string(any.Plane), Source: string(any.Source),
			Before: b.value(k, before), After: a.value(k, after), Verdict: result.Undecided,
		}
		if x, y := w.Before.NsPerMsg, w.After.NsPerMsg; x != nil && y != nil {
			w.Delta.NsPerMsg = result.Float(*y - *x)
		}
		found = found || k.Operation == primary
		out = append(out, w)
	}
	if !found && primary != "" {
		zero := Key{Operation: primary, Class: ClassLock, Idle: IdleNo}
		out = append(out, result.Wait{
			Operation: primary, Class: ClassLock, Idle: IdleNo, Plane: string(any.Plane), Source: string(any.Source),
			Before: b.value(zero, before), After: a.value(zero, after), Verdict: result.Undecided,
		})
	}
	sort.Slice(out, func(i, j int) bool { return rowLess(out[i], out[j], primary) })
	return out
}

func rowLess(a, b result.Wait, primary string) bool {
	if p, q := a.Operation == primary, b.Operation == primary; p != q {
		return p
	}
	x, y := max(a.Before.ThreadsLost, a.After.ThreadsLost), max(b.Before.ThreadsLost, b.After.ThreadsLost)
	if x != y {
		return x > y
	}
	k, l := Key{a.Operation, a.Site, a.Class, a.Idle}, Key{b.Operation, b.Site, b.Class, b.Idle}
	return k.less(l)
}

// sideWaits holds, per wait, its rows in the runs of a side where it was seen.
type sideWaits map[Key][]seen

type seen struct {
	run  *Attribution
	wait Wait
}

func side(runs []*Attribution) sideWaits {
	out := sideWaits{}
	for _, r := range runs {
		for _, w := range r.Waits {
			out[w.Key] = append(out[w.Key], seen{r, w})
		}
	}
	return out
}

// value is the mean of a wait over all runs of its side; a run without the wait
// counts as zero.
func (s sideWaits) value(k Key, runs []*Attribution) result.WaitValue {
	var v result.WaitValue
	if len(runs) == 0 {
		return v
	}
	n := float64(len(runs))
	var perMsg float64
	known := true
	for _, r := range runs {
		known = known && r.Published > 0
	}
	var count int64
	for _, x := range s[k] {
		v.ThreadsLost += x.run.ThreadsLost(x.wait.OffCPUNs()) / n
		v.Samples += x.wait.Samples
		count += x.wait.Count
		if m := x.run.PerMessage(x.wait.OffCPUNs()); m != nil {
			perMsg += *m / n
		}
	}
	if known {
		v.NsPerMsg = &perMsg
	}
	if runs[0].Counted {
		v.Count = &count
	}
	v.Share, v.ShareLow, v.ShareHigh = s.shares(k, runs, (*Attribution).Share)
	v.BlockedShare, _, _ = s.shares(k, runs, (*Attribution).BlockedShare)
	return v
}

// shares is the mean share over the runs, nil when a run has too few samples to
// give one.
func (s sideWaits) shares(k Key, runs []*Attribution, of func(*Attribution, Wait) (Share, bool)) (share, low, high *float64) {
	var sum Share
	n := float64(len(runs))
	byRun := map[*Attribution]Wait{}
	for _, x := range s[k] {
		byRun[x.run] = x.wait
	}
	for _, r := range runs {
		w, ok := byRun[r]
		if !ok {
			w = Wait{Key: k}
			if k.Site == "" {
				w.Site = "-" // a row of zeros has a share: zero
			}
		}
		sh, ok := of(r, w)
		if !ok {
			return nil, nil, nil
		}
		sum.Share += sh.Share / n
		sum.Low += sh.Low / n
		sum.High += sh.High / n
	}
	return &sum.Share, &sum.Low, &sum.High
}
