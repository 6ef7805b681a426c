package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/experiment"
	"github.com/contention-toolkit/contention/profile"
	"github.com/contention-toolkit/contention/report"
)

type abFlags struct {
	quick                            bool
	out                              string
	duration                         time.Duration
	brokerCPUs, loadCPUs, recordCPUs string
	json                             bool
}

func newAB() *cobra.Command {
	f := abFlags{}
	cmd := &cobra.Command{
		Use:   "ab EXPERIMENT",
		Short: "Run an interleaved A/B of two broker builds or settings and report on it",
		Long: `ab runs an experiment: both sides in turn (A B, B A, …), each broker and load a
process of its own. Unprofiled runs give throughput and latency, profiled runs
say where time is blocked, one reconciliation run per side sets Go's block and
mutex profiles beside the sampler. Every run's delivery is verified.

EXPERIMENT is a built-in name (` + strings.Join(experiment.Names(), ", ") + `) or a YAML file. The output
directory holds report.html, report.md, result.json, bench.txt, before.svg,
after.svg, diff.svg and, under runs/, every recording and log.`,
		Example: `  contention ab handoff
  contention ab handoff --quick -o out`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.quick, "quick", false, "fewest and shortest runs, under a minute: descriptive only")
	fl.StringVarP(&f.out, "out", "o", "", "output directory (default: EXPERIMENT-TIME)")
	fl.DurationVar(&f.duration, "duration", 0, "measured time of each run (default: the experiment's)")
	fl.StringVar(&f.brokerCPUs, "broker-cpus", "", "CPU set of the broker, such as 0 or 0,2-3 (default: all)")
	fl.StringVar(&f.loadCPUs, "load-cpus", "", "CPU set of the load")
	fl.StringVar(&f.recordCPUs, "record-cpus", "", "CPU set of the recorder")
	fl.BoolVar(&f.json, "json", false, "print result.json instead of the summary")
	return cmd
}

func (f *abFlags) run(ctx context.Context, stdout, stderr io.Writer, name string) error {
	spec, err := loadSpec(name)
	if err != nil {
		return err
	}
	opt := experiment.Options{
		Spec: spec, Dir: f.out, Quick: f.quick, Duration: f.duration,
		Tool: profile.Tool{Name: "contention", Version: version()}, Command: append([]string{"contention"}, os.Args[1:]...),
	}
	if opt.Dir == "" {
		opt.Dir = spec.Name + "-" + time.Now().Format("20060102-150405")
	}
	if opt.Rules, err = analysis.BuiltinRules(); err != nil {
		return err
	}
	for _, c := range []struct {
		flag, text string
		set        *[]int
	}{{"broker-cpus", f.brokerCPUs, &opt.BrokerCPUs}, {"load-cpus", f.loadCPUs, &opt.LoadCPUs}, {"record-cpus", f.recordCPUs, &opt.RecordCPUs}} {
		if *c.set, err = parseCPUs(c.text); err != nil {
			return usageError("--%s %q: %w", c.flag, c.text, err)
		}
	}
	var remove func()
	if opt.Self, remove, err = selfWithSymbols(ctx, stderr); err != nil {
		return err
	}
	defer remove()
	meter := newMeter(stderr)
	opt.Progress = meter.update
	res, err := experiment.Run(ctx, opt)
	meter.finish()
	if res == nil {
		return err
	}
	if werr := f.write(res, opt.Dir, stderr); werr != nil {
		return errors.Join(err, werr)
	}
	if perr := f.print(stdout, res, opt.Dir); perr != nil {
		return errors.Join(err, perr)
	}
	var bad *experiment.InvalidError
	if errors.As(err, &bad) {
		return invalidError("ab %s: %w; the report is in %s", spec.Name, err, opt.Dir)
	}
	return err
}

// loadSpec reads a built-in experiment or a YAML file.
func loadSpec(name string) (*experiment.Spec, error) {
	if !strings.ContainsAny(name, "./") {
		s, err := experiment.Builtin(name)
		if err != nil {
			return nil, usageError("%w", err)
		}
		return s, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read experiment: %w", err)
	}
	s, err := experiment.Parse(data)
	if err != nil {
		return nil, usageError("%s: %w", name, err)
	}
	return s, nil
}

// write draws the graphs and writes the report; what cannot be drawn becomes a
// warning, so that a broken recording does not lose the measurements.
func (f *abFlags) write(res *result.Result, dir string, stderr io.Writer) error {
	for _, g := range experimentGraphs(res, dir) {
		err := g.write(dir)
		if err != nil {
			res.Warnings = append(res.Warnings, fmt.Sprintf("%s is not drawn: %v", g.file, err))
			continue
		}
		res.Graphs = append(res.Graphs, result.Graph{File: g.file, Caption: g.caption})
	}
	if err := report.Write(dir, res); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	fmt.Fprintf(stderr, "report: %s\n", filepath.Join(dir, "report.html"))
	return nil
}

func (f *abFlags) print(w io.Writer, res *result.Result, dir string) error {
	if f.json {
		return report.JSON(w, res)
	}
	return report.Summary(w, res)
}

// plannedGraph is one picture of an experiment.
type plannedGraph struct {
	file, caption string
	spec          graphSpec
	err           error
}

// experimentGraphs lays out before.svg, after.svg and diff.svg, and the same
// for the thread plane where it was recorded.
func experimentGraphs(res *result.Result, dir string) []plannedGraph {
	sides := map[string][]*profile.Recording{}
	var broken error
	for _, run := range res.Runs {
		if run.Kind != result.KindProfiled || !run.Valid {
			continue
		}
		rec, err := profile.Open(filepath.Join(dir, run.Dir, experiment.RecordingDir))
		if err != nil {
			broken = err
			continue
		}
		sides[run.Variant] = append(sides[run.Variant], rec)
	}
	before, after := res.Side(result.Before), res.Side(result.After)
	make := func(file, caption string, s graphSpec) plannedGraph {
		g := plannedGraph{file: file, caption: caption, spec: s, err: broken}
		if len(s.before) == 0 && g.err == nil {
			g.err = errors.New("no valid profiled run")
		}
		return g
	}
	var out []plannedGraph
	for _, p := range []struct {
		prefix string
		source profile.Source
	}{{"", profile.SourceGoroutines}, {"threads-", profile.SourceThreads}} {
		b, a := having(sides[result.Before], p.source), having(sides[result.After], p.source)
		if p.prefix != "" && (len(b) == 0 || len(a) == 0) {
			continue
		}
		plane := string(p.source.Plane())
		out = append(out,
			make(p.prefix+"before.svg", fmt.Sprintf("Before (%s): off-CPU time per message, %s plane.", before.Name, plane),
				graphSpec{source: p.source, before: b, names: [2]string{before.Name}, title: res.Experiment + ": before, " + before.Name}),
			make(p.prefix+"after.svg", fmt.Sprintf("After (%s): off-CPU time per message, %s plane.", after.Name, plane),
				graphSpec{source: p.source, before: a, names: [2]string{after.Name}, title: res.Experiment + ": after, " + after.Name}),
			make(p.prefix+"diff.svg", fmt.Sprintf("The difference: what grew and what shrank per message, %s plane.", plane),
				graphSpec{source: p.source, sameBuild: true, before: b, after: a, names: [2]string{before.Name, after.Name}, title: fmt.Sprintf("%s: %s → %s", res.Experiment, before.Name, after.Name)}))
	}
	return out
}

func having(recs []*profile.Recording, s profile.Source) []*profile.Recording {
	var out []*profile.Recording
	for _, r := range recs {
		if r.Profiles[s] != nil {
			out = append(out, r)
		}
	}
	return out
}

func (g *plannedGraph) write(dir string) error {
	if g.err != nil {
		return g.err
	}
	s := g.spec
	if len(s.after) == 0 {
		merged, err := mergeRuns(s.before, s.source)
		if err != nil {
			return err
		}
		s.before = []*profile.Recording{merged}
	}
	gr, err := newGraph(s)
	if err != nil {
		return err
	}
	data, err := gr.svg()
	if err != nil {
		return err
	}
	return profile.WriteFile(filepath.Join(dir, g.file), data)
}

// parseCPUs reads a CPU set such as "0,2-3".
func parseCPUs(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	var out []int
	for _, part := range strings.Split(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		first, err := strconv.ParseUint(low, 10, 10)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CPU number", low)
		}
		last := first
		if ranged {
			if last, err = strconv.ParseUint(high, 10, 10); err != nil || last < first {
				return nil, fmt.Errorf("%q is not a range of CPUs", part)
			}
		}
		for c := first; c <= last; c++ {
			out = append(out, int(c))
		}
	}
	return out, nil
}
