package experiment

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/profile"
)

// collect turns the runs that ended into a result.
func (r *runner) collect() (*result.Result, error) {
	s := r.o.Spec
	res := &result.Result{
		Schema: result.Schema, Experiment: s.Name, Title: s.Title, Question: s.Question, Quick: r.o.Quick,
		PrimaryOperation: s.PrimaryOperation, Host: r.host(), Command: r.o.Command,
		Scenario: result.Scenario{
			Name: r.scenario.Name, Connections: r.scenario.Connections, Devices: r.scenario.Devices, InFlight: r.scenario.InFlight,
			MessageBytes: int(r.scenario.MessageSize), RateMsgsPerS: r.scenario.Rate, Consumers: r.scenario.Consumers,
			Applications: r.scenario.Applications, WarmupMessages: r.scenario.WarmupMessages, MeasuredSeconds: r.scenario.Duration.Seconds(),
		},
		Runs: []result.Run{}, Waits: []result.Wait{}, QueueLock: map[string]result.QueueLock{}, Reconciliation: []result.Reconciliation{},
		Accounting: map[string]map[string]result.Accounting{}, Overhead: map[string]map[string]result.Overhead{},
		Graphs: []result.Graph{}, Warnings: append([]string{}, r.warnings...),
	}
	for _, side := range []string{result.Before, result.After} {
		v := s.side(side)
		settings := map[string]string{}
		for k, val := range v.Broker {
			settings[k] = val
		}
		res.Variants = append(res.Variants, result.Variant{
			Side: side, Name: v.Name, Settings: settings, Version: r.o.Tool.Version,
			Command: append([]string{"contention"}, r.brokerArgs(Planned{Side: side}, false)[1:]...),
		})
		res.Accounting[side], res.Overhead[side] = map[string]result.Accounting{}, map[string]result.Overhead{}
	}
	for _, o := range r.done {
		res.Runs = append(res.Runs, o.Run)
		addDelivery(&res.Delivery, o.Delivery)
	}
	res.Headline = headline(res.Runs)
	if err := r.attribute(res); err != nil {
		return nil, err
	}
	r.conclude(res)
	return res, nil
}

func addDelivery(sum *result.Delivery, d result.Delivery) {
	sum.Expected += d.Expected
	sum.Received += d.Received
	sum.Lost += d.Lost
	sum.Duplicates += d.Duplicates
	sum.Disorder += d.Disorder
	sum.Invalid += d.Invalid
}

// recorded is one source of one valid run, attributed.
type recorded struct {
	rec *profile.Recording
	*analysis.Attribution
}

// attribute fills in everything that comes from recordings.
func (r *runner) attribute(res *result.Result) error {
	bySource := map[profile.Source]map[string][]recorded{} // profiled runs
	reconcile := map[string]map[profile.Source]recorded{}
	warned := map[string]bool{}
	for _, o := range r.done {
		if o.recording == "" || !o.Valid {
			continue
		}
		rec, err := profile.Open(o.recording)
		if err != nil {
			return fmt.Errorf("run %d: %w", o.Index, err)
		}
		for _, w := range rec.Meta.Warnings {
			if !warned[w] {
				warned[w] = true
				res.Warnings = append(res.Warnings, w)
			}
		}
		c := r.o.Rules.For(rec.Meta.Targets[0])
		for s := range rec.Profiles {
			a, err := analysis.Attribute(rec, s, c)
			if err != nil {
				return fmt.Errorf("run %d: %w", o.Index, err)
			}
			if o.Kind == result.KindReconcile {
				if reconcile[o.Variant] == nil {
					reconcile[o.Variant] = map[profile.Source]recorded{}
				}
				reconcile[o.Variant][s] = recorded{rec, a}
				continue
			}
			if bySource[s] == nil {
				bySource[s] = map[string][]recorded{}
			}
			bySource[s][o.Variant] = append(bySource[s][o.Variant], recorded{rec, a})
			if w := a.ShareWarning(); w != "" {
				res.Warnings = append(res.Warnings, fmt.Sprintf("run %d (%s): %s", o.Index, o.Variant, w))
			}
		}
	}
	for _, side := range []string{result.Before, result.After} {
		if w := workWarning(side, attributions(bySource[profile.SourceGoroutines][side])); w != "" {
			res.Warnings = append(res.Warnings, w)
		}
	}
	for _, s := range []profile.Source{profile.SourceGoroutines, profile.SourceThreads} {
		r.compare(res, s, bySource[s])
	}
	res.Reconciliation = r.reconcile(reconcile)
	return nil
}

// workWarning says where messages acknowledged and messages delivered in a
// side's profiled windows differ by more than 1 %, "" where they do not.
func workWarning(side string, runs []*analysis.Attribution) string {
	var published, delivered float64
	for _, a := range runs {
		published += a.Published
		delivered += a.Delivered
	}
	if published <= 0 || delivered <= 0 || math.Abs(delivered/published-1) <= 0.01 {
		return ""
	}
	return fmt.Sprintf("%s: %.0f messages were acknowledged and %.0f delivered in the profiled windows, %.1f %% apart: figures per message count those acknowledged",
		side, published, delivered, 100*math.Abs(delivered/published-1))
}

// compare adds the waits, accounting and overhead of one source.
func (r *runner) compare(res *result.Result, s profile.Source, sides map[string][]recorded) {
	if len(sides) == 0 {
		return
	}
	primary := ""
	if s == profile.SourceGoroutines {
		primary = res.PrimaryOperation
		for _, side := range []string{result.Before, result.After} {
			res.QueueLock[side] = queueLock(sides[side], primary)
		}
	}
	res.Waits = append(res.Waits, analysis.Compare(attributions(sides[result.Before]), attributions(sides[result.After]), primary)...)
	for side, runs := range sides {
		res.Accounting[side][string(s)] = accounting(runs)
		res.Overhead[side][string(s)] = overhead(runs, s)
	}
}

func attributions(rs []recorded) []*analysis.Attribution {
	var out []*analysis.Attribution
	for _, r := range rs {
		out = append(out, r.Attribution)
	}
	return out
}

// queueLock is how many goroutines waited for the operation's lock at any time.
func queueLock(runs []recorded, operation string) result.QueueLock {
	var q result.QueueLock
	for i, r := range runs {
		n := r.ThreadsLost(r.Operation(operation, analysis.ClassLock).BlockedNs)
		if i == 0 {
			q.Min, q.Max = n, n
		}
		q.Min, q.Max = min(q.Min, n), max(q.Max, n)
		q.Mean += n / float64(len(runs))
		q.Runs++
	}
	return q
}

func accounting(runs []recorded) result.Accounting {
	var out result.Accounting
	n := 0
	for _, r := range runs {
		if r.Accounting == nil {
			continue
		}
		n++
		a := r.Accounting
		for dst, ns := range map[*float64]int64{
			&out.GoroutineSeconds: a.TotalNs, &out.Running: a.RunningNs, &out.Runnable: a.RunnableNs, &out.Blocked: a.BlockedNs,
			&out.Syscall: a.SyscallNs, &out.Unknown: a.UnknownNs, &out.Lost: a.LostNs, &out.Residual: a.Residual(), &out.Idle: r.Idle.BlockedNs,
		} {
			*dst += float64(ns) / 1e9
		}
	}
	if n > 1 {
		for _, v := range []*float64{&out.GoroutineSeconds, &out.Running, &out.Runnable, &out.Blocked, &out.Syscall, &out.Unknown, &out.Lost, &out.Residual, &out.Idle} {
			*v /= float64(n)
		}
	}
	return out
}

func overhead(runs []recorded, s profile.Source) result.Overhead {
	out := result.Overhead{Loss: map[string]int64{}}
	n := float64(len(runs))
	for _, r := range runs {
		info := r.rec.Meta.Info(s)
		window := float64(info.Window.DurationNs)
		if window <= 0 {
			continue
		}
		out.CPUShare += float64(info.Cost.CPUNs) / window / n
		out.BPFShare += float64(info.Cost.BPFNs) / window / n
		out.ProbeHits += float64(info.Cost.ProbeHits) / (window / 1e9) / n
		for k, v := range info.Loss {
			out.Loss[k] += v
		}
	}
	return out
}

// reconcile sets the sources of the reconciliation runs beside each other, for
// the primary operation and for all lock waits.
func (r *runner) reconcile(sides map[string]map[profile.Source]recorded) []result.Reconciliation {
	out := []result.Reconciliation{}
	for _, side := range []string{result.Before, result.After} {
		sources, ok := sides[side]
		if !ok {
			continue
		}
		ops := map[string]bool{r.o.Spec.PrimaryOperation: true}
		for _, s := range []profile.Source{profile.SourceGoroutines, profile.SourceBlock} {
			if a, ok := sources[s]; ok {
				for _, w := range a.Waits[:min(len(a.Waits), 40)] {
					if w.Class == analysis.ClassLock && w.Operation != "" {
						ops[w.Operation] = true
					}
				}
			}
		}
		var rows []result.Reconciliation
		for op := range ops {
			rows = append(rows, result.Reconciliation{
				Side: side, Operation: op,
				Sampler: lockPerMessage(sources, profile.SourceGoroutines, op),
				Block:   lockPerMessage(sources, profile.SourceBlock, op),
				Mutex:   lockPerMessage(sources, profile.SourceMutex, op),
				Note:    "blocked time only; the block profile ends a wait when the lock is handed on, the sampler sees it at its ticks; the mutex profile charges the operation that unlocked, the others the one that waited",
			})
		}
		sort.Slice(rows, func(i, j int) bool {
			if p, q := rows[i].Operation == r.o.Spec.PrimaryOperation, rows[j].Operation == r.o.Spec.PrimaryOperation; p != q {
				return p
			}
			return rows[i].Operation < rows[j].Operation
		})
		out = append(out, rows...)
	}
	return out
}

func lockPerMessage(sources map[profile.Source]recorded, s profile.Source, op string) *float64 {
	a, ok := sources[s]
	if !ok {
		return nil
	}
	return a.PerMessage(a.Operation(op, analysis.ClassLock).BlockedNs)
}

// conclude adds what the number of runs allows to say.
func (r *runner) conclude(res *result.Result) {
	n := res.Headline.Throughput.N
	if r.o.Quick {
		res.DecideCommand = "contention ab " + r.o.Spec.Name
		res.Warnings = append([]string{fmt.Sprintf("descriptive, too few runs: %d unprofiled per side; %s makes %d", n, res.DecideCommand, r.o.Spec.Runs.Unprofiled)}, res.Warnings...)
	}
	if res.Scenario.MeasuredSeconds < 10 {
		res.Warnings = append(res.Warnings, fmt.Sprintf("short windows (%.0f s): such runs have shown differences that longer ones did not", res.Scenario.MeasuredSeconds))
	}
	var lost []string
	for _, side := range []string{result.Before, result.After} {
		if len(res.Accounting[side]) == 0 {
			lost = append(lost, side)
		}
	}
	if len(lost) > 0 {
		res.Warnings = append(res.Warnings, "no valid profiled run "+strings.Join(lost, " and ")+": waits are not compared")
	}
}
