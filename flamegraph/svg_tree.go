package flamegraph

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// WriteSVG writes a tree as one static picture of at most o.MaxBytes. A tree
// without time gives a picture that says why.
func WriteSVG(w io.Writer, t *Tree, o SVGOptions) error {
	o = o.normal()
	shown := *t
	shown.Measure = t.shown()
	t = &shown
	root := t.Nodes[0].Value
	s := &sheet{
		title:    titleOr(o.Title, "Flame graph"),
		headline: t.value(root) + " shown",
		height:   17,
		n:        len(t.Nodes),
		node:     func(i int) Node { return t.Nodes[i].Node },
		width:    func(i int) float64 { return t.Nodes[i].Value },
		amount:   t.amount,
		caption:  "Each box is a function, below its caller. Width = total, callees included; the order from left to right is by name and has no meaning.",
	}
	if t.Per != "" {
		s.headline = t.amount(root) + " per " + t.Per + " shown"
	}
	if t.Filtered {
		s.headline += ", idle left out: " + t.amount(t.Idle)
	}
	s.lines = append(s.lines, measured(t.Measure, o))
	s.lines = append(s.lines, sideNotes(t.Measure, t.Side, "")...)
	s.lines = append(s.lines, mergeNote(t.Merged)...)
	s.lines = append(s.lines, notes(o)...)
	if root <= 0 {
		s.empty = "Nothing to draw: " + emptyReason(t.Measure, t.Side)
	}
	s.legend = t.legend()
	s.table = t.table(o)
	s.frame = t.frame
	return s.write(w, o)
}

var kindClass = [...]string{"unk", "lib", "net", "lck", "app", "ker"}

func (t *Tree) frame(b box) (class, title string, forms []string) {
	root := t.Nodes[0].Value
	if b.merged {
		v := 0.0
		for i := b.first; i < b.end; i = int(t.Nodes[i].Next) {
			v += t.Nodes[i].Value
		}
		return "mrg", fmt.Sprintf("%s too narrow to draw\n%s, %s of all shown", plural(b.end-b.first, "frame", "frames"), t.value(v), percent(v, root)), []string{"…"}
	}
	n := t.Nodes[b.first]
	name := t.Names[n.Name]
	share := percent(n.Value, root)
	title = fmt.Sprintf("%s\n%s, %s of all shown", frameTitle(name), t.value(n.Value), share)
	if n.Self > 0 && n.Self < n.Value {
		title += "\nof which ends here: " + t.value(n.Self)
	}
	if n.Depth == 0 {
		return "all", title, []string{"all: " + t.value(n.Value), "all"}
	}
	forms = frameLabels(name)
	return kindClass[name.Kind], title, append([]string{forms[0] + " " + share}, forms...)
}

// frameTitle is the full name of a frame, bounded.
func frameTitle(n Name) string {
	s := visible(n.Text, nameLimit)
	if n.Kernel {
		s += " (kernel)"
	}
	return s
}

// frameLabels is the forms of a frame's name, kernel frames marked.
func frameLabels(n Name) []string {
	forms := labels(bounded(n.Text))
	for i, f := range forms {
		f = visible(f, nameLimit)
		if n.Kernel {
			f = "[k] " + f
		}
		forms[i] = f
	}
	return forms
}

func (t *Tree) legend() []legendRow {
	texts := [...]string{
		"no symbol, or left out", "language runtime and library", "network and system calls",
		"locks, conditions, channels", "application", "kernel, marked [k]",
	}
	var seen [len(texts)]bool
	for _, n := range t.Nodes[1:] {
		seen[t.Names[n.Name].Kind] = true
	}
	row := legendRow{heading: "Colour"}
	for _, k := range []Kind{KindApplication, KindLock, KindNetwork, KindLibrary, KindKernel, KindUnknown} {
		if seen[k] {
			row.items = append(row.items, legendItem{class: kindClass[k], text: texts[k]})
		}
	}
	return []legendRow{row}
}

func (t *Tree) table(o SVGOptions) table {
	out := table{
		title: sitesTitle(t.Measure, len(t.Sites), o.Sites),
		head:  []string{"site", perHead(cut(strings.Join(t.Values, " + "), 24), t.Per), "share"},
	}
	for _, s := range t.Sites[:min(len(t.Sites), o.Sites)] {
		out.rows = append(out.rows, []string{
			visible(shortName(bounded(s.Name)), nameLimit), t.amount(s.Value), percent(s.Value, t.Nodes[0].Value),
		})
		out.names = append(out.names, visible(s.Name, nameLimit))
	}
	return out
}

// sitesTitle speaks of waits only where waits were measured.
func sitesTitle(m Measure, n, shown int) string {
	s := "By application frame nearest the leaf"
	if slices.ContainsFunc(m.Values, func(v string) bool { return waitTypes[v] }) {
		s = "Wait sites: the application frame nearest the wait"
	}
	if n > shown {
		s += fmt.Sprintf(" (largest %d of %d)", shown, n)
	}
	return s
}

var waitTypes = map[string]bool{
	profile.Blocked.Type: true, profile.Runnable.Type: true, profile.Waits.Type: true,
	"delay": true, "contentions": true,
}

func perHead(s, per string) string {
	if per == "" {
		return s
	}
	return s + " per " + per
}

func titleOr(s, d string) string {
	if s = visible(s, textLimit/2); strings.TrimSpace(s) == "" {
		return d
	}
	return s
}

// measured says what the values are and where they come from.
func measured(m Measure, o SVGOptions) string {
	parts := []string{}
	if o.Plane != "" {
		parts = append(parts, "plane: "+o.Plane)
	}
	if o.Source != "" {
		parts = append(parts, "source: "+o.Source)
	}
	parts = append(parts, "measured: "+perHead(m.what(), m.Per))
	return visible(strings.Join(parts, " · "), textLimit)
}

func notes(o SVGOptions) []string {
	var out []string
	for i, n := range o.Notes {
		if i == maxNotes {
			return append(out, fmt.Sprintf("(%d more notes)", len(o.Notes)-i))
		}
		out = append(out, visible(n, textLimit))
	}
	return out
}

// sideNotes says what a side left out or could not name; whose is "" or ends
// in a colon.
func sideNotes(m Measure, s Side, whose string) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, whose+fmt.Sprintf(format, args...)) }
	if s.Unsymbolised > 0 {
		add("%s (%s of what is shown) has frames without a symbol.", m.amount(s.Unsymbolised), percent(s.Unsymbolised, s.Shown))
	}
	if s.Negative > 0 {
		add("%s with a negative value left out.", plural(s.Negative, "sample", "samples"))
	}
	if s.Deep > 0 {
		add("%s deeper than drawn: up to %s folded in the middle.", plural(s.Deep, "stack", "stacks"), plural(s.DeepFrames, "frame", "frames"))
	}
	return out
}

func mergeNote(merged []Merge) []string {
	if len(merged) == 0 {
		return nil
	}
	recorded := 0
	for _, m := range merged {
		recorded += m.Count
	}
	return []string{fmt.Sprintf("Names joined across builds: %d recorded names as %d, such as %s.",
		recorded, len(merged), visible(shortName(bounded(merged[0].Name)), 80))}
}

// emptyReason says why a side has no time.
func emptyReason(m Measure, s Side) string {
	switch {
	case s.Idle > 0:
		return "all of its " + m.value(s.Idle) + " is idle, which is left out."
	case s.Negative > 0:
		return "every sample with time has a negative value."
	}
	return "the profile holds no " + strings.Join(m.Values, " or ") + " time. Was the source on, and did anything wait in the window?"
}
