package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/probes"
	"github.com/contention-toolkit/contention/probes/work"
	"github.com/contention-toolkit/contention/profile"
)

type recordFlags struct {
	pids       []int
	name       string
	container  string
	follow     bool
	duration   time.Duration
	out        string
	sources    []string
	hz         int
	pprof      string
	work       []string
	delivered  string
	noDiscover bool
	exact      bool
	locks      bool
	budget     int
	threads    threadFlags
	maxCPU     float64
	maxMemory  int64
	json       bool
}

func newRecord() *cobra.Command {
	f := recordFlags{maxMemory: 1 << 30}
	cmd := &cobra.Command{
		Use:   "record (--pid PID… | --name NAME | --container ID | -- COMMAND [ARGS…])",
		Short: "Record where a live process's time goes while it does not run",
		Long: `record watches live processes from outside and writes a recording directory.

Sources (--source, repeatable):
  goroutines  the goroutine sampler: reads the target's memory, nothing in the target changes
  threads     eBPF on the scheduler: every switch of the target's threads
  mutex       Go's mutex profile over HTTP: charges the unlocker
  block       Go's block profile over HTTP: charges the waiter
  cpu         Go's CPU profile over HTTP
  fgprof      wall clock over HTTP, where the target serves it

Every wait, counted (Go programs on amd64, by uprobes on the runtime):
  --exact     goroutines-exact and wakers: how often and how long each stack was blocked and
              runnable, with distributions, and who woke it
  --locks     locks: waiter and releaser paired per lock; contention top REC --by lock
Each hit of a probe costs the target about a microsecond: three at each wait for --locks
alone, and at every park, wake-up and switch with --exact, for paced loads. Above
--probe-budget hits per second they are detached, and the other sources go on.

Threads (the source threads; what is left out is counted):
  --cgroup DIR, --thread TID|NAME   only these threads, told apart in the kernel
  --min-blocked, --admit-all        leave short waits out; or keep some, in proportion to their
                                    length and weighted
  --thread-wakers                   who woke each thread: thread-wakers
  --oncpu-hz                        where the threads run, by samples of the CPU clock: oncpu

Without --source, it records goroutines and threads, and mutex, block and cpu
where the target serves pprof. Only the target is traced, and nothing stays
attached when record ends, however it ends. What cannot be recorded is named
with the reason, and the rest is recorded.

Several processes, by --pid more than once or as --container has them, are
recorded in one window; top and flame show them together, or one with --target.
A process that runs another program (exec) splits the window: each program is a
target of its own. --follow also records the children that a target starts, and
the process that takes its place when it ends.

-o - writes the recording to standard output as a tar archive, such as out of a
pod; top, flame and diff read that file as they read a directory.`,
		Example: `  contention record --pid 4242 --duration 10s -o rec
  contention record --name nats-server --source goroutines -o rec
  contention record --pid 4242 --pprof http://127.0.0.1:6060 --source mutex --source block -o rec
  contention record --pid 4242 --exact --locks --duration 5s -o rec
  contention record --name mybroker --follow --duration 60s -o rec
  contention record --container 3f4e0a11c0de -o - > rec.tar
  contention record --duration 5s -o rec -- ./mybroker --listen 127.0.0.1:6650`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.bound(cmd.Flags().Changed("max-cpu"))
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	fl := cmd.Flags()
	fl.IntSliceVar(&f.pids, "pid", nil, "process to record, repeatable")
	fl.StringVar(&f.name, "name", "", "record the process whose executable has this name")
	fl.StringVar(&f.container, "container", "", "record the processes of this container: 12 digits or more of its id, or the name of its cgroup")
	fl.BoolVar(&f.follow, "follow", false, "record children and restarts of the target too")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "how long to record")
	fl.StringVarP(&f.out, "out", "o", "", "recording directory to make, - for a tar archive on standard output (default: contention-PID-TIME)")
	fl.StringArrayVar(&f.sources, "source", nil, "source to record, repeatable")
	fl.IntVar(&f.hz, "hz", 0, "ticks of the goroutine sampler per second (default 99)")
	fl.StringVar(&f.pprof, "pprof", "", "base URL of the target's net/http/pprof (default: looked for on its loopback ports)")
	fl.StringArrayVar(&f.work, "work", nil, "counter of messages acknowledged to producers, URL#metric (default: known ones are looked for)")
	fl.StringVar(&f.delivered, "work-delivered", "", "counter of messages sent to consumers, URL#metric")
	fl.BoolVar(&f.noDiscover, "no-discover", false, "never connect to the target's ports to look for pprof and counters")
	fl.BoolVar(&f.exact, "exact", false, "count every wait of the goroutines, and who ended it, by uprobes")
	fl.BoolVar(&f.locks, "locks", false, "pair waiters and releasers per lock, by uprobes")
	fl.IntVar(&f.budget, "probe-budget", 0, "hits of uprobes per second above which they are detached (default 200000)")
	f.threads.register(fl)
	fl.Float64Var(&f.maxCPU, "max-cpu", 1, "CPUs that the recorder may use; above that for 3 s the window ends, 0 for no bound")
	fl.Var(size[int64]{&f.maxMemory}, "max-memory", "memory that the recorder may use; above that the window ends, 0B for no bound")
	fl.BoolVar(&f.json, "json", false, "print the recording's top waits as JSON")
	return cmd
}

func (f *recordFlags) run(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	opt, err := f.options()
	if err != nil {
		return err
	}
	pids, child, err := f.target(args)
	if err != nil {
		return err
	}
	if child != nil {
		defer child.stop()
	}
	opt.PIDs = pids
	opt.Successor = f.successor()
	if f.out == "-" {
		if file, ok := stdout.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
			return usageError("-o - writes a tar archive, and standard output is a terminal; redirect it to a file")
		}
		opt.Dir, opt.Out = "", stdout
	} else if opt.Dir == "" {
		opt.Dir = fmt.Sprintf("contention-%d-%s", pids[0], time.Now().Format("20060102-150405"))
	}
	opt.Notify = func(what string) { fmt.Fprintf(stderr, "warning: %s\n", oneLine(what)) }
	s, err := probes.Start(ctx, opt)
	if err != nil {
		return err
	}
	f.announce(stderr, s)
	t := time.NewTimer(f.duration)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.Done():
	}
	why := s.Why()
	meta, err := s.Stop()
	if err != nil {
		return err
	}
	into := opt.Dir
	if opt.Out != nil {
		into = "standard output"
	}
	took := time.Duration(meta.Window.DurationNs).Seconds()
	fmt.Fprintf(stderr, "recorded %.1f s of %s into %s\n", took, named(meta.Targets), into)
	if opt.Out == nil {
		if err := f.show(stdout, stderr, opt.Dir); err != nil {
			return err
		}
	}
	if why != "" {
		return invalidError("record %s: %s after %.1f of %v; what was recorded is kept in %s", named(meta.Targets), why, took, f.duration, into)
	}
	return nil
}

// bound holds this process to what it may use, as far as Go's runtime can: its
// threads only where a number of CPUs was asked for.
func (f *recordFlags) bound(threads bool) {
	if f.maxMemory > 0 {
		debug.SetMemoryLimit(f.maxMemory / 10 * 9)
	}
	if n := int(math.Ceil(f.maxCPU)); threads && n > 0 && n < runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}

// named lists targets in a sentence.
func named(targets []profile.Target) string {
	var ids []string
	for _, t := range targets {
		if id := strconv.Itoa(t.PID); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 1 {
		return "process " + ids[0]
	}
	if len(ids) > 6 {
		ids = append(ids[:5], fmt.Sprintf("%d more", len(ids)-5))
	}
	return "processes " + strings.Join(ids, ", ")
}

// options turns flags into what to record.
func (f *recordFlags) options() (probes.Options, error) {
	opt := probes.Options{
		Dir: f.out, Duration: f.duration, Hz: f.hz, PprofURL: f.pprof, NoDiscover: f.noDiscover,
		Follow: f.follow, MaxCPU: f.maxCPU, MaxMemory: f.maxMemory,
		Tool: profile.Tool{Name: "contention", Version: version()}, Command: os.Args,
	}
	if f.duration <= 0 {
		return opt, usageError("--duration %v: want more than 0", f.duration)
	}
	for _, s := range f.sources {
		if !probes.Known(profile.Source(s)) {
			return opt, usageError("--source %q is not known; use goroutines, threads, mutex, block, cpu, fgprof, goroutines-exact or locks", s)
		}
		opt.Sources = append(opt.Sources, profile.Source(s))
	}
	if f.exact {
		opt.Beside = append(opt.Beside, profile.SourceExact)
	}
	if f.locks {
		opt.Beside = append(opt.Beside, profile.SourceLocks)
	}
	if f.budget < 0 {
		return opt, usageError("--probe-budget %d: want more than 0", f.budget)
	}
	if f.maxCPU < 0 || math.IsNaN(f.maxCPU) {
		return opt, usageError("--max-cpu %v: want 0 or more", f.maxCPU)
	}
	if f.maxMemory < 0 {
		return opt, usageError("--max-memory: want 0B or more")
	}
	opt.ProbeBudget = f.budget
	var err error
	if opt.Threads, err = f.threads.options(); err != nil {
		return opt, err
	}
	counters := map[string]string{}
	for _, w := range f.work {
		counters[w] = profile.WorkPublished
	}
	if f.delivered != "" {
		counters[f.delivered] = profile.WorkDelivered
	}
	for text, role := range counters {
		c, err := work.Parse(text, role)
		if err != nil {
			return opt, usageError("%w", err)
		}
		opt.Work = append(opt.Work, c)
	}
	rules, err := analysis.BuiltinRules()
	if err != nil {
		return opt, err
	}
	opt.Annotate = func(t profile.Target, c *profile.Capture) { rules.For(t).Annotate(c) }
	return opt, nil
}

// costs says what each source takes; what it took is in the recording.
var costs = map[profile.Source]string{
	profile.SourceGoroutines: "costs the recorder up to 10 % of one CPU, the target nothing but that",
	profile.SourceThreads:    "costs the target 1 to 12 µs per switch of its threads",
	profile.SourceMutex:      "costs one read at each edge; the target pays for the profile already",
	profile.SourceBlock:      "costs one read at each edge; the target pays for the profile already",
	profile.SourceCPU:        "costs the target Go's CPU profiler, 100 signals per CPU second",
	profile.SourceExact:      "costs the target a trap of some microseconds at every park, wake-up and switch of a goroutine",
	profile.SourceLocks:      "costs the target three traps of about a microsecond at every wait for a lock",
	profile.SourceFgprof:     "costs the target a stop of all goroutines 99 times per second",
}

// announce says what is recorded, at what cost, and what is missing.
func (f *recordFlags) announce(w io.Writer, s *probes.Session) {
	for _, t := range s.Targets() {
		fmt.Fprintf(w, "recording process %d (%s) for %v: %s\n", t.PID, oneLine(program(t)), f.duration, strings.Join(s.Recording(), ", "))
	}
	for _, name := range s.Recording() {
		if c := costs[profile.Source(name)]; c != "" {
			fmt.Fprintf(w, "  %-16s %s\n", name, c)
		}
	}
	for _, a := range s.Absent() {
		fmt.Fprintf(w, "not recorded: %s: %s\n", a.Source, oneLine(a.Reason))
	}
	if len(s.Work()) == 0 {
		fmt.Fprintln(w, "no counter of work is known: figures are per second; name one with --work URL#metric")
	}
}

// program is a target's name: its executable may be hidden from this user.
func program(t profile.Target) string {
	switch {
	case t.Executable != "":
		return filepath.Base(t.Executable)
	case len(t.Arguments) > 0:
		return filepath.Base(t.Arguments[0])
	}
	return "its executable is hidden"
}

// show prints the largest waits and what to do next.
func (f *recordFlags) show(stdout, stderr io.Writer, dir string) error {
	rec, err := profile.Open(dir)
	if err != nil {
		return err
	}
	attrs, err := attributeAll(rec, "", 0, 0, nil)
	if err != nil {
		fmt.Fprintf(stderr, "nothing to attribute: %v\n", err)
		attrs = nil
	}
	format := "text"
	if f.json {
		format = "json"
	}
	if err := writeTop(stdout, newTopView(rec, attrs, false, 5), format); err != nil {
		return err
	}
	if rec.Locks != nil {
		fmt.Fprintf(stderr, "\nlocks: contention top %s --by lock\n", dir)
	}
	fmt.Fprintf(stderr, "\nnext: contention top %s\n      contention flame %s -o flame.svg\n", dir, dir)
	return nil
}
