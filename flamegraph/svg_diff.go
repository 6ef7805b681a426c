package flamegraph

import (
	"fmt"
	"io"
)

// WriteDiffSVG writes a comparison as one static picture of at most o.MaxBytes.
// Two sides without time give a picture that says why.
func WriteDiffSVG(w io.Writer, t *DiffTree, o SVGOptions) error {
	o = o.normal()
	shown := *t
	shown.Measure = t.shown()
	t = &shown
	s := &sheet{
		title:    titleOr(o.Title, "Differential flame graph"),
		headline: t.headline(o),
		diff:     true,
		height:   20,
		n:        len(t.Nodes),
		node:     func(i int) Node { return t.Nodes[i].Node },
		width:    func(i int) float64 { return t.Nodes[i].Width() },
		amount:   t.amount,
		caption: fmt.Sprintf("Each box is a function, below its caller. Width = time on both sides + only %s + only %s, so that what is gone shows too; "+
			"the order from left to right is by name and has no meaning.", o.Before, o.After),
	}
	s.lines = append(s.lines, measured(t.Measure, o))
	s.lines = append(s.lines, t.sideLines(o)...)
	s.lines = append(s.lines, mergeNote(t.Merged)...)
	s.lines = append(s.lines, notes(o)...)
	if t.Nodes[0].Width() <= 0 {
		s.empty = "Nothing to draw on either side."
		s.lines = append(s.lines, o.Before+": "+emptyReason(t.Measure, t.Before), o.After+": "+emptyReason(t.Measure, t.After))
	}
	s.legend = t.legend(o)
	s.table = t.table(o)
	s.frame = func(b box) (string, string, []string) { return t.frame(b, o) }
	s.strips = func(b box, y float64, st *strips) { t.strips(b, y, st) }
	return s.write(w, o)
}

func (t *DiffTree) headline(o SVGOptions) string {
	n := t.Nodes[0]
	s := fmt.Sprintf("%s %s → %s %s", o.Before, t.amount(n.Before()), o.After, t.amount(n.After()))
	if t.Per != "" {
		s += " per " + t.Per
	}
	if n.Grown == 0 && n.Shrunk == 0 {
		return s + ": no change in any stack"
	}
	if n.Delta() == 0 {
		return s + ": no change in total"
	}
	c := change(n.Before(), n.After())
	if c == "new" || c == "gone" {
		return s + ": all of it is " + c
	}
	return fmt.Sprintf("%s: %s (%s)", s, c, t.signed(n.Delta()))
}

func (t *DiffTree) sideLines(o SVGOptions) []string {
	n := t.Nodes[0]
	var out []string
	if n.Shrunk > 0 || n.Grown > 0 {
		out = append(out, fmt.Sprintf("Summed over single stacks %s fell away and %s came in; between equal runs, too, neither is zero.", t.amount(n.Shrunk), t.amount(n.Grown)))
	}
	if t.Filtered {
		out = append(out, fmt.Sprintf("Idle left out: %s %s, %s %s.", o.Before, t.amount(t.Before.Idle), o.After, t.amount(t.After.Idle)))
	}
	if t.Before.Runs > 1 || t.After.Runs > 1 {
		out = append(out, fmt.Sprintf("Means over runs: %s %d, %s %d.", o.Before, t.Before.Runs, o.After, t.After.Runs))
	}
	out = append(out, sideNotes(t.Measure, t.Before, o.Before+": ")...)
	return append(out, sideNotes(t.Measure, t.After, o.After+": ")...)
}

// step is the class of a change: how far the smaller of two values is below
// the larger, on one scale for every picture.
func step(before, after, floor float64) string {
	d := after - before
	if d == 0 || d < floor && -d < floor {
		return "same"
	}
	if before <= 0 {
		return "new"
	}
	if after <= 0 {
		return "gone"
	}
	fall := 1 - min(before, after)/max(before, after)
	if fall < stepSame {
		return "same"
	}
	class := "f"
	if d > 0 {
		class = "g"
	}
	switch {
	case fall < stepSmall:
		return class + "1"
	case fall < stepLarge:
		return class + "2"
	}
	return class + "3"
}

// A fall by a third and a rise by a half are the same step, seen from either
// side; so are a fall by two thirds and a rise by 200 %.
const (
	stepSame  = 0.05
	stepSmall = 1.0 / 3
	stepLarge = 2.0 / 3
)

func (t *DiffTree) legend(o SVGOptions) []legendRow {
	item := func(class, text string) legendItem { return legendItem{class: class, text: text} }
	bar := func(class, text string) legendItem { return legendItem{class: class, text: text, strip: true} }
	rows := []legendRow{
		{"Frame fell", []legendItem{item("gone", "gone"), item("f3", "by over 67 %"), item("f2", "by 33–67 %"), item("f1", "by 5–33 %"), item("same", "changed by less than 5 %")}},
		{"Frame grew", []legendItem{item("new", "new"), item("g3", "by over 200 %"), item("g2", "by 50–200 %"), item("g1", "by 5–50 %"), item("", "(with all that it calls)")}},
		{"Bar in a frame", []legendItem{bar("sc", "time on both sides"), bar("ss", "only "+o.Before), bar("sg", "only "+o.After), item("", "(summed over the stacks through it)")}},
	}
	if o.NoiseFloor > 0 {
		rows[0].items[4].text += ", or by less than " + t.amount(o.NoiseFloor)
	}
	return rows
}

// of returns a box's values.
func (t *DiffTree) of(b box) DiffNode {
	if !b.merged {
		return t.Nodes[b.first]
	}
	var n DiffNode
	for i := b.first; i < b.end; i = int(t.Nodes[i].Next) {
		n.add(t.Nodes[i])
	}
	return n
}

func (t *DiffTree) frame(b box, o SVGOptions) (class, title string, forms []string) {
	n, root := t.of(b), t.Nodes[0]
	numbers := fmt.Sprintf("%s %s (%s of its total)\n%s %s (%s of its total)\ndifference %s: %s of this frame, %s of %s's total",
		o.Before, t.value(n.Before()), percent(n.Before(), root.Before()),
		o.After, t.value(n.After()), percent(n.After(), root.After()),
		t.signed(n.Delta()), change(n.Before(), n.After()), percent(n.Delta(), root.Before()), o.Before)
	if b.merged {
		return "mrg", plural(b.end-b.first, "frame", "frames") + " too narrow to draw\n" + numbers, []string{"…"}
	}
	name := t.Names[n.Name]
	title = frameTitle(name) + "\n" + numbers
	class = step(n.Before(), n.After(), o.NoiseFloor)
	mark, sign := "", ""
	if class != "same" {
		mark = change(n.Before(), n.After())
		sign = "−"
		if n.Delta() > 0 {
			sign = "+"
		}
		if mark == "new" || mark == "gone" {
			mark += ":"
		}
		mark += " "
	}
	if n.Depth == 0 {
		forms = []string{fmt.Sprintf("%sall: %s %s, %s %s", mark, o.Before, t.value(n.Before()), o.After, t.value(n.After())), mark + "all"}
		return class, title, forms
	}
	for _, f := range frameLabels(name) {
		forms = append(forms, mark+f)
	}
	if sign != "" { // the sign alone when not even the mark and a few letters fit
		if b.w < float64(width(mark)+4)*monoColumn {
			forms = []string{sign}
		}
	}
	return class, title, forms
}

// strips draws a box's parts along its lower edge: thin for both sides, so that
// the three differ without colour.
func (t *DiffTree) strips(b box, y float64, s *strips) {
	n := t.of(b)
	total := n.Width()
	if b.w < 1 || total <= 0 {
		return
	}
	x, w := margin+b.x, b.w-0.5
	segment(&s.common, x, y+2, w*n.Common/total, stripHeight-2)
	x += w * n.Common / total
	segment(&s.shrunk, x, y, w*n.Shrunk/total, stripHeight)
	x += w * n.Shrunk / total
	segment(&s.grown, x, y, w*n.Grown/total, stripHeight)
}

func (t *DiffTree) table(o SVGOptions) table {
	out := table{
		title: sitesTitle(t.Measure, len(t.Sites), o.Sites),
		head:  []string{"site", perHead(cut(o.Before, 24), t.Per), perHead(cut(o.After, 24), t.Per), "difference", "change"},
	}
	for _, s := range t.Sites[:min(len(t.Sites), o.Sites)] {
		out.rows = append(out.rows, []string{
			visible(shortName(bounded(s.Name)), nameLimit),
			t.amount(s.Before), t.amount(s.After), t.signed(s.After - s.Before), change(s.Before, s.After),
		})
		out.names = append(out.names, visible(s.Name, nameLimit))
	}
	return out
}
