package analysis

import (
	"regexp"
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// Stack is one wait to classify: a stack, leaf first, with what the source knew.
type Stack struct {
	Plane  profile.Plane
	Reason string // the wait reason
	Thread string // the thread's name, thread plane only
	Frames []profile.Frame
}

// Attributes is what the rules say of a wait.
type Attributes struct {
	Class     string
	Idle      string
	Operation string // "" when no rule names it
	Site      string // function of the application frame nearest the leaf, "" when there is none
	SiteFile  string
	SiteLine  int
}

// Classifier applies the rules that are for one target. It is safe for
// concurrent use.
type Classifier struct {
	Files       []string // names of the rule files in force
	rules       []compiledRule
	application []*regexp.Regexp
}

// Application says whether a frame is of the application.
func (c *Classifier) Application(f profile.Frame) bool {
	if f.Kernel() {
		return false
	}
	if len(c.application) == 0 {
		return goApplication(f.Function)
	}
	for _, re := range c.application {
		if re.MatchString(f.Function) {
			return true
		}
	}
	return false
}

// Classify gives a wait its attributes. Each comes from the first rule that
// matches and gives it; without one, class and idle are unknown.
func (c *Classifier) Classify(s Stack) Attributes {
	var a Attributes
	for i := range c.rules {
		r := &c.rules[i]
		if (r.class == "" || a.Class != "") && (r.idle == "" || a.Idle != "") && (r.operation == "" || a.Operation != "") {
			continue
		}
		if !r.matches(&s) {
			continue
		}
		fill(&a.Class, r.class)
		fill(&a.Idle, r.idle)
		fill(&a.Operation, r.operation)
		if a.Class != "" && a.Idle != "" && a.Operation != "" {
			break
		}
	}
	fill(&a.Class, ClassUnknown)
	fill(&a.Idle, IdleUnknown)
	for _, f := range s.Frames {
		if c.Application(f) {
			a.Site, a.SiteFile, a.SiteLine = elideTypes(f.Function), f.File, f.Line
			break
		}
	}
	return a
}

// elideTypes writes the type parameters of a generic function as [...], as the
// Go runtime does: sources differ in whether they spell them out.
func elideTypes(function string) string {
	open, end := strings.IndexByte(function, '['), strings.LastIndexByte(function, ']')
	if open <= 0 || end < open {
		return function
	}
	return function[:open] + "[...]" + function[end+1:]
}

func fill(dst *string, v string) {
	if *dst == "" {
		*dst = v
	}
}

// Annotate writes the labels class and idle into every sample of a capture, so
// that other tools can filter by them. Sources that are not off-CPU are left
// alone.
func (c *Classifier) Annotate(capture *profile.Capture) {
	if !offCPU(capture.Source) {
		return
	}
	plane := capture.Source.Plane()
	capture.Profile.Relabel(func(frames []profile.Frame, l profile.Labels) profile.Labels {
		a := c.Classify(Stack{plane, l.Get(profile.LabelReason), l.Get(profile.LabelThread), frames})
		return l.With(profile.LabelClass, a.Class).With(profile.LabelIdle, a.Idle)
	})
}

// offCPU says whether a source measures time off the CPU by state.
func offCPU(s profile.Source) bool {
	return s == profile.SourceGoroutines || s == profile.SourceThreads
}
