package report

import (
	"fmt"
	"sort"

	"github.com/contention-toolkit/contention/analysis/result"
)

// builder turns a result into a document.
type builder struct {
	limits
	r *result.Result
}

// build lays out the whole report.
func build(r *result.Result, l limits) *document {
	b := &builder{l, r}
	d := &document{title: b.title()}
	d.tone, d.lead = b.verdict()
	add := func(id, title, fold string, blocks []block) {
		if len(blocks) > 0 {
			d.sections = append(d.sections, section{id, title, fold, blocks})
		}
	}
	add("figures", "Throughput, latency, blocked time", "", b.figures())
	add("setup", "What differs, and what does not", "", b.setup())
	add("waits", "Where time is blocked", "", b.waits())
	add("graphs", "Flame graphs", "", b.graphs())
	add("queue", "Time in the executor's queue", "", b.queueDelay())
	add("reconciliation", "Do the sources agree", "", b.reconciliation())
	blocks, fold := b.accounting()
	add("accounting", "Where all time went", fold, blocks)
	add("delivery", "Delivery", "", b.delivery())
	blocks, fold = b.overhead()
	add("overhead", "What profiling cost and lost", fold, blocks)
	blocks, fold = b.runs()
	add("runs", "Runs, in the order they ran", fold, blocks)
	add("warnings", "Warnings", "", b.warnings())
	add("reproduce", "Reproduce", "", b.reproduce())
	return d
}

// summary is what fits a terminal: the verdict, the figures and the waits.
func summary(r *result.Result, l limits) *document {
	b := &builder{l, r}
	d := &document{title: b.title()}
	d.tone, d.lead = b.verdict()
	d.sections = []section{
		{"figures", "Throughput, latency, blocked time", "", b.figures()},
		{"waits", "Where time is blocked", "", b.waits()},
		{"warnings", "Warnings", "", b.warnings()},
	}
	return d
}

func (b *builder) title() text {
	title := b.r.Title
	if title == "" {
		title = b.r.Experiment
	}
	return line(b.word(title), ": ", b.sideName(result.Before), " → ", b.sideName(result.After))
}

// sideName is the name of a variant, else of its side.
func (b *builder) sideName(side string) string {
	if v := b.r.Side(side); v != nil && v.Name != "" {
		return shorten(v.Name, min(b.text, 60))
	}
	return b.word(side)
}

// heads are the column heads of the two sides.
func (b *builder) heads() (before, after column) {
	head := func(side string) string {
		if n := b.sideName(side); n != side {
			return side + " (" + n + ")"
		}
		return side
	}
	return column{head(result.Before), true}, column{head(result.After), true}
}

// usable returns the valid runs of a kind on a side, in the order they ran.
func (b *builder) usable(side, kind string) []result.Run {
	var out []result.Run
	for _, r := range b.ordered() {
		if r.Variant == side && r.Kind == kind && r.Valid {
			out = append(out, r)
		}
	}
	return out
}

func (b *builder) ordered() []result.Run {
	out := append([]result.Run(nil), b.r.Runs...)
	sort.SliceStable(out, func(i, j int) bool { return out[i].Index < out[j].Index })
	return out
}

func (b *builder) invalidRuns() []result.Run {
	var out []result.Run
	for _, r := range b.ordered() {
		if !r.Valid {
			out = append(out, r)
		}
	}
	return out
}

// sides returns the keys of a map by side: before, after, then any others.
func sides[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	rank := func(s string) int {
		switch s {
		case result.Before:
			return 0
		case result.After:
			return 1
		}
		return 2
	}
	sort.Slice(out, func(i, j int) bool {
		if x, y := rank(out[i]), rank(out[j]); x != y {
			return x < y
		}
		return out[i] < out[j]
	})
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// plural writes a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", count(int64(n)), noun)
}

// medianAndRange describes the values of several runs.
type medianAndRange struct {
	median, min, max float64
	n                int
}

func describe(values []float64) medianAndRange {
	s := append([]float64(nil), values...)
	sort.Float64s(s)
	n := len(s)
	if n == 0 {
		return medianAndRange{}
	}
	return medianAndRange{(s[(n-1)/2] + s[n/2]) / 2, s[0], s[n-1], n}
}

// collect applies get to runs and keeps what is known.
func collect(runs []result.Run, get func(*result.Run) *float64) []float64 {
	var out []float64
	for i := range runs {
		if v := get(&runs[i]); known(v) {
			out = append(out, *v)
		}
	}
	return out
}
