package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/profile"
)

// wakerView is what `top --by waker` shows, and its JSON form.
type wakerView struct {
	Recording     string         `json:"recording"`
	Target        profile.Target `json:"target"`
	WindowSeconds float64        `json:"window_seconds"`
	Published     float64        `json:"published"` // messages, 0 when unknown
	Rows          []wakerRow     `json:"rows"`
	LeftOut       int            `json:"rows_left_out"`
	IdleSeconds   float64        `json:"idle_seconds"`
	Warnings      []string       `json:"warnings"`
}

type wakerRow struct {
	Operation   string   `json:"operation"`
	Site        string   `json:"site"`
	Waker       string   `json:"waker"`
	Reason      string   `json:"reason"`
	Class       string   `json:"class"`
	Idle        string   `json:"idle"`
	Waits       int64    `json:"waits"`
	BlockedNs   int64    `json:"blocked_ns"`
	RunnableNs  int64    `json:"runnable_ns"`
	ThreadsLost float64  `json:"threads_lost"`
	NsPerMsg    *float64 `json:"ns_per_msg"`
}

func (f *topFlags) runWakers(w io.Writer, rec *profile.Recording) error {
	if rec.Profiles[profile.SourceWakers] == nil {
		return fmt.Errorf("recording %s holds no wakers; it has %s; record with --exact", rec.Dir, haves(rec))
	}
	if f.from != 0 || f.to != 0 {
		return usageError("--from and --to: wakers are summed up over the whole window; leave them out with --by waker")
	}
	c, err := classifierFor(rec.Meta.Targets, f.application)
	if err != nil {
		return err
	}
	a, err := analysis.AttributeWakers(rec, c)
	if err != nil {
		return err
	}
	v := newWakerView(rec, a, f.idle, f.limit)
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

func newWakerView(rec *profile.Recording, a *analysis.Wakes, idle bool, limit int) wakerView {
	v := wakerView{
		Recording: rec.Dir, WindowSeconds: a.Window.Seconds(), Published: a.Published, Rows: []wakerRow{},
		IdleSeconds: sec(a.Idle), Warnings: append([]string{}, rec.Meta.Warnings...),
	}
	if len(rec.Meta.Targets) > 0 {
		v.Target = rec.Meta.Targets[0]
	}
	for _, r := range a.Rows {
		if r.Idle == analysis.IdleYes && !idle {
			continue
		}
		if limit > 0 && len(v.Rows) == limit {
			v.LeftOut++
			continue
		}
		row := wakerRow{
			Operation: r.Operation, Site: r.Site, Waker: r.Waker, Reason: r.Reason, Class: r.Class, Idle: r.Idle,
			Waits: r.Count, BlockedNs: r.BlockedNs, RunnableNs: r.RunnableNs,
		}
		if a.Window > 0 {
			row.ThreadsLost = float64(r.OffCPUNs()) / float64(a.Window)
		}
		if a.Published > 0 {
			n := float64(r.OffCPUNs()) / a.Published
			row.NsPerMsg = &n
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

func (v wakerView) text(w io.Writer, markdown bool) {
	if !markdown {
		fmt.Fprintf(w, "%s: %s\n\n", v.Recording, oneLine(strings.Join(v.Target.Arguments, " ")))
	}
	fmt.Fprintf(w, "who made waiters runnable (charges the goroutine that waits, every park, by uprobes), %.1f s\n\n", v.WindowSeconds)
	if len(v.Rows) == 0 {
		fmt.Fprintln(w, "no wait that is not idle was ended by a goroutine")
	} else {
		tw := newTable(table.Row{"waiter", "class", "waker", "threads lost", "per message", "waits", "blocked", "runnable"}, 4, 5, 6, 7, 8)
		for _, r := range v.Rows {
			tw.AppendRow(table.Row{dash(oneLine(shortFunction(r.Site))), r.Class, dash(oneLine(shortFunction(r.Waker))), fmt.Sprintf("%.3f", r.ThreadsLost),
				perMessage(r.NsPerMsg), grouped(r.Waits), short(r.BlockedNs), short(r.RunnableNs)})
		}
		render(w, tw, markdown)
	}
	fmt.Fprintf(w, "\nidle left out: %.3f threads' worth; what the network poller wakes has no waker and is not here\n", v.IdleSeconds/max(v.WindowSeconds, 1e-9))
	if v.LeftOut > 0 {
		fmt.Fprintf(w, "%d more rows left out (--limit 0 shows them)\n", v.LeftOut)
	}
	for _, x := range v.Warnings {
		fmt.Fprintf(w, "\nwarning: %s\n", oneLine(x))
	}
}

// shortFunction is a function's name without the path of its package.
func shortFunction(f string) string {
	head, _, _ := strings.Cut(f, "[")
	return f[strings.LastIndexByte(head, '/')+1:]
}

func (v wakerView) csv(w io.Writer) error {
	c := csv.NewWriter(w)
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	rows := [][]string{{"operation", "site", "waker", "reason", "class", "idle", "waits", "blocked_ns", "runnable_ns", "threads_lost", "ns_per_msg"}}
	for _, r := range v.Rows {
		rows = append(rows, []string{r.Operation, r.Site, r.Waker, r.Reason, r.Class, r.Idle, n(r.Waits), n(r.BlockedNs), n(r.RunnableNs), number(&r.ThreadsLost), number(r.NsPerMsg)})
	}
	return c.WriteAll(rows)
}
