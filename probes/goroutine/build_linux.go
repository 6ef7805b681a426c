package goroutine

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

// unseen stands for a stack that could not be read.
const unseen = "[stack not read]"

// build turns what was summed into a capture.
func (s *Sampler) build() *profile.Capture {
	a := s.agg
	a.flush()
	end := a.last
	p := profile.New(profile.Blocked, profile.Runnable, profile.Samples, profile.ValueType{Type: "syscall", Unit: "nanoseconds"})
	p.Default, p.Start, p.Duration = profile.Blocked.Type, a.start, end.Sub(a.start)
	p.PeriodType, p.Period = profile.ValueType{Type: "wall", Unit: "nanoseconds"}, int64(s.opt.period())
	b := profile.NewSliceBuilder(profile.SliceWidth)
	index := map[*entry]int{}
	var unsymbolised int64
	for _, e := range a.entries {
		stack, unknown := s.frames(e)
		if unknown {
			unsymbolised += e.values[samplesValue]
		}
		labels := []profile.Label{{Key: profile.LabelReason, Value: s.reason(e)}}
		if e.gopc != 0 {
			f := s.symbols.Frames(e.gopc, true)
			labels = append(labels, profile.Label{Key: profile.LabelCreator, Value: f[len(f)-1].Function})
		}
		index[e] = p.Add(p.InternFrames(stack), p.InternLabels(labels...), e.values[:]...)
	}
	for _, f := range a.flushed {
		b.Add(time.Duration(f.slice)*profile.SliceWidth, index[f.entry], f.values[:]...)
	}
	c := &profile.Capture{
		Source: profile.SourceGoroutines, Profile: p, Slices: b.Slices(), Start: a.start, End: end,
		Accounting: &profile.Accounting{
			TotalNs: a.total, RunningNs: a.running, RunnableNs: a.byState[runnableValue], BlockedNs: a.byState[blockedValue],
			SyscallNs: a.byState[syscallValue], UnknownNs: a.unknown, LostNs: a.lost,
		},
		Settings: map[string]string{
			"hz": strconv.Itoa(s.opt.Hz), "max_depth": strconv.Itoa(s.opt.MaxDepth), "budget_cpu": fmt.Sprint(s.opt.Budget),
			"ticks": strconv.FormatInt(a.ticks, 10), "weighted_ticks": strconv.FormatInt(a.weighted, 10), "go_version": s.image.Version, "layout_from": s.layout(),
		},
		Loss: map[string]int64{
			"racy": a.loss.racy, "truncated_stacks": a.loss.truncated, "unreadable": a.loss.unreadable, "no_stack": a.loss.noStack,
			"stacks_full": a.loss.stacksFull, "slices_full": a.loss.slicesFull, "unsymbolised_frames": int64(len(s.unnamed)), "unsymbolised_samples": unsymbolised, "overrun_ticks": a.overrun, "throttled_ticks": a.throttled,
		},
		Busiest: s.busiest(), Cost: profile.Cost{CPUNs: int64(s.cpu), MemBytes: a.memory()},
	}
	if a.total > 0 && a.ticks > 0 {
		c.Settings["goroutines_mean"] = strconv.FormatFloat(float64(a.total)/float64(max(int64(a.last.Sub(a.start)), 1)), 'f', 1, 64)
	}
	if s.err != nil && !errors.Is(s.err, unix.ESRCH) {
		c.Warnings = append(c.Warnings, fmt.Sprintf("goroutine sampler: %v", s.err))
	}
	select {
	case <-s.gone:
		c.Incomplete = true
	default:
	}
	return c
}

func (s *Sampler) layout() string {
	if s.image.FromDWARF {
		return "DWARF"
	}
	return "table"
}

// frames symbolises a stack, innermost first, and says whether part of it has
// no name. Left out are the outermost frame, where every goroutine returns to,
// and what the compiler made, as Go's own profiles do.
func (s *Sampler) frames(e *entry) ([]profile.Frame, bool) {
	if len(e.pcs) == 0 {
		return []profile.Frame{{Function: unseen}}, false
	}
	var out []profile.Frame
	unknown := false
	for i, pc := range e.pcs {
		f := s.symbols.Frames(pc, false)
		if len(f) == 1 && strings.HasPrefix(f[0].Function, "0x") {
			unknown = true
			s.unnamed[pc] = true
		}
		if i == len(e.pcs)-1 && i > 0 && f[0].Function == "runtime.goexit" {
			break
		}
		out = append(out, f...)
	}
	return s.plain(out), unknown
}

// plain drops wrappers, and remembers what those at the stack's end call: the
// goroutine is known by that.
func (s *Sampler) plain(frames []profile.Frame) []profile.Frame {
	if n := len(frames); n > 1 && symbol.Wrapper(frames[n-1]) {
		s.entries[frames[n-1].Function] = frames[n-2].Function
	}
	out := frames[:0]
	for i, f := range frames {
		if i > 0 && symbol.Wrapper(f) {
			// What was inlined into the wrapper stands for it.
			if !f.Inlined {
				out[len(out)-1].Inlined = false
			}
			continue
		}
		out = append(out, f)
	}
	return out
}

// reason is the label of an entry: the runtime's words, or the state.
func (s *Sampler) reason(e *entry) string {
	switch e.status {
	case statusRunnable:
		return "runnable"
	case statusSyscall:
		return "syscall"
	case statusPreempted:
		return "preempted"
	}
	if int(e.reason) < len(s.reasons) && s.reasons[e.reason] != "" {
		return s.reasons[e.reason]
	}
	return fmt.Sprintf("wait reason %d", e.reason)
}

// maxBusiest is how many goroutines are listed by their running time.
const maxBusiest = 20

func (s *Sampler) busiest() []profile.Busy {
	var out []profile.Busy
	for goid, b := range s.agg.runs {
		out = append(out, profile.Busy{ID: int64(goid), RunningNs: b.runningNs})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].RunningNs != out[j].RunningNs {
			return out[i].RunningNs > out[j].RunningNs
		}
		return out[i].ID < out[j].ID
	})
	out = out[:min(len(out), maxBusiest)]
	for i := range out {
		out[i].Name = s.nameOf(s.agg.runs[uint64(out[i].ID)])
	}
	return out
}

// nameOf names a goroutine by the function that it began with. Where that is
// what the compiler made of a go statement, by what it calls, if it was seen
// waiting there, else by its creator.
func (s *Sampler) nameOf(b *busyG) string {
	f := s.symbols.Frames(b.startpc, false)
	last := f[len(f)-1]
	switch {
	case b.startpc == 0, symbol.Wrapper(last) && s.entries[last.Function] == "":
		f = s.symbols.Frames(b.gopc, true)
		return "created by " + f[len(f)-1].Function
	case symbol.Wrapper(last):
		return s.entries[last.Function]
	}
	return last.Function
}

// memory is about what the aggregate holds, in bytes.
func (a *aggregate) memory() int64 {
	n := int64(len(a.flushed)) * 64
	for _, e := range a.entries {
		n += int64(200 + 16*len(e.pcs))
	}
	return n
}
