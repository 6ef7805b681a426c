package goroutine

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// unseen stands for a stack that could not be read.
const unseen = "[stack not read]"

// build turns what was summed into a capture.
func (s *Sampler) build(end time.Time) (*profile.Capture, error) {
	a := s.agg
	a.flush()
	select {
	case <-s.gone:
		end = a.last
	default:
	}
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
			"ticks": strconv.FormatInt(a.ticks, 10), "go_version": s.image.Version, "layout_from": s.layout(),
		},
		Loss: map[string]int64{
			"racy": a.loss.racy, "truncated_stacks": a.loss.truncated, "unreadable": a.loss.unreadable, "no_stack": a.loss.noStack,
			"stacks_full": a.loss.stacksFull, "unsymbolised_samples": unsymbolised, "overrun_ticks": a.overrun, "throttled_ticks": a.throttled,
		},
		Busiest: s.busiest(), Cost: profile.Cost{CPUNs: int64(s.cpu), MemBytes: a.memory()},
	}
	if a.total > 0 && a.ticks > 0 {
		c.Settings["goroutines_mean"] = strconv.FormatFloat(float64(a.total)/float64(max(int64(a.last.Sub(a.start)), 1)), 'f', 1, 64)
	}
	if s.err != nil {
		c.Warnings = append(c.Warnings, fmt.Sprintf("goroutine sampler: %v", s.err))
	}
	select {
	case <-s.gone:
		c.Incomplete = true
	default:
	}
	return c, nil
}

func (s *Sampler) layout() string {
	if s.image.FromDWARF {
		return "DWARF"
	}
	return "table"
}

// frames symbolises a stack, innermost first, and says whether part of it has
// no name. The outermost frame, where every goroutine returns to, is left out.
func (s *Sampler) frames(e *entry) ([]profile.Frame, bool) {
	if len(e.pcs) == 0 {
		return []profile.Frame{{Function: unseen}}, true
	}
	var out []profile.Frame
	unknown := false
	for i, pc := range e.pcs {
		// The innermost counter is a return address too, except in a goroutine
		// that has never run: it stands at its function's start.
		ret := i > 0 || len(e.pcs) > 1
		f := s.symbols.Frames(pc, ret)
		if len(f) == 1 && strings.HasPrefix(f[0].Function, "0x") {
			unknown = true
		}
		if i == len(e.pcs)-1 && i > 0 && f[0].Function == "runtime.goexit" {
			break
		}
		out = append(out, f...)
	}
	return out, unknown
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
	case statusLeaked:
		return "leaked"
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
		f := s.symbols.Frames(b.startpc, false)
		out = append(out, profile.Busy{Name: f[len(f)-1].Function, ID: int64(goid), RunningNs: b.runningNs})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].RunningNs != out[j].RunningNs {
			return out[i].RunningNs > out[j].RunningNs
		}
		return out[i].ID < out[j].ID
	})
	return out[:min(len(out), maxBusiest)]
}

// memory is about what the aggregate holds, in bytes.
func (a *aggregate) memory() int64 {
	n := int64(len(a.flushed)) * 64
	for _, e := range a.entries {
		n += int64(200 + 16*len(e.pcs))
	}
	return n
}
