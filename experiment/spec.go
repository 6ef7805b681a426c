package experiment

import (
	"embed"
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/contention-toolkit/contention/analysis/result"
)

//go:embed experiments/*.yaml
var builtin embed.FS

// Spec is one experiment, as written in YAML.
type Spec struct {
	Name             string        `yaml:"name"`
	Title            string        `yaml:"title"`
	Question         string        `yaml:"question"`
	PrimaryOperation string        `yaml:"primary-operation"`
	Scenario         string        `yaml:"scenario"` // a scenario that the load knows
	Before           VariantSpec   `yaml:"before"`
	After            VariantSpec   `yaml:"after"`
	Runs             RunsSpec      `yaml:"runs"`
	Quick            RunsSpec      `yaml:"quick"`   // for --quick
	Timeout          time.Duration `yaml:"timeout"` // of one run, from start to drained
}

// VariantSpec is one side.
type VariantSpec struct {
	Name   string            `yaml:"name"`
	Broker map[string]string `yaml:"broker"` // flags of `contention broker`, without dashes
}

// RunsSpec says how many runs per side of each kind, and how long each is.
type RunsSpec struct {
	Unprofiled     int           `yaml:"unprofiled"`
	Profiled       int           `yaml:"profiled"`
	Reconciliation int           `yaml:"reconciliation"`
	Warmup         int64         `yaml:"warmup-messages"`
	Duration       time.Duration `yaml:"duration"` // measured
}

// Names lists the built-in experiments.
func Names() []string {
	entries, err := fs.ReadDir(builtin, "experiments")
	if err != nil {
		return nil // the embedded folder is always there
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	sort.Strings(out)
	return out
}

// Builtin returns a built-in experiment.
func Builtin(name string) (*Spec, error) {
	data, err := builtin.ReadFile("experiments/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("experiment %q is not built in; there is %s, or name a YAML file", name, strings.Join(Names(), ", "))
	}
	return Parse(data)
}

// Parse reads an experiment from YAML and checks it.
func Parse(data []byte) (*Spec, error) {
	var s Spec
	if err := yaml.UnmarshalWithOptions(data, &s, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("parse experiment: %w", err)
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("experiment %q: %w", s.Name, err)
	}
	return &s, nil
}

// Validate reports the first thing that is wrong.
func (s *Spec) Validate() error {
	switch {
	case s.Name == "":
		return fmt.Errorf("name is missing")
	case s.Scenario == "":
		return fmt.Errorf("scenario is missing")
	case s.Before.Name == "" || s.After.Name == "":
		return fmt.Errorf("before and after each need a name")
	case s.Before.Name == s.After.Name:
		return fmt.Errorf("before and after are both named %q", s.Before.Name)
	case s.Timeout <= 0:
		return fmt.Errorf("timeout is %v, want more than 0", s.Timeout)
	}
	for name, r := range map[string]RunsSpec{"runs": s.Runs, "quick": s.Quick} {
		if r.Unprofiled < 0 || r.Profiled < 0 || r.Reconciliation < 0 || r.Unprofiled+r.Profiled == 0 {
			return fmt.Errorf("%s: %d unprofiled, %d profiled, %d reconciliation runs: want none negative and some at all", name, r.Unprofiled, r.Profiled, r.Reconciliation)
		}
		if r.Duration < time.Second || r.Warmup < 0 {
			return fmt.Errorf("%s: duration %v (want at least 1s), %d warm-up messages", name, r.Duration, r.Warmup)
		}
	}
	return nil
}

// side returns the variant of a side.
func (s *Spec) side(side string) VariantSpec {
	if side == result.After {
		return s.After
	}
	return s.Before
}

// Planned is one run of the plan.
type Planned struct {
	Index int // from 1, in the order of running
	Side  string
	Kind  string
}

// Plan lays out the runs: per kind, pairs that alternate A B, B A, A B, …
func Plan(r RunsSpec) []Planned {
	var out []Planned
	add := func(kind string, pairs int) {
		for i := range pairs {
			first, second := result.Before, result.After
			if i%2 == 1 {
				first, second = second, first
			}
			for _, side := range []string{first, second} {
				out = append(out, Planned{len(out) + 1, side, kind})
			}
		}
	}
	add(result.KindPlain, r.Unprofiled)
	add(result.KindProfiled, r.Profiled)
	add(result.KindReconcile, r.Reconciliation)
	return out
}
