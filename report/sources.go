package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/contention-toolkit/contention/analysis/result"
)

// taskKinds of the executor, in the order of a message's way; others follow.
var taskKinds = []string{"add", "wake", "read", "dispatch"}

// queueDelay is the time that tasks spent in the executor's queue, which no
// profile sees.
func (b *builder) queueDelay() []block {
	kinds := map[string]bool{}
	for _, r := range b.r.Runs {
		for k := range r.QueueDelayMs {
			kinds[k] = true
		}
	}
	before, after := b.heads()
	t := &table{columns: []column{
		{"task", false}, {before.head + " p50", true}, {"p99", true}, {"mean", true}, {"tasks", true},
		{after.head + " p50", true}, {"p99", true}, {"mean", true}, {"tasks", true},
	}}
	add := func(kind string) {
		row := []text{line(b.word(kind))}
		var tasks int64
		for _, side := range []string{result.Before, result.After} {
			cells, n := b.delays(side, kind)
			row, tasks = append(row, cells...), tasks+n
		}
		if tasks > 0 {
			t.add(row...)
		}
	}
	for _, k := range taskKinds {
		if kinds[k] {
			add(k)
			delete(kinds, k)
		}
	}
	for _, k := range sortedKeys(kinds) {
		add(k)
	}
	if len(t.rows) == 0 {
		return nil
	}
	t.note = line("Measured by the broker: waiting in a queue blocks nobody, so no off-CPU profile shows it. Medians over the valid unprofiled runs; tasks are summed. ", b.more(len(t.rows), "kinds of task"))
	t.rows = t.rows[:min(len(t.rows), b.rows)]
	return []block{t}
}

func (b *builder) delays(side, kind string) (cells []text, tasks int64) {
	runs := b.usable(side, result.KindPlain)
	for _, get := range []func(result.Delay) *float64{
		func(d result.Delay) *float64 { return d.P50 },
		func(d result.Delay) *float64 { return d.P99 },
		func(d result.Delay) *float64 { return d.Mean },
	} {
		d := describe(collect(runs, func(r *result.Run) *float64 { return get(r.QueueDelayMs[kind]) }))
		if d.n == 0 {
			cells = append(cells, line(none))
			continue
		}
		cells = append(cells, line(milliseconds(d.median)))
	}
	for _, r := range runs {
		tasks += r.QueueDelayMs[kind].Count
	}
	return append(cells, line(count(tasks))), tasks
}

// reconciliation sets sources that should agree beside each other.
func (b *builder) reconciliation() []block {
	rows := b.r.Reconciliation
	if len(rows) == 0 {
		return nil
	}
	t := &table{columns: []column{
		{"side", false}, {"operation", false}, {"sampler, blocked (charges the waiter)", true}, {"block profile (the waiter)", true}, {"mutex profile (the unlocker)", true}, {"sampler ÷ block profile", true},
	}}
	notes := map[string]bool{}
	var noteOrder []string
	for _, r := range rows[:min(len(rows), b.rows)] {
		op := line(b.word(r.Operation))
		if r.Operation == b.r.PrimaryOperation && r.Operation != "" {
			op = line(bold(b.word(r.Operation)))
		}
		against := none
		if known(r.Sampler) && known(r.Block) && *r.Block > 0 {
			against = "×" + number(*r.Sampler / *r.Block)
		}
		t.add(line(b.word(r.Side)), op, line(optional(r.Sampler, nanoseconds)), line(optional(r.Block, nanoseconds)), line(optional(r.Mutex, nanoseconds)), line(against))
		if r.Note != "" && !notes[r.Note] {
			notes[r.Note] = true
			noteOrder = append(noteOrder, r.Note)
		}
	}
	t.note = line("Lock waits per message, from one run per side with Go's block and mutex profiles at full rate. "+
		"Since Go 1.22 the mutex profile multiplies the time by the number of waiters. ",
		b.more(len(rows), "rows"))
	blocks := []block{t}
	var items []text
	for _, n := range noteOrder[:min(len(noteOrder), 4)] {
		items = append(items, line(b.prose(n)))
	}
	if len(items) > 0 {
		blocks = append(blocks, list{items})
	}
	return blocks
}

// accounting is where the time of all goroutines or threads went. It closes:
// what no state accounts for stands as the residual.
func (b *builder) accounting() ([]block, string) {
	t := &table{columns: []column{
		{"source", false}, {"side", false}, {"all", true}, {"running", true}, {"runnable", true}, {"blocked", true}, {"of it idle", true},
		{"syscall", true}, {"unknown", true}, {"lost", true}, {"residual", true},
	}}
	var open []text
	worst := 0.0
	for _, side := range sides(b.r.Accounting) {
		for _, source := range sortedKeys(b.r.Accounting[side]) {
			a := b.r.Accounting[side][source]
			part := func(s float64) text {
				if a.GoroutineSeconds <= 0 {
					return line(seconds(s))
				}
				return line(percent(s / a.GoroutineSeconds))
			}
			t.add(line(b.sourceName(source)), line(b.word(side)), line(seconds(a.GoroutineSeconds)), part(a.Running), part(a.Runnable), part(a.Blocked), part(a.Idle),
				part(a.Syscall), part(a.Unknown), part(a.Lost), part(a.Residual))
			gap := a.GoroutineSeconds - a.Running - a.Runnable - a.Blocked - a.Syscall - a.Unknown - a.Lost - a.Residual
			if math.Abs(gap) > 1e-6*math.Max(a.GoroutineSeconds, 1) {
				open = append(open, line(fmt.Sprintf("%s, %s: the columns leave %s of %s unexplained beyond the residual.", b.sourceName(source), b.word(side), seconds(gap), seconds(a.GoroutineSeconds))))
			}
			if a.GoroutineSeconds > 0 {
				worst = math.Max(worst, math.Abs(a.Residual)/a.GoroutineSeconds)
			}
		}
	}
	if len(t.rows) == 0 {
		return nil, ""
	}
	t.note = line("All: goroutines (or threads) × window, a mean over the profiled runs; the rest in percent of it. Running + runnable + blocked + syscall + unknown + lost + residual = all. ", b.more(len(t.rows), "rows"))
	t.rows = t.rows[:min(len(t.rows), b.rows)]
	blocks := []block{t}
	if len(open) > 0 {
		blocks = append(blocks, list{open[:min(len(open), b.rows)]})
		return blocks, "" // what does not close is not folded away
	}
	return blocks, "The accounting closes; the largest residual is " + percent(worst) + " of all time"
}

// overhead is what profiling cost and what it lost.
func (b *builder) overhead() ([]block, string) {
	t := &table{columns: []column{
		{"source", false}, {"side", false}, {"recorder CPU", true}, {"inside BPF programs", true}, {"probe hits", true}, {"lost", false},
	}}
	var lostAny int
	for _, side := range sides(b.r.Overhead) {
		for _, source := range sortedKeys(b.r.Overhead[side]) {
			o := b.r.Overhead[side][source]
			lost, n := b.losses(o.Loss)
			lostAny += n
			t.add(line(b.sourceName(source)), line(b.word(side)), line(percent(o.CPUShare)), line(percent(o.BPFShare)), line(number(o.ProbeHits)+"/s"), lost)
		}
	}
	if len(t.rows) == 0 {
		return nil, ""
	}
	t.note = line("CPU in percent of one CPU. ", b.slowdown(), b.more(len(t.rows), "rows"))
	t.rows = t.rows[:min(len(t.rows), b.rows)]
	fold := "No loss counter is above 0"
	if lostAny > 0 {
		fold = plural(lostAny, "loss counter") + " above 0"
	}
	return []block{t}, fold
}

// losses names the counters above zero.
func (b *builder) losses(loss map[string]int64) (text, int) {
	var parts []text
	n := 0
	for _, k := range sortedKeys(loss) {
		if loss[k] == 0 {
			continue
		}
		if n++; n <= min(b.rows, 12) {
			parts = append(parts, line(b.name(k), " "+count(loss[k])))
		}
	}
	switch {
	case len(loss) == 0:
		return line("not counted"), 0
	case n == 0:
		return line(fmt.Sprintf("0 (%s)", plural(len(loss), "counter"))), 0
	case n > len(parts):
		parts = append(parts, line(fmt.Sprintf("%d more", n-len(parts))))
	}
	return join(parts, ", "), n
}

// slowdown compares the throughput of profiled with that of unprofiled runs.
func (b *builder) slowdown() string {
	var parts []string
	throughput := func(r *result.Run) *float64 { return &r.Throughput }
	for _, side := range []string{result.Before, result.After} {
		with := describe(collect(b.usable(side, result.KindProfiled), throughput))
		without := describe(collect(b.usable(side, result.KindPlain), throughput))
		if with.n > 0 && without.n > 0 && without.median > 0 {
			parts = append(parts, fmt.Sprintf("%s %s against %s (%s)", side, number(with.median), rate(without.median), change(with.median/without.median)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Median throughput of profiled against unprofiled runs: " + strings.Join(parts, "; ") + ". "
}
