package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/probes"
	"github.com/contention-toolkit/contention/probes/work"
	"github.com/contention-toolkit/contention/profile"
)

type recordFlags struct {
	pid        int
	name       string
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
	json       bool
}

func newRecord() *cobra.Command {
	f := recordFlags{}
	cmd := &cobra.Command{
		Use:   "record (--pid PID | --name NAME | -- COMMAND [ARGS…])",
		Short: "Record where a live process's time goes while it does not run",
		Long: `record watches one live process from outside and writes a recording directory.

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
with the reason, and the rest is recorded.`,
		Example: `  contention record --pid 4242 --duration 10s -o rec
  contention record --name nats-server --source goroutines -o rec
  contention record --pid 4242 --pprof http://127.0.0.1:6060 --source mutex --source block -o rec
  contention record --pid 4242 --exact --locks --duration 5s -o rec
  contention record --duration 5s -o rec -- ./mybroker --listen 127.0.0.1:6650`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&f.pid, "pid", 0, "process to record")
	fl.StringVar(&f.name, "name", "", "record the process whose executable has this name")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "how long to record")
	fl.StringVarP(&f.out, "out", "o", "", "recording directory to make (default: contention-PID-TIME)")
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
	fl.BoolVar(&f.json, "json", false, "print the recording's top waits as JSON")
	return cmd
}

func (f *recordFlags) run(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	opt, explicit, err := f.options()
	if err != nil {
		return err
	}
	pid, child, err := f.target(args)
	if err != nil {
		return err
	}
	if child != nil {
		defer child.stop()
	}
	opt.PID = pid
	if opt.Dir == "" {
		opt.Dir = fmt.Sprintf("contention-%d-%s", pid, time.Now().Format("20060102-150405"))
	}
	opt.Notify = func(what string) { fmt.Fprintf(stderr, "warning: %s\n", oneLine(what)) }
	s, err := probes.Start(ctx, opt)
	if err != nil {
		return err
	}
	f.announce(stderr, s, opt, explicit)
	t := time.NewTimer(f.duration)
	defer t.Stop()
	early := ""
	select {
	case <-t.C:
	case <-ctx.Done():
		early = "interrupted"
	case <-s.Done():
		early = "the target ended"
	}
	meta, err := s.Stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "recorded %.1f s of process %d into %s\n", time.Duration(meta.Window.DurationNs).Seconds(), pid, opt.Dir)
	if err := f.show(stdout, stderr, opt.Dir); err != nil {
		return err
	}
	if early == "the target ended" {
		return invalidError("record process %d: %s after %.1f of %v; what was recorded is kept in %s", pid, early, time.Duration(meta.Window.DurationNs).Seconds(), f.duration, opt.Dir)
	}
	return nil
}

// options turns flags into what to record; explicit says that the sources were named.
func (f *recordFlags) options() (probes.Options, bool, error) {
	opt := probes.Options{
		Dir: f.out, Duration: f.duration, Hz: f.hz, PprofURL: f.pprof, NoDiscover: f.noDiscover,
		Tool: profile.Tool{Name: "contention", Version: version()}, Command: os.Args,
	}
	if f.duration <= 0 {
		return opt, false, usageError("--duration %v: want more than 0", f.duration)
	}
	for _, s := range f.sources {
		if !probes.Known(profile.Source(s)) {
			return opt, false, usageError("--source %q is not known; use goroutines, threads, mutex, block, cpu, fgprof, goroutines-exact or locks", s)
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
		return opt, false, usageError("--probe-budget %d: want more than 0", f.budget)
	}
	opt.ProbeBudget = f.budget
	var err error
	if opt.Threads, err = f.threads.options(); err != nil {
		return opt, false, err
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
			return opt, false, usageError("%w", err)
		}
		opt.Work = append(opt.Work, c)
	}
	rules, err := analysis.BuiltinRules()
	if err != nil {
		return opt, false, err
	}
	opt.Annotate = func(t profile.Target, c *profile.Capture) { rules.For(t).Annotate(c) }
	return opt, opt.Sources != nil, nil
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
func (f *recordFlags) announce(w io.Writer, s *probes.Session, opt probes.Options, explicit bool) {
	t := s.Target()
	fmt.Fprintf(w, "recording process %d (%s) for %v: %s\n", t.PID, oneLine(filepath.Base(t.Executable)), f.duration, strings.Join(s.Recording(), ", "))
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

// command is a child that record started itself.
type command struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// target finds the process to record, or starts the command given.
func (f *recordFlags) target(args []string) (int, *command, error) {
	given := 0
	for _, b := range []bool{f.pid != 0, f.name != "", len(args) > 0} {
		if b {
			given++
		}
	}
	if given != 1 {
		return 0, nil, usageError("name one target: --pid PID, --name NAME or -- COMMAND; %d are given", given)
	}
	switch {
	case f.pid != 0:
		return f.pid, nil, nil
	case f.name != "":
		pid, err := byName(f.name)
		return pid, nil, err
	}
	c := &command{cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = os.Stderr, os.Stderr
	if err := c.cmd.Start(); err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // its exit status is not ours
	}()
	return c.cmd.Process.Pid, c, nil
}

// stop ends the command that record started.
func (c *command) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.done:
	case <-time.After(5 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// byName finds the one process whose executable has this base name.
func byName(name string) (int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	var pids []string
	for _, d := range dirs {
		pid := filepath.Base(d)
		exe, err := os.Readlink(filepath.Join(d, "exe"))
		if err != nil || pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		if filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == name {
			pids = append(pids, pid)
		}
	}
	switch len(pids) {
	case 0:
		return 0, fmt.Errorf("record --name %s: no process that this user can see has an executable of that name; use --pid", name)
	case 1:
		return strconv.Atoi(pids[0])
	}
	return 0, usageError("record --name %s: %d processes match: %s; name one with --pid", name, len(pids), strings.Join(pids, ", "))
}
