package profile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"
)

// ValueType names one value of a sample and its unit, as in pprof.
type ValueType struct {
	Type string // such as "blocked"
	Unit string // such as "nanoseconds" or "count"
}

// The sample types of off-CPU profiles. Go's own contention profiles keep
// pprof's names (contentions/count, delay/nanoseconds).
var (
	Blocked  = ValueType{"blocked", "nanoseconds"}
	Runnable = ValueType{"runnable", "nanoseconds"}
	Waits    = ValueType{"waits", "count"}   // events were counted
	Samples  = ValueType{"samples", "count"} // the source sampled: events are not known
	OnCPU    = ValueType{"cpu", "nanoseconds"}
)

// Label keys that recordings use.
const (
	LabelReason  = "reason"  // the wait reason: the Go runtime's words or the thread's state
	LabelClass   = "class"   // the wait class
	LabelIdle    = "idle"    // yes, no or unknown
	LabelThread  = "thread"  // the thread's name (thread plane)
	LabelCreator = "creator" // the function that started the goroutine (goroutine plane)
	LabelLock    = "lock"    // the lock waited for, where known
	LabelTarget  = "target"  // Target.ID, where the recording has several targets
	LabelWaker   = "waker"   // the name of the thread that woke the waiter, or that an interrupt came upon (thread plane)
	LabelWakeup  = "wakeup"  // "not seen" where the wake-up was not, and all of the wait is blocked
)

// KernelModule is the Module of kernel frames.
const KernelModule = "[kernel]"

// Frame is one function at one line. Two frames are the same when every field
// is; addresses are left out on purpose, since they differ between builds.
type Frame struct {
	Function string // full symbol; "0x…" when no symbol is known
	File     string // source file, "" when unknown
	Line     int    // line within File, 0 when unknown
	Module   string // the executable or library, KernelModule for the kernel, "" when unknown
	Inlined  bool   // inlined into the next frame of the stack
}

// Kernel says whether the frame is of the kernel.
func (f Frame) Kernel() bool { return f.Module == KernelModule }

// Label is one key with its value.
type Label struct{ Key, Value string }

// Labels is a set of labels sorted by key.
type Labels []Label

// Get returns the value of key, "" when absent.
func (l Labels) Get(key string) string {
	for _, x := range l {
		if x.Key == key {
			return x.Value
		}
	}
	return ""
}

// With returns a copy of l in which key has the value v; an empty v removes it.
func (l Labels) With(key, v string) Labels {
	out := make(Labels, 0, len(l)+1)
	for _, x := range l {
		if x.Key != key {
			out = append(out, x)
		}
	}
	if v != "" {
		out = append(out, Label{key, v})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out
}

// FrameID, StackID and LabelsID index the interned tables of one Profile.
type (
	FrameID  uint32
	StackID  uint32
	LabelsID uint32
)

// Sample is one stack with one set of labels and a value per sample type.
type Sample struct {
	Stack  StackID
	Labels LabelsID
	Values []int64
}

// Profile is a set of samples. The zero value has no sample types; use New. A
// Profile is not safe for concurrent use.
type Profile struct {
	SampleTypes []ValueType
	Default     string        // the sample type shown first; "" means the last one
	Start       time.Time     // start of the window
	Duration    time.Duration // length of the window, 0 when unknown
	PeriodType  ValueType     // what a sampling source sampled
	Period      int64         // its period, 0 for none
	Comments    []string
	Samples     []Sample // one per stack and labels

	frames   []Frame
	frameIDs map[Frame]FrameID
	stacks   [][]FrameID
	stackIDs map[string]StackID
	labels   []Labels
	labelIDs map[string]LabelsID
	index    map[sampleKey]int
}

type sampleKey struct {
	stack  StackID
	labels LabelsID
}

// New returns an empty profile with the given sample types.
func New(types ...ValueType) *Profile {
	return &Profile{
		SampleTypes: types,
		frameIDs:    map[Frame]FrameID{},
		stackIDs:    map[string]StackID{},
		labelIDs:    map[string]LabelsID{},
		index:       map[sampleKey]int{},
	}
}

// InternFrame returns the identifier of f.
func (p *Profile) InternFrame(f Frame) FrameID {
	if id, ok := p.frameIDs[f]; ok {
		return id
	}
	id := FrameID(len(p.frames))
	p.frames = append(p.frames, f)
	p.frameIDs[f] = id
	return id
}

// InternStack returns the identifier of a stack, leaf first; it copies ids.
func (p *Profile) InternStack(ids []FrameID) StackID {
	var buf [512]byte
	key := buf[:0]
	for _, id := range ids {
		key = binary.LittleEndian.AppendUint32(key, uint32(id))
	}
	if id, ok := p.stackIDs[string(key)]; ok {
		return id
	}
	id := StackID(len(p.stacks))
	p.stacks = append(p.stacks, append([]FrameID(nil), ids...))
	p.stackIDs[string(key)] = id
	return id
}

// InternFrames interns frames, leaf first, and the stack that they make.
func (p *Profile) InternFrames(frames []Frame) StackID {
	ids := make([]FrameID, len(frames))
	for i, f := range frames {
		ids[i] = p.InternFrame(f)
	}
	return p.InternStack(ids)
}

// InternLabels returns the identifier of a set of labels; order does not
// matter and labels with an empty value are left out.
func (p *Profile) InternLabels(labels ...Label) LabelsID {
	l := make(Labels, 0, len(labels))
	for _, x := range labels {
		if x.Value != "" {
			l = append(l, x)
		}
	}
	sort.Slice(l, func(i, j int) bool { return l[i].Key < l[j].Key })
	var b strings.Builder
	for _, x := range l {
		fmt.Fprintf(&b, "%d:%s%d:%s", len(x.Key), x.Key, len(x.Value), x.Value)
	}
	if id, ok := p.labelIDs[b.String()]; ok {
		return id
	}
	id := LabelsID(len(p.labels))
	p.labels = append(p.labels, l)
	p.labelIDs[b.String()] = id
	return id
}

// Add adds values to the sample of (stack, labels) and returns its index in
// Samples, which does not change as more samples are added.
func (p *Profile) Add(stack StackID, labels LabelsID, values ...int64) int {
	k := sampleKey{stack, labels}
	i, ok := p.index[k]
	if !ok {
		i = len(p.Samples)
		p.Samples = append(p.Samples, Sample{stack, labels, make([]int64, len(p.SampleTypes))})
		p.index[k] = i
	}
	dst := p.Samples[i].Values
	for j, v := range values {
		dst[j] += v
	}
	return i
}

// Frame returns an interned frame.
func (p *Profile) Frame(id FrameID) Frame { return p.frames[id] }

// Stack returns the frames of an interned stack, leaf first; do not change it.
func (p *Profile) Stack(id StackID) []FrameID { return p.stacks[id] }

// Frames returns a copy of the frames of an interned stack, leaf first.
func (p *Profile) Frames(id StackID) []Frame {
	out := make([]Frame, len(p.stacks[id]))
	for i, f := range p.stacks[id] {
		out[i] = p.frames[f]
	}
	return out
}

// Labels returns an interned set of labels; do not change it.
func (p *Profile) Labels(id LabelsID) Labels { return p.labels[id] }

// Value returns the index of the sample type with this name.
func (p *Profile) Value(name string) (int, bool) {
	for i, t := range p.SampleTypes {
		if t.Type == name {
			return i, true
		}
	}
	return 0, false
}

// Total sums one value over all samples.
func (p *Profile) Total(value int) int64 {
	var sum int64
	for _, s := range p.Samples {
		sum += s.Values[value]
	}
	return sum
}

// Relabel replaces the labels of every sample by fn's result. Samples keep
// their index, so slices that name samples by index stay true; two samples of
// one stack that end up with the same labels stay two samples.
func (p *Profile) Relabel(fn func(frames []Frame, l Labels) Labels) {
	p.index = map[sampleKey]int{}
	for i := range p.Samples {
		s := &p.Samples[i]
		s.Labels = p.InternLabels(fn(p.Frames(s.Stack), p.labels[s.Labels])...)
		k := sampleKey{s.Stack, s.Labels}
		if _, ok := p.index[k]; !ok {
			p.index[k] = i
		}
	}
}

// Select returns a profile of the samples that keep says yes to, with everything
// else as it is here.
func (p *Profile) Select(keep func(frames []Frame, l Labels) bool) *Profile {
	out := New(p.SampleTypes...)
	out.Default, out.PeriodType, out.Period, out.Comments = p.Default, p.PeriodType, p.Period, p.Comments
	out.Start, out.Duration = p.Start, p.Duration
	for _, s := range p.Samples {
		frames, l := p.Frames(s.Stack), p.labels[s.Labels]
		if keep(frames, l) {
			out.Add(out.InternFrames(frames), out.InternLabels(l...), s.Values...)
		}
	}
	return out
}

// CheckValid reports the first broken invariant.
func (p *Profile) CheckValid() error {
	if len(p.SampleTypes) == 0 {
		return errors.New("profile has no sample type")
	}
	seen := map[string]bool{}
	for _, t := range p.SampleTypes {
		if t.Type == "" || seen[t.Type] {
			return fmt.Errorf("profile: sample type %q is empty or given twice", t.Type)
		}
		seen[t.Type] = true
	}
	if p.Default != "" && !seen[p.Default] {
		return fmt.Errorf("profile: default sample type %q is not among its sample types", p.Default)
	}
	for i, s := range p.Samples {
		if len(s.Values) != len(p.SampleTypes) {
			return fmt.Errorf("profile: sample %d has %d values, want %d", i, len(s.Values), len(p.SampleTypes))
		}
		if int(s.Stack) >= len(p.stacks) || int(s.Labels) >= len(p.labels) {
			return fmt.Errorf("profile: sample %d refers to a stack or labels that are not there", i)
		}
		st := p.stacks[s.Stack]
		for _, f := range st {
			if int(f) >= len(p.frames) {
				return fmt.Errorf("profile: sample %d refers to frame %d of %d", i, f, len(p.frames))
			}
		}
		if n := len(st); n > 0 && p.frames[st[n-1]].Inlined {
			return fmt.Errorf("profile: sample %d: the outermost frame %q is inlined into nothing", i, p.frames[st[n-1]].Function)
		}
	}
	return nil
}

// String is the canonical text form, for tests: sorted, one sample a line,
// outermost frame first.
func (p *Profile) String() string {
	lines := make([]string, 0, len(p.Samples))
	for _, s := range p.Samples {
		var b strings.Builder
		st := p.stacks[s.Stack]
		for i := len(st) - 1; i >= 0; i-- {
			f := p.frames[st[i]]
			b.WriteString(f.Function)
			if f.Line > 0 {
				fmt.Fprintf(&b, ":%d", f.Line)
			}
			if f.Inlined {
				b.WriteString("[i]")
			}
			if i > 0 {
				b.WriteByte(';')
			}
		}
		for _, l := range p.labels[s.Labels] {
			fmt.Fprintf(&b, " %s=%q", l.Key, l.Value)
		}
		for _, v := range s.Values {
			fmt.Fprintf(&b, " %d", v)
		}
		lines = append(lines, b.String())
	}
	sort.Strings(lines)
	var head strings.Builder
	for i, t := range p.SampleTypes {
		if i > 0 {
			head.WriteByte(' ')
		}
		fmt.Fprintf(&head, "%s/%s", t.Type, t.Unit)
	}
	return head.String() + "\n" + strings.Join(lines, "\n") + "\n"
}
