package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/profile"
)

var topFormats = map[string]bool{"text": true, "markdown": true, "csv": true, "json": true}

type topFlags struct {
	format      string
	json        bool
	source      string
	by          string
	idle        bool
	limit       int
	from, to    time.Duration
	application []string
	target      string
}

func newTop() *cobra.Command {
	f := topFlags{}
	cmd := &cobra.Command{
		Use:   "top RECORDING",
		Short: "Show where a recording's off-CPU time went, by operation and wait site",
		Long: `top attributes a recording's off-CPU time: operation, wait site (the application
frame nearest the leaf), wait class, share, threads lost (off-CPU seconds per
second) and, where the target's work is known, time per message.

With --by lock it shows the locks of a recording made with --locks: how often and
how long they were waited for, by whom, and who let go of them. With --by waker,
who made whom runnable, of a recording made with --exact.

Idle waits are left out unless --idle is given; their size is always printed.`,
		Example: `  contention top rec
  contention top rec --source threads --idle
  contention top rec --by lock
  contention top rec --by waker
  contention top rec --from 2s --to 5s --format csv`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.OutOrStdout(), args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.format, "format", "text", "text, markdown, csv or json")
	fl.BoolVar(&f.json, "json", false, "the same as --format json")
	fl.StringVar(&f.source, "source", "", "one source only: goroutines, goroutines-exact, locks, threads, mutex or block")
	fl.StringVar(&f.by, "by", "operation", "operation (and wait site), lock or waker")
	fl.BoolVar(&f.idle, "idle", false, "show idle waits too")
	fl.IntVar(&f.limit, "limit", 20, "rows per table, 0 for all")
	fl.DurationVar(&f.from, "from", 0, "start of the part to look at, from the recording's start, in whole seconds")
	fl.DurationVar(&f.to, "to", 0, "end of the part to look at, 0 for the recording's end")
	fl.StringArrayVar(&f.application, "application", nil, "pattern of application frames (default: Go frames outside the standard library)")
	fl.StringVar(&f.target, "target", "", "one target of a recording of several, by its id in meta.json")
	return cmd
}

func (f *topFlags) run(w io.Writer, dir string) error {
	if f.json {
		f.format = "json"
	}
	if !topFormats[f.format] {
		return usageError("--format %q is not known; use text, markdown, csv or json", f.format)
	}
	rec, err := profile.Open(dir)
	if err != nil {
		return err
	}
	from, to := f.from, f.to
	if f.target != "" {
		if from != 0 || to != 0 {
			if err := cut(rec, from, to); err != nil {
				return usageError("%w", err)
			}
			from, to = 0, 0
		}
		if err := oneTarget(rec, f.target); err != nil {
			return err
		}
	}
	switch f.by {
	case "operation":
	case "lock":
		return f.runLocks(w, rec)
	case "waker":
		return f.runWakers(w, rec)
	default:
		return usageError("--by %q is not known; use operation, lock or waker", f.by)
	}
	attrs, err := attributeAll(rec, f.source, from, to, f.application)
	if err != nil {
		return err
	}
	return writeTop(w, newTopView(rec, attrs, f.idle, f.limit), f.format)
}

// attributeAll attributes every source that measures waiting, or the one named.
func attributeAll(rec *profile.Recording, source string, from, to time.Duration, application []string) ([]*analysis.Attribution, error) {
	c, err := classifierFor(rec.Meta.Targets, application)
	if err != nil {
		return nil, err
	}
	if from != 0 || to != 0 {
		if err := cut(rec, from, to); err != nil {
			return nil, usageError("%w", err)
		}
	}
	var out []*analysis.Attribution
	for _, s := range []profile.Source{profile.SourceGoroutines, profile.SourceExact, profile.SourceThreads, profile.SourceBlock, profile.SourceMutex, profile.SourceLocks} {
		// Waits for locks are among all waits already.
		if s == profile.SourceLocks && source == "" && rec.Profiles[profile.SourceExact] != nil {
			continue
		}
		if rec.Profiles[s] == nil || source != "" && source != string(s) {
			continue
		}
		a, err := analysis.Attribute(rec, s, c)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("recording %s holds nothing to attribute%s; it has %s", rec.Dir, forSource(source), haves(rec))
	}
	return out, nil
}

func forSource(s string) string {
	if s == "" {
		return ""
	}
	return " of source " + s
}

func haves(rec *profile.Recording) string {
	var out []string
	for _, s := range rec.Meta.Sources {
		out = append(out, string(s.Source))
	}
	if len(out) == 0 {
		return "no source"
	}
	return strings.Join(out, ", ")
}

// classifierFor returns the classifier of a recording's first target.
func classifierFor(targets []profile.Target, application []string) (*analysis.Classifier, error) {
	rules, err := analysis.BuiltinRules()
	if err != nil {
		return nil, err
	}
	var t profile.Target
	if len(targets) > 0 {
		t = targets[0]
	}
	c := rules.For(t)
	if len(application) == 0 {
		return c, nil
	}
	if c, err = c.WithApplication(application...); err != nil {
		return nil, usageError("--application: %w", err)
	}
	return c, nil
}

// cut narrows the profiles that have slices to a part of the window; sources
// without slices are dropped. Work counters are only read at the window's
// edges, so messages are spread evenly over it.
func cut(rec *profile.Recording, from, to time.Duration) error {
	found := false
	for s, p := range rec.Profiles {
		sl, info := rec.Slices[s], rec.Meta.Info(s)
		if sl == nil {
			delete(rec.Profiles, s)
			continue
		}
		part, err := sl.Between(p, from, to)
		if err != nil {
			return err
		}
		found = true
		rec.Profiles[s] = part
		info.Window = profile.Window{Start: part.Start, End: part.Start.Add(part.Duration), DurationNs: int64(part.Duration)}
		info.Accounting = nil // known for the whole window only
	}
	if !found {
		return fmt.Errorf("recording %s has no slices: --from and --to need them", rec.Dir)
	}
	return nil
}
