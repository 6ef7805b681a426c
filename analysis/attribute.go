package analysis

import (
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// MinShareSamples is the number of samples below which a share is not given.
const MinShareSamples = 200

// Key identifies a wait across recordings.
type Key struct {
	Operation string // "" when no rule names it
	Site      string // wait site, "" when the stack has no application frame
	Class     string
	Idle      string
}

// Value is the time of one wait in one window.
type Value struct {
	BlockedNs  int64
	RunnableNs int64
	Samples    int64 // samples taken, 0 for sources that count events
	Count      int64 // events counted, 0 for sources that sample
}

// OffCPUNs is blocked plus runnable time.
func (v Value) OffCPUNs() int64 { return v.BlockedNs + v.RunnableNs }

func (v *Value) add(o Value) {
	v.BlockedNs += o.BlockedNs
	v.RunnableNs += o.RunnableNs
	v.Samples += o.Samples
	v.Count += o.Count
}

// Wait is one row of an attribution.
type Wait struct {
	Key
	Value
	File string // where in the site most of the time was spent
	Line int
}

// Attribution is one profile's time, split into waits.
type Attribution struct {
	Source     profile.Source
	Plane      profile.Plane
	Window     time.Duration
	Published  float64 // messages acknowledged to producers in the window, 0 when unknown
	Delivered  float64 // messages sent to consumers in the window, 0 when unknown
	Waits      []Wait  // most off-CPU time first
	Total      Value
	Idle       Value // of Total: idle yes
	Doubtful   Value // of Total: idle unknown
	NoClass    Value // of Total: class unknown
	NoSite     Value // of Total: not idle, without an application frame
	Counted    bool  // the source counts events
	Accounting *profile.Accounting
	Warnings   []string

	contention, doubtful Value // with a site: idle no, idle unknown
}

// Attribute splits the profile of one source of a recording into waits.
func Attribute(rec *profile.Recording, source profile.Source, c *Classifier) (*Attribution, error) {
	info, p := rec.Meta.Info(source), rec.Profiles[source]
	if info == nil || p == nil {
		return nil, fmt.Errorf("attribute %s: the recording %s holds no %s", source, rec.Dir, source.File())
	}
	a, err := AttributeProfile(p, source, time.Duration(info.Window.DurationNs), c)
	if err != nil {
		return nil, fmt.Errorf("attribute %s of %s: %w", source, rec.Dir, err)
	}
	a.Accounting = info.Accounting
	a.Published = messages(rec.Meta.WorkOf(profile.WorkPublished), info.Window)
	a.Delivered = messages(rec.Meta.WorkOf(profile.WorkDelivered), info.Window)
	if a.Published > 0 && a.Delivered > 0 && math.Abs(a.Delivered/a.Published-1) > 0.01 {
		a.Warnings = append(a.Warnings, fmt.Sprintf("%.0f messages were acknowledged and %.0f delivered in the window, %.1f %% apart: figures per message count those acknowledged", a.Published, a.Delivered, 100*math.Abs(a.Delivered/a.Published-1)))
	}
	return a, nil
}

// messages is the work of a window whose edges the counter was read near: the
// counter's rate over the window's length.
func messages(w *profile.WorkCounter, window profile.Window) float64 {
	if w == nil {
		return 0
	}
	between := w.EndTime.Sub(w.StartTime)
	if between <= 0 || window.DurationNs <= 0 {
		return 0
	}
	return w.Delta() * float64(window.DurationNs) / float64(between)
}

// AttributeProfile splits one profile into waits. Its sample types are those of
// the off-CPU planes, or contentions and delay of Go's own profiles.
func AttributeProfile(p *profile.Profile, source profile.Source, window time.Duration, c *Classifier) (*Attribution, error) {
	cols, err := columnsOf(p)
	if err != nil {
		return nil, err
	}
	a := &Attribution{Source: source, Plane: source.Plane(), Window: window, Counted: cols.count >= 0}
	if window <= 0 {
		a.Window = p.Duration
	}
	rows := map[Key]*row{}
	for _, s := range p.Samples {
		frames, labels := p.Frames(s.Stack), p.Labels(s.Labels)
		reason := labels.Get(profile.LabelReason)
		if reason == "" {
			reason = reasonOfStack(frames)
		}
		at := c.Classify(Stack{a.Plane, reason, labels.Get(profile.LabelThread), frames})
		v := cols.value(s.Values)
		if v == (Value{}) {
			continue
		}
		a.sum(at, v)
		k := Key{at.Operation, at.Site, at.Class, at.Idle}
		r := rows[k]
		if r == nil {
			r = &row{Wait: Wait{Key: k}, lines: map[line]int64{}}
			rows[k] = r
		}
		r.add(v)
		r.lines[line{at.SiteFile, at.SiteLine}] += v.OffCPUNs()
	}
	for _, r := range rows {
		r.place()
		a.Waits = append(a.Waits, r.Wait)
	}
	sort.Slice(a.Waits, func(i, j int) bool { return waitLess(a.Waits[i], a.Waits[j]) })
	return a, nil
}

func (a *Attribution) sum(at Attributes, v Value) {
	a.Total.add(v)
	if at.Class == ClassUnknown {
		a.NoClass.add(v)
	}
	switch at.Idle {
	case IdleYes:
		a.Idle.add(v)
		return
	case IdleUnknown:
		a.Doubtful.add(v)
	}
	switch {
	case at.Site == "":
		a.NoSite.add(v)
	case at.Idle == IdleUnknown:
		a.doubtful.add(v)
	default:
		a.contention.add(v)
	}
}

type line struct {
	file string
	n    int
}

type row struct {
	Wait
	lines map[line]int64
}

// place picks the line that holds most of the row's time, the smallest of equals.
func (r *row) place() {
	best := int64(-1)
	for l, v := range r.lines {
		if v > best || v == best && (l.file < r.File || l.file == r.File && l.n < r.Line) {
			best, r.File, r.Line = v, l.file, l.n
		}
	}
}

func waitLess(a, b Wait) bool {
	if x, y := a.OffCPUNs(), b.OffCPUNs(); x != y {
		return x > y
	}
	return a.Key.less(b.Key)
}

func (k Key) less(o Key) bool {
	switch {
	case k.Operation != o.Operation:
		return k.Operation < o.Operation
	case k.Site != o.Site:
		return k.Site < o.Site
	case k.Class != o.Class:
		return k.Class < o.Class
	}
	return k.Idle < o.Idle
}

// columns are the indexes of a profile's values, -1 where absent.
type columns struct{ blocked, runnable, samples, count int }

func columnsOf(p *profile.Profile) (columns, error) {
	col := func(names ...string) int {
		for _, n := range names {
			if i, ok := p.Value(n); ok {
				return i
			}
		}
		return -1
	}
	c := columns{blocked: col("blocked", "delay"), runnable: col("runnable"), samples: col("samples"), count: col("waits", "contentions")}
	if c.blocked < 0 {
		return c, fmt.Errorf("it has no sample type blocked or delay (it has %v): not an off-CPU profile", p.SampleTypes)
	}
	if u := p.SampleTypes[c.blocked].Unit; u != "nanoseconds" {
		return c, fmt.Errorf("its sample type %s is in %s, want nanoseconds", p.SampleTypes[c.blocked].Type, u)
	}
	return c, nil
}

func (c columns) value(v []int64) Value {
	at := func(i int) int64 {
		if i < 0 {
			return 0
		}
		return v[i]
	}
	return Value{BlockedNs: at(c.blocked), RunnableNs: at(c.runnable), Samples: at(c.samples), Count: at(c.count)}
}

// reasonOfStack names the wait reason of a stack of Go's block and mutex
// profiles, which carry none, from the standard library's frame at its leaf.
func reasonOfStack(frames []profile.Frame) string {
	for _, f := range frames {
		if r, ok := blockReasons[f.Function]; ok {
			return r
		}
	}
	return ""
}

var blockReasons = map[string]string{
	"sync.(*Mutex).Lock": "sync.Mutex.Lock", "sync.(*Mutex).Unlock": "sync.Mutex.Lock",
	"internal/sync.(*Mutex).Lock": "sync.Mutex.Lock", "internal/sync.(*Mutex).Unlock": "sync.Mutex.Lock",
	"internal/sync.(*Mutex).lockSlow": "sync.Mutex.Lock", "internal/sync.(*Mutex).unlockSlow": "sync.Mutex.Lock",
	"sync.(*RWMutex).Lock": "sync.RWMutex.Lock", "sync.(*RWMutex).Unlock": "sync.RWMutex.Lock",
	"sync.(*RWMutex).RLock": "sync.RWMutex.RLock", "sync.(*RWMutex).RUnlock": "sync.RWMutex.RLock",
	"sync.(*Cond).Wait": "sync.Cond.Wait", "sync.(*WaitGroup).Wait": "sync.WaitGroup.Wait",
	"runtime.chanrecv1": "chan receive", "runtime.chanrecv2": "chan receive", "runtime.chansend1": "chan send",
	"runtime.selectgo": "select",
}
