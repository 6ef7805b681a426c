//go:build linux && amd64

package exact

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/probes/bpf"
	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

// builder turns a snapshot into captures.
type builder struct {
	r       *Recorder
	snap    *snapshot
	frames  map[uint64][]profile.Frame // by stack
	unnamed map[uint64]bool            // addresses without a symbol
}

func (r *Recorder) build(snap *snapshot, why string) []*profile.Capture {
	b := &builder{r: r, snap: snap, frames: map[uint64][]profile.Frame{}, unnamed: map[uint64]bool{}}
	b.resolveReasons()
	var out []*profile.Capture
	if r.opt.Waits {
		out = append(out, b.waits(), b.wakers())
	}
	if r.opt.Locks {
		out = append(out, b.locks())
	}
	for i, c := range out {
		c.Incomplete = why != ""
		c.Settings, c.Loss = b.settings(), b.loss()
		if i > 0 {
			continue // one session's cost and warnings, not one for each file
		}
		c.Cost = b.cost()
		c.Warnings = b.warnings()
	}
	return out
}

// resolveReasons puts the runtime's numbers in the place of reasons that stacks
// tell.
func (b *builder) resolveReasons() {
	t := b.r.target
	for k, v := range b.snap.waits {
		if k.Reason == reasonOfStack {
			delete(b.snap.waits, k)
			k.Reason = t.number(lockReason(b.stack(k.Stack)))
			b.snap.waits[k] = v
		}
	}
	for k, v := range b.snap.wakes {
		if k.Reason == reasonOfStack {
			delete(b.snap.wakes, k)
			k.Reason = t.number(lockReason(b.stack(k.Stack)))
			b.snap.wakes[k] = v
		}
	}
	for k, g := range b.r.series.gains {
		if k.Reason == reasonOfStack {
			delete(b.r.series.gains, k)
			k.Reason = t.number(lockReason(b.stack(k.Stack)))
			b.r.series.gains[k] = g
		}
	}
}

// capture makes an empty one over the window.
func (b *builder) capture(s profile.Source) *profile.Capture {
	length := time.Duration(b.snap.end - b.snap.start)
	p := profile.New(profile.Blocked, profile.Runnable, profile.Waits)
	p.Default, p.Start, p.Duration = profile.Blocked.Type, b.r.at, length
	return &profile.Capture{Source: s, Profile: p, Start: b.r.at, End: b.r.at.Add(length)}
}

// waits is the profile of every wait.
func (b *builder) waits() *profile.Capture {
	c := b.capture(profile.SourceExact)
	c.Accounting = b.accounting()
	dist, sample := map[int]profile.Distribution{}, map[waitKey]int{}
	for _, k := range sortedKeys(b.snap.waits, compareWaits) {
		v := b.snap.waits[k]
		i := b.add(c.Profile, k, v, b.stack(k.Stack), "")
		sample[k] = i
		d := dist[i]
		d.Sample = i
		d.Blocked = d.Blocked.Merge(signed(v.Blocked[:]))
		d.Runnable = d.Runnable.Merge(signed(v.Runnable[:]))
		dist[i] = d
	}
	c.Slices = b.r.series.slices(b.snap.waits, sample)
	c.Distributions = []profile.Distribution{}
	for _, i := range slices.Sorted(maps.Keys(dist)) {
		d := dist[i]
		d.Blocked, d.Runnable = d.Blocked.Trim(), d.Runnable.Trim()
		c.Distributions = append(c.Distributions, d)
	}
	return c
}

func (b *builder) add(p *profile.Profile, k waitKey, v waitValue, frames []profile.Frame, lock string) int {
	labels := []profile.Label{{Key: profile.LabelReason, Value: b.r.target.reason(k.Reason)}, {Key: profile.LabelLock, Value: lock}}
	if k.Flags&flagNoWakeup != 0 {
		labels = append(labels, profile.Label{Key: profile.LabelWakeup, Value: WakeupNotSeen})
	}
	return p.Add(p.InternFrames(frames), p.InternLabels(labels...), int64(v.BlockedNs), int64(v.RunnableNs), int64(v.Waits))
}

// wakers is the profile of who made waiters runnable: the waiter's stack, then
// the waker's the other way round, so that both meet at their leaves.
func (b *builder) wakers() *profile.Capture {
	c := b.capture(profile.SourceWakers)
	compare := func(x, y wakeKey) int {
		return cmp.Or(cmp.Compare(x.Stack, y.Stack), cmp.Compare(x.Lock, y.Lock), cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Waker, y.Waker))
	}
	for _, k := range sortedKeys(b.snap.wakes, compare) {
		v := b.snap.wakes[k]
		frames := slices.Clone(b.stack(k.Waker))
		slices.Reverse(frames)
		frames = append(frames, profile.Frame{Function: FrameBetween})
		frames = append(frames, b.stack(k.Stack)...)
		c.Profile.Add(c.Profile.InternFrames(frames), c.Profile.InternLabels(profile.Label{Key: profile.LabelReason, Value: b.r.target.reason(k.Reason)}),
			int64(v.BlockedNs), int64(v.RunnableNs), int64(v.Waits))
	}
	return c
}

// stack returns the frames of a stack, innermost first.
func (b *builder) stack(id uint64) []profile.Frame {
	f, ok := b.frames[id]
	if !ok {
		f = b.symbolise(id)
		b.frames[id] = f
	}
	return f
}

func (b *builder) symbolise(id uint64) []profile.Frame {
	st, ok := b.snap.stacks[id]
	if id < firstStack || !ok {
		name := FrameFailed
		switch bpf.GowaitGoStackId(id) {
		case bpf.GowaitGoStackIdGO_STACK_FULL:
			name = FrameFull
		case bpf.GowaitGoStackIdGO_STACK_COLLISION:
			name = FrameCollision
		case bpf.GowaitGoStackIdGO_STACK_DISTURBED:
			name = FrameDisturbed
		}
		return []profile.Frame{{Function: name}}
	}
	var out []profile.Frame
	for _, ip := range st.Ip[:min(int(st.Depth), len(st.Ip))] {
		if ip == 0 {
			break
		}
		fs := b.r.symbols.Frames(ip, true)
		if len(fs) == 1 && strings.HasPrefix(fs[0].Function, "0x") {
			b.unnamed[ip] = true
		}
		if fs[0].Function == "runtime.goexit" {
			break
		}
		out = append(out, fs...)
	}
	if out = plain(out); len(out) == 0 {
		return []profile.Frame{{Function: FrameFailed}}
	}
	return out
}

// plain drops what the compiler made, as Go's own profiles do.
func plain(frames []profile.Frame) []profile.Frame {
	out := frames[:0]
	for i, f := range frames {
		if i > 0 && symbol.Wrapper(f) {
			if !f.Inlined && len(out) > 0 {
				out[len(out)-1].Inlined = false
			}
			continue
		}
		out = append(out, f)
	}
	return out
}

// cost is what the target and the recorder paid.
func (b *builder) cost() profile.Cost {
	s := b.r.session
	c := profile.Cost{BPFNs: s.programs, ProbeHits: b.hits(), MemBytes: s.memory}
	if b.r.trap > 0 {
		c.ProbeNs = b.hits()*int64(b.r.trap) + s.programs
	}
	return c
}

func (b *builder) hits() int64 { return b.snap.count(bpf.GowaitGoCounterGO_HITS) }

func (b *builder) settings() map[string]string {
	n := func(c counter) string { return strconv.FormatInt(b.snap.count(c), 10) }
	r := b.r
	var points []string
	for _, name := range slices.Sorted(maps.Keys(r.target.points)) {
		points = append(points, fmt.Sprintf("%s+%d", name, r.target.points[name].at))
	}
	seconds := time.Duration(b.snap.end - b.snap.start).Seconds()
	out := map[string]string{
		"attached": "uprobes " + strings.Join(points, ", "), "go_version": r.target.image.Version, "budget_hits_per_second": strconv.Itoa(r.opt.Budget),
		"hits_per_second": fmt.Sprintf("%.0f", float64(b.hits())/max(seconds, 1e-9)), "most_hits_per_second": fmt.Sprintf("%.0f", r.most),
		"trap_ns": strconv.FormatInt(int64(r.trap), 10), "seeded_goroutines": strconv.Itoa(r.seeded), "open_at_end": strconv.FormatInt(b.snap.open, 10),
		"parks": n(bpf.GowaitGoCounterGO_PARKS), "readies": n(bpf.GowaitGoCounterGO_READIES), "executes": n(bpf.GowaitGoCounterGO_EXECUTES),
		"executes_not_parked": n(bpf.GowaitGoCounterGO_OTHER_EXECUTES), "acquires": n(bpf.GowaitGoCounterGO_ACQUIRES), "releases": n(bpf.GowaitGoCounterGO_RELEASES),
		"max_stacks": strconv.Itoa(r.opt.MaxStacks), "max_waits": strconv.Itoa(r.opt.MaxWaits), "max_locks": strconv.Itoa(r.opt.MaxLocks),
		"stack_depth": strconv.Itoa(len(stack{}.Ip)), "locks_only": strconv.FormatBool(r.opt.Locks && !r.opt.Waits),
	}
	if r.target.whyNot != nil {
		out["every_park_is_probed"] = fmt.Sprintf("the calls that contended locks make were not found: %v", r.target.whyNot)
	}
	if c := r.census; c != nil {
		out["goroutines_counted"] = fmt.Sprintf("%d times; running, syscall and the total come from there", c.times)
	}
	if r.stepped != "" {
		out["stepped_back"] = r.stepped
	}
	return out
}

// loss has every counter of what was not recorded as it should have been.
func (b *builder) loss() map[string]int64 {
	n := b.snap.count
	uncounted := int64(0)
	if c := b.r.census; c != nil {
		uncounted = c.failed
	}
	return map[string]int64{
		"counts_of_goroutines_failed": uncounted,
		"wakeups_not_seen":            n(bpf.GowaitGoCounterGO_NO_WAKEUPS), "wakeups_not_seen_ns": n(bpf.GowaitGoCounterGO_NO_WAKEUP_NS),
		"ends_not_seen": n(bpf.GowaitGoCounterGO_REPARKS), "ends_not_seen_ns": n(bpf.GowaitGoCounterGO_REPARK_NS),
		"stale": n(bpf.GowaitGoCounterGO_STALE), "unreadable": n(bpf.GowaitGoCounterGO_UNREADABLE),
		"state_map_full": n(bpf.GowaitGoCounterGO_STATES_FULL), "agg_map_full": n(bpf.GowaitGoCounterGO_WAITS_FULL),
		"agg_map_full_ns": n(bpf.GowaitGoCounterGO_WAITS_FULL_NS), "waker_map_full": n(bpf.GowaitGoCounterGO_WAKES_FULL),
		"lock_map_full": n(bpf.GowaitGoCounterGO_LOCKS_FULL), "stack_map_full": n(bpf.GowaitGoCounterGO_STACKS_FULL),
		"stack_collisions": n(bpf.GowaitGoCounterGO_COLLISION), "stacks_disturbed": n(bpf.GowaitGoCounterGO_DISTURBED),
		"truncated_stacks": n(bpf.GowaitGoCounterGO_TRUNCATED), "stack_failed": n(bpf.GowaitGoCounterGO_STACK_FAILURES),
		"skipped_probes": b.r.session.missed, "unsymbolised_frames": int64(len(b.unnamed)),
	}
}

// warnings are what a reader of the profile must know.
func (b *builder) warnings() []string {
	out := b.r.notes
	if b.r.stepped != "" {
		out = append(out, b.r.stepped)
	}
	if b.hits() == 0 {
		out = append(out, "no probe fired in the target: nothing in it was parked or run, or it is not the process meant")
	}
	for _, f := range []struct {
		lost   counter
		what   string
		option string
		size   int
	}{
		{bpf.GowaitGoCounterGO_STACKS_FULL, "stacks", "MaxStacks", b.r.opt.MaxStacks},
		{bpf.GowaitGoCounterGO_WAITS_FULL, "kinds of wait", "MaxWaits", b.r.opt.MaxWaits},
		{bpf.GowaitGoCounterGO_LOCKS_FULL, "locks", "MaxLocks", b.r.opt.MaxLocks},
	} {
		if n := b.snap.count(f.lost); n > 0 {
			out = append(out, fmt.Sprintf("exact mode: the map of %s was full %d times: raise %s above %d", f.what, n, f.option, f.size))
		}
	}
	return out
}

func signed(v []uint64) profile.Histogram {
	out := make(profile.Histogram, len(v))
	for i, n := range v {
		out[i] = int64(n)
	}
	return out
}

func compareWaits(x, y waitKey) int {
	return cmp.Or(cmp.Compare(x.Stack, y.Stack), cmp.Compare(x.Lock, y.Lock), cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Flags, y.Flags))
}

func sortedKeys[K comparable, V any](m map[K]V, compare func(K, K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}
