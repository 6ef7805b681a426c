//go:build linux && (amd64 || arm64)

package thread

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contention-toolkit/contention/probes/bpf"
	"github.com/contention-toolkit/contention/profile"
)

// buildWakers makes the capture of who woke the threads: the waker's stack
// from its outermost frame to its innermost, a frame between, then the waiter's
// from its innermost. As a flame graph the waker stands on its head above the
// waiter.
func (r *Recorder) buildWakers(snap *snapshot) (*profile.Capture, error) {
	wakes := map[bpf.OffcpuWakeKey]waitValue{}
	if err := readMap(r.session.objs.Wakes, wakes); err != nil {
		return nil, err
	}
	p := profile.New(profile.Blocked, profile.Runnable, profile.Waits)
	p.Default = profile.Blocked.Type
	c := r.beside(profile.SourceThreadWakers, p, snap)
	stacks := map[uint64][]uint64{}
	for k, v := range wakes {
		frames := r.wakerFrames(&k, stacks)
		slices.Reverse(frames)
		waiter := waitKey{UserStack: k.UserStack, KernelStack: k.KernelStack, Tgid: k.Tgid, Reason: k.Reason, Comm: k.Comm}
		own := r.frames(&waiter, stacks)
		frames = append(append(frames, profile.Frame{Function: FrameBetween}), own...)
		labels := p.InternLabels(
			profile.Label{Key: profile.LabelReason, Value: reason(&waiter, own)},
			profile.Label{Key: profile.LabelThread, Value: comm(k.Comm)},
			profile.Label{Key: profile.LabelWaker, Value: comm(k.WakerComm)},
		)
		p.Add(p.InternFrames(frames), labels, int64(v.BlockedNs), int64(v.RunnableNs), int64(v.Waits))
	}
	c.Settings = map[string]string{"attached": "tp_btf sched_waking"}
	full := snap.counter(bpf.OffcpuCounterCOUNT_WAKERS_FULL)
	c.Loss = map[string]int64{"agg_map_full": full, "agg_map_full_ns": snap.counter(bpf.OffcpuCounterCOUNT_WAKERS_FULL_NS)}
	if full > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("the map of wakers was full %d times: raise MaxWaits above %d", full, r.opt.MaxWaits))
	}
	return c, nil
}

// wakerFrames are the waker's, innermost first. What an interrupt did ends at
// the interrupt: the thread that it came upon has nothing to do with it.
func (r *Recorder) wakerFrames(k *bpf.OffcpuWakeKey, cache map[uint64][]uint64) []profile.Frame {
	kernel, pseudo := r.addresses(k.WakerKernel, cache, FrameKernelFailed)
	out := pseudo
	if kernel != nil {
		out = wakingFrames(r.symbols.frames(r.symbols.kernel, kernel))
		if i := slices.IndexFunc(out, isInterrupt); i >= 0 {
			return append(out[:i:i], profile.Frame{Function: FrameInterrupt})
		}
	}
	if k.WakerTgid == 0 {
		return append(out, profile.Frame{Function: FrameOtherProcess})
	}
	user, pseudo := r.addresses(k.WakerUser, cache, FrameUserFailed)
	if user != nil {
		return append(out, r.symbols.frames(r.symbols.of(r.groups[k.WakerTgid]), user)...)
	}
	return append(out, pseudo...)
}

// wakingFrames leaves out the frames of the probe itself.
func wakingFrames(frames []profile.Frame) []profile.Frame {
	for i, f := range frames {
		if strings.HasPrefix(f.Function, "try_to_wake_up") {
			return frames[i:]
		}
	}
	return frames
}

// isInterrupt says whether a kernel function is where an interrupt begins.
func isInterrupt(f profile.Frame) bool {
	for _, prefix := range []string{"asm_sysvec_", "sysvec_", "asm_common_interrupt", "common_interrupt", "el1h_64_irq", "el0t_64_irq", "el1_irq", "el0_irq"} {
		if strings.HasPrefix(f.Function, prefix) {
			return true
		}
	}
	return false
}
