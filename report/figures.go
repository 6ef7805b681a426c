package report

import (
	"strings"

	"github.com/contention-toolkit/contention/analysis/result"
)

// metric is one figure of a run that the sides are compared by.
type metric struct {
	name   string
	speed  bool // throughput or latency: may be named in the verdict on speed
	effect func(*result.Headline) result.Effect
	run    func(*result.Run) *float64
	unit   string // in bench.txt
	better string // in bench.txt
}

var metrics = []metric{
	{"throughput", true, func(h *result.Headline) result.Effect { return h.Throughput }, func(r *result.Run) *float64 { return &r.Throughput }, "msgs/s", "higher"},
	{"delivered in the window", true, func(h *result.Headline) result.Effect { return h.Delivered }, deliveredRate, "delivered-msgs/s", "higher"},
	{"publish p50", true, func(h *result.Headline) result.Effect { return h.PublishP50 }, func(r *result.Run) *float64 { return r.PublishMs.P50 }, "p50-publish-ms", "lower"},
	{"publish p99", true, func(h *result.Headline) result.Effect { return h.PublishP99 }, func(r *result.Run) *float64 { return r.PublishMs.P99 }, "p99-publish-ms", "lower"},
	{"end-to-end p50", true, func(h *result.Headline) result.Effect { return h.EndToEndP50 }, func(r *result.Run) *float64 { return r.EndToEndMs.P50 }, "p50-e2e-ms", "lower"},
	{"end-to-end p99", true, func(h *result.Headline) result.Effect { return h.EndToEndP99 }, func(r *result.Run) *float64 { return r.EndToEndMs.P99 }, "p99-e2e-ms", "lower"},
	{"end-to-end p50 over publish p50", false, func(h *result.Headline) result.Effect { return h.EndToEndOverhead }, endToEndOverPublish, "p50-e2e-over-publish-ms", "lower"},
	{"wake-up p50 in the executor's queue", false, func(h *result.Headline) result.Effect { return h.QueueDelayWakeP50 }, func(r *result.Run) *float64 { return r.QueueDelayMs["wake"].P50 }, "p50-wake-queue-ms", "lower"},
	{"broker CPU", false, func(h *result.Headline) result.Effect { return h.BrokerCPU }, func(r *result.Run) *float64 { return r.CPUNsPerMsg.Broker }, "cpu-ns/msg", "lower"},
}

func deliveredRate(r *result.Run) *float64 {
	if r.WindowSeconds <= 0 {
		return nil
	}
	return result.Float(float64(r.Delivered) / r.WindowSeconds)
}

func endToEndOverPublish(r *result.Run) *float64 {
	if !known(r.EndToEndMs.P50) || !known(r.PublishMs.P50) {
		return nil
	}
	return result.Float(*r.EndToEndMs.P50 - *r.PublishMs.P50)
}

// figures is the table of units of work, then of blocked time.
func (b *builder) figures() []block {
	before, after := b.heads()
	t := &table{columns: []column{{"", false}, before, after, {"ratio", true}}}
	withInterval, withP := b.effectColumns()
	if withInterval {
		t.columns[3].head = "ratio, 95 % interval"
	}
	if withP {
		t.columns = append(t.columns, column{"p", true})
	}
	t.columns = append(t.columns, column{"runs per side", true}, column{"verdict", false})
	plains := map[string][]result.Run{result.Before: b.usable(result.Before, result.KindPlain), result.After: b.usable(result.After, result.KindPlain)}
	for _, m := range metrics {
		e := m.effect(&b.r.Headline)
		if !known(e.Before) && !known(e.After) {
			continue
		}
		format := withUnit(e.Unit)
		row := []text{
			line(capital(m.name)),
			b.cellWithRange(e.Before, collect(plains[result.Before], m.run), format),
			b.cellWithRange(e.After, collect(plains[result.After], m.run), format),
			ratioCell(e),
		}
		if withP {
			row = append(row, line(optional(e.P, pValue)))
		}
		t.add(append(row, line(count(int64(e.N))), line(b.verdictWord(e.Verdict)))...)
	}
	for _, row := range b.blockedFigures() {
		cells := []text{line(row.name), line(row.before), line(row.after), line(row.ratio)}
		if withP {
			cells = append(cells, line(none))
		}
		t.add(append(cells, line(row.runs), line(row.verdict))...)
	}
	if len(t.rows) == 0 {
		return []block{paragraph{line("No valid run holds a figure.")}}
	}
	if b.brief {
		return []block{t}
	}
	basis := "From one valid unprofiled run per side. "
	if len(plains[result.Before]) != 1 || len(plains[result.After]) != 1 {
		basis = "Medians of the valid unprofiled runs, their range beneath. "
	}
	t.note = line(basis,
		"Off-CPU time is the mean of the profiled runs, by the goroutine sampler: it says where goroutines wait, not how fast the broker is.")
	return []block{t}
}

// effectColumns tells whether any figure has an interval or a p-value.
func (b *builder) effectColumns() (interval, p bool) {
	for _, m := range metrics {
		e := m.effect(&b.r.Headline)
		interval = interval || known(e.CILow) && known(e.CIHigh)
		p = p || known(e.P)
	}
	return interval, p
}

func ratioCell(e result.Effect) text {
	t := line(optional(e.Ratio, ratio))
	if known(e.CILow) && known(e.CIHigh) {
		t = append(t, lineBreak, aside(interval(e)))
	}
	return t
}

func (b *builder) cellWithRange(v *float64, runs []float64, format func(float64) string) text {
	t := line(optional(v, format))
	if d := describe(runs); d.n > 1 && known(v) && !b.brief {
		_, unit, _ := strings.Cut(format(*v), " ")
		low, high := format(d.min), format(d.max)
		if l, ok := strings.CutSuffix(low, " "+unit); ok && strings.HasSuffix(high, " "+unit) {
			low, high = l, strings.TrimSuffix(high, " "+unit) // the unit stands above
		}
		t = append(t, lineBreak, aside(low+" to "+high))
	}
	return t
}

func (b *builder) verdictWord(v string) string {
	if v == "" {
		return none
	}
	return b.word(v)
}

// blockedFigure is one row about blocked time.
type blockedFigure struct{ name, before, after, ratio, runs, verdict string }

// blockedFigures states off-CPU time per message and threads lost, for the
// primary operation and for all waits that are not idle.
func (b *builder) blockedFigures() []blockedFigure {
	var out []blockedFigure
	n := func(side string) int { return len(b.usable(side, result.KindProfiled)) }
	runs := count(int64(min(n(result.Before), n(result.After))))
	add := func(name string, s waitSum) {
		if s.rows == 0 {
			return
		}
		perMessage := func(v float64) string { return nanoseconds(v) + "/msg" }
		out = append(out,
			blockedFigure{"Off-CPU, " + name, optional(s.before, perMessage), optional(s.after, perMessage), ratioOf(s.before, s.after), runs, s.verdict},
			blockedFigure{"Threads lost, " + name, threads(s.lostBefore), threads(s.lostAfter), ratioOf(&s.lostBefore, &s.lostAfter), runs, none})
	}
	if b.r.PrimaryOperation != "" {
		add(b.word(b.r.PrimaryOperation), b.primarySum())
	}
	all := b.sum(func(w *result.Wait) bool { return w.Source == goroutineSource && w.Idle != idleYes })
	all.verdict = none
	add("all waits that are not idle", all)
	return out
}

func ratioOf(before, after *float64) string {
	if !known(before) || !known(after) || *before <= 0 {
		return none
	}
	return ratio(*after / *before)
}
