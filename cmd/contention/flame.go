package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contention-toolkit/contention/profile"
)

type flameFlags struct {
	out         string
	plane       string
	source      string
	unit        string
	values      []string
	idle        bool
	title       string
	from, to    time.Duration
	application []string
	target      string
}

func newFlame() *cobra.Command {
	f := flameFlags{}
	cmd := &cobra.Command{
		Use:   "flame RECORDING [RECORDING]",
		Short: "Draw a flame graph of a recording, or of the difference between two",
		Long: `flame draws a recording's off-CPU time as a static SVG that needs no script.
Two recordings make a differential graph: common, grown and shrunk time, frames
that vanished and frames that are new in one picture, per message where the work
is known on both sides, else per second.

The ending of -o picks the form: .svg, .folded (folded stacks) or .pb.gz (pprof).
Idle waits are left out unless --idle is given; the picture prints their size.`,
		Example: `  contention flame rec -o rec.svg
  contention flame before after -o diff.svg
  contention flame rec --plane thread --idle -o threads.folded`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.OutOrStdout(), args) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.out, "out", "o", "", "file to write (default: flame.svg in the recording, diff.svg in the second one)")
	fl.StringVar(&f.plane, "plane", "", "goroutine or thread (default: the goroutine plane where it was recorded)")
	fl.StringVar(&f.source, "source", "", "one source: goroutines, threads, block or mutex; overrides --plane")
	fl.StringVar(&f.unit, "unit", unitAuto, "total, share, per-second or per-message (default: per message where the work is known, else per second)")
	fl.StringArrayVar(&f.values, "value", nil, "sample type to draw, such as blocked or runnable (default: both)")
	fl.BoolVar(&f.idle, "idle", false, "draw idle waits too")
	fl.StringVar(&f.title, "title", "", "title of the picture")
	fl.DurationVar(&f.from, "from", 0, "start of the part to draw, from the recording's start, in whole seconds")
	fl.DurationVar(&f.to, "to", 0, "end of the part to draw, 0 for the recording's end")
	fl.StringArrayVar(&f.application, "application", nil, "pattern of application frames")
	fl.StringVar(&f.target, "target", "", "one target of a recording of several, by its id in meta.json")
	return cmd
}

func (f *flameFlags) run(w io.Writer, args []string) error {
	spec := graphSpec{title: f.title, unit: f.unit, values: f.values, idle: f.idle, application: f.application}
	for i, dir := range args {
		rec, err := profile.Open(dir)
		if err != nil {
			return err
		}
		if f.from != 0 || f.to != 0 {
			if err := cut(rec, f.from, f.to); err != nil {
				return usageError("%w", err)
			}
		}
		if f.target != "" {
			if err := oneTarget(rec, f.target); err != nil {
				return err
			}
		}
		spec.names[i] = filepath.Base(filepath.Clean(dir))
		if i == 0 {
			spec.before = append(spec.before, rec)
		} else {
			spec.after = append(spec.after, rec)
		}
	}
	var err error
	if spec.source, err = f.pick(append(spec.before, spec.after...)); err != nil {
		return err
	}
	g, err := newGraph(spec)
	if err != nil {
		return err
	}
	out := f.out
	if out == "" {
		out = filepath.Join(args[len(args)-1], map[int]string{1: "flame.svg", 2: "diff.svg"}[len(args)])
	}
	data, err := encodeGraph(g, out)
	if err != nil {
		return err
	}
	if err := profile.WriteFile(out, data); err != nil {
		return err
	}
	fmt.Fprintln(w, out)
	return nil
}

// pick chooses the source that every recording has.
func (f *flameFlags) pick(recs []*profile.Recording) (profile.Source, error) {
	want := []profile.Source{profile.SourceGoroutines, profile.SourceThreads, profile.SourceBlock, profile.SourceMutex}
	switch {
	case f.source != "":
		want = []profile.Source{profile.Source(f.source)}
	case f.plane == string(profile.PlaneGoroutine):
		want = []profile.Source{profile.SourceGoroutines, profile.SourceBlock}
	case f.plane == string(profile.PlaneThread):
		want = []profile.Source{profile.SourceThreads}
	case f.plane != "":
		return "", usageError("--plane %q is not known; use goroutine or thread", f.plane)
	}
	for _, s := range want {
		all := true
		for _, r := range recs {
			all = all && r.Profiles[s] != nil
		}
		if all {
			return s, nil
		}
	}
	var have []string
	for _, r := range recs {
		have = append(have, fmt.Sprintf("%s has %s", r.Dir, haves(r)))
	}
	return "", fmt.Errorf("draw flame graph: no recorded source is of the kind asked for: %s", strings.Join(have, "; "))
}

// encodeGraph draws the graph in the form that the file's ending asks for.
func encodeGraph(g *graph, path string) ([]byte, error) {
	two := len(g.sides[1]) > 0
	switch {
	case strings.HasSuffix(path, ".svg"):
		return g.svg()
	case two && (strings.HasSuffix(path, ".folded") || strings.HasSuffix(path, ".pb.gz")):
		return nil, usageError("%s holds one side; write each recording by itself (`go tool pprof -diff_base` compares two .pb.gz)", path)
	case strings.HasSuffix(path, ".folded"):
		return g.folded()
	case strings.HasSuffix(path, ".pb.gz"):
		return g.pprof()
	}
	return nil, usageError("-o %s: the ending says the form; use .svg, .folded or .pb.gz", path)
}
