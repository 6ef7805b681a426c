package analysis

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/contention-toolkit/contention/profile"
)

// Wait classes.
const (
	ClassLock      = "lock"
	ClassCondition = "condition/channel"
	ClassNetwork   = "network"
	ClassDisk      = "disk"
	ClassTimer     = "timer"
	ClassGC        = "GC"
	ClassScheduler = "scheduler"
	ClassUnknown   = "unknown"
)

// Values of idle: does the wait mean waiting for work to arrive?
const (
	IdleYes     = "yes"
	IdleNo      = "no"
	IdleUnknown = "unknown"
)

var classes = map[string]bool{
	ClassLock: true, ClassCondition: true, ClassNetwork: true, ClassDisk: true,
	ClassTimer: true, ClassGC: true, ClassScheduler: true, ClassUnknown: true,
}

//go:embed rules/*.yaml
var builtin embed.FS

// The built-in files, in the order in which their rules apply.
var builtinOrder = []string{"reference-broker.yaml", "nats-server.yaml", "go-runtime.yaml", "threads.yaml"}

// RuleFile is one file of rules, as written in YAML.
type RuleFile struct {
	Name        string   `yaml:"name"`
	When        When     `yaml:"when"`        // which targets it is for
	Plane       string   `yaml:"plane"`       // the plane of its rules that name none
	Application []string `yaml:"application"` // patterns of application frames; none: the default
	Rules       []Rule   `yaml:"rules"`
}

// When restricts a file to some targets. Every given field must match; an empty
// When matches every target.
type When struct {
	Module   string `yaml:"module"`   // pattern of the target's main module
	Argument string `yaml:"argument"` // pattern that one of its arguments matches
}

// Rule gives attributes to the waits that match all of its conditions. Patterns
// are regular expressions.
type Rule struct {
	Plane   string   `yaml:"plane"`   // goroutine or thread
	Reason  string   `yaml:"reason"`  // pattern of the wait reason
	Frame   string   `yaml:"frame"`   // pattern of any frame's function
	Under   string   `yaml:"under"`   // pattern of a frame that is further out than Frame's
	Thread  string   `yaml:"thread"`  // pattern of the thread's name
	Kernel  string   `yaml:"kernel"`  // pattern of any kernel frame
	Unless  string   `yaml:"unless"`  // pattern that no frame may match
	Frames  []string `yaml:"frames"`  // alternative patterns, any of which may serve as Frame
	Comment string   `yaml:"comment"` // why, for the reader of the file

	Class     string `yaml:"class"`
	Idle      string `yaml:"idle"`
	Operation string `yaml:"operation"`
}

// Rules are compiled rule files. They are safe for concurrent use.
type Rules struct{ files []compiledFile }

type compiledFile struct {
	name             string
	module, argument *regexp.Regexp
	application      []*regexp.Regexp
	rules            []compiledRule
}

type compiledRule struct {
	plane                                 string
	reason, under, thread, kernel, unless *regexp.Regexp
	frames                                []*regexp.Regexp
	class, idle, operation                string
}

// BuiltinRules returns the rules for the reference broker, nats-server, the Go
// runtime and threads.
func BuiltinRules() (*Rules, error) {
	var files []RuleFile
	for _, name := range builtinOrder {
		data, err := builtin.ReadFile("rules/" + name)
		if err != nil {
			return nil, fmt.Errorf("built-in rules: %w", err)
		}
		f, err := ParseRules(data)
		if err != nil {
			return nil, fmt.Errorf("built-in rules %s: %w", name, err)
		}
		files = append(files, *f)
	}
	return CompileRules(files)
}

// ParseRules reads one rule file; an unknown key is an error.
func ParseRules(data []byte) (*RuleFile, error) {
	var f RuleFile
	if err := yaml.UnmarshalWithOptions(data, &f, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("parse rules: %w", err)
	}
	return &f, nil
}

// CompileRules compiles files in the order in which they apply.
func CompileRules(files []RuleFile) (*Rules, error) {
	out := &Rules{}
	for _, f := range files {
		c := compiler{file: f.Name}
		cf := compiledFile{name: f.Name, module: c.re(f.When.Module), argument: c.re(f.When.Argument)}
		for _, a := range f.Application {
			cf.application = append(cf.application, c.re(a))
		}
		for i, r := range f.Rules {
			c.rule = i + 1
			if r.Plane == "" {
				r.Plane = f.Plane
			}
			cf.rules = append(cf.rules, c.compile(r))
		}
		if c.err != nil {
			return nil, c.err
		}
		out.files = append(out.files, cf)
	}
	return out, nil
}

type compiler struct {
	file string
	rule int
	err  error
}

func (c *compiler) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("rules %q, rule %d: %w", c.file, c.rule, fmt.Errorf(format, args...))
	}
}

func (c *compiler) re(pattern string) *regexp.Regexp {
	if pattern == "" {
		return nil
	}
	r, err := regexp.Compile(pattern)
	if err != nil {
		c.fail("pattern: %w", err)
	}
	return r
}

func (c *compiler) compile(r Rule) compiledRule {
	out := compiledRule{
		plane: r.Plane, reason: c.re(r.Reason), under: c.re(r.Under), thread: c.re(r.Thread),
		kernel: c.re(r.Kernel), unless: c.re(r.Unless), class: r.Class, idle: r.Idle, operation: r.Operation,
	}
	for _, p := range append([]string{r.Frame}, r.Frames...) {
		if p != "" {
			out.frames = append(out.frames, c.re(p))
		}
	}
	switch {
	case r.Class != "" && !classes[r.Class]:
		c.fail("class %q is none of the wait classes", r.Class)
	case r.Idle != "" && r.Idle != IdleYes && r.Idle != IdleNo && r.Idle != IdleUnknown:
		c.fail("idle is %q, want yes, no or unknown", r.Idle)
	case r.Plane != "" && r.Plane != string(profile.PlaneGoroutine) && r.Plane != string(profile.PlaneThread):
		c.fail("plane is %q, want goroutine or thread", r.Plane)
	case r.Class == "" && r.Idle == "" && r.Operation == "":
		c.fail("it gives neither class, idle nor operation")
	case r.Under != "" && len(out.frames) == 0:
		c.fail("under needs frame")
	}
	return out
}

// matches says whether a wait meets every condition of the rule.
func (r *compiledRule) matches(w *Stack) bool {
	if r.plane != "" && r.plane != string(w.Plane) ||
		r.reason != nil && !r.reason.MatchString(w.Reason) ||
		r.thread != nil && !r.thread.MatchString(w.Thread) {
		return false
	}
	if r.unless != nil && find(w.Frames, r.unless, false) >= 0 {
		return false
	}
	if r.kernel != nil && find(w.Frames, r.kernel, true) < 0 {
		return false
	}
	if len(r.frames) == 0 {
		return true
	}
	for _, re := range r.frames {
		if i := find(w.Frames, re, false); i >= 0 && (r.under == nil || find(w.Frames[i+1:], r.under, false) >= 0) {
			return true
		}
	}
	return false
}

// find returns the index of the innermost frame that matches, -1 for none.
func find(frames []profile.Frame, re *regexp.Regexp, kernel bool) int {
	for i, f := range frames {
		if (!kernel || f.Kernel()) && re.MatchString(f.Function) {
			return i
		}
	}
	return -1
}

// For returns the classifier for a target: the rules of every file that is for
// it, in order, and what counts as an application frame.
func (r *Rules) For(t profile.Target) *Classifier {
	c := &Classifier{}
	for i := range r.files {
		f := &r.files[i]
		if f.module != nil && !f.module.MatchString(t.Module) {
			continue
		}
		if f.argument != nil && !anyMatch(f.argument, t.Arguments) {
			continue
		}
		c.Files = append(c.Files, f.name)
		c.rules = append(c.rules, f.rules...)
		if c.application == nil {
			c.application = f.application
		}
	}
	return c
}

func anyMatch(re *regexp.Regexp, list []string) bool {
	for _, s := range list {
		if re.MatchString(s) {
			return true
		}
	}
	return false
}

// WithApplication returns a copy of c in which frames that match one of the
// patterns are the application's.
func (c *Classifier) WithApplication(patterns ...string) (*Classifier, error) {
	out := *c
	out.application = nil
	for _, p := range patterns {
		re, err := regexp.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("application pattern: %w", err)
		}
		out.application = append(out.application, re)
	}
	return &out, nil
}

// goApplication is the default for Go: the first path element of the package
// has a dot, or the package is main. Dependencies count.
func goApplication(function string) bool {
	function = strings.TrimPrefix(function, "vendor/")
	if strings.HasPrefix(function, "main.") {
		return true
	}
	slash := strings.IndexByte(function, '/')
	return slash > 0 && strings.Contains(function[:slash], ".") && !strings.ContainsAny(function[:slash], "([*")
}
