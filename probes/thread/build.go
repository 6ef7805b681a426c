//go:build linux && (amd64 || arm64)

package thread

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/contention-toolkit/contention/probes/bpf"
	"github.com/contention-toolkit/contention/profile"
)

// build makes the capture of what was observed; snap is the last reading.
func (r *Recorder) build(snap *snapshot, why string) *profile.Capture {
	p := profile.New(profile.Blocked, profile.Runnable, profile.Waits)
	p.Default = profile.Blocked.Type
	p.Start, p.Duration = r.at, r.since(snap.at)
	c := &profile.Capture{
		Source: profile.SourceThreads, Profile: p,
		Start: r.at, End: r.at.Add(p.Duration),
		Incomplete: why != "",
	}
	if why != "" {
		c.Warnings = append(c.Warnings, "the window ended early: "+why)
	}
	r.addSamples(c)
	r.account(c, snap)
	c.Loss = r.loss(snap)
	c.Settings = r.settings(snap)
	c.Warnings = append(c.Warnings, r.warnings(snap, c)...)
	c.Cost = profile.Cost{BPFNs: r.session.runtime, ProbeHits: r.session.runs, MemBytes: r.session.memory}
	return c
}

// addSamples resolves every kind of wait and adds it with its slices.
func (r *Recorder) addSamples(c *profile.Capture) {
	slices := profile.NewSliceBuilder(profile.SliceWidth)
	stacks := map[uint64][]uint64{}
	var shallow, all int64
	for k, g := range r.series.gains {
		if g.sum == [3]int64{} {
			continue
		}
		frames := r.frames(&k, stacks)
		stack := c.Profile.InternFrames(frames)
		labels := c.Profile.InternLabels(
			profile.Label{Key: profile.LabelReason, Value: reason(&k, frames)},
			profile.Label{Key: profile.LabelThread, Value: comm(k.Comm)},
		)
		i := c.Profile.Add(stack, labels, g.sum[:]...)
		if user := stacks[k.UserStack]; len(user) > 0 {
			all += g.sum[0] + g.sum[1]
			if len(user) <= shallowDepth {
				shallow += g.sum[0] + g.sum[1]
			}
		}
		for _, pt := range g.point {
			if pt.value != [3]int64{} {
				slices.Add(pt.at, i, pt.value[:]...)
			}
		}
	}
	c.Slices = slices.Slices()
	if w := framePointerWarning(shallow, all); w != "" {
		c.Warnings = append(c.Warnings, w)
	}
}

// shallowDepth is how many user frames a stack has at most when its code keeps
// no frame pointers: where the thread is, and what a stray register leads to.
const shallowDepth = 2

// framePointerWarning judges by the time with shallow user stacks among all that
// with user stacks.
func framePointerWarning(shallow, all int64) string {
	if shallow*2 <= all {
		return ""
	}
	return fmt.Sprintf("%d %% of the off-CPU time has user stacks of at most %d frames: the target seems to be built without frame pointers (-fno-omit-frame-pointer for C, C++ and Rust, -XX:+PreserveFramePointer for the JVM)",
		shallow*100/all, shallowDepth)
}

// frames are the kernel's frames and then the user's, innermost first.
func (r *Recorder) frames(k *waitKey, cache map[uint64][]uint64) []profile.Frame {
	kernel, pseudo := r.addresses(k.KernelStack, cache, FrameKernelFailed)
	out := pseudo
	if kernel != nil {
		out = r.symbols.kernelFrames(kernel)
	}
	switch {
	case k.Flags&flagSeeded != 0:
		if ips := r.walked[k.UserStack]; len(ips) > 0 {
			return append(out, r.symbols.frames(r.symbols.of(r.groups[k.Tgid]), ips)...)
		}
		return append(out, profile.Frame{Function: FrameUnseen})
	case k.Reason == bpf.OffcpuReasonREASON_STARTED:
		return append(out, profile.Frame{Function: FrameNewThread})
	}
	user, pseudo := r.addresses(k.UserStack, cache, FrameUserFailed)
	if user != nil {
		return append(out, r.symbols.frames(r.symbols.of(r.groups[k.Tgid]), user)...)
	}
	return append(out, pseudo...)
}

// addresses returns a stack of the kernel's map, or the frame that says why
// there is none. Stacks are read when they are needed: most kinds of wait share
// them.
func (r *Recorder) addresses(id uint64, cache map[uint64][]uint64, failed string) (ips []uint64, pseudo []profile.Frame) {
	name := ""
	switch bpf.OffcpuStackId(id) {
	case bpf.OffcpuStackIdSTACK_NONE:
		return nil, nil
	case bpf.OffcpuStackIdSTACK_FULL:
		name = FrameStacksFull
	case bpf.OffcpuStackIdSTACK_COLLISION:
		name = FrameCollision
	default:
		if id < uint64(bpf.OffcpuStackIdSTACK_FIRST) {
			name = failed
		}
	}
	if name == "" {
		ips, ok := cache[id]
		if !ok {
			var err error
			if ips, err = r.session.stack(id); err != nil {
				ips = nil
			}
			cache[id] = ips
		}
		if len(ips) > 0 {
			return ips, nil
		}
		name = failed
	}
	return nil, []profile.Frame{{Function: name}}
}

// reason is the label of a kind of wait.
func reason(k *waitKey, frames []profile.Frame) string {
	if k.Flags&flagMissed != 0 {
		return ReasonMissedWakeup
	}
	switch k.Reason {
	case bpf.OffcpuReasonREASON_INTERRUPTIBLE:
		return ReasonInterruptible
	case bpf.OffcpuReasonREASON_UNINTERRUPTIBLE:
		return ReasonUninterruptible
	case bpf.OffcpuReasonREASON_IDLE:
		return ReasonIdle
	case bpf.OffcpuReasonREASON_STOPPED:
		return ReasonStopped
	case bpf.OffcpuReasonREASON_STARTED:
		return ReasonStarted
	case bpf.OffcpuReasonREASON_YIELDED:
		// The kernel also reschedules on the way back to user space without
		// its preempt flag: only a system call makes it a yield.
		for _, f := range frames {
			if f.Kernel() && strings.Contains(f.Function, "sched_yield") {
				return ReasonYielded
			}
		}
	}
	return ReasonPreempted
}

// account closes the books over all threads that were there in the window.
func (r *Recorder) account(c *profile.Capture, snap *snapshot) {
	all := r.ended
	all.add(life{
		total:    uint64(snap.counter(bpf.OffcpuCounterCOUNT_ENDED_TOTAL_NS)),
		running:  uint64(snap.counter(bpf.OffcpuCounterCOUNT_ENDED_RUNNING_NS)),
		blocked:  uint64(snap.counter(bpf.OffcpuCounterCOUNT_ENDED_BLOCKED_NS)),
		runnable: uint64(snap.counter(bpf.OffcpuCounterCOUNT_ENDED_RUNNABLE_NS)),
		unknown:  uint64(snap.counter(bpf.OffcpuCounterCOUNT_ENDED_UNKNOWN_NS)),
	})
	busy := r.busy
	for _, t := range snap.tasks {
		l := lifeOf(&t, snap.at)
		all.add(l)
		busy = append(busy, profile.Busy{Name: comm(t.Comm), ID: int64(t.Pid), RunningNs: int64(l.running)})
	}
	// What found no room in the kernel's map is in the threads' sums, and not
	// in the profile: it is lost rather than blocked.
	blocked := snap.counter(bpf.OffcpuCounterCOUNT_WAITS_FULL_BLOCKED_NS)
	runnable := snap.counter(bpf.OffcpuCounterCOUNT_WAITS_FULL_RUNNABLE_NS)
	c.Accounting = &profile.Accounting{
		TotalNs:    int64(all.total) + r.lost,
		RunningNs:  int64(all.running),
		RunnableNs: int64(all.runnable) - runnable,
		BlockedNs:  int64(all.blocked) - blocked,
		UnknownNs:  int64(all.unknown),
		LostNs:     blocked + runnable + r.lost,
	}
	c.Busiest = busiest(busy)
}

// maxBusiest bounds the list of busiest threads.
const maxBusiest = 20

func busiest(b []profile.Busy) []profile.Busy {
	slices.SortFunc(b, func(x, y profile.Busy) int {
		if x.RunningNs != y.RunningNs {
			return int(max(-1, min(1, y.RunningNs-x.RunningNs)))
		}
		return int(x.ID - y.ID)
	})
	return b[:min(len(b), maxBusiest)]
}

// loss has every counter of what was not recorded as it should have been.
func (r *Recorder) loss(snap *snapshot) map[string]int64 {
	below, belowNs := snap.below(uint64(r.opt.MinBlocked))
	return map[string]int64{
		"missed_wakeups":      snap.counter(bpf.OffcpuCounterCOUNT_MISSED_WAKEUP),
		"missed_wakeup_ns":    snap.counter(bpf.OffcpuCounterCOUNT_MISSED_WAKEUP_NS),
		"missed_switch_ins":   snap.counter(bpf.OffcpuCounterCOUNT_MISSED_IN),
		"missed_switch_outs":  snap.counter(bpf.OffcpuCounterCOUNT_MISSED_OUT),
		"missed_switch_ns":    snap.counter(bpf.OffcpuCounterCOUNT_MISSED_NS),
		"skipped_probes":      r.session.recursed,
		"task_map_full":       snap.counter(bpf.OffcpuCounterCOUNT_TASKS_FULL),
		"task_map_full_ns":    r.lost,
		"agg_map_full":        snap.counter(bpf.OffcpuCounterCOUNT_WAITS_FULL),
		"agg_map_full_ns":     snap.counter(bpf.OffcpuCounterCOUNT_WAITS_FULL_BLOCKED_NS) + snap.counter(bpf.OffcpuCounterCOUNT_WAITS_FULL_RUNNABLE_NS),
		"stack_map_full":      snap.counter(bpf.OffcpuCounterCOUNT_STACKS_FULL),
		"stack_map_full_ns":   snap.counter(bpf.OffcpuCounterCOUNT_STACKS_FULL_NS),
		"stack_collisions":    snap.counter(bpf.OffcpuCounterCOUNT_COLLISION),
		"stack_collisions_ns": snap.counter(bpf.OffcpuCounterCOUNT_COLLISION_NS),
		"truncated_stacks":    snap.counter(bpf.OffcpuCounterCOUNT_TRUNCATED),
		"user_stack_failed":   snap.counter(bpf.OffcpuCounterCOUNT_USER_FAILED),
		"kernel_stack_failed": snap.counter(bpf.OffcpuCounterCOUNT_KERNEL_FAILED),
		"below_min":           snap.counter(bpf.OffcpuCounterCOUNT_BELOW_MIN) + int64(below),
		"below_min_ns":        snap.counter(bpf.OffcpuCounterCOUNT_BELOW_MIN_BLOCKED_NS) + snap.counter(bpf.OffcpuCounterCOUNT_BELOW_MIN_RUNNABLE_NS) + int64(belowNs),
		"unsymbolised_frames": int64(len(r.symbols.unknown)),
		"late_slices":         r.late,
		"left_out":            snap.counter(bpf.OffcpuCounterCOUNT_LEFT_OUT),
		"ends_map_full":       snap.counter(bpf.OffcpuCounterCOUNT_ENDED_FULL),
		"stale_threads":       snap.counter(bpf.OffcpuCounterCOUNT_STALE),
	}
}

func (r *Recorder) settings(snap *snapshot) map[string]string {
	n := func(c bpf.OffcpuCounter) string { return strconv.FormatInt(snap.counter(c), 10) }
	out := map[string]string{
		"attached":         "tp_btf sched_switch, sched_waking, sched_process_exit",
		"min_blocked":      r.opt.MinBlocked.String(),
		"admission":        "all",
		"max_stacks":       strconv.Itoa(r.opt.MaxStacks),
		"max_waits":        strconv.Itoa(r.opt.MaxWaits),
		"max_threads":      strconv.Itoa(r.opt.MaxThreads),
		"stack_depth":      strconv.Itoa(len(stack{}.Ip)),
		"switches_seen":    n(bpf.OffcpuCounterCOUNT_SWITCHES),
		"switches_matched": n(bpf.OffcpuCounterCOUNT_MATCHED),
		"wakings_matched":  n(bpf.OffcpuCounterCOUNT_WAKINGS),
		"waits_ended":      n(bpf.OffcpuCounterCOUNT_WAITS),
		"early_wakeups":    n(bpf.OffcpuCounterCOUNT_EARLY_WAKEUP),
		"processes":        strings.Trim(fmt.Sprint(r.opt.PIDs), "[]"),
	}
	if r.opt.AdmitAll > 0 {
		out["admission"] = fmt.Sprintf("all of %v or longer, shorter ones in proportion to their length, weighted", r.opt.AdmitAll)
		out["short_waits_kept"] = n(bpf.OffcpuCounterCOUNT_ADMITTED)
	}
	if r.opt.Cgroup != "" {
		out["cgroup"] = r.opt.Cgroup
	}
	if len(r.opt.TIDs) > 0 {
		out["thread_ids"] = strings.Trim(fmt.Sprint(r.opt.TIDs), "[]")
	}
	if len(r.opt.Names) > 0 {
		out["thread_names"] = strings.Join(r.opt.Names, ", ")
	}
	return out
}

// warnings are what a reader of the profile must know.
func (r *Recorder) warnings(snap *snapshot, c *profile.Capture) []string {
	out := r.symbols.notes
	if snap.counter(bpf.OffcpuCounterCOUNT_MATCHED) == 0 {
		out = append(out, fmt.Sprintf("0 of %d switches matched the target: its threads did not run, or the process is not the one meant",
			snap.counter(bpf.OffcpuCounterCOUNT_SWITCHES)))
	}
	if !r.session.ran {
		out = append(out, "the time in BPF programs is not known: statistics of BPF programs need CAP_SYS_ADMIN")
	}
	for _, f := range []struct {
		lost   bpf.OffcpuCounter
		what   string
		option string
		size   int
	}{
		{bpf.OffcpuCounterCOUNT_STACKS_FULL, "stacks", "MaxStacks", r.opt.MaxStacks},
		{bpf.OffcpuCounterCOUNT_WAITS_FULL, "kinds of wait", "MaxWaits", r.opt.MaxWaits},
		{bpf.OffcpuCounterCOUNT_TASKS_FULL, "threads", "MaxThreads", r.opt.MaxThreads},
	} {
		if n := snap.counter(f.lost); n > 0 {
			out = append(out, fmt.Sprintf("the map of %s was full %d times: raise %s above %d", f.what, n, f.option, f.size))
		}
	}
	return out
}
