package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/load"
	"github.com/contention-toolkit/contention/probes"
	"github.com/contention-toolkit/contention/profile"
)

// Options says how to run an experiment.
type Options struct {
	Spec  *Spec
	Dir   string // where runs, recordings and logs go
	Quick bool   // use the spec's quick runs
	Self  string // the contention executable: broker and load run as its children
	// CPU sets; nil is all. They are stated in the result.
	BrokerCPUs, LoadCPUs, RecordCPUs []int
	Duration                         time.Duration // measured per run; 0 is the spec's
	Rules                            *analysis.Rules
	Tool                             profile.Tool
	Command                          []string       // for the result
	Progress                         func(Progress) // called at every change; nil is allowed
}

// Progress is where an experiment stands.
type Progress struct {
	Run, Runs int
	Side      string
	Variant   string
	Kind      string
	Phase     string // one of the Phase constants
	Message   string // one line for a reader
}

// Run runs every run of the plan and collects the result. When a run is
// invalid the others still run; the result says so, and Run returns an
// *InvalidError beside it. When the context ends, what was measured until then
// is returned beside the context's error.
func Run(ctx context.Context, o Options) (*result.Result, error) {
	r := newRunner(o)
	if err := r.prepare(); err != nil {
		return nil, err
	}
	var stop error
	for _, p := range r.plan {
		run, err := r.run(ctx, p)
		if run != nil {
			r.done = append(r.done, run)
		}
		if err != nil {
			stop = err
			break
		}
	}
	res, err := r.collect()
	if err != nil {
		return nil, errors.Join(stop, err)
	}
	if stop != nil {
		return res, stop
	}
	return res, invalid(res)
}

// InvalidError says that runs did not count.
type InvalidError struct {
	Runs    int
	Reasons []string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%d invalid run(s): %s", e.Runs, strings.Join(e.Reasons, "; "))
}

func invalid(r *result.Result) error {
	var e InvalidError
	for _, run := range r.Runs {
		if !run.Valid {
			e.Runs++
			e.Reasons = append(e.Reasons, fmt.Sprintf("run %d (%s, %s): %s", run.Index, run.Variant, run.Kind, strings.Join(run.WhyInvalid, ", ")))
		}
	}
	if e.Runs == 0 {
		return nil
	}
	return &e
}

// runner holds the state of one experiment.
type runner struct {
	o        Options
	runs     RunsSpec
	plan     []Planned
	scenario load.Scenario
	done     []*outcome
	warnings []string
	allCPUs  []int // that this process could use before it narrowed its own set
}

// outcome is one run that ended.
type outcome struct {
	result.Run
	recording string // directory of its recording, "" when there is none
}

func newRunner(o Options) *runner {
	r := &runner{o: o, runs: o.Spec.Runs}
	if o.Quick {
		r.runs = o.Spec.Quick
	}
	if o.Duration > 0 {
		r.runs.Duration = o.Duration
	}
	r.plan = Plan(r.runs)
	return r
}

func (r *runner) prepare() error {
	if err := r.o.Spec.Validate(); err != nil {
		return fmt.Errorf("experiment: %w", err)
	}
	sc, err := load.LoadScenario(r.o.Spec.Scenario)
	if err != nil {
		return fmt.Errorf("experiment %s: %w", r.o.Spec.Name, err)
	}
	sc.WarmupMessages, sc.Duration, sc.Messages = r.runs.Warmup, r.runs.Duration, 0
	if err := sc.Validate(); err != nil {
		return fmt.Errorf("experiment %s: scenario %s: %w", r.o.Spec.Name, sc.Name, err)
	}
	r.scenario = sc
	runs := filepath.Join(r.o.Dir, "runs")
	if entries, err := os.ReadDir(runs); err == nil && len(entries) > 0 {
		return fmt.Errorf("experiment %s: %s holds runs already; name another directory with -o", r.o.Spec.Name, runs)
	}
	if err := os.MkdirAll(runs, 0o755); err != nil {
		return fmt.Errorf("experiment %s: %w", r.o.Spec.Name, err)
	}
	if len(r.o.RecordCPUs) > 0 {
		for c := range runtime.NumCPU() {
			r.allCPUs = append(r.allCPUs, c)
		}
		return pinSelf(r.o.RecordCPUs)
	}
	return nil
}

func (r *runner) progress(p Planned, phase, message string) {
	if r.o.Progress != nil {
		r.o.Progress(Progress{p.Index, len(r.plan), p.Side, r.o.Spec.side(p.Side).Name, p.Kind, phase, message})
	}
}

func (r *runner) host() result.Host {
	return result.Host{
		Kernel: probes.KernelRelease(), Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), GoVersion: runtime.Version(),
		BrokerCPUs: cpuList(r.o.BrokerCPUs), LoadCPUs: cpuList(r.o.LoadCPUs), RecordCPUs: cpuList(r.o.RecordCPUs),
	}
}

func cpuList(cpus []int) string {
	var out []string
	for _, c := range cpus {
		out = append(out, fmt.Sprint(c))
	}
	return strings.Join(out, ",")
}
