package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// WakerFrame stands between the waker's frames and the waiter's in a profile of
// wakers.
const WakerFrame = "--"

// Wake is waits at one site that were ended from another.
type Wake struct {
	Key           // of the waiter
	Waker  string // the waker's application frame nearest the leaf; without one, its innermost frame
	Reason string // wait reason, as the runtime has it
	Value
}

// Wakes is who made whom runnable.
type Wakes struct {
	Window    time.Duration
	Published float64 // messages acknowledged to producers in the window, 0 when unknown
	Rows      []Wake  // most off-CPU time first
	Total     Value
	Idle      Value // of Total: idle yes
}

// AttributeWakers sums up the wakers' profile of a recording by waiter and waker.
func AttributeWakers(rec *profile.Recording, c *Classifier) (*Wakes, error) {
	info, p := rec.Meta.Info(profile.SourceWakers), rec.Profiles[profile.SourceWakers]
	if info == nil || p == nil {
		return nil, fmt.Errorf("attribute wakers: the recording %s holds no %s", rec.Dir, profile.SourceWakers.File())
	}
	cols, err := columnsOf(p)
	if err != nil {
		return nil, fmt.Errorf("attribute wakers of %s: %w", rec.Dir, err)
	}
	type key struct {
		Key
		waker, reason string
	}
	sums := map[key]Value{}
	out := &Wakes{Window: time.Duration(info.Window.DurationNs), Published: messages(rec.Meta.WorkOf(profile.WorkPublished), info.Window)}
	for _, s := range p.Samples {
		waiter, waker := splitWaker(p.Frames(s.Stack))
		reason := p.Labels(s.Labels).Get(profile.LabelReason)
		a := c.Classify(Stack{Plane: profile.PlaneGoroutine, Reason: reason, Frames: waiter})
		k := key{Key{a.Operation, a.Site, a.Class, a.Idle}, c.site(waker), reason}
		v := cols.value(s.Values)
		sum := sums[k]
		sum.add(v)
		sums[k] = sum
		out.Total.add(v)
		if a.Idle == IdleYes {
			out.Idle.add(v)
		}
	}
	for k, v := range sums {
		out.Rows = append(out.Rows, Wake{k.Key, k.waker, k.reason, v})
	}
	slices.SortFunc(out.Rows, func(x, y Wake) int {
		return cmp.Or(cmp.Compare(y.OffCPUNs(), x.OffCPUNs()), cmp.Compare(x.Site, y.Site), cmp.Compare(x.Waker, y.Waker),
			cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Operation, y.Operation), cmp.Compare(x.Class, y.Class), cmp.Compare(x.Idle, y.Idle))
	})
	return out, nil
}

// splitWaker returns both stacks of a sample, each leaf first: the waker's is
// stored the other way round, before the frame that parts them.
func splitWaker(frames []profile.Frame) (waiter, waker []profile.Frame) {
	i := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Function == WakerFrame })
	if i < 0 {
		return frames, nil
	}
	waker = slices.Clone(frames[:i])
	slices.Reverse(waker)
	return frames[i+1:], waker
}

// site is the application frame nearest the leaf, or the innermost frame.
func (c *Classifier) site(frames []profile.Frame) string {
	for _, f := range frames {
		if c.Application(f) {
			return elideTypes(f.Function)
		}
	}
	if len(frames) == 0 {
		return ""
	}
	return frames[0].Function
}
