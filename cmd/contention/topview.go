package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/profile"
)

// topView is what `top` shows, and its JSON form. Times are in seconds unless
// the name says otherwise.
type topView struct {
	Recording string           `json:"recording"`
	Target    profile.Target   `json:"target"`            // the first
	Targets   []profile.Target `json:"targets,omitempty"` // of a recording of several
	Tables    []topTable       `json:"tables"`
	Absent    []profile.Absent `json:"absent"`
	Warnings  []string         `json:"warnings"`
}

type topTable struct {
	Source         string                `json:"source"`
	Plane          string                `json:"plane"`
	Charges        string                `json:"charges"` // whom the source charges the time to
	WindowSeconds  float64               `json:"window_seconds"`
	Published      float64               `json:"published"` // messages, 0 when unknown
	Delivered      float64               `json:"delivered"`
	OffCPUSeconds  float64               `json:"off_cpu_seconds"`
	IdleSeconds    float64               `json:"idle_seconds"`
	UnknownIdle    float64               `json:"unknown_idle_seconds"`
	UnknownClass   float64               `json:"unknown_class_seconds"`
	NoFrameSeconds float64               `json:"no_application_frame_seconds"` // not idle
	Rows           []topRow              `json:"rows"`
	LeftOut        int                   `json:"rows_left_out"`
	LeftOutSeconds float64               `json:"rows_left_out_seconds"`
	Classes        []topClass            `json:"classes"` // not idle
	Accounting     *profile.Accounting   `json:"accounting"`
	Loss           map[string]int64      `json:"loss"`
	Probes         *probeCost            `json:"probes,omitempty"`
	Reconciled     []analysis.Reconciled `json:"reconciled,omitempty"`
}

type topRow struct {
	Operation    string   `json:"operation"`
	Site         string   `json:"site"`
	File         string   `json:"file"`
	Line         int      `json:"line"`
	Class        string   `json:"class"`
	Idle         string   `json:"idle"`
	BlockedS     float64  `json:"blocked_seconds"`
	RunnableS    float64  `json:"runnable_seconds"`
	ThreadsLost  float64  `json:"threads_lost"`
	NsPerMsg     *float64 `json:"ns_per_msg"`
	Share        *float64 `json:"share"`
	ShareLow     *float64 `json:"share_low"`
	ShareHigh    *float64 `json:"share_high"`
	Observations int64    `json:"observations"` // samples taken or waits counted
}

type topClass struct {
	Class       string  `json:"class"`
	ThreadsLost float64 `json:"threads_lost"`
}

func newTopView(rec *profile.Recording, attrs []*analysis.Attribution, idle bool, limit int) topView {
	v := topView{Recording: rec.Dir, Absent: rec.Meta.Absent, Warnings: append([]string{}, rec.Meta.Warnings...)}
	if rec.Meta.Incomplete {
		v.Warnings = append([]string{"the recording is incomplete: " + rec.Meta.Why}, v.Warnings...)
	}
	if len(rec.Meta.Targets) > 0 {
		v.Target = rec.Meta.Targets[0]
	}
	if len(rec.Meta.Targets) > 1 {
		v.Targets = rec.Meta.Targets
	}
	for _, a := range attrs {
		t := newTopTable(a, idle, limit)
		if info := rec.Meta.Info(a.Source); info != nil {
			t.Loss = info.Loss
			t.Probes = newProbeCost(info, a.Published)
		}
		if a.Source == profile.SourceExact {
			t.Reconciled = analysis.Reconcile(rec)
		}
		v.Tables = append(v.Tables, t)
		// What is said of a recording's work is the same for every source.
		if len(v.Tables) == 1 {
			v.Warnings = append(v.Warnings, a.Warnings...)
		}
		if w := a.ShareWarning(); w != "" {
			v.Warnings = append(v.Warnings, w)
		}
	}
	return v
}

var charges = map[profile.Source]string{
	profile.SourceGoroutines: "the goroutine that waits, by sampling from outside",
	profile.SourceExact:      "the goroutine that waits, every park, by uprobes",
	profile.SourceLocks:      "the goroutine that waits for a lock, every park, by uprobes",
	profile.SourceThreads:    "the thread that waits, every switch",
	profile.SourceBlock:      "the goroutine that waited, once it went on",
	profile.SourceMutex:      "the goroutine that unlocked",
}

func newTopTable(a *analysis.Attribution, idle bool, limit int) topTable {
	t := topTable{
		Source: string(a.Source), Plane: string(a.Plane), Charges: charges[a.Source], WindowSeconds: a.Window.Seconds(),
		Published: a.Published, Delivered: a.Delivered, OffCPUSeconds: sec(a.Total), IdleSeconds: sec(a.Idle),
		UnknownIdle: sec(a.Doubtful), UnknownClass: sec(a.NoClass), NoFrameSeconds: sec(a.NoSite), Accounting: a.Accounting,
		Rows: []topRow{}, Classes: []topClass{},
	}
	for _, w := range a.Waits {
		if w.Idle == analysis.IdleYes && !idle {
			continue
		}
		if limit > 0 && len(t.Rows) == limit {
			t.LeftOut++
			t.LeftOutSeconds += sec(w.Value)
			continue
		}
		r := topRow{
			Operation: w.Operation, Site: w.Site, File: w.File, Line: w.Line, Class: w.Class, Idle: w.Idle,
			BlockedS: seconds(w.BlockedNs), RunnableS: seconds(w.RunnableNs),
			ThreadsLost: a.ThreadsLost(w.OffCPUNs()), NsPerMsg: a.PerMessage(w.OffCPUNs()), Observations: w.Samples,
		}
		if a.Counted {
			r.Observations = w.Count
		}
		if s, ok := a.Share(w); ok {
			r.Share, r.ShareLow, r.ShareHigh = &s.Share, &s.Low, &s.High
		}
		t.Rows = append(t.Rows, r)
	}
	for c, val := range a.ByClass() {
		t.Classes = append(t.Classes, topClass{c, a.ThreadsLost(val.OffCPUNs())})
	}
	sort.Slice(t.Classes, func(i, j int) bool {
		if t.Classes[i].ThreadsLost != t.Classes[j].ThreadsLost {
			return t.Classes[i].ThreadsLost > t.Classes[j].ThreadsLost
		}
		return t.Classes[i].Class < t.Classes[j].Class
	})
	return t
}

func sec(v analysis.Value) float64 { return seconds(v.OffCPUNs()) }
func seconds(ns int64) float64     { return time.Duration(ns).Seconds() }

func writeTop(w io.Writer, v topView, format string) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	case "csv":
		return writeTopCSV(w, v)
	}
	markdown := format == "markdown"
	if !markdown {
		fmt.Fprintf(w, "%s: %s\n", v.Recording, oneLine(strings.Join(v.Target.Arguments, " ")))
	}
	if len(v.Targets) > 1 {
		fmt.Fprintf(w, "%d targets together (--target ID shows one):\n", len(v.Targets))
		for _, t := range v.Targets {
			fmt.Fprintf(w, "  %s: %s\n", t.ID, oneLine(strings.Join(t.Arguments, " ")))
		}
	}
	for _, t := range v.Tables {
		fmt.Fprintf(w, "\n%s\n", t.title())
		if markdown {
			fmt.Fprintln(w)
		}
		if len(t.Rows) > 0 {
			t.render(w, markdown)
		}
		for _, l := range t.footer() {
			fmt.Fprintln(w, l)
			if markdown {
				fmt.Fprintln(w)
			}
		}
	}
	for _, a := range v.Absent {
		fmt.Fprintf(w, "\nnot recorded: %s: %s\n", a.Source, oneLine(a.Reason))
	}
	for _, x := range v.Warnings {
		fmt.Fprintf(w, "\nwarning: %s\n", oneLine(x))
	}
	return nil
}

func (t topTable) title() string {
	s := fmt.Sprintf("%s plane, source %s (charges %s), %.1f s", t.Plane, t.Source, t.Charges, t.WindowSeconds)
	if t.Published > 0 {
		s += fmt.Sprintf(", %s messages", grouped(int64(t.Published)))
	}
	return s
}

func (t topTable) render(w io.Writer, markdown bool) {
	tw := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.DrawBorder, style.Options.SeparateColumns = false, false
	tw.SetStyle(style)
	tw.AppendHeader(table.Row{"operation", "wait site", "class", "idle", "threads lost", "per message", "share", "seen"})
	right := text.AlignRight
	tw.SetColumnConfigs([]table.ColumnConfig{
		{Number: 2, WidthMax: 60}, {Number: 5, Align: right}, {Number: 6, Align: right}, {Number: 7, Align: right}, {Number: 8, Align: right},
	})
	for _, r := range t.Rows {
		tw.AppendRow(table.Row{dash(oneLine(r.Operation)), dash(oneLine(shortSite(r))), r.Class, r.Idle, fmt.Sprintf("%.3f", r.ThreadsLost), perMessage(r.NsPerMsg), percent(r.Share), grouped(r.Observations)})
	}
	if markdown {
		fmt.Fprintln(w, tw.RenderMarkdown())
		return
	}
	fmt.Fprintln(w, tw.Render())
}

// footer says what the table leaves out, and that the accounting closes.
func (t topTable) footer() []string {
	lost := func(s float64) string {
		if t.WindowSeconds <= 0 {
			return "0"
		}
		return fmt.Sprintf("%.3f", s/t.WindowSeconds)
	}
	out := []string{fmt.Sprintf("idle left out: %s threads' worth of %s off-CPU; idleness unknown: %s; class unknown: %s; not idle and without an application frame: %s",
		lost(t.IdleSeconds), lost(t.OffCPUSeconds), lost(t.UnknownIdle), lost(t.UnknownClass), lost(t.NoFrameSeconds))}
	if t.LeftOut > 0 {
		out = append(out, fmt.Sprintf("%d smaller rows left out: %s threads' worth (--limit 0 shows them)", t.LeftOut, lost(t.LeftOutSeconds)))
	}
	if len(t.Classes) > 0 {
		var parts []string
		for _, c := range t.Classes {
			parts = append(parts, fmt.Sprintf("%s %.3f", c.Class, c.ThreadsLost))
		}
		out = append(out, "not idle, by class: "+strings.Join(parts, ", "))
	}
	if a := t.Accounting; a != nil && a.TotalNs > 0 {
		p := func(ns int64) string { return fmt.Sprintf("%.2f %%", 100*float64(ns)/float64(a.TotalNs)) }
		out = append(out, fmt.Sprintf("accounting of %.1f %s-seconds: running %s, runnable %s, blocked %s, syscall %s, unknown %s, lost %s, residual %s",
			seconds(a.TotalNs), t.Plane, p(a.RunningNs), p(a.RunnableNs), p(a.BlockedNs), p(a.SyscallNs), p(a.UnknownNs), p(a.LostNs), p(a.Residual())))
	}
	if t.Probes != nil {
		out = append(out, t.Probes.String())
	}
	out = append(out, reconciledLines(t.Reconciled)...)
	var loss []string
	for k, n := range t.Loss {
		if n != 0 {
			loss = append(loss, fmt.Sprintf("%s %s", k, grouped(n)))
		}
	}
	if sort.Strings(loss); len(loss) > 0 {
		out = append(out, "losses: "+strings.Join(loss, ", "))
	}
	return out
}

func writeTopCSV(w io.Writer, v topView) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"source", "operation", "site", "file", "line", "class", "idle", "blocked_seconds", "runnable_seconds", "threads_lost", "ns_per_msg", "share", "observations"}}
	for _, t := range v.Tables {
		for _, r := range t.Rows {
			rows = append(rows, []string{t.Source, r.Operation, r.Site, r.File, strconv.Itoa(r.Line), r.Class, r.Idle, number(&r.BlockedS), number(&r.RunnableS), number(&r.ThreadsLost), number(r.NsPerMsg), number(r.Share), strconv.FormatInt(r.Observations, 10)})
		}
	}
	return c.WriteAll(rows)
}

func number(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'g', 6, 64)
}
