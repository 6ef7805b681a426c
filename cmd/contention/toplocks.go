package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/profile"
)

// probeCost is what uprobes cost the target, estimated: their hits times what
// one was measured to take.
type probeCost struct {
	Hits           int64    `json:"hits"`
	HitsPerSecond  float64  `json:"hits_per_second"`
	NsPerHit       float64  `json:"ns_per_hit"`
	ShareOfOneCPU  float64  `json:"share_of_one_cpu"`
	NsPerMsg       *float64 `json:"ns_per_msg"`
	SteppedBackWhy string   `json:"stepped_back,omitempty"`
}

// newProbeCost is nil for sources without uprobes.
func newProbeCost(info *profile.SourceInfo, published float64) *probeCost {
	c := info.Cost
	if c.ProbeNs == 0 || c.ProbeHits == 0 || info.Window.DurationNs <= 0 {
		return nil
	}
	window := float64(info.Window.DurationNs)
	p := &probeCost{
		Hits: c.ProbeHits, HitsPerSecond: float64(c.ProbeHits) / window * 1e9, NsPerHit: float64(c.ProbeNs) / float64(c.ProbeHits),
		ShareOfOneCPU: float64(c.ProbeNs) / window, SteppedBackWhy: info.Settings["stepped_back"],
	}
	if published > 0 {
		v := float64(c.ProbeNs) / published
		p.NsPerMsg = &v
	}
	return p
}

func (p *probeCost) String() string {
	s := fmt.Sprintf("estimated cost to the target: %s hits of probes per second, %v each, %.1f %% of one CPU", grouped(int64(p.HitsPerSecond)), time.Duration(p.NsPerHit), 100*p.ShareOfOneCPU)
	if p.NsPerMsg != nil {
		s += fmt.Sprintf(", %v per message", time.Duration(*p.NsPerMsg))
	}
	return s
}

// maxReconciled bounds the wait reasons that text shows.
const maxReconciled = 6

// reconciledLines compare sources that should agree, by wait reason.
func reconciledLines(rows []analysis.Reconciled) []string {
	var parts, why []string
	for i, r := range rows {
		if i == maxReconciled {
			parts = append(parts, fmt.Sprintf("%d more (--json)", len(rows)-i))
			break
		}
		s := fmt.Sprintf("%s %.3f", r.Reason, r.Exact)
		if r.Sampled != nil {
			s += fmt.Sprintf(" (sampled %.3f)", *r.Sampled)
		}
		if r.Block != nil {
			s += fmt.Sprintf(" (block profile %.3f)", *r.Block)
		}
		if r.Mutex != nil {
			s += fmt.Sprintf(" (mutex profile %.3f)", *r.Mutex)
		}
		parts = append(parts, s)
		for _, w := range r.Why {
			if !slices.Contains(why, w) {
				why = append(why, w)
			}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	out := []string{"blocked goroutines by reason, and what other sources say: " + strings.Join(parts, ", ")}
	for _, w := range why {
		out = append(out, "they differ: "+w)
	}
	return out
}

// lockView is what `top --by lock` shows, and its JSON form.
type lockView struct {
	Recording     string         `json:"recording"`
	Target        profile.Target `json:"target"`
	WindowSeconds float64        `json:"window_seconds"`
	Published     float64        `json:"published"` // messages, 0 when unknown
	Locks         []lockRow      `json:"locks"`
	LeftOut       int            `json:"locks_left_out"`
	Probes        *probeCost     `json:"probes,omitempty"`
	Warnings      []string       `json:"warnings"`
}

type lockRow struct {
	profile.Lock
	ThreadsLost float64  `json:"threads_lost"` // off-CPU seconds per second
	NsPerMsg    *float64 `json:"ns_per_msg"`
	WaitP50Ns   int64    `json:"wait_p50_ns"` // upper bounds of their buckets
	WaitP99Ns   int64    `json:"wait_p99_ns"`
	MeanNs      float64  `json:"mean_interval_ns"` // from release to release
}

func (f *topFlags) runLocks(w io.Writer, rec *profile.Recording) error {
	info := rec.Meta.Info(profile.SourceLocks)
	if rec.Locks == nil || info == nil {
		return fmt.Errorf("recording %s holds no locks; it has %s; record with --locks", rec.Dir, haves(rec))
	}
	if f.from != 0 || f.to != 0 {
		return usageError("--from and --to: locks are summed up over the whole window; leave them out with --by lock")
	}
	v := newLockView(rec, info, f.limit)
	switch f.format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	case "csv":
		return v.csv(w)
	}
	v.text(w, f.format == "markdown")
	return nil
}

func newLockView(rec *profile.Recording, info *profile.SourceInfo, limit int) lockView {
	window := float64(info.Window.DurationNs)
	v := lockView{Recording: rec.Dir, WindowSeconds: window / 1e9, Locks: []lockRow{}, Warnings: append([]string{}, rec.Meta.Warnings...)}
	if len(rec.Meta.Targets) > 0 {
		v.Target = rec.Meta.Targets[0]
	}
	v.Published = analysis.Messages(rec, profile.WorkPublished, info.Window)
	cost := info
	if exact := rec.Meta.Info(profile.SourceExact); exact != nil {
		cost = exact // of both
	}
	v.Probes = newProbeCost(cost, v.Published)
	for _, l := range rec.Locks {
		if limit > 0 && len(v.Locks) == limit {
			v.LeftOut++
			continue
		}
		r := lockRow{Lock: l, WaitP50Ns: l.Waits.Quantile(0.5), WaitP99Ns: l.Waits.Quantile(0.99)}
		if window > 0 {
			r.ThreadsLost = float64(l.BlockedNs+l.RunnableNs) / window
		}
		if v.Published > 0 {
			n := float64(l.BlockedNs+l.RunnableNs) / v.Published
			r.NsPerMsg = &n
		}
		if l.Intervals > 0 {
			r.MeanNs = float64(l.IntervalNs) / float64(l.Intervals)
		}
		v.Locks = append(v.Locks, r)
	}
	return v
}

func (v lockView) text(w io.Writer, markdown bool) {
	if !markdown {
		fmt.Fprintf(w, "%s: %s\n\n", v.Recording, oneLine(strings.Join(v.Target.Arguments, " ")))
	}
	fmt.Fprintf(w, "locks waited for (charges the goroutine that waits, every park, by uprobes), %.1f s\n\n", v.WindowSeconds)
	locks := newTable(table.Row{"lock", "kind", "instances", "threads lost", "per message", "parks", "wait p50 ≤", "p99 ≤", "queue mean", "max", "releases", "between releases"}, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	pairs := newTable(table.Row{"lock", "waiter", "releaser", "waits", "blocked"}, 4, 5)
	for _, l := range v.Locks {
		locks.AppendRow(table.Row{oneLine(l.Name), l.Kind, l.Instances, fmt.Sprintf("%.3f", l.ThreadsLost), perMessage(l.NsPerMsg), grouped(l.Parks), short(l.WaitP50Ns), short(l.WaitP99Ns),
			fmt.Sprintf("%.1f", l.QueueMean), l.QueueMax, grouped(l.Releases), short(int64(l.MeanNs))})
		for i, p := range l.Pairs {
			if i == maxPairsShown {
				break
			}
			pairs.AppendRow(table.Row{oneLine(l.Name), oneLine(p.Waiter), oneLine(p.Releaser), grouped(p.Waits), short(p.BlockedNs)})
		}
	}
	if len(v.Locks) == 0 {
		fmt.Fprintln(w, "no goroutine waited for a lock")
	} else {
		render(w, locks, markdown)
		fmt.Fprint(w, "\nwho waited, and who let go\n\n")
		render(w, pairs, markdown)
	}
	fmt.Fprintln(w, "\nfrom release to release, with somebody waiting, is an upper bound on how long a lock was held; uncontended use is not seen")
	if v.LeftOut > 0 {
		fmt.Fprintf(w, "%d more locks left out (--limit 0 shows them)\n", v.LeftOut)
	}
	if v.Probes != nil {
		fmt.Fprintln(w, v.Probes)
	}
	for _, x := range v.Warnings {
		fmt.Fprintf(w, "\nwarning: %s\n", oneLine(x))
	}
}

// maxPairsShown bounds the pairs of one lock that text shows.
const maxPairsShown = 5

func newTable(header table.Row, right ...int) table.Writer {
	tw := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.DrawBorder, style.Options.SeparateColumns = false, false
	tw.SetStyle(style)
	tw.AppendHeader(header)
	configs := []table.ColumnConfig{{Number: 1, WidthMax: 60}}
	for _, n := range right {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight})
	}
	tw.SetColumnConfigs(configs)
	return tw
}

func render(w io.Writer, tw table.Writer, markdown bool) {
	if markdown {
		fmt.Fprintln(w, tw.RenderMarkdown())
		return
	}
	fmt.Fprintln(w, tw.Render())
}

// short writes nanoseconds with three digits.
func short(ns int64) string {
	d := time.Duration(ns)
	for unit := time.Duration(1); unit <= time.Second; unit *= 1000 {
		if d < 1000*unit {
			return d.Round(max(unit/100, 1)).String()
		}
	}
	return d.Round(10 * time.Millisecond).String()
}

func (v lockView) csv(w io.Writer) error {
	c := csv.NewWriter(w)
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	rows := [][]string{{"lock", "kind", "instances", "parks", "blocked_ns", "runnable_ns", "wait_p50_ns", "wait_p99_ns", "queue_mean", "queue_max", "releases", "mean_interval_ns", "threads_lost", "ns_per_msg"}}
	for _, l := range v.Locks {
		rows = append(rows, []string{l.Name, l.Kind, strconv.Itoa(l.Instances), n(l.Parks), n(l.BlockedNs), n(l.RunnableNs), n(l.WaitP50Ns), n(l.WaitP99Ns),
			number(&l.QueueMean), n(l.QueueMax), n(l.Releases), number(&l.MeanNs), number(&l.ThreadsLost), number(l.NsPerMsg)})
	}
	return c.WriteAll(rows)
}
