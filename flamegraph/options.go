package flamegraph

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// NameMode says whether parts of names that differ between builds or runs of
// the same code are replaced, so that equal code meets.
type NameMode int

const (
	NamesAuto      NameMode = iota // as recorded by Build, canonical by BuildDiff
	NamesRaw                       // as recorded
	NamesCanonical                 // numbers of function literals, addresses and goroutine ids replaced by *
)

// Options is how profiles become a tree. The zero value shows all time of a
// profile as recorded.
type Options struct {
	// Values names the sample types to sum; they must have one unit. Empty means
	// blocked and runnable where the profile has them, else its default type.
	Values []string
	// Keep says whether a stack, leaf first, is shown. The time of the others is
	// reported as idle. Nil keeps everything.
	Keep func(frames []profile.Frame, labels profile.Labels) bool
	// Application says whether a frame is of the application: the one nearest
	// the leaf is the wait site. Nil uses the rule for Go import paths.
	Application func(f profile.Frame) bool
	// Scale divides every value, such as by messages or by seconds; 0 means 1.
	// BuildDiff uses it for runs that have no scale of their own.
	Scale float64
	// Per names what Scale counts ("message", "second"), "" for totals.
	Per string
	// Unit of the values before scaling; "" takes the sample type's.
	Unit string
	// Names is how names are joined. Use NamesRaw where both sides ran the same
	// executable: canonical names also join literals that are not the same.
	Names NameMode
	// TrimScheduler leaves out scheduler frames at the leaf (runtime.gopark,
	// __schedule), which every wait ends in.
	TrimScheduler bool
	// MaxDepth bounds the frames of a stack; the middle of deeper ones is folded
	// into one frame. 0 means 100; at least 8, at most 1000.
	MaxDepth int
}

// Run is one measurement on a side of a comparison.
type Run struct {
	Profile *profile.Profile
	Scale   float64 // divides this run's values; 0 means Options.Scale
}

const (
	defaultMaxDepth = 100
	minDepth        = 8
	maxMaxDepth     = 1000
)

func (o *Options) maxDepth() int {
	if o.MaxDepth == 0 {
		return defaultMaxDepth
	}
	return min(max(o.MaxDepth, minDepth), maxMaxDepth)
}

// scaleOf returns the divisor of a run.
func (o *Options) scaleOf(r Run) (float64, error) {
	s := r.Scale
	if s == 0 {
		s = o.Scale
	}
	if s == 0 {
		return 1, nil
	}
	// Beyond these bounds a sum of values could leave the range of float64.
	if math.IsNaN(s) || s < 1e-100 || s > 1e100 {
		return 0, fmt.Errorf("flamegraph: scale %v is no divisor: give the messages or seconds of the window, or 0", s)
	}
	return s, nil
}

// Measure is what the values of a tree are.
type Measure struct {
	Values []string // sample types that were summed
	Unit   string   // unit before Per, such as "nanoseconds"
	Per    string   // "message", "second" or "" for totals
}

// choose returns the indexes of the sample types to sum.
func (o *Options) choose(p *profile.Profile) ([]int, Measure, error) {
	m := Measure{Values: o.Values, Unit: o.Unit, Per: o.Per}
	if len(m.Values) == 0 {
		m.Values = defaultValues(p)
	}
	var idx []int
	unit := ""
	for _, name := range m.Values {
		i, ok := p.Value(name)
		if !ok {
			return nil, m, fmt.Errorf("flamegraph: the profile has no sample type %q, only %s", name, typeNames(p))
		}
		if slices.Contains(idx, i) {
			return nil, m, fmt.Errorf("flamegraph: sample type %q is given twice", name)
		}
		if u := p.SampleTypes[i].Unit; len(idx) == 0 {
			unit = u
		} else if u != unit {
			return nil, m, fmt.Errorf("flamegraph: cannot sum %s: their units are %q and %q", strings.Join(m.Values, " and "), unit, u)
		}
		idx = append(idx, i)
	}
	if m.Unit == "" {
		m.Unit = unit
	}
	return idx, m, nil
}

func defaultValues(p *profile.Profile) []string {
	var v []string
	for _, t := range []profile.ValueType{profile.Blocked, profile.Runnable} {
		if i, ok := p.Value(t.Type); ok && p.SampleTypes[i].Unit == t.Unit {
			v = append(v, t.Type)
		}
	}
	if len(v) > 0 {
		return v
	}
	if p.Default != "" {
		return []string{p.Default}
	}
	return []string{p.SampleTypes[len(p.SampleTypes)-1].Type}
}

func typeNames(p *profile.Profile) string {
	var names []string
	for _, t := range p.SampleTypes {
		names = append(names, t.Type+"/"+t.Unit)
	}
	return strings.Join(names, ", ")
}

func checkProfile(p *profile.Profile) error {
	if p == nil {
		return errors.New("flamegraph: no profile given")
	}
	if err := p.CheckValid(); err != nil {
		return fmt.Errorf("flamegraph: cannot draw a broken profile: %w", err)
	}
	return nil
}

// same says whether two runs measured the same thing.
func (m Measure) same(n Measure) bool {
	return m.Unit == n.Unit && slices.Equal(m.Values, n.Values)
}

func (m Measure) what() string { return strings.Join(m.Values, " + ") + " " + m.Unit }

// shown is the measure with its words made safe to show.
func (m Measure) shown() Measure {
	const limit = 60
	n := Measure{Unit: visible(m.Unit, limit), Per: visible(m.Per, limit)}
	for i, v := range m.Values {
		if i == 10 {
			n.Values = append(n.Values, "…")
			break
		}
		n.Values = append(n.Values, visible(v, limit))
	}
	return n
}
